package vsphere_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	vim "github.com/vmware/govmomi/vim25/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
)

func decode(value string) string {
	GinkgoHelper()
	raw, err := base64.StdEncoding.DecodeString(value)
	Expect(err).NotTo(HaveOccurred())
	r, err := gzip.NewReader(bytes.NewReader(raw))
	Expect(err).NotTo(HaveOccurred())
	text, err := io.ReadAll(r)
	Expect(err).NotTo(HaveOccurred())
	return string(text)
}

var _ = Describe("A VM", func() {
	var (
		w   *world
		ctx = context.Background()
	)
	BeforeEach(func() { w = newWorld() })

	It("I1: is created by one task with its hardware, network, guest data and owner mark, and gets the provider ID of its BIOS UUID", func() {
		m, s := w.start(), w.newMachine("win-1")
		first, err := m.Ensure(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		Expect(first.State).To(Equal(infrav1.InstanceCreating))
		Expect(first.Message).To(ContainSubstring("clone of VM win-1"))
		instance := m.untilRunning(s)

		vms := w.vcenter.VMs()
		Expect(vms).To(HaveLen(1))
		vm := vms[0]
		Expect(instance.ID).To(Equal(vm.ID))
		Expect(instance.ProviderID).To(Equal("vsphere://" + vm.UUID))
		Expect(vm.PowerState).To(Equal("poweredOn"))
		Expect(vm.Config).To(HaveKeyWithValue("guestinfo.metadata.encoding", "gzip+base64"))
		Expect(vm.Config).To(HaveKeyWithValue("guestinfo.userdata.encoding", "gzip+base64"))
		Expect(vm.Config).To(HaveKeyWithValue("disk.EnableUUID", "TRUE"))
		Expect(decode(vm.Config["guestinfo.userdata"])).To(Equal(string(s.UserData)))
		var metadata map[string]string
		Expect(json.Unmarshal([]byte(decode(vm.Config["guestinfo.metadata"])), &metadata)).To(Succeed())
		Expect(metadata).To(Equal(map[string]string{"instance-id": vm.InstanceUUID, "local-hostname": "win-1"}))
		Expect(vm.Config["capw.owner"]).To(MatchJSON(fmt.Sprintf(`{"uid":%q,"namespace":"team-a","name":"win-1","cluster":"c1"}`, s.Owner.UID)))
		hardware, err := w.vcenter.Hardware(ctx, "win-1")
		Expect(err).NotTo(HaveOccurred())
		Expect(hardware.NumCPU).To(BeEquivalentTo(4))
		Expect(hardware.CoresPerSocket).To(BeEquivalentTo(2))
		Expect(hardware.MemoryMiB).To(BeEquivalentTo(8192))
		Expect(hardware.Networks).To(Equal([]string{"DC0_DVPG0"}))
		Expect(hardware.Datastores).To(Equal([]string{"LocalDS_1"}))
		Expect(hardware.Firmware).To(Equal("efi"))
		Expect(w.vcenter.Calls().Methods).To(HaveKeyWithValue("CloneVM_Task", 1))
		Expect(w.vcenter.Calls().Methods).NotTo(HaveKey("PowerOnVM_Task"))
		Expect(w.vcenter.Calls().Methods).NotTo(HaveKey("ReconfigVM_Task"))
	})

	It("I3: reports host name, DNS name and the addresses of the guest of both families, and not those that nobody can reach", func() {
		m, s := w.start(), w.newMachine("win-1")
		s.ProviderID = m.untilRunning(s).ProviderID
		seen := m.wakes(s.Owner)
		Expect(w.vcenter.SetExtraConfig(ctx, "win-1", map[string]any{"SET.guest.net": vim.ArrayOfGuestNicInfo{GuestNicInfo: []vim.GuestNicInfo{
			{DeviceConfigId: 4000, IpAddress: []string{"fe80::1", "10.0.0.7", "2001:db8::7", "169.254.3.4"}},
			{DeviceConfigId: -1, IpAddress: []string{"172.27.32.1"}},
		}}})).To(Succeed())
		Eventually(func() int { return m.wakes(s.Owner) }).Should(BeNumerically(">", seen))
		instance, err := m.Observe(ctx, s.Machine)
		Expect(err).NotTo(HaveOccurred())
		Expect(instance.Addresses).To(Equal([]clusterv1.MachineAddress{
			{Type: clusterv1.MachineHostName, Address: "win-1"},
			{Type: clusterv1.MachineInternalIP, Address: "10.0.0.7"},
			{Type: clusterv1.MachineInternalIP, Address: "2001:db8::7"},
			{Type: clusterv1.MachineInternalDNS, Address: "win-1"},
		}))
	})

	It("I9: is reported as missing when it was destroyed behind our back, and is not created again", func() {
		m, s := w.start(), w.newMachine("win-1")
		s.ProviderID = m.untilRunning(s).ProviderID
		seen := m.wakes(s.Owner)
		Expect(w.vcenter.DestroyVM(ctx, "win-1")).To(Succeed())
		Eventually(func() int { return m.wakes(s.Owner) }).Should(BeNumerically(">", seen))
		Eventually(func() (infrav1.InstanceState, error) {
			i, err := m.Observe(ctx, s.Machine)
			return i.State, err
		}).Should(Equal(infrav1.InstanceMissing))
		instance, err := m.Ensure(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		Expect(instance.State).To(Equal(infrav1.InstanceMissing))
		Consistently(w.names).Should(BeEmpty())
		m.untilDeleted(s.Machine)
	})

	It("is reported as powered off and wakes the reconciler when somebody powers it off", func() {
		m, s := w.start(), w.newMachine("win-1")
		s.ProviderID = m.untilRunning(s).ProviderID
		Expect(w.vcenter.PowerOffVM(ctx, "win-1")).To(Succeed())
		m.reconcile(s.Owner, func() (bool, error) {
			i, err := m.Observe(ctx, s.Machine)
			return i.State == infrav1.InstancePoweredOff, err
		})
	})

	It("I8: is powered off and destroyed, and deleting it again is a success", func() {
		m, s := w.start(), w.newMachine("win-1")
		s.ProviderID = m.untilRunning(s).ProviderID
		w.vcenter.ResetCalls()
		m.untilDeleted(s.Machine)
		Expect(w.names()).To(BeEmpty())
		AddReportEntry("calls to delete 1 VM\n" + w.vcenter.Calls().Table(1))
		m.untilDeleted(s.Machine)
	})

	It("is created where its failure domain says", func() {
		m, s := w.start(), w.newMachine("win-1", func(v *infrav1.VSphereSpec) {
			v.FailureDomains = []infrav1.VSphereFailureDomain{{Name: "zone-a", VSpherePlacement: infrav1.VSpherePlacement{Datastore: "LocalDS_0", Network: "VM Network"}}}
		})
		s.FailureDomain = "zone-a"
		Expect(m.untilRunning(s).FailureDomain).To(Equal("zone-a"))
		hardware, err := w.vcenter.Hardware(ctx, "win-1")
		Expect(err).NotTo(HaveOccurred())
		Expect(hardware.Datastores).To(Equal([]string{"LocalDS_0"}))
		Expect(hardware.Networks).To(Equal([]string{"VM Network"}))
	})

	It("is created with the defaults of everything that is optional", func() {
		m, s := w.start(), w.newMachine("win-1", func(v *infrav1.VSphereSpec) {
			v.VSpherePlacement = infrav1.VSpherePlacement{Template: "windows-2022"}
			v.NumCPUs, v.NumCoresPerSocket, v.MemoryMiB = 0, 0, 0
		})
		m.untilRunning(s)
		hardware, err := w.vcenter.Hardware(ctx, "win-1")
		Expect(err).NotTo(HaveOccurred())
		Expect(hardware.NumCPU).To(BeEquivalentTo(2))
		Expect(hardware.MemoryMiB).To(BeEquivalentTo(4096))
	})
})
