package env_test

import (
	"context"
	"crypto/tls"
	"net/http"
	"os"
	"os/exec"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/vim25/soap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capw-dev/cluster-api-provider-windows/test/env"
)

const kubernetesVersion = "v1.36.3"

var _ = Describe("The two clusters", func() {
	It("report the version that is pinned", func() {
		Expect(testEnv.Management.Version()).To(Equal(kubernetesVersion))
		Expect(testEnv.Workload.Version()).To(Equal(kubernetesVersion))
	})

	It("are separate", func(ctx context.Context) {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "only-in-management"}}
		Expect(testEnv.Management.Client.Create(ctx, cm)).To(Succeed())
		err := testEnv.Workload.Client.Get(ctx, client.ObjectKeyFromObject(cm), cm)
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
	})

	It("let kubectl in", func(ctx context.Context) {
		out, err := exec.CommandContext(ctx, testEnv.Assets.Kubectl, "--kubeconfig", testEnv.Workload.Kubeconfig, "auth", "whoami").CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		Expect(string(out)).To(ContainSubstring("kubernetes-admin"))
	})
})

var _ = Describe("Cluster API core", func() {
	var namespace string

	BeforeEach(func(ctx context.Context) { namespace = createNamespace(ctx) })

	It("has working webhooks: one defaults a good Cluster, one refuses a bad one", func(ctx context.Context) {
		good := newCluster(namespace, "good")
		good.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "WindowsCluster", Name: "good"}
		good.Spec.Topology = clusterv1.Topology{}
		Expect(testEnv.Management.Client.Create(ctx, good)).To(Succeed())

		bad := newCluster(namespace, "bad")
		bad.Spec.ClusterNetwork.Pods.CIDRBlocks = []string{"10.244.0.0/99"}
		err := testEnv.Management.Client.Create(ctx, bad)
		Expect(err).To(MatchError(ContainSubstring("10.244.0.0/99")))
		Expect(err).To(MatchError(ContainSubstring("admission webhook")))

		md := &clusterv1.MachineDeployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "defaulted"},
			Spec: clusterv1.MachineDeploymentSpec{
				ClusterName: "good",
				Template: clusterv1.MachineTemplateSpec{Spec: clusterv1.MachineSpec{
					ClusterName:       "good",
					Version:           "1.36.3",
					Bootstrap:         clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "WindowsConfigTemplate", Name: "x"}},
					InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "WindowsMachineTemplate", Name: "x"},
				}},
			},
		}
		Expect(testEnv.Management.Client.Create(ctx, md)).To(Succeed())
		Expect(md.Spec.Template.Spec.Version).To(Equal("v1.36.3"), "the defaulting webhook adds the v")
		Expect(md.Spec.Selector.MatchLabels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, "good"))
	})

	It("has working conversion webhooks", func(ctx context.Context) {
		Expect(testEnv.Management.Client.Create(ctx, newCluster(namespace, "converted"))).To(Succeed())
		old := &unstructured.Unstructured{}
		old.SetAPIVersion("cluster.x-k8s.io/v1beta1")
		old.SetKind("Cluster")
		Expect(testEnv.Management.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "converted"}, old)).To(Succeed())
		kind, _, err := unstructured.NestedString(old.Object, "spec", "controlPlaneRef", "apiVersion")
		Expect(err).NotTo(HaveOccurred())
		Expect(kind).To(Equal("controlplane.cluster.x-k8s.io/v1alpha1"), "v1beta1 references have a version, looked up in the CRD's contract label")
	})

	It("takes the workload cluster as control plane of a Cluster, and reaches it", func(ctx context.Context) {
		cluster := createConnectedCluster(ctx, namespace, "connected")
		key := client.ObjectKeyFromObject(cluster)
		Eventually(func(g Gomega, ctx context.Context) {
			g.Expect(testEnv.Management.Client.Get(ctx, key, cluster)).To(Succeed())
			g.Expect(conditions.IsTrue(cluster, clusterv1.ClusterControlPlaneInitializedCondition)).To(BeTrue(), "ControlPlaneInitialized")
			g.Expect(conditions.IsTrue(cluster, clusterv1.ClusterControlPlaneAvailableCondition)).To(BeTrue(), "ControlPlaneAvailable")
			g.Expect(conditions.IsTrue(cluster, clusterv1.ClusterRemoteConnectionProbeCondition)).To(BeTrue(), "RemoteConnectionProbe")
			g.Expect(cluster.Status.Phase).To(BeEquivalentTo(clusterv1.ClusterPhaseProvisioned))
		}).WithContext(ctx).Should(Succeed())
		Expect(cluster.Spec.ControlPlaneEndpoint).To(Equal(clusterv1.APIEndpoint{Host: testEnv.Workload.Host, Port: testEnv.Workload.Port}))

		By("showing it with clusterctl")
		out, err := exec.CommandContext(ctx, testEnv.Assets.Clusterctl, "describe", "cluster", "connected",
			"--namespace", namespace, "--kubeconfig", testEnv.Management.Kubeconfig).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		Expect(string(out)).To(MatchRegexp(`HostedControlPlane .*connected.* True`))

		By("leaving nothing behind when it is deleted")
		Expect(testEnv.Management.Client.Delete(ctx, cluster)).To(Succeed())
		Eventually(func(g Gomega, ctx context.Context) {
			err := testEnv.Management.Client.Get(ctx, key, cluster)
			g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
			secrets := &corev1.SecretList{}
			g.Expect(testEnv.Management.Client.List(ctx, secrets, client.InNamespace(namespace))).To(Succeed())
			g.Expect(secrets.Items).To(BeEmpty())
		}).WithContext(ctx).Should(Succeed())
	})

	It("runs with the rights that Cluster API ships, no more", func(ctx context.Context) {
		for resource, want := range map[string]string{"machines.cluster.x-k8s.io": "yes\n", "deployments.apps": "no\n"} {
			// kubectl ends with status 1 after "no".
			out, _ := exec.CommandContext(ctx, testEnv.Assets.Kubectl, "--kubeconfig", testEnv.Dir+"/capi-core.kubeconfig",
				"auth", "can-i", "create", resource).Output()
			Expect(string(out)).To(Equal(want), resource)
		}
	})
})

var _ = Describe("The simulated vCenter", func() {
	It("presents the certificate that it announced, and can be driven", func(ctx context.Context) {
		conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", testEnv.VCSim.Host)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(conn.Close)
		leaf := conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
		Expect(soap.ThumbprintSHA256(leaf)).To(Equal(testEnv.VCSim.Thumbprint))

		resp, err := http.Get(testEnv.VCSim.Control + "/vms")
		Expect(err).NotTo(HaveOccurred())
		Expect(resp.Body.Close()).To(Succeed())
		Expect(resp.StatusCode).To(Equal(http.StatusOK))
	})
})

var _ = Describe("An environment's folder", func() {
	It("must be empty", func(ctx context.Context) {
		_, err := env.Start(ctx, env.Options{Dir: testEnv.Dir})
		Expect(err).To(MatchError(ContainSubstring("is not empty")))
		Expect(testEnv.Dir).To(BeADirectory())
	})

	It("holds a log per process", func() {
		for _, name := range []string{"etcd", "management-kube-apiserver", "workload-kube-controller-manager", "capi-core"} {
			info, err := os.Stat(testEnv.Dir + "/logs/" + name + ".log")
			Expect(err).NotTo(HaveOccurred())
			Expect(info.Size()).To(BeNumerically(">", 0), name)
		}
	})
})
