package windowsmachinetemplate

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/test/apitest"
)

var api *apitest.APIServer

func TestWindowsMachineTemplate(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(20 * time.Second)
	SetDefaultEventuallyPollingInterval(10 * time.Millisecond)
	SetDefaultConsistentlyDuration(300 * time.Millisecond)
	RunSpecs(t, "WindowsMachineTemplate controller")
}

var _ = BeforeSuite(func(context.Context) {
	ctrl.SetLogger(GinkgoLogr)
	var err error
	api, err = apitest.Start(envtest.WebhookInstallOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(api.Stop()).To(Succeed()) })
}, NodeTimeout(2*time.Minute))

// create starts a manager in a new namespace and creates a template there.
func create(ctx context.Context, watchFilter string, options ...func(*infrav1.WindowsMachineTemplate)) *infrav1.WindowsMachineTemplate {
	ns, err := api.CreateNamespace(ctx)
	Expect(err).NotTo(HaveOccurred())
	manager, err := api.StartManager(apitest.ManagerOptions{Namespace: ns, Setup: func(ctx context.Context, mgr ctrl.Manager) error {
		return (&Reconciler{Client: mgr.GetClient(), WatchFilterValue: watchFilter}).SetupWithManager(ctx, mgr, controller.Options{SkipNameValidation: ptr.To(true)})
	}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(manager.Stop)
	t := &infrav1.WindowsMachineTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "t1"},
		Spec: infrav1.WindowsMachineTemplateSpec{Template: infrav1.WindowsMachineTemplateResource{Spec: infrav1.WindowsMachineSpec{VSphere: &infrav1.VSphereSpec{
			Server:           "vcenter.example.com",
			IdentityRef:      infrav1.VSphereIdentityReference{Name: "vcenter"},
			VSpherePlacement: infrav1.VSpherePlacement{Template: "windows-2022"},
		}}}},
	}
	for _, option := range options {
		option(t)
	}
	Expect(api.Client.Create(ctx, t)).To(Succeed())
	return t
}

// statusOf returns the status as it is, for Eventually.
func statusOf(ctx context.Context, t *infrav1.WindowsMachineTemplate) func(Gomega) infrav1.WindowsMachineTemplateStatus {
	return func(g Gomega) infrav1.WindowsMachineTemplateStatus {
		g.Expect(api.Client.Get(ctx, client.ObjectKeyFromObject(t), t)).To(Succeed())
		return t.Status
	}
}

var windows = infrav1.NodeInfo{Architecture: "amd64", OperatingSystem: "windows"}

var _ = Describe("A WindowsMachineTemplate", func() {
	It("I13: tells the autoscaler CPUs, memory and that the node runs Windows", func(ctx context.Context) {
		t := create(ctx, "", func(t *infrav1.WindowsMachineTemplate) {
			t.Spec.Template.Spec.VSphere.NumCPUs, t.Spec.Template.Spec.VSphere.MemoryMiB = 4, 16384
		})
		Eventually(statusOf(ctx, t)).Should(HaveField("NodeInfo", windows))
		Expect(t.Status.Capacity).To(HaveLen(2))
		Expect(t.Status.Capacity.Cpu().Cmp(resource.MustParse("4"))).To(BeZero())
		Expect(t.Status.Capacity.Memory().Cmp(resource.MustParse("16Gi"))).To(BeZero())
	})

	It("I13: does not guess what it leaves to the platform's template", func(ctx context.Context) {
		t := create(ctx, "")
		Eventually(statusOf(ctx, t)).Should(HaveField("NodeInfo", windows))
		Expect(t.Status.Capacity).To(BeEmpty())
		t = create(ctx, "", func(t *infrav1.WindowsMachineTemplate) { t.Spec.Template.Spec.VSphere.NumCPUs = 2 })
		Eventually(statusOf(ctx, t)).Should(HaveField("NodeInfo", windows))
		Expect(t.Status.Capacity).To(And(HaveLen(1), HaveKey(corev1.ResourceCPU)))
	})

	It("I14: leaves alone what Cluster API writes: the Cluster as an owner", func(ctx context.Context) {
		t := create(ctx, "")
		Eventually(statusOf(ctx, t)).Should(HaveField("NodeInfo", windows))
		base := t.DeepCopy()
		owners := []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "c1", UID: "1"}}
		t.OwnerReferences, t.Labels = owners, map[string]string{clusterv1.ClusterNameLabel: "c1"}
		Expect(api.Client.Patch(ctx, t, client.MergeFrom(base))).To(Succeed())
		Consistently(statusOf(ctx, t)).Should(HaveField("NodeInfo", windows))
		Expect(t.OwnerReferences).To(Equal(owners))
	})

	It("is left alone while it is paused", func(ctx context.Context) {
		t := create(ctx, "", func(t *infrav1.WindowsMachineTemplate) {
			t.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		})
		Consistently(statusOf(ctx, t)).Should(BeZero())
		base := t.DeepCopy()
		t.Annotations = nil
		Expect(api.Client.Patch(ctx, t, client.MergeFrom(base))).To(Succeed())
		Eventually(statusOf(ctx, t)).Should(HaveField("NodeInfo", windows))
	})

	It("is left alone without the label of --watch-filter", func(ctx context.Context) {
		t := create(ctx, "mine")
		Consistently(statusOf(ctx, t)).Should(BeZero())
		base := t.DeepCopy()
		t.Labels = map[string]string{clusterv1.WatchLabel: "mine"}
		Expect(api.Client.Patch(ctx, t, client.MergeFrom(base))).To(Succeed())
		Eventually(statusOf(ctx, t)).Should(HaveField("NodeInfo", windows))
	})
})
