package env

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capw-dev/cluster-api-provider-windows/test/env/assets"
)

const (
	coreNamespace = "capi-system"
	coreProvider  = "cluster-api"

	// ManagerNamespace is where our manager would run as a Pod; its namespaced rights hold there.
	ManagerNamespace = "capw-system"

	// managerUser is whom the API server sees when our manager calls.
	managerUser = "capw-manager"
)

//go:embed hostedcontrolplane.yaml
var hostedControlPlaneManifests []byte

// installProviders installs Cluster API core, our providers and the stand-in control plane provider, and prepares the
// managers. It also starts the controllers of the management cluster.
func (e *Environment) installProviders(ctx context.Context) error {
	begin := time.Now()
	core, err := e.coreObjects(ctx)
	if err != nil {
		return fmt.Errorf("preparing Cluster API core: %w", err)
	}
	ours, err := e.ourObjects(ctx)
	if err != nil {
		return fmt.Errorf("preparing our providers: %w", err)
	}
	hosted, err := decodeManifests(hostedControlPlaneManifests)
	if err != nil {
		return err
	}
	all := append(append(core, ours...), hosted...)

	const crd, namespace = "CustomResourceDefinition", "Namespace"
	if err := e.Management.createCRDs(ctx, all.ofKind(crd)); err != nil {
		return err
	}
	if err := e.startControllers(e.Management); err != nil {
		return err
	}
	if err := e.Management.create(ctx, all.ofKind(namespace)); err != nil {
		return err
	}
	if err := e.Management.create(ctx, all.without(crd, namespace)); err != nil {
		return err
	}
	if err := e.Management.awaitAggregation(ctx, all.ofKind("ClusterRole")); err != nil {
		return err
	}
	e.progressf("management cluster: Cluster API and our providers installed in %s", time.Since(begin).Round(100*time.Millisecond))
	return nil
}

// coreObjects returns what "clusterctl init --core cluster-api" would create, except what needs nodes or cert-manager, and
// prepares the manager. The manager acts as the ServiceAccount of the Deployment, so the RBAC that Cluster API ships decides
// what it may do.
func (e *Environment) coreObjects(ctx context.Context) (objects, error) {
	module, err := assets.CAPIModule(ctx)
	if err != nil {
		return nil, err
	}
	kustomize := exec.CommandContext(ctx, e.Assets.Kubectl, "kustomize", filepath.Join(module.Dir, "core", "config", "default"))
	rendered, err := kustomize.Output()
	if err != nil {
		return nil, fmt.Errorf("rendering components: %w", commandError(err))
	}
	components, err := decodeManifests(rendered)
	if err != nil {
		return nil, err
	}
	serviceAccount, err := serviceAccountName(components)
	if err != nil {
		return nil, err
	}
	e.Core, err = e.newManager("capi-core", e.Assets.CAPICore,
		"system:serviceaccount:"+coreNamespace+":"+serviceAccount,
		[]string{"system:serviceaccounts", "system:serviceaccounts:" + coreNamespace},
		"--feature-gates=ClusterTopology=true")
	if err != nil {
		return nil, err
	}
	objs := components.without("Deployment", "Service", "Certificate", "Issuer")
	if err := routeWebhooks(objs, e.Core.webhooks, e.Management.CA.CertPEM()); err != nil {
		return nil, err
	}
	inventory, err := readManifests(filepath.Join(module.Dir, "cmd", "clusterctl", "config", "manifest", "clusterctl-api.yaml"))
	if err != nil {
		return nil, err
	}
	for _, o := range objs {
		addLabels(o, map[string]string{"clusterctl.cluster.x-k8s.io": ""})
	}
	return append(append(objs, inventory...), coreProviderEntry(module.Version)), nil
}

// coreProviderEntry is how clusterctl remembers what is installed.
func coreProviderEntry(version string) *unstructured.Unstructured {
	entry := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion":   "clusterctl.cluster.x-k8s.io/v1alpha3",
		"kind":         "Provider",
		"metadata":     map[string]any{"name": coreProvider, "namespace": coreNamespace},
		"providerName": coreProvider,
		"type":         "CoreProvider",
		"version":      version,
	}}
	addLabels(entry, map[string]string{
		"clusterctl.cluster.x-k8s.io":      "",
		"clusterctl.cluster.x-k8s.io/core": "inventory",
		"cluster.x-k8s.io/provider":        coreProvider,
	})
	return entry
}

// ourObjects returns the CRDs of this repository and, if our manager is wanted, its webhooks and RBAC as generated from the
// code; it also prepares the manager.
//
// The manager acts as user capw-manager, who is bound to exactly the roles below config: a permission that the project does
// not ship is missing here as it would be in production.
func (e *Environment) ourObjects(ctx context.Context) (objects, error) {
	root, err := assets.Root(ctx)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(root, "config")
	objs, err := readManifests(filepath.Join(config, "crd", "bases", "*.yaml"))
	if err != nil || e.opts.NoManager {
		return objs, err
	}
	if len(objs) == 0 {
		return nil, errors.New(`no CRD in config/crd/bases: run "make manifests"`)
	}
	e.Manager, err = e.newManager("capw-manager", e.path(managerBinary), managerUser, nil,
		append([]string{"manager"}, e.opts.ManagerArgs...)...)
	if err != nil {
		return nil, err
	}
	objs = append(objs, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": ManagerNamespace},
	}})
	// Each half of the provider pair has a folder of its own.
	for _, half := range []string{"bootstrap", "infrastructure"} {
		roles, err := readManifests(filepath.Join(config, half, "rbac", "*.yaml"))
		if err != nil {
			return nil, err
		}
		if len(roles.ofKind("ClusterRole")) == 0 {
			return nil, fmt.Errorf(`no ClusterRole in config/%s/rbac: run "make manifests"`, half)
		}
		for _, role := range roles {
			if role.GetKind() == "Role" {
				role.SetNamespace(ManagerNamespace)
			}
			objs = append(objs, role, bindingFor(role))
		}
		webhooks, err := readManifests(filepath.Join(config, half, "webhook", "manifests.yaml"))
		if err != nil {
			return nil, err
		}
		if len(webhooks) == 0 {
			return nil, fmt.Errorf(`no webhook in config/%s/webhook/manifests.yaml: run "make manifests"`, half)
		}
		for _, w := range webhooks {
			// controller-gen gives all projects the same name; kustomize adds the prefix.
			w.SetName("capw-" + half + "-" + w.GetName())
		}
		objs = append(objs, webhooks...)
	}
	return objs, routeWebhooks(objs, e.Manager.webhooks, e.Management.CA.CertPEM())
}

// bindingFor binds managerUser to a Role or ClusterRole.
func bindingFor(role *unstructured.Unstructured) *unstructured.Unstructured {
	binding := &unstructured.Unstructured{Object: map[string]any{
		"roleRef":  map[string]any{"apiGroup": rbacv1.GroupName, "kind": role.GetKind(), "name": role.GetName()},
		"subjects": []any{map[string]any{"apiGroup": rbacv1.GroupName, "kind": rbacv1.UserKind, "name": managerUser}},
	}}
	binding.SetAPIVersion(rbacv1.SchemeGroupVersion.String())
	binding.SetKind(role.GetKind() + "Binding")
	binding.SetNamespace(role.GetNamespace())
	binding.SetName(role.GetName())
	return binding
}

// awaitAggregation waits until kube-controller-manager has filled the aggregated ClusterRoles among roles. A manager that
// starts earlier is refused its first watches and then waits for its own back-off.
func (c *Cluster) awaitAggregation(ctx context.Context, roles objects) error {
	for _, r := range roles {
		if _, aggregated := r.Object["aggregationRule"]; !aggregated {
			continue
		}
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, startTimeout, true, func(ctx context.Context) (bool, error) {
			role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: r.GetName()}}
			if err := c.Client.Get(ctx, client.ObjectKeyFromObject(role), role); err != nil {
				return false, err
			}
			return len(role.Rules) > 0, nil
		})
		if err != nil {
			return fmt.Errorf("waiting for the rules of aggregated ClusterRole %s: %w", r.GetName(), err)
		}
	}
	return nil
}

// serviceAccountName returns the ServiceAccount that the only Deployment among the components runs as.
func serviceAccountName(components objects) (string, error) {
	deployments := components.ofKind("Deployment")
	if len(deployments) != 1 {
		return "", fmt.Errorf("components have %d Deployments, want 1", len(deployments))
	}
	name, _, err := unstructured.NestedString(deployments[0].Object, "spec", "template", "spec", "serviceAccountName")
	if err != nil || name == "" {
		return "", fmt.Errorf("reading the ServiceAccount of Deployment %s: %q, %w", deployments[0].GetName(), name, err)
	}
	return name, nil
}

func addLabels(o *unstructured.Unstructured, add map[string]string) {
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	for k, v := range add {
		labels[k] = v
	}
	o.SetLabels(labels)
}

// commandError adds what a failed command wrote to standard error.
func commandError(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	return err
}
