package windowsconfig_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
)

// How the controller waits, and what wakes it. It never comes back by itself for these, so what is expected here to
// happen happens through a watch.
var _ = Describe("Waiting", func() {
	It("B15, B18, B20, B22: goes from reason to reason as the Cluster comes up, woken by watches only", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.startManager(managerOptions{})
		m := w.newWorker(ctx)

		m.eventuallyWaits(ctx, bootstrapv1.WaitingForClusterInfrastructureReason)
		Eventually(m.condition(ctx, bootstrapv1.ReadyCondition)).Should(Equal("False " + bootstrapv1.WaitingForClusterInfrastructureReason))

		w.provisionInfrastructure(ctx)
		m.eventuallyWaits(ctx, bootstrapv1.WaitingForControlPlaneReason)

		w.initializeControlPlane(ctx)
		m.eventuallyWaits(ctx, bootstrapv1.WaitingForEndpointReason)

		w.setEndpoint(ctx)
		m.eventuallyWaits(ctx, bootstrapv1.WaitingForConnectionReason)
		Expect(m.message(ctx)).To(ContainSubstring("prod-kubeconfig"))
		Expect(m.tokens(ctx)).To(BeEmpty())

		By("connecting to the workload cluster")
		w.createKubeconfig(ctx)
		m.eventuallyHasData(ctx)
		Expect(m.now(ctx).Status.ObservedGeneration).To(BeEquivalentTo(1))
		Expect(m.events(ctx)).NotTo(ContainElement(HavePrefix("Warning")))
	})

	It("B14, B22: does nothing without an owner, and goes on when Machine and Cluster appear", func(ctx SpecContext) {
		w := newReadyWorld(ctx)
		w.startManager(managerOptions{})
		orphan := &bootstrapv1.WindowsConfig{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "orphan"}}
		Expect(mgmt.Create(ctx, orphan)).To(Succeed())

		By("owning a WindowsConfig by a Machine that is not there yet")
		m := w.newWorker(ctx, func(machine *clusterv1.Machine, _ *bootstrapv1.WindowsConfig) { machine.Spec.ClusterName = "later" })
		m.machine.Labels[clusterv1.ClusterNameLabel] = "later"
		change(ctx, m.machine, func(machine *clusterv1.Machine) { machine.Labels[clusterv1.ClusterNameLabel] = "later" })
		m.eventuallyWaits(ctx, bootstrapv1.WaitingForClusterInfrastructureReason)
		Expect(m.message(ctx)).To(Equal("waiting for Cluster later, which Machine " + m.machine.Name + " names, to be created"))

		later := &world{namespace: w.namespace, cluster: &clusterv1.Cluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "later"},
			Spec: clusterv1.ClusterSpec{InfrastructureRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "WindowsCluster", Name: "later"}},
		}}
		Expect(mgmt.Create(ctx, later.cluster)).To(Succeed())
		Eventually(func() string { return m.message(ctx) }).Should(ContainSubstring("infrastructureProvisioned"))

		Expect(get(ctx, mgmt, w.namespace, "orphan", &bootstrapv1.WindowsConfig{}).Status).To(BeZero())
	})

	It("B20: takes the CA from the kubeconfig Secret when there is no CA Secret", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.createKubeconfig(ctx)
		w.setEndpoint(ctx)
		w.initializeControlPlane(ctx)
		w.provisionInfrastructure(ctx)
		w.startManager(managerOptions{})
		m := w.newWorker(ctx)
		m.eventuallyHasData(ctx)
		Expect(m.document(ctx).Join.CACertHashes).To(Equal(hashesOf(workload.CAData)))
	})

	It("B20: prefers the CA Secret and pins every CA in it", func(ctx SpecContext) {
		w := newReadyWorld(ctx)
		bundle := append(manyCAs(2), workload.CAData...)
		change(ctx, get(ctx, mgmt, w.namespace, "prod-ca", &corev1.Secret{}), func(s *corev1.Secret) { s.Data["tls.crt"] = bundle })
		w.startManager(managerOptions{})
		m := w.newWorker(ctx)
		m.eventuallyHasData(ctx)
		Expect(m.document(ctx).Join.CACertHashes).To(And(HaveLen(3), Equal(hashesOf(bundle))))
	})

	It("B20, B22: waits for a readable CA and is woken by the Secret", func(ctx SpecContext) {
		w := newReadyWorld(ctx)
		ca := get(ctx, mgmt, w.namespace, "prod-ca", &corev1.Secret{})
		change(ctx, ca, func(s *corev1.Secret) { s.Data["tls.crt"] = []byte("not yet") })
		w.startManager(managerOptions{})
		m := w.newWorker(ctx)
		m.eventuallyWaits(ctx, bootstrapv1.WaitingForClusterCAReason)
		Expect(m.message(ctx)).To(And(ContainSubstring("Secret prod-ca, key tls.crt"), ContainSubstring("not a PEM bundle")))
		Expect(m.tokens(ctx)).To(BeEmpty())

		change(ctx, ca, func(s *corev1.Secret) { s.Data["tls.crt"] = workload.CAData })
		m.eventuallyHasData(ctx)
	})

	It("B20: needs no endpoint of the Cluster when the WindowsConfig has one", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.createKubeconfig(ctx)
		w.initializeControlPlane(ctx)
		w.provisionInfrastructure(ctx)
		w.startManager(managerOptions{})
		m := w.newWorker(ctx, func(_ *clusterv1.Machine, c *bootstrapv1.WindowsConfig) {
			c.Spec.Join.APIServerEndpoint = clusterv1.APIEndpoint{Host: "inside.example.com", Port: 443}
		})
		m.eventuallyHasData(ctx)
		Expect(m.document(ctx).Join.APIServerEndpoint).To(Equal("inside.example.com:443"))
	})

	It("B21, B22: refuses a Machine without a version, says which field, and is woken by the Machine", func(ctx SpecContext) {
		w := newReadyWorld(ctx)
		w.startManager(managerOptions{})
		m := w.newWorker(ctx, func(machine *clusterv1.Machine, _ *bootstrapv1.WindowsConfig) { machine.Spec.Version = "" })
		m.eventuallyWaits(ctx, bootstrapv1.InvalidConfigurationReason)
		Expect(m.message(ctx)).To(ContainSubstring("Machine.spec.version: Required value"))
		Eventually(func() []string { return m.events(ctx) }).Should(ContainElement("Warning InvalidConfiguration"))
		Expect(m.tokens(ctx)).To(BeEmpty())

		change(ctx, m.machine, func(machine *clusterv1.Machine) { machine.Spec.Version = "v1.35.1" })
		m.eventuallyHasData(ctx)
		Expect(m.document(ctx).Cluster.KubernetesVersion).To(Equal("v1.35.1"))
	})

	It("B30: refuses a label that the kubelet may not set, where no webhook did", func(ctx SpecContext) {
		w := newReadyWorld(ctx)
		w.startManager(managerOptions{})
		m := w.newWorker(ctx, func(_ *clusterv1.Machine, c *bootstrapv1.WindowsConfig) {
			c.Spec.Node.Labels = map[string]string{"node-role.kubernetes.io/worker": ""}
		})
		m.eventuallyWaits(ctx, bootstrapv1.InvalidConfigurationReason)
		Expect(m.message(ctx)).To(ContainSubstring("spec.template.metadata.labels of the MachineDeployment"))
	})

	It("B19: refuses a control plane Machine at once", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.startManager(managerOptions{})
		m := w.newWorker(ctx, func(machine *clusterv1.Machine, _ *bootstrapv1.WindowsConfig) {
			machine.Labels[clusterv1.MachineControlPlaneLabel] = ""
		})
		m.eventuallyWaits(ctx, bootstrapv1.ControlPlaneNotSupportedReason)
		Expect(m.message(ctx)).To(ContainSubstring("workers only"))
		Eventually(m.condition(ctx, bootstrapv1.ReadyCondition)).Should(Equal("False ControlPlaneNotSupported"))
		Eventually(func() []string { return m.events(ctx) }).Should(Equal([]string{"Warning ControlPlaneNotSupported"}))
	})

	It("B33: refuses a MachinePool", func(ctx SpecContext) {
		w := newReadyWorld(ctx)
		w.startManager(managerOptions{})
		m := w.newWorker(ctx, func(_ *clusterv1.Machine, c *bootstrapv1.WindowsConfig) {
			c.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachinePool", Name: "pool", UID: "1", Controller: ptr.To(true)}}
		})
		m.eventuallyWaits(ctx, bootstrapv1.MachinePoolNotSupportedReason)
		Expect(m.message(ctx)).To(ContainSubstring("MachineDeployment"))
		Expect(m.tokens(ctx)).To(BeEmpty())
	})

	It("B31: rests while the WindowsConfig or its Cluster is paused, and says so", func(ctx SpecContext) {
		w := newReadyWorld(ctx)
		change(ctx, w.cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) })
		w.startManager(managerOptions{})
		m := w.newWorker(ctx, func(_ *clusterv1.Machine, c *bootstrapv1.WindowsConfig) {
			c.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		})
		Eventually(m.condition(ctx, clusterv1.PausedCondition)).Should(Equal("True Paused"))

		change(ctx, w.cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(false) })
		Eventually(func() string { return conditions.GetMessage(m.now(ctx), clusterv1.PausedCondition) }).
			Should(Equal("WindowsConfig has the cluster.x-k8s.io/paused annotation"))
		Consistently(func() []corev1.Secret { return m.tokens(ctx) }).Should(BeEmpty())

		change(ctx, m.config, func(c *bootstrapv1.WindowsConfig) { c.Annotations = nil })
		m.eventuallyHasData(ctx)
		Expect(m.condition(ctx, clusterv1.PausedCondition)()).To(Equal("False NotPaused"))
	})

	It("B32: sees only what carries the watch filter's value, whoever wakes it", func(ctx SpecContext) {
		w := newReadyWorld(ctx)
		change(ctx, w.cluster, func(c *clusterv1.Cluster) { c.Labels = map[string]string{clusterv1.WatchLabel: "windows"} })
		w.startManager(managerOptions{watchFilter: "windows"})
		m := w.newWorker(ctx)
		change(ctx, m.machine, func(machine *clusterv1.Machine) { machine.Annotations = map[string]string{"poke": "1"} })
		Consistently(func() []metav1.Condition { return m.now(ctx).Status.Conditions }, 2*time.Second).Should(BeEmpty())

		change(ctx, m.config, func(c *bootstrapv1.WindowsConfig) { c.Labels[clusterv1.WatchLabel] = "windows" })
		m.eventuallyHasData(ctx)
	})

	It("B35: goes on when others change labels and annotations", func(ctx SpecContext) {
		w := newReadyWorld(ctx)
		w.startManager(managerOptions{})
		m := w.newWorker(ctx)
		m.eventuallyHasData(ctx)
		data := m.dataSecret(ctx).Data
		change(ctx, m.config, func(c *bootstrapv1.WindowsConfig) {
			c.Labels["topology.cluster.x-k8s.io/owned"] = ""
			c.Annotations = map[string]string{"in-place.example.com/updated": "true"}
		})
		m.provesReconciled(ctx)
		Expect(m.dataSecret(ctx).Data).To(Equal(data))
		Expect(m.now(ctx).Labels).To(HaveKey("topology.cluster.x-k8s.io/owned"))
	})
})
