package windowsconfig

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/predicates"
	"sigs.k8s.io/cluster-api/util/secret"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
)

// watch lists all that can wake the controller: what a WindowsConfig lacks appears in one of these.
func (r *Reconciler) watch(ctx context.Context, mgr ctrl.Manager) *builder.Builder {
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "windowsconfig")
	filter := predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilterValue)
	// A resync of these would only repeat what the resync of the WindowsConfig does.
	changed := predicate.ResourceVersionChangedPredicate{}

	return ctrl.NewControllerManagedBy(mgr).
		Named("windowsconfig").
		For(&bootstrapv1.WindowsConfig{}, builder.WithPredicates(filter)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(machineToConfig), builder.WithPredicates(changed)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.clusterToConfigs), builder.WithPredicates(clusterProgress())).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.secretToConfigs), builder.WithPredicates(changed)).
		WatchesRawSource(r.ClusterCache.GetClusterSource("windowsconfig", r.clusterToConfigs))
}

// clusterProgress passes a Cluster that appears, and one in which something changed that bootstrap data waits for.
func clusterProgress() predicate.Predicate {
	type progress struct {
		paused, infrastructure, controlPlane bool
		endpoint                             clusterv1.APIEndpoint
	}
	of := func(o client.Object) progress {
		c, ok := o.(*clusterv1.Cluster)
		if !ok {
			return progress{}
		}
		return progress{
			paused:         ptr.Deref(c.Spec.Paused, false),
			infrastructure: ptr.Deref(c.Status.Initialization.InfrastructureProvisioned, false),
			controlPlane:   conditions.IsTrue(c, clusterv1.ClusterControlPlaneInitializedCondition),
			endpoint:       c.Spec.ControlPlaneEndpoint,
		}
	}
	return predicate.Funcs{
		UpdateFunc:  func(e event.UpdateEvent) bool { return of(e.ObjectOld) != of(e.ObjectNew) },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

func machineToConfig(_ context.Context, o client.Object) []ctrl.Request {
	m, ok := o.(*clusterv1.Machine)
	if !ok {
		return nil
	}
	ref := m.Spec.Bootstrap.ConfigRef
	if ref.APIGroup != bootstrapv1.GroupVersion.Group || ref.Kind != kind {
		return nil
	}
	return request(m.Namespace, ref.Name)
}

func (r *Reconciler) clusterToConfigs(ctx context.Context, o client.Object) []ctrl.Request {
	return r.configsOfCluster(ctx, o.GetNamespace(), o.GetName())
}

// secretToConfigs maps the Secrets that hold a cluster's CA to all WindowsConfigs of that cluster, and any other to the
// WindowsConfig whose data Secret has that name, so that a lost owner reference or a lost Secret is noticed.
func (r *Reconciler) secretToConfigs(ctx context.Context, o client.Object) []ctrl.Request {
	if cluster, purpose, err := secret.ParseSecretName(o.GetName()); err == nil && (purpose == secret.ClusterCA || purpose == secret.Kubeconfig) {
		return r.configsOfCluster(ctx, o.GetNamespace(), cluster)
	}
	return request(o.GetNamespace(), o.GetName())
}

func (r *Reconciler) configsOfCluster(ctx context.Context, namespace, cluster string) []ctrl.Request {
	machines := &clusterv1.MachineList{}
	if err := r.Client.List(ctx, machines, client.InNamespace(namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to list the Machines of a Cluster", "Cluster", klog.KRef(namespace, cluster))
		return nil
	}
	var requests []ctrl.Request
	for i := range machines.Items {
		requests = append(requests, machineToConfig(ctx, &machines.Items[i])...)
	}
	return requests
}

func request(namespace, name string) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
}
