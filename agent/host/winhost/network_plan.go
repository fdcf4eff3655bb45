package winhost

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// The functions of iphlpapi that create addresses and routes do so until the next boot only, and SetInterfaceDnsSettings
// came with build 19041, after Windows Server 2019. The one documented way that is there everywhere and outlives a boot is
// netsh, with store=persistent, which changes what is in use at the same time. So netsh writes, by interface index, and its
// exit code counts; iphlpapi reads back whether that had its effect.
//
// https://learn.microsoft.com/windows/win32/api/netioapi/nf-netioapi-createunicastipaddressentry
// https://learn.microsoft.com/windows/win32/api/netioapi/ns-netioapi-dns_interface_settings
// https://learn.microsoft.com/windows-server/administration/windows-commands/netsh-interface

// adapterState is what Windows shows of one adapter, as far as an AdapterConfig can change it.
type adapterState struct {
	index uint32
	// dhcp for IPv4.
	dhcp      bool
	addresses []addressState
	routes    []routeState
	dns       []netip.Addr
	// search domains of the machine.
	search []string
	// mtu per family; 0: the family is not bound to the adapter.
	mtu4, mtu6 uint32
}

// addressState is an address with the stage of its duplicate address detection.
type addressState struct {
	netip.Prefix
	// manual: set by a person or program, not by DHCP, a router or Windows.
	manual bool
	stage  stage
}

// stage of duplicate address detection.
type stage string

const (
	stageTentative stage = "Tentative"
	stageDuplicate stage = "Duplicate"
	stageUsable    stage = "Usable"
)

// routeState is a route of the adapter; its metric is without that of the interface.
type routeState struct {
	to     netip.Prefix
	via    netip.Addr
	metric uint32
	// manual: not from DHCP or a router.
	manual bool
}

// change is one thing to be done to bring an adapter to what it shall be.
type change struct {
	// netsh are arguments.
	netsh []string
	// search replaces the machine's search domains instead.
	search []string
	// mayFail: its exit code does not count.
	mayFail bool
	// optional: the adapter is what it shall be even if it had no effect.
	optional bool
}

// plan returns what is to be done so that an adapter becomes what c says, in order; nothing when it is.
//
// Static IPv4 addresses switch DHCP off. DNS servers of a family that c names none of are only removed if Windows lets
// them be: those of DHCP and of routers come back.
func (s adapterState) plan(c host.AdapterConfig) ([]change, error) {
	p := &planner{have: s, want: c, name: "name=" + strconv.FormatUint(uint64(s.index), 10),
		iface: "interface=" + strconv.FormatUint(uint64(s.index), 10)}
	static4 := slices.ContainsFunc(c.Addresses, is4)
	p.dhcp = s.dhcp && !static4
	if c.DHCP != nil {
		p.dhcp = *c.DHCP
	}
	if s.dhcp && !p.dhcp && !static4 {
		return nil, fmt.Errorf("adapter %d: DHCP cannot be switched off without a static IPv4 address: %w", s.index, host.ErrInvalid)
	}
	if p.dhcp && !s.dhcp {
		p.run("ipv4", "set", "address", p.name, "source=dhcp")
		if len(c.DNSServers) == 0 {
			p.run("ipv4", "set", "dnsservers", p.name, "source=dhcp")
		}
	}
	if len(c.Addresses) > 0 {
		p.addresses4()
		p.addresses6()
	}
	if len(c.Gateways) > 0 {
		p.gateways()
	}
	for _, r := range c.Routes {
		p.route(r)
	}
	if len(c.DNSServers) > 0 {
		p.dns("ipv4", netip.Addr.Is4)
		p.dns("ipv6", netip.Addr.Is6)
	}
	if len(c.SearchDomains) > 0 && !slices.EqualFunc(s.search, c.SearchDomains, strings.EqualFold) {
		p.changes = append(p.changes, change{search: c.SearchDomains})
	}
	p.mtu("ipv4", s.mtu4, 1)
	p.mtu("ipv6", s.mtu6, 1280) // the least that IPv6 allows, RFC 8200
	return p.changes, nil
}

type planner struct {
	have adapterState
	want host.AdapterConfig
	// dhcp is whether the adapter shall have DHCP.
	dhcp bool
	// name and iface are how commands are told the adapter.
	name, iface string
	changes     []change
}

func (p *planner) run(args ...string) {
	p.changes = append(p.changes, change{netsh: append([]string{"interface"}, args...)})
}

// tryRun runs a command whose exit code says nothing.
func (p *planner) tryRun(args ...string) *change {
	p.run(args...)
	c := &p.changes[len(p.changes)-1]
	c.mayFail = true
	return c
}

func (p *planner) addresses4() {
	if p.dhcp {
		return
	}
	d := p.difference(is4)
	if p.have.dhcp {
		// One command, so that the time without an address is short. It takes away all that DHCP gave.
		first := p.want.Addresses[slices.IndexFunc(p.want.Addresses, is4)]
		gateway := "gateway=none"
		if i := slices.IndexFunc(p.want.Gateways, netip.Addr.Is4); i >= 0 {
			gateway = "gateway=" + p.want.Gateways[i].String()
		}
		p.run("ipv4", "set", "address", p.name, "source=static", "address="+first.Addr().String(), mask(first), gateway, persistent)
		d.wrong, d.surplus = nil, nil
		d.missing = slices.DeleteFunc(d.missing, func(a netip.Prefix) bool { return a == first })
	}
	for _, a := range d.wrong {
		p.run("ipv4", "delete", "address", p.name, "address="+a.String(), persistent)
	}
	for _, a := range d.missing {
		p.run("ipv4", "add", "address", p.name, "address="+a.Addr().String(), mask(a), persistent)
	}
	for _, a := range d.surplus {
		p.run("ipv4", "delete", "address", p.name, "address="+a.String(), persistent)
	}
}

func (p *planner) addresses6() {
	d := p.difference(is6)
	for _, a := range d.wrong {
		p.run("ipv6", "delete", "address", p.iface, "address="+a.String(), persistent)
	}
	for _, a := range d.missing {
		p.run("ipv6", "add", "address", p.iface, "address="+a.String(), persistent)
	}
	for _, a := range d.surplus {
		p.run("ipv6", "delete", "address", p.iface, "address="+a.String(), persistent)
	}
}

// difference is between the addresses of one family that an adapter has and shall have.
type difference struct {
	// wrong ones must go before they can come back as they shall be: with another prefix length, not set by hand, or found
	// to be a duplicate, which Windows never tries again by itself.
	wrong   []netip.Addr
	missing []netip.Prefix
	// surplus ones go last, so that the adapter is never without an address.
	surplus []netip.Addr
}

func (p *planner) difference(family func(netip.Prefix) bool) difference {
	d := difference{}
	for _, a := range p.want.Addresses {
		if !family(a) {
			continue
		}
		i := slices.IndexFunc(p.have.addresses, func(have addressState) bool { return have.Addr() == a.Addr() })
		if i >= 0 {
			have := p.have.addresses[i]
			if have.manual && have.Prefix == a && have.stage != stageDuplicate {
				continue
			}
			d.wrong = append(d.wrong, a.Addr())
		}
		d.missing = append(d.missing, a)
	}
	for _, have := range p.have.addresses {
		wanted := slices.ContainsFunc(p.want.Addresses, func(a netip.Prefix) bool { return a.Addr() == have.Addr() })
		if family(have.Prefix) && have.manual && !wanted {
			d.surplus = append(d.surplus, have.Addr())
		}
	}
	return d
}

// gateways replaces the default routes, but for those that DHCP or a router gave and would give again.
func (p *planner) gateways() {
	present := []netip.Addr{}
	for _, r := range p.have.routes {
		if r.to.Bits() != 0 {
			continue
		}
		given := r.to.Addr().Is4() && p.dhcp || r.to.Addr().Is6() && !r.manual
		switch {
		case r.to.Addr().Is4() && p.have.dhcp && !p.dhcp:
			// It goes with DHCP.
		case slices.Contains(p.want.Gateways, r.via):
			present = append(present, r.via)
		case slices.ContainsFunc(p.want.Routes, func(w host.Route) bool { return w.To == r.to && nextHop(w) == r.via }):
		case given:
		case r.to.Addr().Is4():
			// A gateway may have been set together with an address or as a route, and each has its own place in the registry.
			p.tryRun("ipv4", "delete", "address", p.name, "gateway="+r.via.String(), persistent)
			p.tryRun("ipv4", "delete", "route", "prefix=0.0.0.0/0", p.iface, "nexthop="+r.via.String(), persistent)
		default:
			p.run("ipv6", "delete", "route", "prefix=::/0", p.iface, "nexthop="+r.via.String(), persistent)
		}
	}
	switched := p.have.dhcp && !p.dhcp
	for _, g := range p.want.Gateways {
		switch {
		case slices.Contains(present, g):
		case g.Is6():
			p.run("ipv6", "add", "route", "prefix=::/0", p.iface, "nexthop="+g.String(), persistent)
		case switched:
			switched = false // the first came with the address
		default:
			p.run("ipv4", "add", "address", p.name, "gateway="+g.String(), persistent)
		}
	}
}

func (p *planner) route(want host.Route) {
	i := slices.IndexFunc(p.have.routes, func(have routeState) bool { return have.to == want.To && have.via == nextHop(want) })
	verb := "add"
	if i >= 0 {
		if want.Metric == 0 || p.have.routes[i].metric == want.Metric {
			return
		}
		verb = "set"
	}
	family := "ipv4"
	if is6(want.To) {
		family = "ipv6"
	}
	args := []string{family, verb, "route", "prefix=" + want.To.String(), p.iface}
	if via := nextHop(want); !via.IsUnspecified() {
		args = append(args, "nexthop="+via.String())
	}
	if want.Metric != 0 {
		args = append(args, "metric="+strconv.FormatUint(uint64(want.Metric), 10))
	}
	p.run(append(args, persistent)...)
}

func (p *planner) dns(family string, of func(netip.Addr) bool) {
	not := func(a netip.Addr) bool { return !of(a) }
	have := slices.DeleteFunc(slices.Clone(p.have.dns), not)
	want := slices.DeleteFunc(slices.Clone(p.want.DNSServers), not)
	switch {
	case slices.Equal(have, want):
	case len(want) == 0:
		p.tryRun(family, "set", "dnsservers", p.name, "source=static", "address=none").optional = true
	default:
		// Not validated: a server that does not answer yet is no reason to leave it out.
		p.run(family, "set", "dnsservers", p.name, "source=static", "address="+want[0].String(), "register=primary", "validate=no")
		for i, a := range want[1:] {
			p.run(family, "add", "dnsservers", p.name, "address="+a.String(), fmt.Sprintf("index=%d", i+2), "validate=no")
		}
	}
}

func (p *planner) mtu(family string, have, least uint32) {
	if want := p.want.MTU; want >= least && have != 0 && have != want {
		p.run(family, "set", "subinterface", p.iface, fmt.Sprintf("mtu=%d", want), persistent)
	}
}

// persistent keeps a change over reboots, and makes it now.
const persistent = "store=persistent"

func is4(p netip.Prefix) bool { return p.Addr().Is4() }

func is6(p netip.Prefix) bool { return p.Addr().Is6() }

// nextHop of a route to a network of the adapter itself is unspecified.
func nextHop(r host.Route) netip.Addr {
	switch {
	case r.Via.IsValid():
		return r.Via
	case is4(r.To):
		return netip.IPv4Unspecified()
	default:
		return netip.IPv6Unspecified()
	}
}

func mask(p netip.Prefix) string { return "mask=" + net.IP(net.CIDRMask(p.Bits(), 32)).String() }

// String is the command, for people.
func (c change) String() string {
	if c.search != nil {
		return "search domains " + strings.Join(c.search, ",")
	}
	return "netsh " + strings.Join(c.netsh, " ")
}

// duplicates returns an error if another machine has an address that c wants.
func (s adapterState) duplicates(c host.AdapterConfig) error {
	if found := s.inStage(c, stageDuplicate); len(found) > 0 {
		return fmt.Errorf("address %s belongs to another machine on the network: %w", found[0].Addr(), host.ErrBusy)
	}
	return nil
}

// tentative returns the addresses that c wants and that may not be used yet.
func (s adapterState) tentative(c host.AdapterConfig) []netip.Prefix {
	return s.inStage(c, stageTentative)
}

func (s adapterState) inStage(c host.AdapterConfig, stage stage) []netip.Prefix {
	out := []netip.Prefix{}
	for _, a := range s.addresses {
		if a.stage == stage && slices.Contains(c.Addresses, a.Prefix) {
			out = append(out, a.Prefix)
		}
	}
	return out
}

// readable joins what a program said on one line. It is in the code page of the console, so what is not UTF-8 is left out.
func readable(outputs ...[]byte) string {
	text := strings.ToValidUTF8(string(slices.Concat(outputs...)), "?")
	return strings.Join(strings.Fields(text), " ")
}
