package windowsmachine

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/infrastructure"
)

// needingCredentials makes the platform refuse every call without the Secret, or with another password than that of
// createCredentials.
func needingCredentials(w *world) {
	w.cloud.fail = func(_ string, m infrastructure.Machine) error {
		key := client.ObjectKey{Namespace: w.ns, Name: m.Spec.VSphere.IdentityRef.Name}
		secret := &corev1.Secret{}
		if err := api.Client.Get(w.ctx, key, secret); apierrors.IsNotFound(err) {
			return fmt.Errorf("%w: Secret %s does not exist", infrastructure.ErrIdentity, key)
		} else if err != nil {
			return err
		}
		if string(secret.Data["password"]) != "secret" {
			return fmt.Errorf("%w: incorrect user name or password", infrastructure.ErrIdentity)
		}
		return nil
	}
}

var _ = Describe("The credentials Secret", func() {
	credentials := func(w *world) func(Gomega) *corev1.Secret {
		return func(g Gomega) *corev1.Secret {
			s := &corev1.Secret{}
			g.Expect(api.Client.Get(w.ctx, client.ObjectKey{Namespace: w.ns, Name: "vcenter"}, s)).To(Succeed())
			return s
		}
	}
	edit := func(w *world, change func(*corev1.Secret)) {
		GinkgoHelper()
		s := credentials(w)(NewWithT(GinkgoT()))
		base := s.DeepCopy()
		change(s)
		Expect(api.Client.Patch(w.ctx, s, client.MergeFrom(base))).To(Succeed())
	}
	deleteIt := func(w *world) {
		GinkgoHelper()
		Expect(api.Client.Delete(w.ctx, credentials(w)(NewWithT(GinkgoT())))).To(Succeed())
	}
	eventuallyGone := func(w *world) {
		GinkgoHelper()
		Eventually(func() bool {
			return apierrors.IsNotFound(api.Client.Get(w.ctx, client.ObjectKey{Namespace: w.ns, Name: "vcenter"}, &corev1.Secret{}))
		}).Should(BeTrue(), "the Secret is gone")
	}
	protected := HaveField("Finalizers", ContainElement(infrav1.CredentialsFinalizer))

	It("outlives every VM when a namespace is deleted, which deletes Secrets first", func(ctx context.Context) {
		w := newWorld(ctx, needingCredentials)
		names := []string{"m1", "m2", "m3", "m4", "m5"}
		for _, name := range names {
			w.createMachine(name)
		}
		for _, name := range names {
			w.eventuallyProvisioned(name)
		}
		deleteIt(w)
		for _, name := range names[1:] {
			w.delete(name)
		}
		for _, name := range names[1:] {
			w.eventuallyGone(name)
		}
		Consistently(credentials(w)).Should(protected, "m1 needs it")
		w.delete(names[0])
		w.eventuallyGone(names[0])
		eventuallyGone(w)
	})

	It("is protected before the platform is asked, and let go with the last WindowsMachine, whose finalizer is not the only one", func(ctx context.Context) {
		w := newWorld(ctx)
		edit(w, func(s *corev1.Secret) { s.Finalizers = []string{"example.com/theirs"} })
		w.cloud.fail = func(string, infrastructure.Machine) error {
			defer GinkgoRecover()
			Expect(credentials(w)(NewWithT(GinkgoT()))).To(protected)
			return nil
		}
		w.createMachine("m1")
		w.createMachine("m2")
		w.eventuallyProvisioned("m1")
		w.eventuallyProvisioned("m2")
		w.delete("m1")
		w.eventuallyGone("m1")
		Consistently(credentials(w)).Should(protected)
		w.delete("m2")
		w.eventuallyGone("m2")
		Eventually(credentials(w)).Should(HaveField("Finalizers", ConsistOf("example.com/theirs")))
	})

	It("can be replaced when nothing was created with it", func(ctx context.Context) {
		w := newWorld(ctx, needingCredentials)
		edit(w, func(s *corev1.Secret) { s.Data["password"] = []byte("wrong") })
		w.createMachine("m1")
		Eventually(w.get("m1")).Should(And(HaveField("Status.Instance.State", BeEmpty()),
			haveCondition("Ready", metav1.ConditionFalse, infrav1.IdentityUnavailableReason, "incorrect user name")))
		deleteIt(w)
		eventuallyGone(w)
		w.createCredentials("vcenter")
		w.eventuallyProvisioned("m1")
		Expect(credentials(w)(NewWithT(GinkgoT()))).To(protected)
	})

	It("serves what there is while it is being deleted, and nothing new", func(ctx context.Context) {
		w := newWorld(ctx, needingCredentials)
		w.createMachine("m1")
		w.eventuallyProvisioned("m1")
		deleteIt(w)
		w.createMachine("m2")
		Eventually(w.get("m2")).Should(And(HaveField("Status.Instance.State", BeEmpty()), haveCondition("Ready", metav1.ConditionFalse,
			infrav1.IdentityUnavailableReason, "Secret "+w.ns+"/vcenter, named by spec.vsphere.identityRef, is being deleted")))
		Expect(w.cloud.callsOf("Ensure", "m2")).To(BeEmpty())
		w.cloud.change("m1", func(v *vm) { v.instance.State = infrav1.InstancePoweredOff })
		Eventually(w.get("m1")).Should(haveCondition("Ready", metav1.ConditionFalse, infrav1.InstancePoweredOffReason, ""))
		w.delete("m1")
		w.eventuallyGone("m1")
		eventuallyGone(w)
		Eventually(w.get("m2")).Should(haveCondition("Ready", metav1.ConditionFalse, infrav1.IdentityUnavailableReason, "does not exist"))
		w.createCredentials("vcenter")
		w.eventuallyProvisioned("m2")
	})

	It("is protected again when somebody removes the finalizer, and let go with a WindowsMachine that loses its own", func(ctx context.Context) {
		w := newWorld(ctx)
		w.createMachine("m1")
		w.eventuallyProvisioned("m1")
		edit(w, func(s *corev1.Secret) { s.Finalizers = nil })
		Eventually(credentials(w)).Should(protected)
		// As clusterctl move does.
		Expect(w.edit("m1", func(m *infrav1.WindowsMachine) { m.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })).To(Succeed())
		Eventually(w.get("m1")).Should(haveCondition("Paused", metav1.ConditionTrue, clusterv1.PausedReason, ""))
		w.delete("m1")
		Expect(w.edit("m1", func(m *infrav1.WindowsMachine) { m.Finalizers = nil })).To(Succeed())
		Eventually(credentials(w)).ShouldNot(protected)
	})
})
