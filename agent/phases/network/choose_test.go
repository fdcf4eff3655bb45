package network

import (
	"crypto/x509"
	"net/netip"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

const (
	macA = "00:50:56:00:00:0a"
	macB = "00:50:56:00:00:0b"
)

// adapter has index, MAC address and addresses, and a link.
func adapter(index uint32, mac string, addresses ...string) host.Adapter {
	a := host.Adapter{Index: index, Name: "Ethernet", MAC: mac, Up: true}
	for _, p := range addresses {
		a.Addresses = append(a.Addresses, netip.MustParsePrefix(p))
	}
	return a
}

func virtual(a host.Adapter) host.Adapter {
	a.Virtual = true
	return a
}

func down(a host.Adapter) host.Adapter {
	a.Up = false
	return a
}

// via is a default route.
func via(index uint32, gateway string, metric uint32) host.Route {
	g := netip.MustParseAddr(gateway)
	to := netip.MustParsePrefix("0.0.0.0/0")
	if g.Is6() {
		to = netip.MustParsePrefix("::/0")
	}
	return host.Route{To: to, Via: g, Index: index, Metric: metric}
}

func TestTheNodesAddressIsTheOneThatOthersReach(t *testing.T) {
	for name, tc := range map[string]struct {
		ip       nodev1.NodeIPInfo
		cni      *nodev1.CNI
		adapters []host.Adapter
		routes   []host.Route
		want     []string
		mac      string
	}{
		"one adapter": {
			adapters: []host.Adapter{adapter(1, macA, "10.0.0.5/24")}, routes: []host.Route{via(1, "10.0.0.1", 10)},
			want: []string{"10.0.0.5"}, mac: macA,
		},
		"the better default route of two": {
			adapters: []host.Adapter{adapter(1, macA, "10.0.0.5/24"), adapter(2, macB, "10.1.0.5/24")},
			routes:   []host.Route{via(1, "10.0.0.1", 20), via(2, "10.1.0.1", 10)}, want: []string{"10.1.0.5"}, mac: macB,
		},
		"the best of an adapter's own two": {
			adapters: []host.Adapter{adapter(1, macA, "10.0.0.5/24"), adapter(2, macB, "10.1.0.5/24")},
			routes:   []host.Route{via(1, "10.0.0.1", 30), via(1, "10.0.0.2", 5), via(2, "10.1.0.1", 10)}, want: []string{"10.0.0.5"}, mac: macA,
		},
		"equal routes: the first adapter": {
			adapters: []host.Adapter{adapter(2, macB, "10.1.0.5/24"), adapter(1, macA, "10.0.0.5/24")},
			routes:   []host.Route{via(1, "10.0.0.1", 10), via(2, "10.1.0.1", 10)}, want: []string{"10.0.0.5"}, mac: macA,
		},
		"the address in the network of the gateway": {
			adapters: []host.Adapter{adapter(1, macA, "192.168.9.9/24", "10.0.0.5/24")}, routes: []host.Route{via(1, "10.0.0.1", 10)},
			want: []string{"10.0.0.5"}, mac: macA,
		},
		"no address without a default route": {
			adapters: []host.Adapter{adapter(1, macA, "10.0.0.5/24")},
		},
		"no address of a container network": {
			adapters: []host.Adapter{adapter(1, macA), virtual(adapter(9, "00:15:5d:00:00:01", "172.20.0.1/20"))}, routes: []host.Route{via(9, "172.20.0.9", 1)},
		},
		"the vEthernet to which an external switch moved the address": {
			adapters: []host.Adapter{adapter(1, macA), virtual(adapter(1001, macA, "10.0.0.5/24")), virtual(adapter(9, "00:15:5d:00:00:01", "172.20.0.1/20"))},
			routes:   []host.Route{via(1001, "10.0.0.1", 10)}, want: []string{"10.0.0.5"}, mac: macA,
		},
		"the device where a vEthernet of the same MAC address has another address": {
			adapters: []host.Adapter{adapter(1, macA, "10.0.0.5/24"), virtual(adapter(1001, macA, "172.20.0.1/20"))},
			routes:   []host.Route{via(1, "10.0.0.1", 10), via(1001, "172.20.0.9", 1)}, want: []string{"10.0.0.5"}, mac: macA,
		},
		"no address that Windows made up": {
			adapters: []host.Adapter{adapter(1, macA, "169.254.17.1/16", "fe80::1/64")}, routes: []host.Route{via(1, "10.0.0.1", 10)},
		},
		"no address of a service": {
			cni:      &nodev1.CNI{ServiceCIDR: "10.96.0.0/12"},
			adapters: []host.Adapter{adapter(1, macA, "10.96.0.10/32", "10.0.0.5/24")}, routes: []host.Route{via(1, "10.0.0.1", 10)},
			want: []string{"10.0.0.5"}, mac: macA,
		},
		"no address without link": {
			adapters: []host.Adapter{down(adapter(1, macA, "10.0.0.5/24"))}, routes: []host.Route{via(1, "10.0.0.1", 10)},
		},
		"IPv4 before IPv6": {
			adapters: []host.Adapter{adapter(1, macA, "2001:db8::5/64", "10.0.0.5/24")}, routes: []host.Route{via(1, "2001:db8::1", 1), via(1, "10.0.0.1", 10)},
			want: []string{"10.0.0.5"}, mac: macA,
		},
		"IPv6 alone": {
			adapters: []host.Adapter{adapter(1, macA, "fe80::1/64", "2001:db8::5/64")}, routes: []host.Route{via(1, "fe80::9", 1)},
			want: []string{"2001:db8::5"}, mac: macA,
		},
		"of the adapter that the document names, whatever the routes": {
			ip:       nodev1.NodeIPInfo{MAC: "00-50-56-00-00-0B"},
			adapters: []host.Adapter{adapter(1, macA, "10.0.0.5/24"), adapter(2, macB, "10.1.0.5/24")}, routes: []host.Route{via(1, "10.0.0.1", 10)},
			want: []string{"10.1.0.5"}, mac: macB,
		},
		"in the range that the document names, without a default route": {
			ip:       nodev1.NodeIPInfo{CIDRs: []string{"10.1.0.0/16"}},
			adapters: []host.Adapter{adapter(1, macA, "10.0.0.5/24"), adapter(2, macB, "10.1.0.5/24")}, routes: []host.Route{via(1, "10.0.0.1", 10)},
			want: []string{"10.1.0.5"}, mac: macB,
		},
		"in the range: the adapter with the default route first": {
			ip:       nodev1.NodeIPInfo{CIDRs: []string{"10.0.0.0/8"}},
			adapters: []host.Adapter{adapter(1, macA, "10.1.0.5/24"), adapter(2, macB, "10.0.0.5/24")}, routes: []host.Route{via(2, "10.0.0.1", 10)},
			want: []string{"10.0.0.5"}, mac: macB,
		},
		"dual stack, in the order of the document": {
			ip:       nodev1.NodeIPInfo{CIDRs: []string{"2001:db8::/32", "10.0.0.0/8"}},
			adapters: []host.Adapter{adapter(1, macA, "10.0.0.5/24"), adapter(2, macB, "2001:db8::5/64")}, routes: []host.Route{via(1, "10.0.0.1", 10)},
			want: []string{"2001:db8::5", "10.0.0.5"}, mac: macB,
		},
		"not half of dual stack": {
			ip:       nodev1.NodeIPInfo{CIDRs: []string{"2001:db8::/32", "10.0.0.0/8"}},
			adapters: []host.Adapter{adapter(1, macA, "10.0.0.5/24")}, routes: []host.Route{via(1, "10.0.0.1", 10)},
		},
		"range and adapter together": {
			ip:       nodev1.NodeIPInfo{CIDRs: []string{"10.0.0.0/8"}, MAC: macB},
			adapters: []host.Adapter{adapter(1, macA, "10.0.0.5/24"), adapter(2, macB, "192.168.0.5/24")}, routes: []host.Route{via(1, "10.0.0.1", 10)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			doc := &nodev1.NodeConfiguration{Node: nodev1.NodeInfo{IP: tc.ip}, Services: nodev1.ServicesInfo{CNI: tc.cni}}
			rule, err := parseRule(doc)
			g.Expect(err).NotTo(HaveOccurred())
			ips, mac := choose(rule, tc.adapters, tc.routes)
			var got []string
			for _, ip := range ips {
				got = append(got, ip.String())
			}
			g.Expect(got).To(Equal(tc.want))
			g.Expect(mac).To(Equal(tc.mac))
		})
	}
}

func TestAnAdapterIsLeftAloneOnlyWhenItIsWhatItShallBe(t *testing.T) {
	yes, no := true, false
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	have := adapter(1, macA, "10.0.0.5/24", "169.254.3.4/16", "2001:db8::77/64")
	have.DNSServers = []netip.Addr{addr("10.0.0.2"), addr("fec0:0:0:ffff::1")}
	have.SearchDomains, have.MTU = []string{"Example.test"}, 1500
	routes := []host.Route{
		via(1, "10.0.0.1", 10), via(2, "10.9.0.1", 1), {To: prefix("10.9.0.0/16"), Via: addr("10.0.0.9"), Index: 1},
	}
	for name, tc := range map[string]struct {
		want    host.AdapterConfig
		differs bool
	}{
		"nothing is wanted":        {host.AdapterConfig{}, false},
		"all is so":                {host.AdapterConfig{DHCP: &no, Addresses: []netip.Prefix{prefix("10.0.0.5/24")}, Gateways: []netip.Addr{addr("10.0.0.1")}, Routes: []host.Route{{To: prefix("10.9.0.0/16"), Via: addr("10.0.0.9")}}, DNSServers: []netip.Addr{addr("10.0.0.2")}, SearchDomains: []string{"example.test"}, MTU: 1500}, false},
		"DHCP":                     {host.AdapterConfig{DHCP: &yes}, true},
		"another address":          {host.AdapterConfig{Addresses: []netip.Prefix{prefix("10.0.0.6/24")}}, true},
		"one more address":         {host.AdapterConfig{Addresses: []netip.Prefix{prefix("10.0.0.5/24"), prefix("10.0.0.6/24")}}, true},
		"one address less":         {host.AdapterConfig{Addresses: []netip.Prefix{prefix("2001:db8::77/64")}}, true},
		"another prefix":           {host.AdapterConfig{Addresses: []netip.Prefix{prefix("10.0.0.5/25")}}, true},
		"another gateway":          {host.AdapterConfig{Gateways: []netip.Addr{addr("10.0.0.254")}}, true},
		"a gateway of IPv6":        {host.AdapterConfig{Gateways: []netip.Addr{addr("10.0.0.1"), addr("2001:db8::1")}}, true},
		"another route":            {host.AdapterConfig{Routes: []host.Route{{To: prefix("10.8.0.0/16"), Via: addr("10.0.0.9")}}}, true},
		"another way of a route":   {host.AdapterConfig{Routes: []host.Route{{To: prefix("10.9.0.0/16"), Via: addr("10.0.0.8")}}}, true},
		"another DNS server":       {host.AdapterConfig{DNSServers: []netip.Addr{addr("10.0.0.3")}}, true},
		"another order of servers": {host.AdapterConfig{DNSServers: []netip.Addr{addr("10.0.0.2"), addr("10.0.0.3")}}, true},
		"another search domain":    {host.AdapterConfig{SearchDomains: []string{"example.com"}}, true},
		"another MTU":              {host.AdapterConfig{MTU: 9000}, true},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(differs(have, routes, tc.want)).To(Equal(tc.differs))
		})
	}
}

func TestOnlyNetworksOfPluginsAreStale(t *testing.T) {
	g := NewWithT(t)
	for _, n := range []host.HNSNetwork{{Name: "cbr0", Type: "L2Bridge"}, {Name: "flannel.4096", Type: "overlay"}, {Name: "azure", Type: "L2Tunnel"}, {Name: "External", Type: "L2Bridge"}} {
		g.Expect(madeByPlugin(n)).To(BeTrue(), "%v", n)
	}
	for _, n := range []host.HNSNetwork{{Name: "nat", Type: "NAT"}, {Name: "Default Switch", Type: "ICS"}, {Name: "lab", Type: "Internal"}, {Name: "antrea-hnsnetwork", Type: "Transparent"}, {Name: "NAT", Type: "L2Bridge"}} {
		g.Expect(madeByPlugin(n)).To(BeFalse(), "%v", n)
	}
}

func TestAClockIsWrongOnlyBeyondTheToleranceOfCertificates(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	cert := func(since time.Duration) []*x509.Certificate { return []*x509.Certificate{{NotBefore: now.Add(since)}} }
	for name, tc := range map[string]struct {
		date  time.Time
		chain []*x509.Certificate
		want  string
	}{
		"equal":                      {date: now},
		"a little behind":            {date: now.Add(maxSkew)},
		"a little ahead":             {date: now.Add(-maxSkew)},
		"behind":                     {date: now.Add(2 * time.Hour), want: "2h0m0s behind"},
		"ahead":                      {date: now.Add(-90 * time.Minute), want: "1h30m0s ahead"},
		"an old certificate":         {chain: cert(-time.Hour)},
		"a new certificate":          {chain: cert(maxSkew)},
		"a certificate to come":      {chain: cert(time.Hour), want: "at least 1h0m0s behind"},
		"the date is worth more":     {date: now, chain: cert(time.Hour)},
		"neither is known":           {},
		"an expired one says naught": {chain: []*x509.Certificate{{NotBefore: now.Add(-time.Hour), NotAfter: now.Add(-time.Minute)}}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			err := skew(now, tc.date, tc.chain)
			if tc.want == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(tc.want)))
		})
	}
}
