package winhost

import (
	"net/netip"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

func prefixes(texts ...string) []netip.Prefix {
	out := []netip.Prefix{}
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

func addrs(texts ...string) []netip.Addr {
	out := []netip.Addr{}
	for _, t := range texts {
		out = append(out, netip.MustParseAddr(t))
	}
	return out
}

func manual(text string) addressState {
	return addressState{Prefix: netip.MustParsePrefix(text), manual: true, stage: stageUsable}
}

func given(text string) addressState {
	return addressState{Prefix: netip.MustParsePrefix(text), stage: stageUsable}
}

func routeTo(to, via string, manual bool) routeState {
	return routeState{to: netip.MustParsePrefix(to), via: netip.MustParseAddr(via), metric: 1, manual: manual}
}

// leased is an adapter with DHCP.
func leased() adapterState {
	return adapterState{index: 7, dhcp: true, addresses: []addressState{given("10.0.0.50/24"), given("fe80::1/64")},
		routes: []routeState{routeTo("0.0.0.0/0", "10.0.0.1", false), routeTo("10.0.0.0/24", "0.0.0.0", false)},
		dns:    addrs("10.0.0.2"), mtu4: 1500, mtu6: 1500}
}

// static is an adapter with an address that was set by hand.
func static() adapterState {
	return adapterState{index: 7, addresses: []addressState{manual("10.0.0.5/24"), given("fe80::1/64")},
		routes: []routeState{routeTo("0.0.0.0/0", "10.0.0.1", true), routeTo("10.0.0.0/24", "0.0.0.0", true)},
		dns:    addrs("10.0.0.2"), search: []string{"corp.example"}, mtu4: 1500, mtu6: 1500}
}

func TestPlanTellsNetshWhatIsMissing(t *testing.T) {
	yes, no := true, false
	for name, tc := range map[string]struct {
		have adapterState
		want host.AdapterConfig
		then []string
	}{
		"nothing when nothing is asked for": {have: leased()},
		"nothing when all is as asked for": {have: static(), want: host.AdapterConfig{
			DHCP: &no, Addresses: prefixes("10.0.0.5/24"), Gateways: addrs("10.0.0.1"), DNSServers: addrs("10.0.0.2"),
			SearchDomains: []string{"Corp.example"}, MTU: 1500,
			Routes: []host.Route{{To: netip.MustParsePrefix("10.0.0.0/24")}}}},
		"one command from DHCP to static, then what is left": {
			have: leased(),
			want: host.AdapterConfig{DHCP: &no, Addresses: prefixes("10.0.0.5/23", "10.0.0.6/23"), Gateways: addrs("10.0.0.1"), DNSServers: addrs("10.0.0.3", "10.0.0.4")},
			then: []string{
				"netsh interface ipv4 set address name=7 source=static address=10.0.0.5 mask=255.255.254.0 gateway=10.0.0.1 store=persistent",
				"netsh interface ipv4 add address name=7 address=10.0.0.6 mask=255.255.254.0 store=persistent",
				"netsh interface ipv4 set dnsservers name=7 source=static address=10.0.0.3 register=primary validate=no",
				"netsh interface ipv4 add dnsservers name=7 address=10.0.0.4 index=2 validate=no",
			}},
		"static addresses switch DHCP off even when nobody says so": {
			have: leased(), want: host.AdapterConfig{Addresses: prefixes("10.0.0.50/24")},
			then: []string{"netsh interface ipv4 set address name=7 source=static address=10.0.0.50 mask=255.255.255.0 gateway=none store=persistent"}},
		"the new address before the old one goes": {
			have: static(), want: host.AdapterConfig{Addresses: prefixes("10.0.0.9/24")},
			then: []string{
				"netsh interface ipv4 add address name=7 address=10.0.0.9 mask=255.255.255.0 store=persistent",
				"netsh interface ipv4 delete address name=7 address=10.0.0.5 store=persistent",
			}},
		"an address with another prefix length goes first": {
			have: static(), want: host.AdapterConfig{Addresses: prefixes("10.0.0.5/16")},
			then: []string{
				"netsh interface ipv4 delete address name=7 address=10.0.0.5 store=persistent",
				"netsh interface ipv4 add address name=7 address=10.0.0.5 mask=255.255.0.0 store=persistent",
			}},
		"a duplicate is tried again": {
			have: adapterState{index: 7, addresses: []addressState{{Prefix: netip.MustParsePrefix("10.0.0.5/24"), manual: true, stage: stageDuplicate}}},
			want: host.AdapterConfig{Addresses: prefixes("10.0.0.5/24")},
			then: []string{
				"netsh interface ipv4 delete address name=7 address=10.0.0.5 store=persistent",
				"netsh interface ipv4 add address name=7 address=10.0.0.5 mask=255.255.255.0 store=persistent",
			}},
		"DHCP gives the name servers too": {
			have: static(), want: host.AdapterConfig{DHCP: &yes},
			then: []string{"netsh interface ipv4 set address name=7 source=dhcp", "netsh interface ipv4 set dnsservers name=7 source=dhcp"}},
		"name servers of one's own beside DHCP": {
			have: static(), want: host.AdapterConfig{DHCP: &yes, DNSServers: addrs("10.0.0.3")},
			then: []string{"netsh interface ipv4 set address name=7 source=dhcp",
				"netsh interface ipv4 set dnsservers name=7 source=static address=10.0.0.3 register=primary validate=no"}},
		"another gateway replaces the old one wherever that was set": {
			have: static(), want: host.AdapterConfig{Gateways: addrs("10.0.0.254")},
			then: []string{
				"netsh interface ipv4 delete address name=7 gateway=10.0.0.1 store=persistent",
				"netsh interface ipv4 delete route prefix=0.0.0.0/0 interface=7 nexthop=10.0.0.1 store=persistent",
				"netsh interface ipv4 add address name=7 gateway=10.0.0.254 store=persistent",
			}},
		"a default route that DHCP gave stays, for it would come back": {
			have: leased(), want: host.AdapterConfig{Gateways: addrs("10.0.0.254")},
			then: []string{"netsh interface ipv4 add address name=7 gateway=10.0.0.254 store=persistent"}},
		"IPv6 beside IPv4 with DHCP": {
			have: leased(), want: host.AdapterConfig{Addresses: prefixes("2001:db8::5/64"), Gateways: addrs("fe80::ff"), DNSServers: addrs("2001:db8::53")},
			then: []string{
				"netsh interface ipv6 add address interface=7 address=2001:db8::5/64 store=persistent",
				"netsh interface ipv6 add route prefix=::/0 interface=7 nexthop=fe80::ff store=persistent",
				"netsh interface ipv4 set dnsservers name=7 source=static address=none",
				"netsh interface ipv6 set dnsservers name=7 source=static address=2001:db8::53 register=primary validate=no",
			}},
		"a default route of a router stays, one set by hand goes": {
			have: adapterState{index: 7, routes: []routeState{routeTo("::/0", "fe80::1", false), routeTo("::/0", "fe80::2", true)}},
			want: host.AdapterConfig{Gateways: addrs("fe80::ff")},
			then: []string{
				"netsh interface ipv6 delete route prefix=::/0 interface=7 nexthop=fe80::2 store=persistent",
				"netsh interface ipv6 add route prefix=::/0 interface=7 nexthop=fe80::ff store=persistent",
			}},
		"routes are added, and get another metric": {
			have: static(), want: host.AdapterConfig{Routes: []host.Route{
				{To: netip.MustParsePrefix("192.168.0.0/16"), Via: netip.MustParseAddr("10.0.0.7"), Metric: 5},
				{To: netip.MustParsePrefix("10.0.0.0/24"), Via: netip.MustParseAddr("0.0.0.0"), Metric: 9},
				{To: netip.MustParsePrefix("fd00::/8")}}},
			then: []string{
				"netsh interface ipv4 add route prefix=192.168.0.0/16 interface=7 nexthop=10.0.0.7 metric=5 store=persistent",
				"netsh interface ipv4 set route prefix=10.0.0.0/24 interface=7 metric=9 store=persistent",
				"netsh interface ipv6 add route prefix=fd00::/8 interface=7 store=persistent",
			}},
		"a default route among the routes is no gateway to be replaced": {
			have: static(), want: host.AdapterConfig{Gateways: addrs("fe80::ff"),
				Routes: []host.Route{{To: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("10.0.0.1")}}},
			then: []string{"netsh interface ipv6 add route prefix=::/0 interface=7 nexthop=fe80::ff store=persistent"}},
		"the MTU of both families": {
			have: static(), want: host.AdapterConfig{MTU: 9000},
			then: []string{"netsh interface ipv4 set subinterface interface=7 mtu=9000 store=persistent", "netsh interface ipv6 set subinterface interface=7 mtu=9000 store=persistent"}},
		"no MTU below the least of IPv6, nor of a family that is not bound": {
			have: static(), want: host.AdapterConfig{MTU: 1000},
			then: []string{"netsh interface ipv4 set subinterface interface=7 mtu=1000 store=persistent"}},
		"search domains": {
			have: static(), want: host.AdapterConfig{SearchDomains: []string{"a.example", "b.example"}},
			then: []string{"search domains a.example,b.example"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(checkAdapterConfig(tc.want)).To(Succeed())
			changes, err := tc.have.plan(tc.want)
			g.Expect(err).NotTo(HaveOccurred())
			got := []string{}
			for _, c := range changes {
				got = append(got, c.String())
			}
			g.Expect(got).To(HaveExactElements(toAny(tc.then)...))
		})
	}
}

func toAny(texts []string) []any {
	out := []any{}
	for _, t := range texts {
		out = append(out, t)
	}
	return out
}

func TestPlanRefusesDHCPOffWithoutAnAddress(t *testing.T) {
	g := NewWithT(t)
	no := false
	_, err := leased().plan(host.AdapterConfig{DHCP: &no, Addresses: prefixes("2001:db8::5/64")})
	g.Expect(err).To(MatchError(host.ErrInvalid))
	_, err = static().plan(host.AdapterConfig{DHCP: &no})
	g.Expect(err).NotTo(HaveOccurred())
}

func TestAConfigurationThatCannotBeIsRefused(t *testing.T) {
	yes := true
	for name, c := range map[string]host.AdapterConfig{
		"no address":             {Addresses: []netip.Prefix{{}}},
		"multicast":              {Addresses: prefixes("224.0.0.1/24")},
		"loopback":               {Addresses: prefixes("127.0.0.1/8")},
		"unspecified":            {Addresses: prefixes("0.0.0.0/8")},
		"prefix length 0":        {Addresses: prefixes("10.0.0.1/0")},
		"IPv4 as IPv6":           {Addresses: prefixes("::ffff:10.0.0.1/120")},
		"DHCP and static":        {DHCP: &yes, Addresses: prefixes("10.0.0.1/24")},
		"no gateway":             {Gateways: []netip.Addr{{}}},
		"unspecified gateway":    {Gateways: addrs("0.0.0.0")},
		"multicast name server":  {DNSServers: addrs("ff02::1")},
		"route with host bits":   {Routes: []host.Route{{To: netip.MustParsePrefix("10.0.0.1/24")}}},
		"route via other family": {Routes: []host.Route{{To: netip.MustParsePrefix("10.0.0.0/24"), Via: netip.MustParseAddr("fe80::1")}}},
		"route to nowhere":       {Routes: []host.Route{{}}},
		"tiny MTU":               {MTU: 68},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(checkAdapterConfig(c)).To(MatchError(host.ErrInvalid))
		})
	}
}
