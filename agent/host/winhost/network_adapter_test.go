package winhost

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

func TestAnAdapterIsVirtualWhenASwitchOfThisMachineMadeIt(t *testing.T) {
	for _, tc := range []struct {
		component, name, description string
		virtual                      bool
	}{
		{"vms_mp", "vEthernet (Ethernet)", "Hyper-V Virtual Ethernet Adapter", true},
		{"VMS_VSMP", "Ethernet 3", "Hyper-V Virtual Switch Extension Adapter", true},
		{`vmbus\{f8615163-df3e-46c5-913f-f2d2f965ed0e}`, "Ethernet", "Microsoft Hyper-V Network Adapter", false},
		{`pci\ven_15ad&dev_07b0`, "Ethernet0", "vmxnet3 Ethernet Adapter", false},
		{`pci\ven_15ad&dev_07b0`, "vEthernet of a person", "vmxnet3 Ethernet Adapter", false},
		{"", "vEthernet (nat)", "", true},
		{"", "Ethernet", "Hyper-V Virtual Ethernet Adapter #2", true},
		{"", "Ethernet", "Microsoft Hyper-V Network Adapter", false},
	} {
		NewWithT(t).Expect(virtualAdapter(tc.component, tc.name, tc.description)).To(Equal(tc.virtual), "%+v", tc)
	}
}

func TestSearchListsAreReadAsWindowsWritesThem(t *testing.T) {
	g := NewWithT(t)
	g.Expect(searchList("")).To(BeEmpty())
	g.Expect(searchList("corp.example,lab.example")).To(Equal([]string{"corp.example", "lab.example"}))
	g.Expect(searchList("corp.example, lab.example,")).To(Equal([]string{"corp.example", "lab.example"}))
}

func TestNameServersThatStandForNoneAreLeftOut(t *testing.T) {
	g := NewWithT(t)
	for _, a := range addrs("fec0:0:0:ffff::1", "fec0:0:0:ffff::2", "fec0:0:0:ffff::3%1") {
		g.Expect(placeholderDNS(a)).To(BeTrue(), a.String())
	}
	for _, a := range addrs("fec0::1", "2001:db8::53", "10.0.0.53") {
		g.Expect(placeholderDNS(a)).To(BeFalse(), a.String())
	}
}

func TestDynamicPortsAreSetForBothFamiliesOverReboots(t *testing.T) {
	g := NewWithT(t)
	commands, err := dynamicPortCommands(34000, 31536)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(commands).To(Equal([][]string{
		{"interface", "ipv4", "set", "dynamicportrange", "protocol=tcp", "startport=34000", "numberofports=31536", "store=persistent"},
		{"interface", "ipv6", "set", "dynamicportrange", "protocol=tcp", "startport=34000", "numberofports=31536", "store=persistent"},
	}))
	for _, ports := range [][2]uint16{{1024, 1000}, {34000, 254}, {34000, 31537}, {0, 0}} {
		_, err := dynamicPortCommands(ports[0], ports[1])
		g.Expect(err).To(MatchError(host.ErrInvalid), "%v", ports)
	}
}

func TestOutputInAnotherCodePageIsReadableAnyway(t *testing.T) {
	NewWithT(t).Expect(readable([]byte("\r\nDas Objekt ist bereits vorhanden.\r\n\r\n"), []byte("gr\x81n"))).
		To(Equal("Das Objekt ist bereits vorhanden. gr?n"))
}
