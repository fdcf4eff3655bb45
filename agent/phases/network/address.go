package network

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/go-logr/logr"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// awaitDefaultRoute waits for a lease, or for the router of a static network.
func awaitDefaultRoute(ctx context.Context, r *engine.Run) error {
	return await(ctx, r, func(ctx context.Context) error {
		adapters, routes, err := read(ctx, r)
		if err != nil {
			return err
		}
		if len(defaultRoutes(devices(adapters), routes)) == 0 {
			return codes.New(codes.DefaultRouteMissing, "there is no default route; there are %s", describe(adapters))
		}
		return nil
	})
}

// awaitNodeAddress waits until the machine has the address that the node shall report.
func awaitNodeAddress(ctx context.Context, r *engine.Run) error {
	rule, err := parseRule(r.Doc)
	if err != nil {
		return codes.New(codes.NetworkConfigRejected, "node.ip: %w", err)
	}
	return await(ctx, r, func(ctx context.Context) error {
		adapters, routes, err := read(ctx, r)
		if err != nil {
			return err
		}
		ips, mac := choose(rule, adapters, routes)
		if len(ips) == 0 {
			return codes.New(codes.NodeAddressMissing, "no address satisfies %s; there are %s", rule, describe(adapters))
		}
		r.Facts.NodeIPs, r.Facts.NodeMAC = nil, mac
		for _, ip := range ips {
			r.Facts.NodeIPs = append(r.Facts.NodeIPs, ip.String())
		}
		logr.FromContextOrDiscard(ctx).Info("The node's address is known", "ips", r.Facts.NodeIPs, "mac", mac)
		return nil
	})
}

// rule says which addresses a node may report.
type rule struct {
	// cidrs, at most one per family, each of which one address must be in. Empty: the address beside the default route.
	cidrs []netip.Prefix
	// mac of the adapter; empty: any.
	mac string
	// services are the cluster's service ranges, which no machine has an address in, whatever an adapter shows.
	services []netip.Prefix
}

func (r rule) String() string {
	switch {
	case len(r.cidrs) > 0 && r.mac != "":
		return fmt.Sprintf("node.ip: in %v, of the adapter %s", r.cidrs, r.mac)
	case len(r.cidrs) > 0:
		return fmt.Sprintf("node.ip: in %v", r.cidrs)
	case r.mac != "":
		return "node.ip: of the adapter " + r.mac
	default:
		return "the rule: of the adapter with the default route"
	}
}

func parseRule(doc *nodev1.NodeConfiguration) (rule, error) {
	var out rule
	var err error
	if out.cidrs, err = parseAll(doc.Node.IP.CIDRs, netip.ParsePrefix); err != nil {
		return rule{}, err
	}
	if doc.Node.IP.MAC != "" {
		if out.mac, err = parseMAC(doc.Node.IP.MAC); err != nil {
			return rule{}, err
		}
	}
	if cni := doc.Services.CNI; cni != nil && cni.ServiceCIDR != "" {
		if services, err := netip.ParsePrefix(cni.ServiceCIDR); err == nil {
			out.services = append(out.services, services)
		}
	}
	return out, nil
}

// choose returns the addresses that a node reports, the primary one first, and the MAC address of that one's adapter; nothing
// if there is none.
//
// Without CIDRs it is one address: that of the adapter with the best default route, IPv4 before IPv6, as the kubelet would take
// it, if HNS did not show it addresses of containers (microsoft/SDN issue 315). With CIDRs it is one in each of them.
func choose(rule rule, adapters []host.Adapter, routes []host.Route) (ips []netip.Addr, mac string) {
	own := slices.DeleteFunc(devices(adapters), func(a host.Adapter) bool {
		return !a.Up || rule.mac != "" && a.MAC != rule.mac
	})
	cidrs, needed := rule.cidrs, len(rule.cidrs)
	if needed == 0 {
		cidrs, needed = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}, 1
	}
	for _, cidr := range cidrs {
		ip, at := within(cidr, rule, own, routes)
		if !ip.IsValid() {
			continue
		}
		if ips = append(ips, ip); len(ips) == 1 {
			mac = at.MAC
		}
		if len(ips) == needed {
			return ips, mac
		}
	}
	return nil, ""
}

// within returns the first usable address in a range, adapters with the better default route of the range's family first.
func within(cidr netip.Prefix, rule rule, adapters []host.Adapter, routes []host.Route) (netip.Addr, host.Adapter) {
	type candidate struct {
		ip   netip.Addr
		at   host.Adapter
		rank [3]uint32 // no default route, metric of the route, not in the network of its gateway
	}
	var found []candidate
	for _, a := range adapters {
		via, metric, ok := defaultRoute(a.Index, cidr.Addr().Is4(), routes)
		if !ok && len(rule.cidrs) == 0 && rule.mac == "" {
			continue
		}
		for _, p := range a.Addresses {
			if !cidr.Contains(p.Addr()) || !usable(p.Addr(), rule.services) {
				continue
			}
			c := candidate{ip: p.Addr(), at: a, rank: [3]uint32{1, 0, 0}}
			if ok {
				c.rank = [3]uint32{0, metric, 1}
				if p.Contains(via) {
					c.rank[2] = 0
				}
			}
			found = append(found, c)
		}
	}
	if len(found) == 0 {
		return netip.Addr{}, host.Adapter{}
	}
	slices.SortStableFunc(found, func(a, b candidate) int {
		return cmp.Or(slices.Compare(a.rank[:], b.rank[:]), cmp.Compare(a.at.Index, b.at.Index))
	})
	return found[0].ip, found[0].at
}

// usable says whether an address can be reached from other machines.
func usable(ip netip.Addr, services []netip.Prefix) bool {
	return ip.IsGlobalUnicast() && !slices.ContainsFunc(services, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// defaultRoute returns an adapter's best default route of a family.
func defaultRoute(index uint32, v4 bool, routes []host.Route) (via netip.Addr, metric uint32, ok bool) {
	for _, r := range routes {
		if r.Index == index && r.To.Bits() == 0 && r.To.Addr().Is4() == v4 && (!ok || r.Metric < metric) {
			via, metric, ok = r.Via, r.Metric, true
		}
	}
	return via, metric, ok
}

// defaultRoutes returns the default routes of adapters with a link.
func defaultRoutes(adapters []host.Adapter, routes []host.Route) []host.Route {
	return slices.DeleteFunc(slices.Clone(routes), func(r host.Route) bool {
		return r.To.Bits() != 0 || !slices.ContainsFunc(adapters, func(a host.Adapter) bool { return a.Index == r.Index && a.Up })
	})
}
