package windowsconfig_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/bootstrap"
)

// What a ready cluster gets for a Machine.
var _ = Describe("Bootstrap data", func() {
	var w *world
	BeforeEach(func(ctx SpecContext) {
		w = newReadyWorld(ctx)
		w.startManager(managerOptions{})
	})

	It("B6, B8, B9: the status names the Secret, is Ready and has observed the generation", func(ctx SpecContext) {
		m := w.newWorker(ctx)
		m.eventuallyHasData(ctx)
		Eventually(m.condition(ctx, bootstrapv1.ReadyCondition)).Should(Equal("True Ready"))

		now := m.now(ctx)
		Expect(now.Status.DataSecretName).To(Equal(m.config.Name))
		Expect(m.condition(ctx, bootstrapv1.DataSecretAvailableCondition)()).To(Equal("True Available"))
		Expect(m.condition(ctx, bootstrapv1.BootstrapTokenValidCondition)()).To(Equal("True Valid"))
		Expect(m.condition(ctx, clusterv1.PausedCondition)()).To(Equal("False NotPaused"))
		Expect(now.Status.ObservedGeneration).To(Equal(now.Generation))
	})

	It("B10, B11: the Secret has name, label, owner, type, value and format as infrastructure providers expect", func(ctx SpecContext) {
		m := w.newWorker(ctx)
		m.eventuallyHasData(ctx)

		s := m.dataSecret(ctx)
		Expect(s.Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, w.cluster.Name))
		Expect(s.Type).To(BeEquivalentTo("cluster.x-k8s.io/secret"))
		Expect(s.OwnerReferences).To(ConsistOf(metav1.OwnerReference{
			APIVersion: "bootstrap.cluster.x-k8s.io/v1alpha1", Kind: "WindowsConfig", Name: m.config.Name, UID: m.config.UID,
			Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
		}))
		Expect(s.Data).To(HaveLen(2))
		Expect(s.Data["value"]).To(HavePrefix("rem cmd"))
		Expect(string(s.Data["format"])).To(Equal("cloud-config"))
	})

	It("B20, B21, B28, B29: the document in it makes a plain worker of this cluster", func(ctx SpecContext) {
		m := w.newWorker(ctx)
		m.eventuallyHasData(ctx)

		doc := m.document(ctx)
		Expect(doc.Cluster.Name).To(Equal(w.cluster.Name))
		Expect(doc.Cluster.Namespace).To(Equal(w.namespace))
		Expect(doc.Cluster.KubernetesVersion).To(Equal("v1.36.3"))
		Expect(doc.Node.Name).To(Equal(bootstrap.ComputerName(w.namespace, w.cluster.Name, m.machine.Name)))
		Expect(doc.Node.ProviderID).To(Equal("Auto"))
		Expect(doc.Node.Taints).To(ConsistOf(
			corev1.Taint{Key: "os", Value: "windows", Effect: corev1.TaintEffectNoSchedule},
			corev1.Taint{Key: "node.cluster.x-k8s.io/uninitialized", Effect: corev1.TaintEffectNoSchedule},
		))
		Expect(doc.Join.APIServerEndpoint).To(Equal("api.prod.example.com:6443"))
		hashes, err := bootstrap.CACertHashes(workload.CAData)
		Expect(err).NotTo(HaveOccurred())
		Expect(doc.Join.CACertHashes).To(Equal(hashes))

		By("B28: not persisting the taint in the API object")
		Expect(m.now(ctx).Spec).To(BeZero())
	})

	It("B23: the token in it lets a node authenticate with the workload cluster as kubeadm's bootstrappers", func(ctx SpecContext) {
		m := w.newWorker(ctx)
		m.eventuallyHasData(ctx)

		found, text := m.theToken(ctx)
		Expect(text).To(Equal(m.document(ctx).Join.Token))
		Expect(found.Data).To(HaveKeyWithValue("usage-bootstrap-signing", []byte("true")))
		review := whoAmI(ctx, text)
		Expect(review.Username).To(HavePrefix("system:bootstrap:"))
		Expect(review.Groups).To(ContainElement("system:bootstrappers:kubeadm:default-node-token"))
		Expect(m.events(ctx)).To(ContainElements("Normal DataSecretCreated", "Normal BootstrapTokenCreated"))
	})

	It("B30: labels of the WindowsConfig are in the document", func(ctx SpecContext) {
		m := w.newWorker(ctx, func(_ *clusterv1.Machine, c *bootstrapv1.WindowsConfig) {
			c.Spec.Node.Labels = map[string]string{"example.com/rack": "r1"}
		})
		m.eventuallyHasData(ctx)
		Expect(m.document(ctx).Node.Labels).To(Equal(map[string]string{"example.com/rack": "r1"}))
	})

	It("B7: data that was handed out never changes, whatever changes in the cluster", func(ctx SpecContext) {
		m := w.newWorker(ctx)
		m.eventuallyHasData(ctx)
		data := m.dataSecret(ctx).Data

		change(ctx, w.cluster, func(c *clusterv1.Cluster) { c.Spec.ControlPlaneEndpoint.Host = "moved.example.com" })
		m.provesReconciled(ctx)
		Expect(m.dataSecret(ctx).Data).To(Equal(data))
	})

	It("B12: an owner reference that got lost is added again", func(ctx SpecContext) {
		m := w.newWorker(ctx)
		m.eventuallyHasData(ctx)
		m.provesReconciled(ctx)
	})

	It("B12: an owner reference that got lost is added again after the node has joined", func(ctx SpecContext) {
		m := w.newWorker(ctx)
		m.eventuallyHasData(ctx)
		m.join(ctx)
		Eventually(m.condition(ctx, bootstrapv1.BootstrapTokenValidCondition)).Should(Equal("True NodeJoined"))
		m.provesReconciled(ctx)
	})

	It("B12: an owner reference with another UID, as a restore leaves behind, is brought up to date", func(ctx SpecContext) {
		m := w.newWorker(ctx)
		m.eventuallyHasData(ctx)
		change(ctx, m.dataSecret(ctx), func(s *corev1.Secret) { s.OwnerReferences[0].UID = "00000000-0000-0000-0000-000000000000" })
		Eventually(func() string { return string(m.dataSecret(ctx).OwnerReferences[0].UID) }).Should(BeEquivalentTo(m.config.UID))
		Expect(m.dataSecret(ctx).OwnerReferences).To(HaveLen(1))
	})

	DescribeTable("B12: a Secret of that name that is not ours is refused and left alone",
		func(ctx SpecContext, mutate func(*corev1.Secret), part string) {
			m := &worker{world: w, config: &bootstrapv1.WindowsConfig{ObjectMeta: metav1.ObjectMeta{Name: "md-win-7x9kq-abcde"}}}
			foreign := &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: m.config.Name, Labels: map[string]string{clusterv1.ClusterNameLabel: w.cluster.Name}},
				Type:       clusterv1.ClusterSecretType,
				Data:       map[string][]byte{"value": []byte("precious")},
			}
			mutate(foreign)
			Expect(mgmt.Create(ctx, foreign)).To(Succeed())

			m = w.newWorker(ctx)
			m.eventuallyWaits(ctx, bootstrapv1.SecretNotOwnedReason)
			Expect(m.message(ctx)).To(ContainSubstring(part))
			Eventually(func() []string { return m.events(ctx) }).Should(ContainElement("Warning DataSecretNotOwned"))
			Expect(m.now(ctx).Status.Initialization).To(BeZero())
			Expect(m.dataSecret(ctx).ResourceVersion).To(Equal(foreign.ResourceVersion))
			Expect(m.tokens(ctx)).To(BeEmpty())

			By("going on when it is gone")
			Expect(mgmt.Delete(ctx, foreign)).To(Succeed())
			m.eventuallyHasData(ctx)
		},
		Entry("because another object controls it", func(s *corev1.Secret) {
			s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "bootstrap.cluster.x-k8s.io/v1beta2", Kind: "KubeadmConfig", Name: "other", UID: "1", Controller: ptr.To(true)}}
		}, "KubeadmConfig other controls it"),
		Entry("because another WindowsConfig controls it", func(s *corev1.Secret) {
			s.OwnerReferences = []metav1.OwnerReference{{APIVersion: bootstrapv1.GroupVersion.String(), Kind: "WindowsConfig", Name: "other", UID: "1", Controller: ptr.To(true)}}
		}, "WindowsConfig other controls it"),
		Entry("because it holds something else", func(*corev1.Secret) {}, "holds no readable node document"),
		Entry("because it is of another type", func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }, `its type is "Opaque"`),
	)

	It("B13: a Secret that a crash left without a status is taken over with its token, and brought up to date", func(ctx SpecContext) {
		m := w.newWorker(ctx)
		m.eventuallyHasData(ctx)
		before, token := m.dataSecret(ctx), m.document(ctx).Join.Token

		change(ctx, w.cluster, func(c *clusterv1.Cluster) { c.Spec.ControlPlaneEndpoint.Host = "moved.example.com" })
		change(ctx, m.config, func(c *bootstrapv1.WindowsConfig) { c.Status = bootstrapv1.WindowsConfigStatus{} })

		m.eventuallyHasData(ctx)
		Expect(m.dataSecret(ctx).UID).To(Equal(before.UID))
		Expect(m.document(ctx).Join.Token).To(Equal(token))
		Expect(m.document(ctx).Join.APIServerEndpoint).To(Equal("moved.example.com:6443"))
		Expect(m.tokens(ctx)).To(HaveLen(1))
	})

	DescribeTable("B14: nothing is made for what is being deleted",
		func(ctx SpecContext, which func(*worker) client.Object) {
			m := w.newWorker(ctx, func(machine *clusterv1.Machine, c *bootstrapv1.WindowsConfig) {
				machine.Finalizers = []string{"example.com/keep"}
				c.Finalizers = []string{"example.com/keep"}
				c.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
			})
			Eventually(m.condition(ctx, clusterv1.PausedCondition)).Should(Equal("True Paused"))
			Expect(mgmt.Delete(ctx, which(m))).To(Succeed())
			change(ctx, m.config, func(c *bootstrapv1.WindowsConfig) { c.Annotations = nil })

			Consistently(func() []corev1.Secret { return m.tokens(ctx) }).Should(BeEmpty())
			Expect(m.now(ctx).Status.Initialization).To(BeZero())
		},
		Entry("a WindowsConfig", func(m *worker) client.Object { return m.config }),
		Entry("a Machine", func(m *worker) client.Object { return m.machine }),
	)

	It("tells when the data is too large for a guest", func(ctx SpecContext) {
		change(ctx, get(ctx, mgmt, w.namespace, w.cluster.Name+"-ca", &corev1.Secret{}), func(s *corev1.Secret) {
			s.Data["tls.crt"] = manyCAs(1500)
		})
		m := w.newWorker(ctx)
		m.eventuallyWaits(ctx, bootstrapv1.BootstrapDataTooLargeReason)
		Expect(m.message(ctx)).To(MatchRegexp(`has \d+ bytes, more than the \d+`))
		Eventually(func() []string { return m.events(ctx) }).Should(ContainElement("Warning BootstrapDataTooLarge"))
		Expect(m.tokens(ctx)).To(BeEmpty())
	})
})

// provesReconciled takes the owner reference away and waits until it is back, so the reconciler was there meanwhile.
func (w *worker) provesReconciled(ctx context.Context) {
	GinkgoHelper()
	change(ctx, w.dataSecret(ctx), func(s *corev1.Secret) { s.OwnerReferences = nil })
	Eventually(func() bool { return metav1.IsControlledBy(w.dataSecret(ctx), w.config) }).Should(BeTrue())
}

// whoAmI asks the workload cluster who the bearer of a token is.
func whoAmI(ctx context.Context, token string) authenticationv1.UserInfo {
	GinkgoHelper()
	config := rest.AnonymousClientConfig(workload)
	config.BearerToken = token
	review := &authenticationv1.SelfSubjectReview{}
	Eventually(func() error { return newClient(config).Create(ctx, review) }).Should(Succeed())
	return review.Status.UserInfo
}
