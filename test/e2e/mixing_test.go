package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/test/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/test/guest"
)

var _ = Describe("A WindowsMachine", func() {
	It("works in a cluster whose infrastructure is of another provider", func(ctx context.Context) {
		startGuests(guest.Options{})
		w := newWorld(ctx)
		By("creating a cluster of a foreign kind, provisioned by its own provider")
		crd := builder.GenericInfrastructureClusterCRD.DeepCopy()
		Expect(client.IgnoreAlreadyExists(w.Create(ctx, crd))).To(Succeed())
		foreign := builder.InfrastructureCluster(w.namespace, w.cluster).Build()
		Eventually(func() error { return w.Create(ctx, foreign) }).WithContext(ctx).Should(Succeed())
		before := foreign.DeepCopy()
		Expect(unstructured.SetNestedField(foreign.Object, true, "status", "initialization", "provisioned")).To(Succeed())
		Expect(w.Status().Patch(ctx, foreign, client.MergeFrom(before))).To(Succeed())
		w.createClusterWithInfrastructure(ctx, clusterv1.ContractVersionedObjectReference{
			APIGroup: foreign.GroupVersionKind().Group, Kind: foreign.GetKind(), Name: w.cluster,
		})

		w.createMachineDeployment(ctx, "md", 1)
		w.eventuallyRunning(ctx, "md", 1)
		w.deleteCluster(ctx)
	}, SpecTimeout(5*time.Minute))

	It("takes the cloud-config Secret of another bootstrap provider unchanged", func(ctx context.Context) {
		simulator := startGuests(guest.Options{})
		w := newWorld(ctx)
		w.createCluster(ctx)
		const userData = "#cloud-config\nwrite_files:\n- path: C:\\k\\hello.txt\n  content: hello\n"
		Expect(w.Create(ctx, &corev1.Secret{
			ObjectMeta: w.named("foreign-data"),
			Type:       clusterv1.ClusterSecretType,
			StringData: map[string]string{"value": userData, "format": "cloud-config"},
		})).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(w.Delete(ctx, &corev1.Secret{ObjectMeta: w.named("foreign-data")})).To(Succeed())
		})
		machine := w.createMachine(ctx, "single", "foreign-data")
		Eventually(func(g Gomega) {
			g.Expect(simulator.Snapshot()).To(ConsistOf(And(
				HaveField("VM", "single"), HaveField("Phase", guest.Foreign), HaveField("ForeignData", []byte(userData)),
			)))
			g.Expect(w.Get(ctx, client.ObjectKeyFromObject(machine), machine)).To(Succeed())
			g.Expect(conditions.IsTrue(machine, clusterv1.InfrastructureReadyCondition)).To(BeTrue())
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(5*time.Minute))

	It("tells the Machine within seconds, in vCenter's own words, why its VM could not be created, and heals", func(ctx context.Context) {
		startGuests(guest.Options{})
		w := newWorld(ctx)
		w.createCluster(ctx)
		const reason = "No host has 8192 MB of memory left."
		Expect(vcenter.FailClones(ctx, 1, reason)).To(Succeed())
		w.createMachineDeployment(ctx, "md", 1)
		Eventually(func(g Gomega) {
			machines := w.machines(ctx)
			g.Expect(machines).To(HaveLen(1))
			ready := conditions.Get(&machines[0], clusterv1.InfrastructureReadyCondition)
			g.Expect(ready).NotTo(BeNil())
			g.Expect(ready.Message).To(ContainSubstring(reason))
			events := &corev1.EventList{}
			g.Expect(w.List(ctx, events, client.InNamespace(w.namespace))).To(Succeed())
			g.Expect(events.Items).To(ContainElement(And(
				HaveField("InvolvedObject.Kind", "WindowsMachine"),
				HaveField("Reason", infrav1.InstanceCreateFailedReason),
				HaveField("Message", ContainSubstring(reason)),
			)))
		}).WithContext(ctx).WithTimeout(20 * time.Second).Should(Succeed())
		w.eventuallyRunning(ctx, "md", 1)
	}, SpecTimeout(5*time.Minute))
})

// createMachine creates a Machine of its own, with a WindowsMachine and ready-made bootstrap data.
func (w *world) createMachine(ctx context.Context, name, dataSecret string) *clusterv1.Machine {
	GinkgoHelper()
	Expect(w.Create(ctx, &infrav1.WindowsMachine{ObjectMeta: w.named(name), Spec: infrav1.WindowsMachineSpec{VSphere: vsphere()}})).To(Succeed())
	m := &clusterv1.Machine{
		ObjectMeta: w.named(name),
		Spec: clusterv1.MachineSpec{
			ClusterName:       w.cluster,
			Version:           kubernetesVersion,
			Bootstrap:         clusterv1.Bootstrap{DataSecretName: ptr.To(dataSecret)},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "WindowsMachine", Name: name},
		},
	}
	Expect(w.Create(ctx, m)).To(Succeed())
	return m
}
