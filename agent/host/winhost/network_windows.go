//go:build windows

package winhost

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"github.com/Microsoft/go-winio"
	"golang.org/x/sys/windows"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// network reads through iphlpapi and changes through netsh; network_plan.go says why.
type network struct {
	processes host.Processes
	registry  host.Registry
	notify    *netNotifier
	// configuring: one Configure at a time, for each reads what it changes.
	configuring sync.Mutex
}

func newNetwork(processes host.Processes, registry host.Registry) *network {
	return &network{processes: processes, registry: registry, notify: newNetNotifier()}
}

func (n *network) Adapters(ctx context.Context) ([]host.Adapter, error) {
	search, err := n.searchDomains(ctx)
	if err != nil {
		return nil, err
	}
	components, err := n.components(ctx)
	if err != nil {
		return nil, err
	}
	adapters, err := readAdapters()
	if err != nil {
		return nil, err
	}
	out := make([]host.Adapter, 0, len(adapters))
	for _, a := range adapters {
		adapter, err := adapterOf(a, components, search)
		if err != nil {
			return nil, err
		}
		out = append(out, adapter)
	}
	return out, nil
}

// Routes leaves out those of loopback and those to the machine's own addresses, and those of adapters without a link.
func (n *network) Routes(ctx context.Context) ([]host.Route, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	adapters, err := readAdapters()
	if err != nil {
		return nil, err
	}
	metrics := map[uint32]*windows.IpAdapterAddresses{}
	for _, a := range adapters {
		if a.OperStatus == windows.IfOperStatusUp {
			metrics[indexOf(a)] = a
		}
	}
	rows, err := readRoutes()
	if err != nil {
		return nil, err
	}
	out := []host.Route{}
	for i := range rows {
		a := metrics[rows[i].InterfaceIndex]
		if a == nil || rows[i].Loopback != 0 {
			continue
		}
		r := routeOf(&rows[i])
		metric := a.Ipv4Metric
		if is6(r.to) {
			metric = a.Ipv6Metric
		}
		out = append(out, host.Route{To: r.to, Via: r.via, Index: rows[i].InterfaceIndex, Metric: r.metric + metric})
	}
	return out, nil
}

func (n *network) Resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	if dns := (*net.DNSError)(nil); errors.As(err, &dns) && dns.IsNotFound {
		return nil, fmt.Errorf("%w: %w", host.ErrNotFound, err)
	}
	for i, a := range addresses {
		addresses[i] = a.Unmap()
	}
	return addresses, err
}

func (n *network) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if network == "pipe" {
		conn, err := winio.DialPipeContext(ctx, address)
		if err != nil {
			return nil, failed(err, "dial pipe %s", address)
		}
		return conn, nil
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// systemProgram returns the path of a program of Windows.
func systemProgram(name string) string {
	dir, err := windows.GetSystemDirectory()
	if err != nil {
		dir = filepath.Join(os.Getenv("SystemRoot"), "System32")
	}
	return filepath.Join(dir, name)
}
