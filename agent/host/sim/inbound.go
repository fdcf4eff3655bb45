package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// validRule says why Windows would refuse a firewall rule.
func validRule(r host.FirewallRule) error {
	if r.Name == "" || !slices.Contains([]string{"TCP", "UDP"}, r.Protocol) {
		return fmt.Errorf("name %q, protocol %q", r.Name, r.Protocol)
	}
	for _, p := range r.Ports {
		if _, _, err := portRange(p); err != nil {
			return err
		}
	}
	for _, a := range r.RemoteAddresses {
		if _, err := netip.ParsePrefix(a); err != nil {
			return err
		}
	}
	return nil
}

func portRange(text string) (first, last uint16, err error) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	a, errFrom := strconv.ParseUint(from, 10, 16)
	b, errTo := strconv.ParseUint(to, 10, 16)
	if errFrom != nil || errTo != nil || a > b {
		return 0, 0, fmt.Errorf("ports %q", text)
	}
	return uint16(a), uint16(b), nil
}

// DialIn connects to the machine over TCP from another one at an address, through the machine's firewall. A port that the
// firewall does not let in behaves as Windows makes it: no answer until ctx ends.
func (m *Machine) DialIn(ctx context.Context, from netip.Addr, address string) (net.Conn, error) {
	ip, port, err := splitAddress(address)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	b := m.boot
	var l *listener
	reachable := b != nil && m.ownAddress(ip)
	if reachable {
		l = b.tcpListener(ip, port)
	}
	allowed := l != nil && m.lets(from, l)
	m.mu.Unlock()
	if !reachable || !allowed {
		<-ctx.Done()
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("%s: %w", address, ctx.Err())}
	}
	here, there := newConn(l.addr)
	select {
	case l.accept <- there:
	case <-l.closed:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("%s: %w", address, syscall.ECONNREFUSED)}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if _, err := l.p.own(there); err != nil {
		return nil, errors.Join(err, here.Close())
	}
	return here, nil
}

// lets says whether a firewall rule lets a connection in. m.mu is held.
func (m *Machine) lets(from netip.Addr, l *listener) bool {
	for _, r := range m.disk.firewall.all() {
		ports := len(r.Ports) == 0 || slices.ContainsFunc(r.Ports, func(p string) bool {
			first, last, err := portRange(p)
			return err == nil && first <= l.port && l.port <= last
		})
		remote := len(r.RemoteAddresses) == 0 || slices.ContainsFunc(r.RemoteAddresses, func(a string) bool {
			prefix, err := netip.ParsePrefix(a)
			return err == nil && prefix.Contains(from)
		})
		program := r.Program == "" || fold(r.Program) == fold(l.p.Argv[0])
		if r.Protocol == "TCP" && ports && remote && program {
			return true
		}
	}
	return false
}
