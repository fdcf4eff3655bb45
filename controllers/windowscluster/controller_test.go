package windowscluster

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/test/apitest"
)

var api *apitest.APIServer

func TestWindowsCluster(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(20 * time.Second)
	SetDefaultEventuallyPollingInterval(10 * time.Millisecond)
	SetDefaultConsistentlyDuration(300 * time.Millisecond)
	RunSpecs(t, "WindowsCluster controller")
}

var _ = BeforeSuite(func(context.Context) {
	ctrl.SetLogger(GinkgoLogr)
	var err error
	api, err = apitest.Start(envtest.WebhookInstallOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(api.Stop()).To(Succeed()) })
}, NodeTimeout(2*time.Minute))

// world is a namespace with a manager; the test plays Cluster API.
type world struct {
	ctx     context.Context //nolint:containedctx // a world is one test and lives as long as its context
	ns      string
	cluster *clusterv1.Cluster
}

func newWorld(ctx context.Context, watchFilter string) *world {
	ns, err := api.CreateNamespace(ctx)
	Expect(err).NotTo(HaveOccurred())
	manager, err := api.StartManager(apitest.ManagerOptions{Namespace: ns, Setup: func(ctx context.Context, mgr ctrl.Manager) error {
		r := &Reconciler{Client: mgr.GetClient(), WatchFilterValue: watchFilter}
		return r.SetupWithManager(ctx, mgr, controller.Options{SkipNameValidation: ptr.To(true)})
	}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(manager.Stop)
	return &world{ctx: ctx, ns: ns}
}

// create creates the Cluster and its WindowsCluster.
func (w *world) create(spec infrav1.WindowsClusterSpec, options ...func(*clusterv1.Cluster, *infrav1.WindowsCluster)) {
	w.cluster = &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "c1"},
		Spec:       clusterv1.ClusterSpec{InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "WindowsCluster", Name: "c1"}},
	}
	wc := &infrav1.WindowsCluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "c1"}, Spec: spec}
	for _, option := range options {
		option(w.cluster, wc)
	}
	Expect(api.Client.Create(w.ctx, w.cluster)).To(Succeed())
	wc.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(w.cluster, clusterv1.GroupVersion.WithKind("Cluster"))}
	Expect(api.Client.Create(w.ctx, wc)).To(Succeed())
}

func (w *world) get(g Gomega) *infrav1.WindowsCluster {
	wc := &infrav1.WindowsCluster{}
	g.Expect(api.Client.Get(w.ctx, client.ObjectKey{Namespace: w.ns, Name: "c1"}, wc)).To(Succeed())
	return wc
}

func (w *world) editCluster(change func(*clusterv1.Cluster)) {
	base := w.cluster.DeepCopy()
	change(w.cluster)
	Expect(api.Client.Patch(w.ctx, w.cluster, client.MergeFrom(base))).To(Succeed())
}

func (w *world) edit(change func(*infrav1.WindowsCluster)) error {
	wc := w.get(NewWithT(GinkgoT()))
	base := wc.DeepCopy()
	change(wc)
	return api.Client.Patch(w.ctx, wc, client.MergeFrom(base))
}

// eventuallyHas waits for a condition on a provisioned WindowsCluster.
func (w *world) eventuallyHas(conditionType string, status metav1.ConditionStatus, reason string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		wc := w.get(g)
		c := conditions.Get(wc, conditionType)
		g.Expect(c).NotTo(BeNil())
		g.Expect(c.Status).To(Equal(status))
		g.Expect(c.Reason).To(Equal(reason))
		g.Expect(wc.Status.Initialization.Provisioned).To(HaveValue(BeTrue()))
	}).Should(Succeed())
}

var endpoint = clusterv1.APIEndpoint{Host: "api.example.com", Port: 6443}

var _ = Describe("A WindowsCluster", func() {
	It("I20: keeps the endpoint of its spec, whatever the Cluster says", func(ctx context.Context) {
		w := newWorld(ctx, "")
		w.create(infrav1.WindowsClusterSpec{ControlPlaneEndpoint: endpoint})
		w.eventuallyHas(infrav1.EndpointAvailableCondition, metav1.ConditionTrue, infrav1.EndpointAvailableReason)
		w.eventuallyHas("Ready", metav1.ConditionTrue, "Ready")
		w.editCluster(func(c *clusterv1.Cluster) {
			c.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "other.example.com", Port: 443}
		})
		Consistently(w.get).Should(HaveField("Spec.ControlPlaneEndpoint", endpoint))
	})

	It("I20, I21: is provisioned without an endpoint, and waits for the Cluster's without ever writing its own", func(ctx context.Context) {
		w := newWorld(ctx, "")
		w.create(infrav1.WindowsClusterSpec{})
		w.eventuallyHas(infrav1.EndpointAvailableCondition, metav1.ConditionFalse, infrav1.WaitingForEndpointReason)
		w.eventuallyHas("Ready", metav1.ConditionFalse, infrav1.WaitingForEndpointReason)
		w.editCluster(func(c *clusterv1.Cluster) { c.Spec.ControlPlaneEndpoint = endpoint })
		w.eventuallyHas(infrav1.EndpointAvailableCondition, metav1.ConditionTrue, infrav1.EndpointAvailableReason)
		w.eventuallyHas("Ready", metav1.ConditionTrue, "Ready")
		Expect(w.get(NewWithT(GinkgoT())).Spec.ControlPlaneEndpoint).To(BeZero())
	})

	It("I20: takes no empty endpoint", func(ctx context.Context) {
		w := newWorld(ctx, "")
		create := func(endpoint map[string]any) error {
			u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"controlPlaneEndpoint": endpoint}}}
			u.SetGroupVersionKind(infrav1.GroupVersion.WithKind("WindowsCluster"))
			u.SetNamespace(w.ns)
			u.SetGenerateName("c-")
			return api.Client.Create(ctx, u)
		}
		Expect(create(map[string]any{"host": "h", "port": int64(6443)})).To(Succeed())
		Expect(create(map[string]any{})).To(MatchError(ContainSubstring("should have at least 1 properties")))
	})

	It("I21: offers its failure domains for workers, as a list by name", func(ctx context.Context) {
		w := newWorld(ctx, "")
		w.create(infrav1.WindowsClusterSpec{ControlPlaneEndpoint: endpoint, FailureDomains: []infrav1.WindowsClusterFailureDomain{{Name: "rack-1"}, {Name: "rack-2"}}})
		domain := func(name string) clusterv1.FailureDomain {
			return clusterv1.FailureDomain{Name: name, ControlPlane: ptr.To(false)}
		}
		Eventually(w.get).Should(HaveField("Status.FailureDomains", ConsistOf(domain("rack-1"), domain("rack-2"))))
		Expect(w.edit(func(c *infrav1.WindowsCluster) { c.Spec.FailureDomains = c.Spec.FailureDomains[:1] })).To(Succeed())
		Eventually(w.get).Should(HaveField("Status.FailureDomains", ConsistOf(domain("rack-1"))))
		Expect(w.edit(func(c *infrav1.WindowsCluster) { c.Spec.FailureDomains = nil })).To(Succeed())
		Eventually(w.get).Should(HaveField("Status.FailureDomains", BeEmpty()))
		Expect(w.edit(func(c *infrav1.WindowsCluster) {
			c.Spec.FailureDomains = []infrav1.WindowsClusterFailureDomain{{Name: "a"}, {Name: "a"}}
		})).To(MatchError(ContainSubstring("Duplicate value")))
	})

	It("I22: has no finalizer, and is gone at once when it is deleted", func(ctx context.Context) {
		w := newWorld(ctx, "")
		w.create(infrav1.WindowsClusterSpec{ControlPlaneEndpoint: endpoint})
		w.eventuallyHas("Ready", metav1.ConditionTrue, "Ready")
		wc := w.get(NewWithT(GinkgoT()))
		Expect(wc.Finalizers).To(BeEmpty())
		Expect(api.Client.Delete(ctx, wc)).To(Succeed())
		Expect(client.IgnoreNotFound(api.Client.Get(ctx, client.ObjectKeyFromObject(wc), wc))).To(Succeed())
		list := &infrav1.WindowsClusterList{}
		Expect(api.Client.List(ctx, list, client.InNamespace(w.ns))).To(Succeed())
		Expect(list.Items).To(BeEmpty())
	})

	It("I23: is left alone while something else manages it, also when its Cluster changes", func(ctx context.Context) {
		w := newWorld(ctx, "")
		w.create(infrav1.WindowsClusterSpec{}, func(_ *clusterv1.Cluster, wc *infrav1.WindowsCluster) {
			wc.Annotations = map[string]string{clusterv1.ManagedByAnnotation: "terraform"}
		})
		w.editCluster(func(c *clusterv1.Cluster) { c.Spec.ControlPlaneEndpoint = endpoint })
		Consistently(w.get).Should(HaveField("Status", BeZero()))
		Expect(w.edit(func(c *infrav1.WindowsCluster) { c.Annotations = nil })).To(Succeed())
		w.eventuallyHas("Ready", metav1.ConditionTrue, "Ready")
	})

	It("waits for its Cluster to own it, and stands still while that is paused", func(ctx context.Context) {
		w := newWorld(ctx, "")
		w.create(infrav1.WindowsClusterSpec{ControlPlaneEndpoint: endpoint}, func(c *clusterv1.Cluster, _ *infrav1.WindowsCluster) { c.Spec.Paused = ptr.To(true) })
		Eventually(w.get).Should(HaveField("Status.Conditions", ConsistOf(HaveField("Type", "Paused"))))
		Consistently(w.get).Should(HaveField("Status.Initialization.Provisioned", BeNil()))
		w.editCluster(func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
		w.eventuallyHas("Ready", metav1.ConditionTrue, "Ready")

		orphan := &infrav1.WindowsCluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "orphan"}}
		Expect(api.Client.Create(ctx, orphan)).To(Succeed())
		Consistently(func(g Gomega) infrav1.WindowsClusterStatus {
			g.Expect(api.Client.Get(ctx, client.ObjectKeyFromObject(orphan), orphan)).To(Succeed())
			return orphan.Status
		}).Should(BeZero())
	})

	It("is left alone without the label of --watch-filter", func(ctx context.Context) {
		w := newWorld(ctx, "mine")
		w.create(infrav1.WindowsClusterSpec{ControlPlaneEndpoint: endpoint})
		Consistently(w.get).Should(HaveField("Status", BeZero()))
		Expect(w.edit(func(c *infrav1.WindowsCluster) { c.Labels = map[string]string{clusterv1.WatchLabel: "mine"} })).To(Succeed())
		w.eventuallyHas("Ready", metav1.ConditionTrue, "Ready")
	})
})

var _ = DescribeTable("I20: a control plane endpoint is both host and port, or nothing",
	func(ctx context.Context, endpoint clusterv1.APIEndpoint, allowed bool) {
		spec := infrav1.WindowsClusterSpec{ControlPlaneEndpoint: endpoint}
		meta := metav1.ObjectMeta{Namespace: "default", GenerateName: "endpoint-"}
		for path, o := range map[string]client.Object{
			"spec.controlPlaneEndpoint": &infrav1.WindowsCluster{ObjectMeta: meta, Spec: spec},
			"spec.template.spec.controlPlaneEndpoint": &infrav1.WindowsClusterTemplate{ObjectMeta: meta,
				Spec: infrav1.WindowsClusterTemplateSpec{Template: infrav1.WindowsClusterTemplateResource{Spec: &spec}}},
		} {
			err := api.Client.Create(ctx, o, client.DryRunAll)
			if allowed {
				Expect(err).NotTo(HaveOccurred())
			} else {
				Expect(err).To(MatchError(And(ContainSubstring(path+": Invalid value"),
					ContainSubstring("set both controlPlaneEndpoint.host and controlPlaneEndpoint.port, or remove controlPlaneEndpoint"))))
			}
		}
	},
	Entry("both", clusterv1.APIEndpoint{Host: "api.example.com", Port: 6443}, true),
	Entry("nothing", clusterv1.APIEndpoint{}, true),
	Entry("a host alone", clusterv1.APIEndpoint{Host: "api.example.com"}, false),
	Entry("a port alone", clusterv1.APIEndpoint{Port: 6443}, false),
)
