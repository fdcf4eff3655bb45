package windowsmachine

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
)

var _ = Describe("The API of a WindowsMachine", func() {
	DescribeTable("I18: refuses what no platform can be",
		func(ctx context.Context, change func(*infrav1.WindowsMachineSpec), message string) {
			w := emptyWorld(ctx)
			m := &infrav1.WindowsMachine{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "m1"}, Spec: infrav1.WindowsMachineSpec{VSphere: vsphere()}}
			Expect(api.Client.Create(ctx, m.DeepCopy(), client.DryRunAll)).To(Succeed())
			change(&m.Spec)
			Expect(api.Client.Create(ctx, m)).To(MatchError(ContainSubstring(message)))
		},
		Entry("no platform", func(s *infrav1.WindowsMachineSpec) { s.VSphere, s.ProviderID = nil, "vsphere://x" },
			"spec: Invalid value: exactly one platform must be set: set spec.vsphere"),
		Entry("a vCenter that is a URL", func(s *infrav1.WindowsMachineSpec) { s.VSphere.Server = "https://vcenter.example.com/sdk" },
			"spec.vsphere.server: Invalid value"),
		Entry("a vCenter with a port that there is not", func(s *infrav1.WindowsMachineSpec) { s.VSphere.Server = "vcenter.example.com:65536" },
			`spec.vsphere.server: Invalid value: "vcenter.example.com:65536": the port must be at most 65535`),
		Entry("no credentials", func(s *infrav1.WindowsMachineSpec) { s.VSphere.IdentityRef.Name = "" },
			"spec.vsphere.identityRef: Required value"),
		Entry("a thumbprint of SHA-1", func(s *infrav1.WindowsMachineSpec) { s.VSphere.Thumbprint = "AA:BB" },
			"spec.vsphere.thumbprint"),
		Entry("CPUs that fill no sockets", func(s *infrav1.WindowsMachineSpec) { s.VSphere.NumCPUs, s.VSphere.NumCoresPerSocket = 6, 4 },
			"spec.vsphere.numCPUs: Invalid value: numCPUs must be a multiple of numCoresPerSocket"),
		Entry("memory that vSphere does not take", func(s *infrav1.WindowsMachineSpec) { s.VSphere.MemoryMiB = 4097 },
			"spec.vsphere.memoryMiB: Invalid value: 4097: spec.vsphere.memoryMiB in body should be a multiple of 4"),
		Entry("no template", func(s *infrav1.WindowsMachineSpec) { s.VSphere.Template = "" },
			"spec.vsphere.template: Required value: template must be set: here, or in each of failureDomains"),
		Entry("a template in some failure domains only", func(s *infrav1.WindowsMachineSpec) {
			s.VSphere.Template = ""
			s.VSphere.FailureDomains = []infrav1.VSphereFailureDomain{{Name: "a", VSpherePlacement: infrav1.VSpherePlacement{Template: "t"}}, {Name: "b"}}
		}, "spec.vsphere.template: Required value: template must be set: here, or in each of failureDomains"),
		Entry("a failure domain twice", func(s *infrav1.WindowsMachineSpec) {
			s.VSphere.FailureDomains = []infrav1.VSphereFailureDomain{{Name: "a"}, {Name: "a"}}
		}, `spec.vsphere.failureDomains[1]: Duplicate value`),
	)

	DescribeTable("I18: takes what a platform can be",
		func(ctx context.Context, change func(*infrav1.VSphereSpec)) {
			w := emptyWorld(ctx)
			m := &infrav1.WindowsMachine{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "m1"}, Spec: infrav1.WindowsMachineSpec{VSphere: vsphere()}}
			change(m.Spec.VSphere)
			Expect(api.Client.Create(ctx, m)).To(Succeed())
		},
		Entry("CPUs that fill sockets", func(s *infrav1.VSphereSpec) { s.NumCPUs, s.NumCoresPerSocket = 8, 4 }),
		Entry("cores per socket alone", func(s *infrav1.VSphereSpec) { s.NumCoresPerSocket = 4 }),
		Entry("a template in each failure domain", func(s *infrav1.VSphereSpec) {
			s.Template = ""
			s.FailureDomains = []infrav1.VSphereFailureDomain{{Name: "a", VSpherePlacement: infrav1.VSpherePlacement{Template: "t"}}}
		}),
		Entry("a vCenter with a port", func(s *infrav1.VSphereSpec) { s.Server = "[2001:db8::1]:8443" }),
		Entry("a vCenter with the last port", func(s *infrav1.VSphereSpec) { s.Server = "192.0.2.10:65535" }),
		Entry("a vCenter whose address ends like a port", func(s *infrav1.VSphereSpec) { s.Server = "[2001:db8::9999]" }),
	)

	DescribeTable("I18: refuses to change what was chosen",
		func(ctx context.Context, change func(*infrav1.WindowsMachineSpec), message string) {
			w := emptyWorld(ctx)
			m := &infrav1.WindowsMachine{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "m1"}, Spec: infrav1.WindowsMachineSpec{ProviderID: "vsphere://1", VSphere: vsphere()}}
			Expect(api.Client.Create(ctx, m)).To(Succeed())
			Expect(w.edit("m1", func(m *infrav1.WindowsMachine) { change(&m.Spec) })).To(MatchError(ContainSubstring(message)))
		},
		Entry("the platform's settings", func(s *infrav1.WindowsMachineSpec) { s.VSphere.MemoryMiB = 8192 },
			"spec.vsphere: Forbidden: vsphere is immutable but for thumbprint, identityRef and failureDomains: create a new WindowsMachineTemplate and let the MachineDeployment roll over to it"),
		Entry("a setting that was not made", func(s *infrav1.WindowsMachineSpec) { s.VSphere.Folder = "f" },
			"spec.vsphere: Forbidden: vsphere is immutable"),
		Entry("the vCenter", func(s *infrav1.WindowsMachineSpec) { s.VSphere.Server = "other.example.com" },
			"spec.vsphere: Forbidden: vsphere is immutable"),
		Entry("the platform", func(s *infrav1.WindowsMachineSpec) { s.VSphere = nil },
			"spec.vsphere: Forbidden: vsphere is immutable"),
		Entry("the provider ID", func(s *infrav1.WindowsMachineSpec) { s.ProviderID = "vsphere://2" },
			"spec.providerID: Forbidden: providerID is immutable once set"),
		Entry("the provider ID to nothing", func(s *infrav1.WindowsMachineSpec) { s.ProviderID = "" },
			"spec.providerID: Forbidden: providerID is immutable once set"),
	)

	It("I17: lets the way to the vCenter be changed, so that a new certificate or new credentials strand no VM", func(ctx context.Context) {
		w := emptyWorld(ctx)
		m := &infrav1.WindowsMachine{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "m1"}, Spec: infrav1.WindowsMachineSpec{ProviderID: "vsphere://1", VSphere: vsphere()}}
		Expect(api.Client.Create(ctx, m)).To(Succeed())
		Expect(w.edit("m1", func(m *infrav1.WindowsMachine) {
			m.Spec.VSphere.Thumbprint = strings.Repeat("ab:", 31) + "AB"
			m.Spec.VSphere.IdentityRef.Name = "rotated"
			m.Spec.VSphere.FailureDomains = []infrav1.VSphereFailureDomain{{Name: "added"}}
		})).To(Succeed())
	})

	It("I11: takes what Cluster API and the controller write: metadata, owner references, the provider ID, the server-side apply of a MachineSet", func(ctx context.Context) {
		w := emptyWorld(ctx)
		w.createCluster("c1")
		spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&infrav1.WindowsMachineSpec{VSphere: vsphere()})
		Expect(err).NotTo(HaveOccurred())
		apply := func(manager string, content map[string]any) error {
			u := &unstructured.Unstructured{Object: content}
			u.SetGroupVersionKind(infrav1.GroupVersion.WithKind("WindowsMachine"))
			u.SetNamespace(w.ns)
			u.SetName("m1")
			return api.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(manager), client.ForceOwnership)
		}
		for range 2 { // creation, and the same again for an in-place change
			Expect(apply("capi-machineset", map[string]any{"spec": spec})).To(Succeed())
			Expect(apply("capi-machineset-metadata", map[string]any{"metadata": map[string]any{
				"labels": map[string]any{clusterv1.ClusterNameLabel: "c1"}, "annotations": map[string]any{"example.com/a": "b"}}})).To(Succeed())
		}
		Expect(w.edit("m1", func(m *infrav1.WindowsMachine) {
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "m1", UID: "1"}}
		})).To(Succeed())
		Expect(w.edit("m1", func(m *infrav1.WindowsMachine) { m.Spec.ProviderID = "vsphere://1" })).To(Succeed())
		Expect(apply("capi-machineset", map[string]any{"spec": spec})).To(Succeed())
		Expect(w.now("m1").Spec.ProviderID).To(Equal("vsphere://1"))
	})
})
