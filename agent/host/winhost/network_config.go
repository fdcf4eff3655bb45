package winhost

import (
	"fmt"
	"net/netip"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// checkAdapterConfig refuses what Windows has no way to be.
func checkAdapterConfig(c host.AdapterConfig) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), host.ErrInvalid)
	}
	addresses4 := 0
	for _, p := range c.Addresses {
		a := p.Addr()
		if !p.IsValid() || p.Bits() == 0 || a.Is4In6() || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() {
			return refuse("address %s", p)
		}
		if a.Is4() {
			addresses4++
		}
	}
	if addresses4 > 0 && c.DHCP != nil && *c.DHCP {
		return refuse("an adapter has either DHCP or static IPv4 addresses")
	}
	for _, list := range [][]netip.Addr{c.Gateways, c.DNSServers} {
		for _, a := range list {
			if !a.IsValid() || a.Is4In6() || a.IsUnspecified() || a.IsMulticast() {
				return refuse("gateway or DNS server %s", a)
			}
		}
	}
	for _, r := range c.Routes {
		if !r.To.IsValid() || r.To != r.To.Masked() || r.To.Addr().Is4In6() || r.Via.IsValid() && r.Via.Is4() != r.To.Addr().Is4() {
			return refuse("route to %s via %s", r.To, r.Via)
		}
	}
	// The least that IPv4 allows, RFC 791. IPv6 is passed over below its own least.
	if c.MTU != 0 && c.MTU < 576 {
		return refuse("MTU %d", c.MTU)
	}
	return nil
}
