package sim

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// listener accepts connections to a program on the machine.
type listener struct {
	p       *Process
	key     string
	addr    net.Addr
	ip      netip.Addr
	port    uint16
	accept  chan net.Conn
	closed  chan struct{}
	closing bool
}

// pipeAddr is the address of a named pipe.
type pipeAddr string

// Network is pipe.
func (pipeAddr) Network() string { return "pipe" }

// String is its path.
func (a pipeAddr) String() string { return string(a) }

const pipePrefix = `\\.\pipe\`

// ListenPipe makes a named pipe, such as \\.\pipe\containerd-containerd, that ends with the process.
func (p *Process) ListenPipe(path string) (net.Listener, error) {
	if !strings.HasPrefix(fold(path), pipePrefix) {
		return nil, fmt.Errorf("listen on pipe %q: %w", path, host.ErrInvalid)
	}
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	return p.listen(&listener{key: fold(path), addr: pipeAddr(path)})
}

// Listen opens a TCP port of the machine, such as 127.0.0.1:10248 or :10250, that ends with the process. Port 0 is a free one.
func (p *Process) Listen(address string) (net.Listener, error) {
	ip, port, err := splitAddress(address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if p.dead != nil {
		return nil, p.dead
	}
	if !ip.IsUnspecified() && !ip.IsLoopback() && !p.m.ownAddress(ip) {
		return nil, fmt.Errorf("listen on %s: %w", address, syscall.EADDRNOTAVAIL)
	}
	for port == 0 || p.boot.tcpListener(ip, port) != nil {
		if port != 0 && !strings.HasSuffix(address, ":0") {
			return nil, fmt.Errorf("listen on %s: %w", address, syscall.EADDRINUSE)
		}
		port, p.boot.nextPort = p.boot.nextPort, p.boot.nextPort+1
	}
	addr := net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, port))
	return p.listen(&listener{key: addr.String(), addr: addr, ip: ip, port: port})
}

func splitAddress(address string) (netip.Addr, uint16, error) {
	name, portText, err := net.SplitHostPort(address)
	if err != nil {
		return netip.Addr{}, 0, err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return netip.Addr{}, 0, fmt.Errorf("port %q: %w", portText, host.ErrInvalid)
	}
	switch {
	case name == "":
		name = "0.0.0.0"
	case strings.EqualFold(name, "localhost"):
		name = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(name)
	return ip.Unmap(), uint16(port), err
}

func (p *Process) listen(l *listener) (net.Listener, error) {
	if p.dead != nil {
		return nil, p.dead
	}
	if p.boot.listeners[l.key] != nil {
		return nil, fmt.Errorf("listen on %s: %w", l.addr, syscall.EADDRINUSE)
	}
	l.p, l.accept, l.closed = p, make(chan net.Conn), make(chan struct{})
	p.boot.listeners[l.key] = l
	p.onDeath[l] = l.close
	return l, nil
}

// Accept waits for a connection.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "accept", Net: l.addr.Network(), Addr: l.addr, Err: net.ErrClosed}
	}
}

// Addr returns what it listens on.
func (l *listener) Addr() net.Addr { return l.addr }

// Close ends it; its connections stay.
func (l *listener) Close() error {
	l.p.m.mu.Lock()
	defer l.p.m.mu.Unlock()
	delete(l.p.onDeath, l)
	l.close()
	return nil
}

func (l *listener) close() {
	if !l.closing {
		l.closing = true
		close(l.closed)
		delete(l.p.boot.listeners, l.key)
	}
}

// tcpListener returns who listens on an address of the machine. m.mu is held.
func (b *boot) tcpListener(ip netip.Addr, port uint16) *listener {
	for _, l := range b.listeners {
		if l.port == port && l.port != 0 && (l.ip == ip || l.ip.IsUnspecified() || ip.IsUnspecified()) {
			return l
		}
	}
	return nil
}

func (m *Machine) ownAddress(ip netip.Addr) bool {
	return slices.ContainsFunc(m.currentAdapters(), func(a host.Adapter) bool {
		return slices.ContainsFunc(a.Addresses, func(p netip.Prefix) bool { return p.Addr() == ip })
	})
}

func (x network) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return blocking(ctx, x.p, "Network.DialContext", network+" "+address, func() (net.Conn, error) {
		c, err := x.p.dial(ctx, network, address)
		if err != nil {
			return nil, &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("%s: %w", address, err)}
		}
		return c, nil
	})
}

func (p *Process) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if network == "pipe" {
		p.m.mu.Lock()
		l := p.boot.listeners[fold(address)]
		p.m.mu.Unlock()
		if l == nil {
			return nil, fs.ErrNotExist
		}
		return p.connect(ctx, l)
	}
	if ip, port, err := splitAddress(address); err == nil && (p.m.opts.Outside == nil || !p.m.opts.Outside(address)) {
		p.m.mu.Lock()
		own := ip.IsLoopback() || p.m.ownAddress(ip)
		l := p.boot.tcpListener(ip, port)
		p.m.mu.Unlock()
		if own && l == nil {
			return nil, syscall.ECONNREFUSED
		}
		if own {
			return p.connect(ctx, l)
		}
	}
	return p.dialOutside(ctx, network, address)
}

// dialOutside opens a connection to something that is not on the machine.
func (p *Process) dialOutside(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, release := p.within(ctx)
	defer release()
	var c net.Conn
	var err error
	if dial := p.m.opts.Dial; dial != nil {
		c, err = dial(ctx, network, address)
	} else {
		name, port, splitErr := net.SplitHostPort(address)
		if splitErr != nil {
			return nil, splitErr
		}
		addresses, resolveErr := p.m.resolve(ctx, name)
		if resolveErr != nil {
			return nil, resolveErr
		}
		c, err = (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(addresses[0].String(), port))
	}
	if err != nil {
		return nil, err
	}
	return p.own(c)
}

// connect connects to a program on the machine.
func (p *Process) connect(ctx context.Context, l *listener) (net.Conn, error) {
	here, there := newConn(l.addr)
	select {
	case l.accept <- there:
	case <-l.closed:
		return nil, syscall.ECONNREFUSED
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.gone:
		return nil, p.deadErr()
	}
	if _, err := l.p.own(there); err != nil {
		return nil, syscall.ECONNRESET
	}
	return p.own(here)
}

// own makes a connection end with the process.
func (p *Process) own(c net.Conn) (net.Conn, error) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if p.dead != nil {
		c.Close() //nolint:errcheck // nobody has it yet
		return nil, p.dead
	}
	p.onDeath[c] = func() { c.Close() } //nolint:errcheck // nobody is left to be told
	return c, nil
}
