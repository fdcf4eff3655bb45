package windowsconfig_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
)

// The life of a token after the data was handed out.
var _ = Describe("The bootstrap token", func() {
	// Long enough for expirations, which are in whole seconds, short enough to watch.
	const ttl = 6 * time.Second

	var w *world
	BeforeEach(func(ctx SpecContext) { w = newReadyWorld(ctx) })

	handOut := func(ctx SpecContext) *worker {
		GinkgoHelper()
		m := w.newWorker(ctx)
		m.eventuallyHasData(ctx)
		// As core does.
		change(ctx, m.machine, func(machine *clusterv1.Machine) { machine.Spec.Bootstrap.DataSecretName = ptr.To(m.config.Name) })
		return m
	}

	It("B23, B24: lives for an hour by default", func(ctx SpecContext) {
		w.startManager(managerOptions{})
		m := handOut(ctx)
		Expect(m.expiration(ctx)).To(BeTemporally("~", time.Now().Add(time.Hour), 10*time.Second))
	})

	It("B17, B24: is extended, and nothing else done, until the node has joined", func(ctx SpecContext) {
		w.startManager(managerOptions{tokenTTL: ttl})
		m := handOut(ctx)
		data, token := m.dataSecret(ctx).ResourceVersion, m.document(ctx).Join.Token

		for range 3 {
			Eventually(func() time.Time { return m.expiration(ctx) }, 2*ttl).Should(BeTemporally(">", m.expiration(ctx)))
		}
		Expect(m.dataSecret(ctx).ResourceVersion).To(Equal(data))
		_, text := m.theToken(ctx)
		Expect(text).To(Equal(token))

		By("joining")
		m.join(ctx)
		Eventually(m.condition(ctx, bootstrapv1.BootstrapTokenValidCondition)).Should(Equal("True NodeJoined"))
		Expect(m.tokens(ctx)).To(BeEmpty(), "nobody needs it any more")
		m.provesReconciled(ctx)
		Consistently(func() int { return len(m.tokens(ctx)) }, ttl/2).Should(BeZero(), "and it does not come back")
		Expect(m.condition(ctx, bootstrapv1.ReadyCondition)()).To(Equal("True Ready"))
	})

	It("B24: is left alone while more than 5/6 of its TTL remain", func(ctx SpecContext) {
		w.startManager(managerOptions{})
		m := handOut(ctx)
		found, _ := m.theToken(ctx)
		m.provesReconciled(ctx)
		Expect(m.rawToken(ctx).ResourceVersion).To(Equal(found.ResourceVersion))

		By("going below")
		m.expireIn(ctx, 49*time.Minute)
		m.provesReconciled(ctx)
		Eventually(func() time.Time { return m.expiration(ctx) }).Should(BeTemporally(">", time.Now().Add(59*time.Minute)))
	})

	It("B25: is read back from the data Secret by a manager that has never seen it", func(ctx SpecContext) {
		stop := w.startManager(managerOptions{})
		m := handOut(ctx)
		token := m.document(ctx).Join.Token
		stop()

		m.expireIn(ctx, time.Minute)
		w.startManager(managerOptions{})
		Eventually(func() time.Time { return m.expiration(ctx) }).Should(BeTemporally(">", time.Now().Add(50*time.Minute)))
		_, text := m.theToken(ctx)
		Expect(text).To(Equal(token))
		Expect(m.now(ctx).Spec).To(BeZero(), "no credential in the spec")
	})

	It("B26: is made again as it was when the workload cluster has lost it, so that a VM that holds it can still join", func(ctx SpecContext) {
		stop := w.startManager(managerOptions{})
		m := handOut(ctx)
		data, token := m.dataSecret(ctx).ResourceVersion, m.document(ctx).Join.Token
		stop()

		By("being down for longer than the token lived")
		Expect(work.Delete(ctx, m.rawToken(ctx))).To(Succeed())
		w.startManager(managerOptions{})
		Eventually(func() int { return len(m.tokens(ctx)) }).Should(Equal(1))
		_, text := m.theToken(ctx)
		Expect(text).To(Equal(token))
		Expect(whoAmI(ctx, token).Username).To(HavePrefix("system:bootstrap:"))
		Expect(m.dataSecret(ctx).ResourceVersion).To(Equal(data))
	})

	It("B26: is made anew, with the data, when the data is lost before an instance has it", func(ctx SpecContext) {
		w.startManager(managerOptions{})
		m := handOut(ctx)
		token := m.document(ctx).Join.Token
		Expect(mgmt.Delete(ctx, m.dataSecret(ctx))).To(Succeed())
		Eventually(func() error {
			return mgmt.Get(ctx, client.ObjectKeyFromObject(m.config), &corev1.Secret{})
		}).Should(Succeed())
		Expect(m.document(ctx).Join.Token).NotTo(Equal(token))
		Eventually(func() int { return len(m.tokens(ctx)) }).Should(Equal(2), "the first one expires")
	})

	It("B26: is given up, and said so, when the data is lost after an instance has it", func(ctx SpecContext) {
		w.startManager(managerOptions{})
		m := handOut(ctx)
		change(ctx, m.machine, func(machine *clusterv1.Machine) {
			machine.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
		})
		Expect(mgmt.Delete(ctx, m.dataSecret(ctx))).To(Succeed())
		Eventually(m.condition(ctx, bootstrapv1.BootstrapTokenValidCondition)).Should(Equal("False " + bootstrapv1.TokenRefreshFailedReason))
		Expect(m.now(ctx).Status.DataSecretName).To(Equal(m.config.Name))
		Expect(m.tokens(ctx)).To(HaveLen(1))
	})

	It("never extends a token of somebody else that has the same ID", func(ctx SpecContext) {
		w.startManager(managerOptions{})
		m := handOut(ctx)
		other := m.rawToken(ctx)
		other.Data["token-secret"] = []byte("0123456789abcdef")
		other.Data["expiration"] = []byte(time.Now().Add(time.Minute).UTC().Format(time.RFC3339))
		Expect(work.Update(ctx, other)).To(Succeed())
		m.provesReconciled(ctx)
		Eventually(m.condition(ctx, bootstrapv1.BootstrapTokenValidCondition)).Should(Equal("Unknown " + bootstrapv1.TokenRefreshFailedReason))
		Expect(m.rawToken(ctx).ResourceVersion).To(Equal(other.ResourceVersion))
	})

	It("waits, with the data still available, while the workload cluster cannot be reached", func(ctx SpecContext) {
		stop := w.startManager(managerOptions{})
		m := handOut(ctx)
		stop()
		kubeconfig := get(ctx, mgmt, w.namespace, "prod-kubeconfig", &corev1.Secret{})
		good := kubeconfig.Data["value"]
		change(ctx, kubeconfig, func(s *corev1.Secret) { s.Data["value"] = []byte("nonsense") })
		m.expireIn(ctx, time.Minute)

		w.startManager(managerOptions{})
		Eventually(m.condition(ctx, bootstrapv1.BootstrapTokenValidCondition)).Should(Equal("Unknown " + bootstrapv1.WaitingForConnectionReason))
		Expect(m.condition(ctx, bootstrapv1.DataSecretAvailableCondition)()).To(Equal("True Available"))

		change(ctx, kubeconfig, func(s *corev1.Secret) { s.Data["value"] = good })
		Eventually(m.condition(ctx, bootstrapv1.BootstrapTokenValidCondition)).Should(Equal("True Valid"))
		Expect(m.expiration(ctx)).To(BeTemporally(">", time.Now().Add(50*time.Minute)))
	})

	It("B16, B25: goes on after clusterctl move: status from the Machine, token from the Secret, no new data", func(ctx SpecContext) {
		stop := w.startManager(managerOptions{})
		m := handOut(ctx)
		data := m.dataSecret(ctx)
		stop()

		By("moving: objects are created anew without status, under a paused Cluster that has no status either")
		moved := newWorld(ctx)
		moved.createKubeconfig(ctx)
		moved.createCA(ctx, workload.CAData)
		change(ctx, moved.cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) })
		moved.startManager(managerOptions{})
		n := moved.newWorker(ctx, func(machine *clusterv1.Machine, _ *bootstrapv1.WindowsConfig) {
			machine.Spec.Bootstrap.DataSecretName = ptr.To(m.config.Name)
		})
		Expect(mgmt.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: moved.namespace, Name: data.Name, Labels: data.Labels,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(n.config, bootstrapv1.GroupVersion.WithKind("WindowsConfig"))}},
			Type: data.Type, Data: data.Data,
		})).To(Succeed())
		m.expireIn(ctx, time.Minute)
		Eventually(n.condition(ctx, clusterv1.PausedCondition)).Should(Equal("True Paused"))

		change(ctx, moved.cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
		n.eventuallyHasData(ctx)
		Expect(n.now(ctx).Status.DataSecretName).To(Equal(m.config.Name))

		moved.initializeControlPlane(ctx)
		moved.provisionInfrastructure(ctx)
		Eventually(n.condition(ctx, bootstrapv1.BootstrapTokenValidCondition)).Should(Equal("True Valid"))
		Expect(n.dataSecret(ctx).Data).To(Equal(data.Data))
		Expect(m.expiration(ctx)).To(BeTemporally(">", time.Now().Add(50*time.Minute)), "the token that the VM has was extended")
		Expect(n.tokens(ctx)).To(BeEmpty(), "no other token was made")
	})
})

// rawToken returns the Secret in the workload cluster for the token in the data.
func (w *worker) rawToken(ctx context.Context) *corev1.Secret {
	GinkgoHelper()
	return get(ctx, work, "kube-system", "bootstrap-token-"+w.document(ctx).Join.Token[:6], &corev1.Secret{})
}

func (w *worker) expiration(ctx context.Context) time.Time {
	GinkgoHelper()
	at, err := time.Parse(time.RFC3339, string(w.rawToken(ctx).Data["expiration"]))
	Expect(err).NotTo(HaveOccurred())
	return at
}

func (w *worker) expireIn(ctx context.Context, d time.Duration) {
	GinkgoHelper()
	s := w.rawToken(ctx)
	s.Data["expiration"] = []byte(time.Now().Add(d).UTC().Format(time.RFC3339))
	Expect(work.Update(ctx, s)).To(Succeed())
}
