package winhost

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

func TestHNSNetworksAreReadFromTheirDocuments(t *testing.T) {
	for name, tc := range map[string]struct {
		document string
		want     host.HNSNetwork
		external bool
	}{
		"overlay": {`{"ID":"6B29FC40-CA47-1067-B31D-00DD010662DA","Name":"vxlan0","Type":"Overlay","MacPool":{"Ranges":[]},
			"Ipams":[{"Type":"Static","Subnets":[{"IpAddressPrefix":"10.244.3.0/24","Routes":[{"NextHop":"10.244.3.1"}]}]}],
			"Policies":[{"Type":"OutBoundNAT","Settings":{}},{"Type":"ProviderAddress","Settings":{"ProviderAddress":"192.0.2.7"}}],
			"SchemaVersion":{"Major":2,"Minor":0}}`,
			host.HNSNetwork{ID: "6B29FC40-CA47-1067-B31D-00DD010662DA", Name: "vxlan0", Type: "Overlay", Subnets: []string{"10.244.3.0/24"}, ManagementIP: "192.0.2.7"}, true},
		"l2bridge of two families": {`{"ID":"1","Name":"cbr0","Type":"L2Bridge","Ipams":[{"Subnets":[{"IpAddressPrefix":"10.244.3.0/24"},{"IpAddressPrefix":"fd00:3::/64"}]}]}`,
			host.HNSNetwork{ID: "1", Name: "cbr0", Type: "L2Bridge", Subnets: []string{"10.244.3.0/24", "fd00:3::/64"}}, true},
		"nat, whose type is left out": {`{"ID":"2","Name":"nat"}`, host.HNSNetwork{ID: "2", Name: "nat", Type: "NAT", Subnets: []string{}}, false},
		"internal":                    {`{"ID":"3","Name":"i","Type":"Internal"}`, host.HNSNetwork{ID: "3", Name: "i", Type: "Internal", Subnets: []string{}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			n, err := readHCNNetwork(tc.document)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(n.network()).To(Equal(tc.want))
			g.Expect(n.external()).To(Equal(tc.external))
		})
	}
	_, err := readHCNNetwork("<xml>")
	NewWithT(t).Expect(err).To(HaveOccurred())
}

func TestAnHNSNetworkIsTheSameByNameTypeAndSubnets(t *testing.T) {
	g := NewWithT(t)
	have, err := readHCNNetwork(`{"ID":"1","Name":"cbr0","Type":"L2Bridge","Flags":8,"Ipams":[{"Subnets":[{"IpAddressPrefix":"10.244.3.0/24"}]}]}`)
	g.Expect(err).NotTo(HaveOccurred())
	for settings, same := range map[string]bool{
		`{"Name":"cbr0","Type":"l2bridge","Ipams":[{"Subnets":[{"IpAddressPrefix":"10.244.3.0/24"}]}]}`: true,
		`{"Name":"cbr0","Type":"L2Bridge","Ipams":[{"Subnets":[{"IpAddressPrefix":"10.244.4.0/24"}]}]}`: false,
		`{"Name":"cbr0","Type":"Overlay","Ipams":[{"Subnets":[{"IpAddressPrefix":"10.244.3.0/24"}]}]}`:  false,
		`{"Name":"cbr1","Type":"L2Bridge","Ipams":[{"Subnets":[{"IpAddressPrefix":"10.244.3.0/24"}]}]}`: false,
	} {
		want, err := readHCNNetwork(settings)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(have.same(want)).To(Equal(same), settings)
	}
}

func TestTheManagementIPIsReadFromTheOldInterface(t *testing.T) {
	g := NewWithT(t)
	ip, err := managementIP(`{"Success":true,"Output":{"ID":"1","Name":"cbr0","ManagementIP":"192.0.2.7"}}`)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(ip).To(Equal("192.0.2.7"))
	_, err = managementIP(`{"Success":false,"Error":"Element not found."}`)
	g.Expect(err).To(MatchError(ContainSubstring("Element not found.")))
	_, err = managementIP("")
	g.Expect(err).To(HaveOccurred())
}

func TestHNSEndpointsAreReadFromTheirDocuments(t *testing.T) {
	g := NewWithT(t)
	e, err := readHCNEndpoint(`{"ID":"E","Name":"vip","HostComputeNetwork":"N","IpConfigurations":[{"IpAddress":"10.244.3.2","PrefixLength":24}],"MacAddress":"00-15-5D-AA-BB-01"}`)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(e.endpoint()).To(Equal(host.HNSEndpoint{ID: "E", Name: "vip", IP: "10.244.3.2", MAC: "00:15:5d:aa:bb:01"}))
	for settings, same := range map[string]bool{
		`{"Name":"vip"}`: true,
		`{"Name":"vip","IpConfigurations":[{"IpAddress":"10.244.3.2"}]}`: true,
		`{"Name":"vip","IpConfigurations":[{"IpAddress":"10.244.3.3"}]}`: false,
		`{"Name":"other"}`: false,
		`{}`:               false,
	} {
		want, err := readHCNEndpoint(settings)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(e.same(want)).To(Equal(same), settings)
	}
}

func TestAnHNSFailureIsToldByItsMessage(t *testing.T) {
	g := NewWithT(t)
	g.Expect(hcnMessage(`{"Success":false,"Error":"The network was not found.","ErrorCode":2151350273}`)).To(Equal("The network was not found."))
	g.Expect(hcnMessage("something else")).To(Equal("something else"))
}
