package firmware

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// The vectors are pairs of what vCenter, and what Linux or Windows in the VM, said about real VMs:
// vmware/pyvmomi issue 688 and charmed-kubernetes/charm-kubernetes-control-plane pull request 102.
func TestTheProviderIDIsVCentersWhateverTheOrderOfTheFirmware(t *testing.T) {
	raw := func(b ...byte) [16]byte { return [16]byte(b) }
	for name, tc := range map[string]struct {
		info host.Info
		want string
	}{
		"serial number, system UUID in vCenter's order": {
			host.Info{Serial: "VMware-42 1f 24 5c 7f a8 60 fa-6a f6 a4 63 51 ce d0 eb", UUID: raw(0x42, 0x1f, 0x24, 0x5c, 0x7f, 0xa8, 0x60, 0xfa, 0x6a, 0xf6, 0xa4, 0x63, 0x51, 0xce, 0xd0, 0xeb)},
			"vsphere://421f245c-7fa8-60fa-6af6-a46351ced0eb",
		},
		"serial number, system UUID in SMBIOS' order": {
			host.Info{Serial: "VMware-42 28 13 f5 d4 20 71 61-5d b0 7b 96 44 0c cf 54", UUID: raw(0xf5, 0x13, 0x28, 0x42, 0x20, 0xd4, 0x61, 0x71, 0x5d, 0xb0, 0x7b, 0x96, 0x44, 0x0c, 0xcf, 0x54)},
			"vsphere://422813f5-d420-7161-5db0-7b96440ccf54",
		},
		"capitals and spaces around the serial number": {
			host.Info{Serial: " VMware-42 1F 24 5C 7F A8 60 FA-6A F6 A4 63 51 CE D0 EB "},
			"vsphere://421f245c-7fa8-60fa-6af6-a46351ced0eb",
		},
		"a short serial number, system UUID in vCenter's order": {
			host.Info{Serial: "VM1234567890", UUID: raw(0x42, 0x1f, 0x24, 0x5c, 0x7f, 0xa8, 0x60, 0xfa, 0x6a, 0xf6, 0xa4, 0x63, 0x51, 0xce, 0xd0, 0xeb)},
			"vsphere://421f245c-7fa8-60fa-6af6-a46351ced0eb",
		},
		"no serial number, system UUID in SMBIOS' order": {
			host.Info{UUID: raw(0x5c, 0x24, 0x1f, 0x42, 0xa8, 0x7f, 0xfa, 0x60, 0x6a, 0xf6, 0xa4, 0x63, 0x51, 0xce, 0xd0, 0xeb)},
			"vsphere://421f245c-7fa8-60fa-6af6-a46351ced0eb",
		},
		"no serial number, a UUID that a host gave": {
			host.Info{UUID: raw(0x56, 0x4d, 0x24, 0x5c, 0x7f, 0xa8, 0x60, 0xfa, 0x6a, 0xf6, 0xa4, 0x63, 0x51, 0xce, 0xd0, 0xeb)},
			"vsphere://564d245c-7fa8-60fa-6af6-a46351ced0eb",
		},
		"no serial number, a UUID that a host gave in SMBIOS' order": {
			host.Info{UUID: raw(0x5c, 0x24, 0x4d, 0x56, 0xa8, 0x7f, 0xfa, 0x60, 0x6a, 0xf6, 0xa4, 0x63, 0x51, 0xce, 0xd0, 0xeb)},
			"vsphere://564d245c-7fa8-60fa-6af6-a46351ced0eb",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			tc.info.Manufacturer = "VMware, Inc."
			id, err := ProviderID(tc.info)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(id).To(Equal(tc.want))
		})
	}
}

func TestAProviderIDThatTheFirmwareDoesNotTellIsAnError(t *testing.T) {
	for name, info := range map[string]host.Info{
		"another hypervisor":              {Manufacturer: "Amazon EC2", Product: "m5.large", Serial: "ec2e1916-9099-7caf-fd21-012345abcdef"},
		"no firmware":                     {},
		"a serial number of fewer digits": {Manufacturer: "VMware, Inc.", Serial: "VMware-42 1f 24"},
		"a serial number of other signs":  {Manufacturer: "VMware, Inc.", Serial: "VMware-zz 1f 24 5c 7f a8 60 fa-6a f6 a4 63 51 ce d0 eb"},
		"a UUID in an order that cannot be told": {Manufacturer: "VMware, Inc.",
			UUID: [16]byte{0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 1, 2, 3, 4, 5, 6, 7, 8}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			id, err := ProviderID(info)
			g.Expect(err).To(MatchError(ErrUnknown))
			g.Expect(id).To(BeEmpty())
		})
	}
}
