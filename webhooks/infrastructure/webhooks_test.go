package infrastructure

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/test/apitest"
)

var api *apitest.APIServer

func TestWebhooks(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Infrastructure webhooks")
}

var _ = BeforeSuite(func(ctx context.Context) {
	ctrl.SetLogger(GinkgoLogr)
	var err error
	api, err = apitest.Start(envtest.WebhookInstallOptions{Paths: []string{"../../config/infrastructure/webhook"}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(api.Stop()).To(Succeed()) })
	manager, err := api.StartManager(apitest.ManagerOptions{Webhooks: true, Setup: func(_ context.Context, mgr ctrl.Manager) error { return SetupWithManager(mgr) }})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(manager.Stop)
	Eventually(func() error {
		return api.Client.Create(ctx, clusterTemplateObject("default"), client.DryRunAll)
	}, 20*time.Second, 50*time.Millisecond).Should(Succeed(), "the webhooks are served")
}, NodeTimeout(2*time.Minute))

func machineTemplateObject(ns string) *infrav1.WindowsMachineTemplate {
	return &infrav1.WindowsMachineTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "t1"},
		Spec: infrav1.WindowsMachineTemplateSpec{Template: infrav1.WindowsMachineTemplateResource{Spec: infrav1.WindowsMachineSpec{VSphere: &infrav1.VSphereSpec{
			Server:           "vcenter.example.com",
			IdentityRef:      infrav1.VSphereIdentityReference{Name: "vcenter"},
			VSpherePlacement: infrav1.VSpherePlacement{Template: "windows-2022"},
		}}}},
	}
}

func clusterTemplateObject(ns string) *infrav1.WindowsClusterTemplate {
	return &infrav1.WindowsClusterTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "t1"},
		Spec:       infrav1.WindowsClusterTemplateSpec{Template: infrav1.WindowsClusterTemplateResource{Spec: &infrav1.WindowsClusterSpec{}}},
	}
}

// forTopology marks an object as the topology controller does for its dry runs.
func forTopology(o client.Object) {
	o.SetAnnotations(map[string]string{clusterv1.TopologyDryRunAnnotation: ""})
}

// templateKind is what the rules of templates are checked with.
type templateKind struct {
	object     func(ns string) client.Object
	metadata   func(client.Object) *clusterv1.ObjectMeta
	changeSpec func(client.Object)
	forbidden  string
}

var _ = Describe("I12: a WindowsMachineTemplate", describeTemplate(templateKind{
	object: func(ns string) client.Object { return machineTemplateObject(ns) },
	metadata: func(o client.Object) *clusterv1.ObjectMeta {
		return &o.(*infrav1.WindowsMachineTemplate).Spec.Template.ObjectMeta
	},
	changeSpec: func(o client.Object) {
		o.(*infrav1.WindowsMachineTemplate).Spec.Template.Spec.VSphere.MemoryMiB = 8192
	},
	forbidden: "spec.template.spec: Forbidden: is immutable: create a new WindowsMachineTemplate and refer to it",
}))

var _ = Describe("I24: a WindowsClusterTemplate", describeTemplate(templateKind{
	object: func(ns string) client.Object { return clusterTemplateObject(ns) },
	metadata: func(o client.Object) *clusterv1.ObjectMeta {
		return &o.(*infrav1.WindowsClusterTemplate).Spec.Template.ObjectMeta
	},
	changeSpec: func(o client.Object) {
		o.(*infrav1.WindowsClusterTemplate).Spec.Template.Spec.FailureDomains = []infrav1.WindowsClusterFailureDomain{{Name: "a"}}
	},
	forbidden: "spec.template.spec: Forbidden: is immutable: create a new WindowsClusterTemplate and refer to it",
}))

func describeTemplate(kind templateKind) func() {
	return func() {
		var t client.Object
		// edit sends the change of a copy, so that a refused one leaves no trace.
		edit := func(ctx context.Context, change func(client.Object), options ...client.PatchOption) error {
			changed := t.DeepCopyObject().(client.Object)
			change(changed)
			return api.Client.Patch(ctx, changed, client.MergeFrom(t), options...)
		}
		BeforeEach(func(ctx context.Context) {
			ns, err := api.CreateNamespace(ctx)
			Expect(err).NotTo(HaveOccurred())
			t = kind.object(ns)
		})

		It("never changes what its machines or clusters are made from", func(ctx context.Context) {
			Expect(api.Client.Create(ctx, t)).To(Succeed())
			Expect(edit(ctx, kind.changeSpec)).To(MatchError(ContainSubstring(kind.forbidden)))
			Expect(edit(ctx, kind.changeSpec, client.DryRunAll)).To(MatchError(ContainSubstring(kind.forbidden)), "a dry run alone is no reason")
			Expect(edit(ctx, func(o client.Object) { forTopology(o); kind.changeSpec(o) })).To(MatchError(ContainSubstring(kind.forbidden)), "nor is the annotation alone")
		})

		It("lets the topology controller try out a change", func(ctx context.Context) {
			Expect(api.Client.Create(ctx, t)).To(Succeed())
			Expect(edit(ctx, func(o client.Object) { forTopology(o); kind.changeSpec(o) }, client.DryRunAll)).To(Succeed())
		})

		It("takes what Cluster API changes: owners, labels, annotations and spec.template.metadata (I14)", func(ctx context.Context) {
			Expect(api.Client.Create(ctx, t)).To(Succeed())
			Expect(edit(ctx, func(o client.Object) {
				o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "c1", UID: "1"}})
				o.SetLabels(map[string]string{clusterv1.ClusterNameLabel: "c1"})
				kind.metadata(o).Labels = map[string]string{"example.com/pool": "gpu"}
			})).To(Succeed())
		})

		It("refuses labels and annotations that no object can have", func(ctx context.Context) {
			bad := t.DeepCopyObject().(client.Object)
			kind.metadata(bad).Labels = map[string]string{"a b": "c"}
			Expect(api.Client.Create(ctx, bad)).To(MatchError(ContainSubstring("spec.template.metadata.labels: Invalid value: \"a b\"")))
			Expect(api.Client.Create(ctx, t)).To(Succeed())
			Expect(edit(ctx, func(o client.Object) { kind.metadata(o).Annotations = map[string]string{"/": ""} })).
				To(MatchError(ContainSubstring("spec.template.metadata.annotations: Invalid value: \"/\"")))
		})
	}
}

var _ = It("I12: a WindowsMachineTemplate has no provider ID", func(ctx context.Context) {
	t := machineTemplateObject("default")
	t.Spec.Template.Spec.ProviderID = "vsphere://1"
	Expect(api.Client.Create(ctx, t)).To(MatchError(ContainSubstring("providerID belongs to one instance and cannot stand in a template: remove spec.template.spec.providerID")))
})
