package sim

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// Adapter is an adapter of the machine.
type Adapter struct {
	// Adapter describes it in the image. Index, Name, Description, MAC, MTU and Metric have defaults. Addresses and
	// DNSServers are set by hand if DHCP is not on, else they are what the DHCP server gives.
	host.Adapter

	// Gateways, like the addresses.
	Gateways []netip.Addr
	// Lease is what the DHCP server gives, if it is not the above. Nil with DHCP off: no DHCP server answers.
	Lease *Lease
	// Down: the link does not work.
	Down bool
}

// Lease is what a DHCP server gives.
type Lease struct {
	Addresses     []netip.Prefix
	Gateways      []netip.Addr
	DNSServers    []netip.Addr
	SearchDomains []string
}

// adapter is the durable configuration of an adapter.
type adapter struct {
	host.Adapter // Addresses and DNSServers are the manual ones

	gateways []netip.Addr
	routes   []host.Route
	lease    *Lease
}

func newAdapter(a Adapter, number int) *adapter {
	out := &adapter{Adapter: a.Adapter, gateways: a.Gateways, lease: a.Lease}
	out.Up = !a.Down
	setDefault(&out.Index, uint32(3+number)) //nolint:gosec // few
	suffix := ""
	if number > 1 {
		suffix = " " + strconv.Itoa(number)
	}
	setDefault(&out.Name, "Ethernet"+suffix)
	setDefault(&out.Description, "vmxnet3 Ethernet Adapter"+suffix)
	setDefault(&out.MAC, fmt.Sprintf("00:50:56:00:00:%02x", number))
	setDefault(&out.MTU, 1500)
	setDefault(&out.Metric, 15)
	if a.DHCP && a.Lease == nil {
		out.lease = &Lease{Addresses: a.Addresses, Gateways: a.Gateways, DNSServers: a.DNSServers, SearchDomains: a.SearchDomains}
		out.Addresses, out.gateways, out.DNSServers = nil, nil, nil
	}
	return out
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// current returns the adapter as Windows shows it, and its gateways.
func (a *adapter) current(search []string) (host.Adapter, []netip.Addr) {
	out, gateways := a.Adapter, slices.Clone(a.gateways)
	out.Addresses, out.DNSServers = slices.Clone(a.Addresses), slices.Clone(a.DNSServers)
	out.SearchDomains = slices.Clone(search)
	if a.DHCP {
		lease := a.lease
		if lease == nil {
			lease = &Lease{Addresses: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{169, 254, 17, byte(a.Index)}), 16)}}
		}
		out.Addresses = append(slices.Clone(lease.Addresses), out.Addresses...)
		if len(gateways) == 0 {
			gateways = lease.Gateways
		}
		if len(out.DNSServers) == 0 {
			out.DNSServers = slices.Clone(lease.DNSServers)
		}
		if len(search) == 0 {
			out.SearchDomains = slices.Clone(lease.SearchDomains)
		}
	}
	if !a.Up {
		return withoutLink(out), nil
	}
	return out, gateways
}

func withoutLink(a host.Adapter) host.Adapter {
	a.Addresses = nil
	return a
}

// network fills host.Network, except for connections.
type network struct{ p *Process }

func (x network) Adapters(ctx context.Context) ([]host.Adapter, error) {
	return locked(ctx, x.p, "Network.Adapters", "", func() ([]host.Adapter, error) {
		return x.p.m.currentAdapters(), nil
	})
}

// currentAdapters returns the adapters as Windows shows them, by index: an HNS network of an external type takes over the
// addresses of its adapter. m.mu is held.
func (m *Machine) currentAdapters() []host.Adapter {
	out := []host.Adapter{}
	for _, index := range m.adapterIndexes() {
		a, _ := m.disk.adapters[index].current(m.disk.search)
		if bridged := m.disk.hns.on(index); bridged {
			v := a
			v.Index, v.Virtual, v.Name = index+virtualOffset, true, "vEthernet ("+a.Name+")"
			v.Description = "Hyper-V Virtual Ethernet Adapter"
			a = withoutLink(a)
			a.DHCP, a.DNSServers = false, nil
			out = append(out, v)
		}
		out = append(out, a)
	}
	out = append(out, m.disk.hns.internalAdapters()...)
	slices.SortFunc(out, func(a, b host.Adapter) int { return int(a.Index) - int(b.Index) })
	return out
}

func (m *Machine) adapterIndexes() []uint32 {
	out := []uint32{}
	for index := range m.disk.adapters {
		out = append(out, index)
	}
	slices.Sort(out)
	return out
}

func (x network) Routes(ctx context.Context) ([]host.Route, error) {
	return locked(ctx, x.p, "Network.Routes", "", func() ([]host.Route, error) { return x.p.m.routes(), nil })
}

// routes returns the routes in use. m.mu is held.
func (m *Machine) routes() []host.Route {
	out := []host.Route{}
	for _, index := range m.adapterIndexes() {
		config := m.disk.adapters[index]
		a, gateways := config.current(m.disk.search)
		if !a.Up {
			continue
		}
		at := index
		if m.disk.hns.on(index) {
			at += virtualOffset
		}
		for _, p := range a.Addresses {
			out = append(out, host.Route{To: p.Masked(), Via: unspecified(p.Addr()), Index: at, Metric: a.Metric + 256})
		}
		for _, g := range gateways {
			out = append(out, host.Route{To: netip.PrefixFrom(unspecified(g), 0), Via: g, Index: at, Metric: a.Metric})
		}
		for _, r := range config.routes {
			r.Index, r.Metric = at, r.Metric+a.Metric
			out = append(out, r)
		}
	}
	return out
}

func unspecified(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

func (x network) Configure(ctx context.Context, index uint32, c host.AdapterConfig) error {
	return lockedErr(ctx, x.p, "Network.Configure", strconv.FormatUint(uint64(index), 10), func() error {
		return x.p.m.configure(index, c)
	})
}

func (m *Machine) configure(index uint32, c host.AdapterConfig) error {
	a := m.disk.adapters[index]
	if a == nil && m.disk.hns.on(index-virtualOffset) {
		a = m.disk.adapters[index-virtualOffset]
	}
	if a == nil {
		return fmt.Errorf("adapter %d: %w", index, host.ErrNotFound)
	}
	for _, p := range c.Addresses {
		if !p.IsValid() || p.Addr().IsUnspecified() || p.Addr().IsMulticast() {
			return fmt.Errorf("adapter %d: address %s: %w", index, p, host.ErrInvalid)
		}
	}
	if c.DHCP != nil {
		a.DHCP = *c.DHCP
		if a.DHCP { // takes the place of what was set by hand
			a.Addresses, a.gateways = nil, nil
		}
	}
	if len(c.Addresses) > 0 {
		a.Addresses = slices.Clone(c.Addresses)
	}
	if len(c.Gateways) > 0 {
		a.gateways = slices.Clone(c.Gateways)
	}
	for _, r := range c.Routes {
		same := func(have host.Route) bool { return have.To == r.To && have.Via == r.Via }
		a.routes = append(slices.DeleteFunc(a.routes, same), r)
	}
	if len(c.DNSServers) > 0 {
		a.DNSServers = slices.Clone(c.DNSServers)
	}
	if len(c.SearchDomains) > 0 {
		m.disk.search = slices.Clone(c.SearchDomains)
	}
	if c.MTU != 0 {
		a.MTU = c.MTU
	}
	m.boot.notify(networkChange)
	return nil
}

func (x network) DynamicPorts(ctx context.Context) (start, count uint16, err error) {
	ports, err := locked(ctx, x.p, "Network.DynamicPorts", "", func() ([2]uint16, error) {
		return [2]uint16{x.p.m.disk.dynamicStart, x.p.m.disk.dynamicCount}, nil
	})
	return ports[0], ports[1], err
}

func (x network) SetDynamicPorts(ctx context.Context, start, count uint16) error {
	return lockedErr(ctx, x.p, "Network.SetDynamicPorts", fmt.Sprintf("%d+%d", start, count), func() error {
		if start < 1025 || count < 255 || int(start)+int(count) > 65536 { // the limits of netsh
			return fmt.Errorf("dynamic ports from %d, %d of them: %w", start, count, host.ErrInvalid)
		}
		x.p.m.disk.dynamicStart, x.p.m.disk.dynamicCount = start, count
		return nil
	})
}

func (x network) Resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	return blocking(ctx, x.p, "Network.Resolve", name, func() ([]netip.Addr, error) {
		ctx, release := x.p.within(ctx)
		defer release()
		return x.p.m.resolve(ctx, name)
	})
}

func (m *Machine) resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(name); err == nil {
		return []netip.Addr{a}, nil
	}
	for known, addresses := range m.opts.Hosts {
		if strings.EqualFold(strings.TrimSuffix(known, "."), strings.TrimSuffix(name, ".")) {
			return slices.Clone(addresses), nil
		}
	}
	if strings.EqualFold(name, "localhost") {
		return []netip.Addr{netip.IPv6Loopback(), netip.AddrFrom4([4]byte{127, 0, 0, 1})}, nil
	}
	m.mu.Lock()
	own := m.boot != nil && strings.EqualFold(name, m.boot.name)
	out := []netip.Addr{}
	for _, a := range m.currentAdapters() {
		for _, p := range a.Addresses {
			out = append(out, p.Addr())
		}
	}
	m.mu.Unlock()
	if own {
		return out, nil
	}
	if m.opts.Resolve != nil {
		return m.opts.Resolve(ctx, name)
	}
	return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
}

func (x network) Changes(ctx context.Context) (<-chan struct{}, error) {
	return locked(ctx, x.p, "Network.Changes", "", func() (<-chan struct{}, error) {
		return watch(ctx, x.p, []string{networkChange}, func(string) struct{} { return struct{}{} }), nil
	})
}
