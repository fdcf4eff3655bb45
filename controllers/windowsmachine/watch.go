package windowsmachine

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
)

// watch says what wakes the reconciler. secrets has the metadata of all Secrets.
func (r *Reconciler) watch(ctx context.Context, mgr ctrl.Manager, b *builder.Builder, secrets cache.Cache) error {
	clusterToMachines, err := util.ClusterToTypedObjectsMapper(mgr.GetClient(), &infrav1.WindowsMachineList{}, mgr.GetScheme())
	if err != nil {
		return fmt.Errorf("mapping Clusters to WindowsMachines: %w", err)
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &infrav1.WindowsMachine{}, identityIndex, identityNames); err != nil {
		return fmt.Errorf("indexing WindowsMachines by %s: %w", identityIndex, err)
	}

	b.For(&infrav1.WindowsMachine{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: concernsUs})).
		// All that is read from a Machine stands in its spec and labels; its status changes far more often.
		Watches(&clusterv1.Machine{},
			handler.EnqueueRequestsFromMapFunc(util.MachineToInfrastructureMapFunc(infrav1.GroupVersion.WithKind("WindowsMachine"))),
			builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}))).
		Watches(&clusterv1.Cluster{},
			handler.EnqueueRequestsFromMapFunc(clusterToMachines),
			builder.WithPredicates(predicate.Or[client.Object](appears(),
				predicates.ClusterPausedTransitionsOrInfrastructureProvisioned(mgr.GetScheme(), mgr.GetLogger())))).
		WatchesRawSource(secretSource(secrets, handler.EnqueueRequestsFromMapFunc(r.identityToMachines), predicate.Funcs{UpdateFunc: mayChangeContent}))
	for _, p := range r.Platforms.all() {
		b.WatchesRawSource(source.Channel(p.Changes(), &handler.EnqueueRequestForObject{}))
	}
	return nil
}

// secretSource yields every change of a Secret that the predicates pass.
func secretSource(secrets cache.Cache, h handler.EventHandler, predicates ...predicate.Predicate) source.Source {
	return source.Kind(secrets, client.Object(secretMetadata()), h, append(predicates, predicate.ResourceVersionChangedPredicate{})...)
}

// mayChangeContent is false for what credentialsReconciler writes, a finalizer and nothing else, which would wake every user
// of the Secret for nothing.
func mayChangeContent(e event.UpdateEvent) bool {
	return slices.Equal(e.ObjectOld.GetFinalizers(), e.ObjectNew.GetFinalizers())
}

// appears passes an object that is new.
func appears() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// concernsUs is false for what the reconciler itself writes: a status. Each reconcile costs a look at the platform. The
// Paused condition is the exception: the reconcile that writes it ends there. A resync concerns us: it is the safety net.
func concernsUs(e event.UpdateEvent) bool {
	older, newer := e.ObjectOld.(*infrav1.WindowsMachine), e.ObjectNew.(*infrav1.WindowsMachine)
	switch {
	case older.ResourceVersion == newer.ResourceVersion, older.Generation != newer.Generation:
		return true
	case !maps.Equal(older.Labels, newer.Labels), !maps.Equal(older.Annotations, newer.Annotations):
		return true
	case !slices.Equal(older.Finalizers, newer.Finalizers), !equality.Semantic.DeepEqual(older.OwnerReferences, newer.OwnerReferences):
		return true
	}
	before, after := conditions.Get(older, clusterv1.PausedCondition), conditions.Get(newer, clusterv1.PausedCondition)
	return after != nil && (before == nil || before.Status != after.Status)
}

// identityToMachines wakes all WindowsMachines that use a credentials Secret: those that wait for good credentials, and
// those that are well, so that the platform learns of rotated ones before the old ones fail. That costs a look each.
func (r *Reconciler) identityToMachines(ctx context.Context, secret client.Object) []reconcile.Request {
	machines := &infrav1.WindowsMachineList{}
	if err := r.Client.List(ctx, machines, client.InNamespace(secret.GetNamespace()), client.MatchingFields{identityIndex: secret.GetName()}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing the WindowsMachines that use a Secret failed", "secret", client.ObjectKeyFromObject(secret))
		return nil
	}
	var requests []reconcile.Request
	for i := range machines.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&machines.Items[i])})
	}
	return requests
}
