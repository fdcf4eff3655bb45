// Package apitest gives tests of reconcilers and webhooks a real API server with the CRDs of Cluster API and of this
// project, and a namespace and a manager for each test. The test plays Cluster API itself: it writes what the core
// controllers would write.
package apitest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
)

// managerUser is who the managers are.
const managerUser = "manager"

// APIServer is a running API server.
type APIServer struct {
	env    *envtest.Environment
	config *rest.Config
	// Client reads and writes as an administrator, without a cache.
	Client client.WithWatch
	scheme *kruntime.Scheme
}

// Start starts an API server with the CRDs of Cluster API and of this project. Binaries are taken from KUBEBUILDER_ASSETS.
func Start(webhooks envtest.WebhookInstallOptions) (*APIServer, error) {
	clusterAPI, err := moduleDir("sigs.k8s.io/cluster-api")
	if err != nil {
		return nil, err
	}
	a := &APIServer{scheme: kruntime.NewScheme()}
	for _, add := range []func(*kruntime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme, infrav1.AddToScheme} {
		if err := add(a.scheme); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}
	a.env = &envtest.Environment{
		CRDDirectoryPaths: []string{
			filepath.Join(root(), "config", "crd", "bases"),
			filepath.Join(clusterAPI, "core", "config", "crd", "bases"),
		},
		ErrorIfCRDPathMissing: true,
		WebhookInstallOptions: webhooks,
	}
	if a.config, err = a.env.Start(); err != nil {
		return nil, fmt.Errorf("starting the API server: %w", err)
	}
	a.config.QPS, a.config.Burst = -1, -1
	if a.Client, err = client.NewWithWatch(a.config, client.Options{Scheme: a.scheme}); err != nil {
		return nil, fmt.Errorf("building the client: %w", err)
	}
	if err := a.createManagerUser(); err != nil {
		return nil, err
	}
	return a, nil
}

// createManagerUser gives the managers a user with the rights that the infrastructure provider is deployed with, so that a
// missing right fails a test.
func (a *APIServer) createManagerUser() error {
	file := filepath.Join(root(), "config", "infrastructure", "rbac", "role.yaml")
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the role of the manager: %w", err)
	}
	role := &rbacv1.ClusterRole{}
	if err := yaml.UnmarshalStrict(content, role); err != nil {
		return fmt.Errorf("reading the role of the manager in %s: %w", file, err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: managerUser}},
	}
	for _, o := range []client.Object{role, binding} {
		if err := a.Client.Create(context.Background(), o); err != nil {
			return fmt.Errorf("creating the role of the manager: %w", err)
		}
	}
	return nil
}

// Stop stops the API server.
func (a *APIServer) Stop() error { return a.env.Stop() }

// Manager is a running manager.
type Manager struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// ManagerOptions say how a manager runs.
type ManagerOptions struct {
	// Namespace that it watches; empty for all.
	Namespace string
	// Faults is called instead of the manager's own writes; what it leaves nil happens as usual.
	Faults interceptor.Funcs
	// Webhooks makes it serve the webhooks that the API server was started with.
	Webhooks bool
	// Setup registers what runs in it.
	Setup func(context.Context, ctrl.Manager) error
}

// StartManager starts a manager as it is deployed: with its own rights only, and reading Secrets uncached.
func (a *APIServer) StartManager(o ManagerOptions) (*Manager, error) {
	options := ctrl.Options{
		Scheme:  a.scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
		Client:  client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
		NewClient: func(config *rest.Config, options client.Options) (client.Client, error) {
			c, err := client.NewWithWatch(config, options)
			if err != nil {
				return nil, err
			}
			return interceptor.NewClient(c, o.Faults), nil
		},
	}
	if o.Namespace != "" {
		options.Cache = cache.Options{DefaultNamespaces: map[string]cache.Config{o.Namespace: {}}}
	}
	if o.Webhooks {
		w := a.env.WebhookInstallOptions
		options.WebhookServer = webhook.NewServer(webhook.Options{Host: w.LocalServingHost, Port: w.LocalServingPort, CertDir: w.LocalServingCertDir})
	}
	config := rest.CopyConfig(a.config)
	config.Impersonate.UserName = managerUser
	mgr, err := ctrl.NewManager(config, options)
	if err != nil {
		return nil, fmt.Errorf("building the manager: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := o.Setup(ctx, mgr); err != nil {
		cancel()
		return nil, err
	}
	m := &Manager{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(m.done)
		m.err = mgr.Start(ctx)
	}()
	return m, nil
}

// Kill cancels the context of everything that runs in the manager, and does not wait for it.
func (m *Manager) Kill() { m.cancel() }

// Stop kills the manager and waits until nothing of it runs.
func (m *Manager) Stop() error {
	m.cancel()
	<-m.done
	return m.err
}

// CreateNamespace creates a namespace of a unique name.
func (a *APIServer) CreateNamespace(ctx context.Context) (string, error) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := a.Client.Create(ctx, ns); err != nil {
		return "", fmt.Errorf("creating a namespace: %w", err)
	}
	return ns.Name, nil
}

// root returns the folder of this module.
func root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// moduleDir returns the folder of a module that this one requires.
func moduleDir(module string) (string, error) {
	cmd := exec.CommandContext(context.Background(), "go", "list", "-m", "-f", "{{.Dir}}", module)
	cmd.Dir = root()
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("finding the source of %s: %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}
