package winhost

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

func TestAFirewallRuleLetsInWhatItNamesInAllProfiles(t *testing.T) {
	for name, tc := range map[string]struct {
		rule host.FirewallRule
		want firewallSettings
	}{
		"ports": {
			host.FirewallRule{Name: "kubelet", Protocol: "TCP", Ports: []string{"10250", "30000-32767"}},
			firewallSettings{name: "kubelet", protocol: 6, ports: "10250,30000-32767", addresses: "*", direction: 1, action: 1, profiles: 0x7fffffff, enabled: true},
		},
		"program and networks": {
			host.FirewallRule{Name: "vxlan", Protocol: "udp", Program: `C:\k\flanneld.exe`, RemoteAddresses: []string{"10.0.0.0/8", "fd00::/8", "192.0.2.1"}},
			firewallSettings{name: "vxlan", program: `C:\k\flanneld.exe`, protocol: 17, ports: "*", addresses: "10.0.0.0/8,fd00::/8,192.0.2.1", direction: 1, action: 1, profiles: 0x7fffffff, enabled: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := firewallSettingsOf(tc.rule)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(Equal(tc.want))
		})
	}
}

func TestAFirewallRuleThatCannotBeIsRefused(t *testing.T) {
	for name, r := range map[string]host.FirewallRule{
		"no name":             {Protocol: "TCP"},
		"the name of all":     {Name: "All", Protocol: "TCP"},
		"bar in the name":     {Name: "a|b", Protocol: "TCP"},
		"mark in the name":    {Name: "a (replaced) b", Protocol: "TCP"},
		"protocol":            {Name: "a", Protocol: "ICMP"},
		"port 0":              {Name: "a", Protocol: "TCP", Ports: []string{"0"}},
		"port too high":       {Name: "a", Protocol: "TCP", Ports: []string{"65536"}},
		"range backwards":     {Name: "a", Protocol: "TCP", Ports: []string{"20-10"}},
		"half a range":        {Name: "a", Protocol: "TCP", Ports: []string{"20-"}},
		"two ports in one":    {Name: "a", Protocol: "TCP", Ports: []string{"20,21"}},
		"host name":           {Name: "a", Protocol: "TCP", RemoteAddresses: []string{"example.com"}},
		"range of families":   {Name: "a", Protocol: "TCP", RemoteAddresses: []string{"10.0.0.1-fd00::1"}},
		"mask that is no one": {Name: "a", Protocol: "TCP", RemoteAddresses: []string{"10.0.0.0/255.0.255.0"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := firewallSettingsOf(r)
			NewWithT(t).Expect(err).To(MatchError(host.ErrInvalid))
		})
	}
}

func TestAFirewallRuleIsTheSameHoweverWindowsWritesIt(t *testing.T) {
	want, err := firewallSettingsOf(host.FirewallRule{Name: "kubelet", Protocol: "TCP", Ports: []string{"10250", "9182"},
		Program: `C:\k\kubelet.exe`, RemoteAddresses: []string{"10.0.0.0/8", "192.0.2.1", "fd00::/8"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		change func(*firewallSettings)
		same   bool
	}{
		"as it was written": {func(*firewallSettings) {}, true},
		"as Windows writes it": {func(s *firewallSettings) {
			s.addresses, s.ports = "192.0.2.1/255.255.255.255,10.0.0.0/255.0.0.0,fd00::-fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "9182,10250"
		}, true},
		"a range for a network":  {func(s *firewallSettings) { s.addresses = "10.0.0.0-10.255.255.255,192.0.2.1,fd00::/8" }, true},
		"program in other case":  {func(s *firewallSettings) { s.program = `c:\K\Kubelet.exe` }, true},
		"another network":        {func(s *firewallSettings) { s.addresses = "10.0.0.0/255.255.0.0,192.0.2.1,fd00::/8" }, false},
		"from everywhere":        {func(s *firewallSettings) { s.addresses = "*" }, false},
		"LocalSubnet":            {func(s *firewallSettings) { s.addresses = "LocalSubnet" }, false},
		"one port less":          {func(s *firewallSettings) { s.ports = "10250" }, false},
		"UDP":                    {func(s *firewallSettings) { s.protocol = firewallUDP }, false},
		"switched off by hand":   {func(s *firewallSettings) { s.enabled = false }, false},
		"turned into a block":    {func(s *firewallSettings) { s.action = 0 }, false},
		"in one profile only":    {func(s *firewallSettings) { s.profiles = 1 }, false},
		"any program":            {func(s *firewallSettings) { s.program = "" }, false},
		"outbound":               {func(s *firewallSettings) { s.direction = 2 }, false},
		"about to be removed":    {func(s *firewallSettings) { s.name += replacedMark + "1" }, false},
		"any port, written as *": {func(s *firewallSettings) { s.ports = "*" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			have := want
			tc.change(&have)
			NewWithT(t).Expect(have.same(want)).To(Equal(tc.same))
		})
	}
}

func TestNoRestrictionIsTheSameAsNone(t *testing.T) {
	g := NewWithT(t)
	want, err := firewallSettingsOf(host.FirewallRule{Name: "a", Protocol: "TCP"})
	g.Expect(err).NotTo(HaveOccurred())
	have := want
	have.ports, have.addresses = "", ""
	g.Expect(have.same(want)).To(BeTrue())
}

func TestARuleThatIsBeingRemovedKeepsItsName(t *testing.T) {
	g := NewWithT(t)
	base, replaced := ruleName("kubelet")
	g.Expect(base).To(Equal("kubelet"))
	g.Expect(replaced).To(BeFalse())
	base, replaced = ruleName("kubelet" + replacedMark + "0a1b")
	g.Expect(base).To(Equal("kubelet"))
	g.Expect(replaced).To(BeTrue())
}
