package windowsconfig_test

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/cluster-api/util/secret"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/cloudinit/cloudbase"
	"github.com/capw-dev/cluster-api-provider-windows/controllers/windowsconfig"
)

// world is a namespace with one Cluster, and what the tests do to it in the place of Cluster API core.
type world struct {
	namespace string
	cluster   *clusterv1.Cluster
}

const clusterName = "prod"

// newWorld makes a Cluster in which nothing is provisioned yet.
func newWorld(ctx context.Context) *world {
	GinkgoHelper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "windowsconfig-"}}
	Expect(mgmt.Create(ctx, ns)).To(Succeed())
	w := &world{namespace: ns.Name}
	w.cluster = &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: clusterName},
		Spec: clusterv1.ClusterSpec{
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "WindowsCluster", Name: clusterName},
		},
	}
	Expect(mgmt.Create(ctx, w.cluster)).To(Succeed())
	return w
}

// newReadyWorld makes a Cluster that nodes can join.
func newReadyWorld(ctx context.Context) *world {
	GinkgoHelper()
	w := newWorld(ctx)
	w.createKubeconfig(ctx)
	w.createCA(ctx, workload.CAData)
	w.setEndpoint(ctx)
	w.initializeControlPlane(ctx)
	w.provisionInfrastructure(ctx)
	return w
}

func (w *world) createKubeconfig(ctx context.Context) {
	GinkgoHelper()
	w.createClusterSecret(ctx, secret.Kubeconfig, secret.KubeconfigDataName, kubeconfig.FromEnvTestConfig(workload, w.cluster))
}

func (w *world) createCA(ctx context.Context, pem []byte) {
	GinkgoHelper()
	w.createClusterSecret(ctx, secret.ClusterCA, secret.TLSCrtDataName, pem)
}

func (w *world) createClusterSecret(ctx context.Context, purpose secret.Purpose, key string, data []byte) {
	GinkgoHelper()
	Expect(mgmt.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: secret.Name(w.cluster.Name, purpose),
			Labels: map[string]string{clusterv1.ClusterNameLabel: w.cluster.Name},
		},
		Type: clusterv1.ClusterSecretType,
		Data: map[string][]byte{key: data},
	})).To(Succeed())
}

func (w *world) setEndpoint(ctx context.Context) {
	GinkgoHelper()
	change(ctx, w.cluster, func(c *clusterv1.Cluster) {
		c.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "api.prod.example.com", Port: 6443}
	})
}

func (w *world) initializeControlPlane(ctx context.Context) {
	GinkgoHelper()
	change(ctx, w.cluster, func(c *clusterv1.Cluster) {
		conditions.Set(c, metav1.Condition{Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue, Reason: "Initialized"})
	})
}

func (w *world) provisionInfrastructure(ctx context.Context) {
	GinkgoHelper()
	change(ctx, w.cluster, func(c *clusterv1.Cluster) { c.Status.Initialization.InfrastructureProvisioned = ptr.To(true) })
}

// worker is a Machine and its WindowsConfig.
type worker struct {
	*world
	machine *clusterv1.Machine
	config  *bootstrapv1.WindowsConfig
}

// newWorker makes a Machine and a WindowsConfig of the same name, as a MachineSet does.
func (w *world) newWorker(ctx context.Context, change ...func(*clusterv1.Machine, *bootstrapv1.WindowsConfig)) *worker {
	GinkgoHelper()
	meta := metav1.ObjectMeta{
		Namespace: w.namespace, Name: "md-win-7x9kq-abcde",
		Labels: map[string]string{clusterv1.ClusterNameLabel: w.cluster.Name},
	}
	machine := &clusterv1.Machine{
		ObjectMeta: *meta.DeepCopy(),
		Spec: clusterv1.MachineSpec{
			ClusterName: w.cluster.Name,
			Version:     "v1.36.3",
			Bootstrap: clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: bootstrapv1.GroupVersion.Group, Kind: "WindowsConfig", Name: meta.Name}},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "WindowsMachine", Name: meta.Name},
		},
	}
	config := &bootstrapv1.WindowsConfig{ObjectMeta: *meta.DeepCopy()}
	for _, f := range change {
		f(machine, config)
	}
	Expect(mgmt.Create(ctx, machine)).To(Succeed())
	if config.OwnerReferences == nil {
		config.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(machine, clusterv1.GroupVersion.WithKind("Machine"))}
	}
	Expect(mgmt.Create(ctx, config)).To(Succeed())
	return &worker{world: w, machine: machine, config: config}
}

// join lets the Machine's Node appear.
func (w *worker) join(ctx context.Context) {
	GinkgoHelper()
	change(ctx, w.machine, func(m *clusterv1.Machine) { m.Status.NodeRef = clusterv1.MachineNodeReference{Name: "node"} })
}

// now returns the WindowsConfig as it is.
func (w *worker) now(ctx context.Context) *bootstrapv1.WindowsConfig {
	config := &bootstrapv1.WindowsConfig{}
	_ = mgmt.Get(ctx, client.ObjectKeyFromObject(w.config), config)
	return config
}

// condition is for Eventually: "status reason".
func (w *worker) condition(ctx context.Context, conditionType string) func() string {
	return func() string {
		c := conditions.Get(w.now(ctx), conditionType)
		if c == nil {
			return ""
		}
		return string(c.Status) + " " + c.Reason
	}
}

func (w *worker) message(ctx context.Context) string {
	return conditions.GetMessage(w.now(ctx), bootstrapv1.DataSecretAvailableCondition)
}

func (w *worker) eventuallyHasData(ctx context.Context) {
	GinkgoHelper()
	Eventually(func() bool { return ptr.Deref(w.now(ctx).Status.Initialization.DataSecretCreated, false) }).
		Should(BeTrue(), func() string { return "conditions: " + describe(w.now(ctx)) })
}

func (w *worker) eventuallyWaits(ctx context.Context, reason string) {
	GinkgoHelper()
	Eventually(w.condition(ctx, bootstrapv1.DataSecretAvailableCondition)).Should(Equal("False " + reason))
}

func describe(config *bootstrapv1.WindowsConfig) string {
	var b strings.Builder
	for _, c := range config.Status.Conditions {
		b.WriteString(c.Type + "=" + string(c.Status) + " " + c.Reason + " " + c.Message + "\n")
	}
	return b.String()
}

func (w *worker) dataSecret(ctx context.Context) *corev1.Secret {
	GinkgoHelper()
	return get(ctx, mgmt, w.namespace, w.config.Name, &corev1.Secret{})
}

// document returns the node document in the data Secret.
func (w *worker) document(ctx context.Context) *nodev1.NodeConfiguration {
	GinkgoHelper()
	doc, err := cloudbase.ReadDocument(w.dataSecret(ctx).Data["value"])
	Expect(err).NotTo(HaveOccurred())
	return doc
}

// tokens returns the bootstrap tokens that the workload cluster has for the Machine.
func (w *worker) tokens(ctx context.Context) []corev1.Secret {
	GinkgoHelper()
	list := &corev1.SecretList{}
	Expect(work.List(ctx, list, client.InNamespace("kube-system"))).To(Succeed())
	var mine []corev1.Secret
	for _, s := range list.Items {
		if s.Type == corev1.SecretTypeBootstrapToken && strings.Contains(string(s.Data["description"]), w.namespace+"/"+w.machine.Name+",") {
			mine = append(mine, s)
		}
	}
	return mine
}

// theToken returns the only token, as Secret and as text.
func (w *worker) theToken(ctx context.Context) (*corev1.Secret, string) {
	GinkgoHelper()
	tokens := w.tokens(ctx)
	Expect(tokens).To(HaveLen(1))
	return &tokens[0], string(tokens[0].Data["token-id"]) + "." + string(tokens[0].Data["token-secret"])
}

// events returns type and reason of each event about the WindowsConfig.
func (w *worker) events(ctx context.Context) []string {
	GinkgoHelper()
	list := &corev1.EventList{}
	Expect(mgmt.List(ctx, list, client.InNamespace(w.namespace))).To(Succeed())
	var all []string
	for _, e := range list.Items {
		if e.InvolvedObject.UID == w.config.UID {
			all = append(all, e.Type+" "+e.Reason)
		}
	}
	return all
}

// managerOptions are what the command line would say.
type managerOptions struct {
	tokenTTL    time.Duration
	watchFilter string
}

// startManager runs the controller as the product does, for one namespace, and returns what stops it.
func (w *world) startManager(options managerOptions) (stop func()) {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.Background())
	clusterSecrets, err := labels.NewRequirement(clusterv1.ClusterNameLabel, selection.Exists, nil)
	Expect(err).NotTo(HaveOccurred())
	mgr, err := ctrl.NewManager(management, ctrl.Options{
		Scheme:  newScheme(),
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{w.namespace: {}},
			ByObject:          map[client.Object]cache.ByObject{&corev1.Secret{}: {Label: labels.NewSelector().Add(*clusterSecrets)}},
		},
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
	})
	Expect(err).NotTo(HaveOccurred())

	// Several managers run in this process, one after the other.
	concurrency := controller.Options{MaxConcurrentReconciles: 10, SkipNameValidation: ptr.To(true)}
	clusters, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient:     mgr.GetClient(),
		Client:           clustercache.ClientOptions{UserAgent: "test"},
		WatchFilterValue: options.watchFilter,
	}, concurrency)
	Expect(err).NotTo(HaveOccurred())
	clusters.(interface{ SetConnectionCreationRetryInterval(time.Duration) }).SetConnectionCreationRetryInterval(200 * time.Millisecond)

	Expect((&windowsconfig.Reconciler{
		Client:           mgr.GetClient(),
		ClusterCache:     clusters,
		WatchFilterValue: options.watchFilter,
		TokenTTL:         options.tokenTTL,
	}).SetupWithManager(ctx, mgr, concurrency)).To(Succeed())

	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	stopped := false
	stop = func() {
		GinkgoHelper()
		if stopped {
			return
		}
		stopped = true
		cancel()
		Eventually(done).Should(Receive(BeNil()))
	}
	DeferCleanup(stop)
	return stop
}
