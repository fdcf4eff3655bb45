package vsphere_test

import (
	"context"
	"crypto/rand"
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/infrastructure"
)

var _ = Describe("A specification", func() {
	var (
		w   *world
		m   *manager
		ctx = context.Background()
	)
	BeforeEach(func() {
		w = newWorld()
		m = w.start()
	})

	DescribeTable("that names what the vCenter does not have is refused with field, value and remedy", func(change func(*infrav1.VSphereSpec), field, value, problem string) {
		s := w.newMachine("win-1", change)
		_, err := m.Ensure(ctx, s)
		config := errorAs[*infrastructure.ConfigError](err)
		Expect(config.Field).To(Equal(field))
		Expect(config.Value).To(Equal(value))
		Expect(config.Problem).To(ContainSubstring(problem))
		Expect(w.vcenter.Calls().Methods).NotTo(HaveKey("CloneVM_Task"))
		m.untilDeleted(s.Machine)
	},
		Entry("datacenter", func(v *infrav1.VSphereSpec) { v.Datacenter = "DC9" }, "spec.vsphere.datacenter", "DC9", "there is no datacenter of this name in /"),
		Entry("template by name", func(v *infrav1.VSphereSpec) { v.Template = "linux" }, "spec.vsphere.template", "linux", "there is no VM template of this name in /DC0"),
		Entry("template by path", func(v *infrav1.VSphereSpec) { v.Template = "/DC0/vm/x/linux" }, "spec.vsphere.template", "/DC0/vm/x/linux", "there is no VM template /DC0/vm/x/linux"),
		Entry("no template", func(v *infrav1.VSphereSpec) { v.Template = "" }, "spec.vsphere.template", "", "is required"),
		Entry("folder", func(v *infrav1.VSphereSpec) { v.Folder = "nodes" }, "spec.vsphere.folder", "nodes", "there is no VM folder of this name in /DC0"),
		Entry("resource pool", func(v *infrav1.VSphereSpec) { v.ResourcePool = "big" }, "spec.vsphere.resourcePool", "big", "there is no resource pool or cluster of this name"),
		Entry("datastore", func(v *infrav1.VSphereSpec) { v.Datastore = "nas" }, "spec.vsphere.datastore", "nas", "there is no datastore of this name"),
		Entry("network", func(v *infrav1.VSphereSpec) { v.Network = "blue" }, "spec.vsphere.network", "blue", "there is no network or distributed port group of this name"),
		Entry("something of another kind", func(v *infrav1.VSphereSpec) { v.Folder = "/DC0/vm/windows-2022" }, "spec.vsphere.folder", "/DC0/vm/windows-2022", "is a VirtualMachine, not a VM folder"),
	)

	It("that names a VM as template is refused", func() {
		Expect(w.vcenter.CreateForeignVM(ctx, "no-template")).To(Succeed())
		_, err := m.Ensure(ctx, w.newMachine("win-1", func(v *infrav1.VSphereSpec) { v.Template = "no-template" }))
		Expect(errorAs[*infrastructure.ConfigError](err).Problem).To(ContainSubstring("is a VM, not a template"))
	})

	It("names objects anywhere in the datacenter, and an ambiguous name is refused with all paths", func() {
		Expect(w.vcenter.CreateFolder(ctx, "/DC0/vm", "a")).To(Succeed())
		Expect(w.vcenter.CreateFolder(ctx, "/DC0/vm/a", "nodes")).To(Succeed())
		s := w.newMachine("win-1", func(v *infrav1.VSphereSpec) { v.Folder = "nodes" })
		m.untilRunning(s)
		m.untilDeleted(s.Machine)

		Expect(w.vcenter.CreateFolder(ctx, "/DC0/vm", "b")).To(Succeed())
		Expect(w.vcenter.CreateFolder(ctx, "/DC0/vm/b", "nodes")).To(Succeed())
		_, err := m.Ensure(ctx, w.newMachine("win-2", func(v *infrav1.VSphereSpec) { v.Folder = "nodes" }))
		config := errorAs[*infrastructure.ConfigError](err)
		Expect(config.Problem).To(ContainSubstring(`is ambiguous, there are ["/DC0/vm/a/nodes" "/DC0/vm/b/nodes"]`))
	})

	It("names a cluster for its root resource pool", func() {
		m.untilRunning(w.newMachine("win-1", func(v *infrav1.VSphereSpec) { v.ResourcePool = "DC0_C0" }))
	})

	It("is looked up anew when what it names was replaced", func() {
		m.untilRunning(w.newMachine("win-1"))
		Expect(w.vcenter.ReplaceTemplate(ctx)).To(Succeed())
		m.untilRunning(w.newMachine("win-2"))
		Expect(w.vcenter.Calls().Methods["CloneVM_Task"]).To(Equal(3), "one of them met the template that is gone")
	})

	It("of a failure domain is named with the failure domain", func() {
		s := w.newMachine("win-1", func(v *infrav1.VSphereSpec) {
			v.FailureDomains = []infrav1.VSphereFailureDomain{{Name: "zone-a", VSpherePlacement: infrav1.VSpherePlacement{Network: "blue"}}}
		})
		s.FailureDomain = "zone-a"
		_, err := m.Ensure(ctx, s)
		Expect(errorAs[*infrastructure.ConfigError](err).Field).To(Equal("spec.vsphere.failureDomains[zone-a].network"))
		s.FailureDomain = "zone-b"
		_, err = m.Ensure(ctx, s)
		domain := errorAs[*infrastructure.FailureDomainError](err)
		Expect(domain.Name).To(Equal("zone-b"))
		Expect(domain.Known).To(Equal([]string{"zone-a"}))
	})

	It("with more user data than guestinfo delivers is refused with sizes, and nothing is created", func() {
		s := w.newMachine("win-1")
		s.UserData = make([]byte, 64<<10)
		_, _ = rand.Read(s.UserData) // does not compress
		_, err := m.Ensure(ctx, s)
		large := errorAs[*infrastructure.TooLargeError](err)
		Expect(large.What).To(ContainSubstring("user data"))
		Expect(large.Size).To(BeNumerically(">", large.Limit))
		Expect(w.vcenter.Calls().Methods).NotTo(HaveKey("CloneVM_Task"))
	})

	DescribeTable("whose credentials are not usable is refused with Secret, key and remedy", func(data map[string]string, wants ...string) {
		if data == nil {
			Expect(w.secrets.DeleteAllOf(ctx, &corev1.Secret{})).To(Succeed())
		} else {
			w.setSecret("vcenter", data)
		}
		s := w.newMachine("win-1")
		_, err := m.Ensure(ctx, s)
		Expect(errors.Is(err, infrastructure.ErrIdentity)).To(BeTrue(), "got %v", err)
		for _, want := range append(wants, "team-a/vcenter") {
			Expect(err.Error()).To(ContainSubstring(want))
		}
		_, err = m.Delete(ctx, s.Machine)
		Expect(errors.Is(err, infrastructure.ErrIdentity)).To(BeTrue(), "got %v", err)
	},
		Entry("no Secret", nil, "does not exist: create it"),
		Entry("no user name", map[string]string{"password": "x"}, "has no key username", "add it"),
		Entry("no password", map[string]string{"username": "x"}, "has no key password", "add it"),
		Entry("an empty password", map[string]string{"username": "x", "password": ""}, "has no key password"),
		Entry("no CA in ca.crt", map[string]string{"username": "x", "password": "x", "ca.crt": "hello"}, "no PEM certificate under the key ca.crt"),
	)
})
