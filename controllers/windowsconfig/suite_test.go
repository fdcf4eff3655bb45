package windowsconfig_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
)

// The suite runs the controller in a real manager between two real API servers: the management cluster and the workload
// cluster, which it reaches through a real ClusterCache. It has the permissions that are shipped, and no more. Cluster
// API core does not run; the tests play its part.
var (
	management *rest.Config // the management cluster, as the manager
	workload   *rest.Config // the workload cluster, as its administrator
	mgmt       client.Client
	work       client.Client
)

func TestWindowsConfigController(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	SetDefaultConsistentlyDuration(time.Second)
	RunSpecs(t, "WindowsConfig controller")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	klog.SetOutput(GinkgoWriter)
	klog.LogToStderr(false)
	ctrl.SetLogger(klog.Background())

	clusterAPI, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api").Output()
	Expect(err).NotTo(HaveOccurred(), "finding the CRDs of Cluster API")

	env := &envtest.Environment{
		CRDDirectoryPaths: []string{
			filepath.Join("..", "..", "config", "crd", "bases"),
			filepath.Join(strings.TrimSpace(string(clusterAPI)), "core", "config", "crd", "bases"),
		},
		ErrorIfCRDPathMissing: true,
	}
	env.ControlPlane.GetAPIServer().Configure().Append("enable-admission-plugins", "OwnerReferencesPermissionEnforcement")
	mgmt = newClient(startAPIServer(env))
	management = managerUser(ctx, env)

	tokens := &envtest.Environment{}
	tokens.ControlPlane.GetAPIServer().Configure().Set("enable-bootstrap-token-auth", "true")
	workload = startAPIServer(tokens)

	work = newClient(workload)
})

// managerUser returns a user of the management cluster with the shipped ClusterRole.
func managerUser(ctx context.Context, env *envtest.Environment) *rest.Config {
	GinkgoHelper()
	manifest, err := os.ReadFile(filepath.Join("..", "..", "config", "bootstrap", "rbac", "role.yaml"))
	Expect(err).NotTo(HaveOccurred())
	role := &rbacv1.ClusterRole{}
	Expect(yaml.UnmarshalStrict(manifest, role)).To(Succeed())
	Expect(mgmt.Create(ctx, role)).To(Succeed())
	Expect(mgmt.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "manager"}},
	})).To(Succeed())
	user, err := env.AddUser(envtest.User{Name: "manager"}, nil)
	Expect(err).NotTo(HaveOccurred())
	return user.Config()
}

func startAPIServer(env *envtest.Environment) *rest.Config {
	config, err := env.Start()
	Expect(err).NotTo(HaveOccurred(), "starting an API server")
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
	config.QPS, config.Burst = 1000, 1000
	return config
}

func newClient(config *rest.Config) client.Client {
	c, err := client.New(config, client.Options{Scheme: newScheme()})
	Expect(err).NotTo(HaveOccurred())
	return c
}

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme, bootstrapv1.AddToScheme,
	} {
		Expect(add(s)).To(Succeed())
	}
	return s
}

// get returns the object of that name as it is now.
func get[T client.Object](ctx context.Context, c client.Client, namespace, name string, into T) T {
	GinkgoHelper()
	Expect(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)).To(Succeed())
	return into
}

// change patches an object: first its spec and metadata, then its status.
func change[T client.Object](ctx context.Context, obj T, mutate func(T)) {
	GinkgoHelper()
	Expect(mgmt.Get(ctx, client.ObjectKeyFromObject(obj), obj)).To(Succeed())
	before := obj.DeepCopyObject().(T)
	mutate(obj)
	wanted := obj.DeepCopyObject().(T)
	Expect(mgmt.Patch(ctx, obj, client.MergeFrom(before))).To(Succeed())
	if _, ok := any(obj).(*corev1.Secret); ok {
		return
	}
	Expect(mgmt.Status().Patch(ctx, wanted, client.MergeFrom(before))).To(Succeed())
	Expect(mgmt.Get(ctx, client.ObjectKeyFromObject(obj), obj)).To(Succeed())
}
