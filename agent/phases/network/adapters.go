package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/go-logr/logr"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// ConfigureAdapters brings the adapters to what the document says, where they differ, and waits until their addresses are in
// use. cloudbase-init does the same only from 1.1.7 on: the version in image-builder's images ignores network data.
func ConfigureAdapters(ctx context.Context, r *engine.Run) error {
	for i := range r.Doc.Network.Adapters {
		want, err := parseAdapter(&r.Doc.Network.Adapters[i])
		if err != nil {
			return codes.New(codes.NetworkConfigRejected, "network.adapters[%d]: %w", i, err)
		}
		if err := await(ctx, r, func(ctx context.Context) error { return configure(ctx, r, want) }); err != nil {
			return err
		}
	}
	return nil
}

// wanted is what an adapter shall be.
type wanted struct {
	mac string
	host.AdapterConfig
}

func configure(ctx context.Context, r *engine.Run, want wanted) error {
	all, routes, err := read(ctx, r)
	if err != nil {
		return err
	}
	adapters := devices(all)
	at := slices.IndexFunc(adapters, func(a host.Adapter) bool { return a.MAC == want.mac })
	if at < 0 {
		return codes.New(codes.AdapterMissing, "there is no adapter with MAC address %s; there are %s", want.mac, describe(all))
	}
	have := adapters[at]
	if !differs(have, routes, want.AdapterConfig) {
		return nil
	}
	config := want.AdapterConfig
	config.Routes = slices.Clone(want.Routes)
	for i := range config.Routes {
		config.Routes[i].Index = have.Index
	}
	logr.FromContextOrDiscard(ctx).Info("Configuring a network adapter", "adapter", have.Name, "mac", have.MAC, "config", config)
	if err := r.Host.Network.Configure(ctx, have.Index, config); err != nil {
		if errors.Is(err, host.ErrInvalid) {
			return codes.New(codes.AdapterRefused, "configuring the adapter %s (%s): %w", have.Name, have.MAC, err)
		}
		return codes.New(codes.AdapterNotConfigured, "configuring the adapter %s (%s): %w", have.Name, have.MAC, err)
	}
	return inUse(ctx, r, want)
}

// inUse is an error unless the addresses are in use: Windows first looks whether another machine has them, and leaves out what
// it finds to be double.
func inUse(ctx context.Context, r *engine.Run, want wanted) error {
	all, _, err := read(ctx, r)
	if err != nil {
		return err
	}
	var have []netip.Prefix
	for _, a := range devices(all) {
		if a.MAC == want.mac {
			have = a.Addresses
		}
	}
	for _, address := range want.Addresses {
		if !slices.Contains(have, address) {
			return codes.New(codes.AdapterNotConfigured, "the adapter %s does not use the address %s yet; it has %v", want.mac, address, have)
		}
	}
	return nil
}

// differs says whether an adapter is not what it shall be.
func differs(have host.Adapter, routes []host.Route, want host.AdapterConfig) bool {
	missing := func(w host.Route) bool {
		return !slices.ContainsFunc(routes, func(r host.Route) bool { return r.Index == have.Index && r.To == w.To && r.Via == w.Via })
	}
	servers := slices.DeleteFunc(slices.Clone(have.DNSServers), placeholder)
	return want.DHCP != nil && *want.DHCP != have.DHCP ||
		len(want.Addresses) > 0 && !sameAddresses(have, want.Addresses) ||
		len(want.Gateways) > 0 && !sameGateways(have.Index, routes, want.Gateways) ||
		slices.ContainsFunc(want.Routes, missing) ||
		len(want.DNSServers) > 0 && !slices.Equal(servers, want.DNSServers) ||
		len(want.SearchDomains) > 0 && !slices.EqualFunc(have.SearchDomains, want.SearchDomains, strings.EqualFold) ||
		want.MTU != 0 && want.MTU != have.MTU
}

// sameAddresses says whether an adapter has all addresses, and no other but what routers (IPv6) or a lease gave it.
func sameAddresses(have host.Adapter, want []netip.Prefix) bool {
	for _, w := range want {
		if !slices.Contains(have.Addresses, w) {
			return false
		}
	}
	for _, h := range have.Addresses {
		if !have.DHCP && h.Addr().Is4() && !h.Addr().IsLinkLocalUnicast() && !slices.Contains(want, h) {
			return false
		}
	}
	return true
}

// sameGateways says whether an adapter's default routes of the families of want go where want says.
func sameGateways(index uint32, routes []host.Route, want []netip.Addr) bool {
	for _, w := range want {
		found := false
		for _, r := range routes {
			if r.Index != index || r.To.Bits() != 0 || r.To.Addr().Is4() != w.Is4() {
				continue
			}
			if r.Via != w {
				return false
			}
			found = true
		}
		if !found {
			return false
		}
	}
	return true
}

// placeholder: the addresses that Windows shows where there is no DNS server of IPv6.
func placeholder(a netip.Addr) bool {
	return netip.MustParsePrefix("fec0:0:0:ffff::/64").Contains(a)
}

func parseAdapter(a *nodev1.AdapterInfo) (wanted, error) {
	mac, err := parseMAC(a.MAC)
	if err != nil {
		return wanted{}, err
	}
	out := wanted{mac: mac, AdapterConfig: host.AdapterConfig{SearchDomains: a.SearchDomains, MTU: uint32(max(a.MTU, 0))}} //nolint:gosec // not negative
	if a.DHCP != "" {
		enabled := a.DHCP == "Enabled"
		out.DHCP = &enabled
	}
	if out.Addresses, err = parseAll(a.Addresses, netip.ParsePrefix); err != nil {
		return wanted{}, err
	}
	if out.Gateways, err = parseAll(a.Gateways, netip.ParseAddr); err != nil {
		return wanted{}, err
	}
	if out.DNSServers, err = parseAll(a.DNSServers, netip.ParseAddr); err != nil {
		return wanted{}, err
	}
	for _, r := range a.Routes {
		to, err := netip.ParsePrefix(r.To)
		if err != nil {
			return wanted{}, err
		}
		via, err := netip.ParseAddr(r.Via)
		if err != nil {
			return wanted{}, err
		}
		out.Routes = append(out.Routes, host.Route{To: to.Masked(), Via: via, Metric: uint32(max(r.Metric, 0))}) //nolint:gosec // not negative
	}
	return out, nil
}

func parseAll[T any](texts []string, parse func(string) (T, error)) ([]T, error) {
	var out []T
	for _, text := range texts {
		v, err := parse(text)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// parseMAC returns a MAC address as adapters have it: lower case, with colons.
func parseMAC(text string) (string, error) {
	mac, err := net.ParseMAC(text)
	if err != nil {
		return "", err
	}
	return mac.String(), nil
}

// read returns all adapters and routes.
func read(ctx context.Context, r *engine.Run) ([]host.Adapter, []host.Route, error) {
	adapters, err := r.Host.Network.Adapters(ctx)
	if err != nil {
		return nil, nil, codes.New(codes.NetworkUnreadable, "reading the adapters: %w", err)
	}
	routes, err := r.Host.Network.Routes(ctx)
	if err != nil {
		return nil, nil, codes.New(codes.NetworkUnreadable, "reading the routes: %w", err)
	}
	return adapters, routes, nil
}

// devices returns the adapters that carry the machine's own addresses: its devices, or instead of one the vEthernet adapter
// with the same MAC address to which an external switch (of HNS or Hyper-V) has moved its addresses. All other vEthernet
// adapters belong to containers or virtual machines.
func devices(adapters []host.Adapter) []host.Adapter {
	var out []host.Adapter
	for _, a := range adapters {
		if a.Virtual {
			continue
		}
		if i := slices.IndexFunc(adapters, func(v host.Adapter) bool {
			return v.Virtual && v.MAC == a.MAC && a.MAC != "" && len(v.Addresses) > 0 && len(a.Addresses) == 0
		}); i >= 0 {
			a = adapters[i]
		}
		out = append(out, a)
	}
	return out
}

// describe lists adapters for a message.
func describe(adapters []host.Adapter) string {
	parts := make([]string, 0, len(adapters))
	for _, a := range adapters {
		state := ""
		if !a.Up {
			state = " without link"
		}
		parts = append(parts, fmt.Sprintf("%s (%s)%s %v", a.Name, a.MAC, state, a.Addresses))
	}
	if len(parts) == 0 {
		return "no adapters"
	}
	return strings.Join(parts, ", ")
}
