// Package windowscluster reconciles WindowsClusters: the infrastructure of clusters that have none of another provider. It
// creates nothing, so it has no finalizer and never fails for lack of a platform. WindowsMachines do not depend on it.
package windowscluster

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/labels"
	"sigs.k8s.io/cluster-api/util/paused"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=windowsclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=windowsclusters/status,verbs=get;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch

// Reconciler reconciles WindowsClusters.
type Reconciler struct {
	Client client.Client
	// WatchFilterValue, when set, limits the reconciler to objects with this value of the label cluster.x-k8s.io/watch-filter.
	WatchFilterValue string
}

// SetupWithManager registers the reconciler and its watches.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	clusterToWindowsCluster := util.ClusterToInfrastructureMapFunc(ctx, infrav1.GroupVersion.WithKind("WindowsCluster"), mgr.GetClient(), &infrav1.WindowsCluster{})
	err := ctrl.NewControllerManagedBy(mgr).
		WithOptions(options).
		For(&infrav1.WindowsCluster{}).
		// Endpoint and pause stand in the Cluster's spec.
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(clusterToWindowsCluster), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the WindowsCluster controller: %w", err)
	}
	return nil
}

// Reconcile reports a WindowsCluster as provisioned, and what it offers.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	object := &infrav1.WindowsCluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, object); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.WatchFilterValue != "" && !labels.HasWatchLabel(object, r.WatchFilterValue) {
		return ctrl.Result{}, nil
	}
	if annotations.IsExternallyManaged(object) {
		return ctrl.Result{}, nil // something else fills its status
	}
	cluster, err := util.GetOwnerCluster(ctx, r.Client, object.ObjectMeta)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the Cluster that owns WindowsCluster %s: %w", req, err)
	}
	if cluster == nil {
		ctrl.LoggerFrom(ctx).V(4).Info("Waiting for the Cluster to set its owner reference")
		return ctrl.Result{}, nil
	}
	base := object.DeepCopy()
	if isPaused, changed, err := paused.EnsurePausedCondition(ctx, r.Client, cluster, object); err != nil || isPaused || changed {
		return ctrl.Result{}, err
	}
	if !object.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}

	setStatus(object, cluster)
	if equality.Semantic.DeepEqual(base.Status, object.Status) {
		return ctrl.Result{}, nil
	}
	// A merge patch replaces the lists as a whole, hence the lock.
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, object, patch); err != nil {
		return ctrl.Result{}, fmt.Errorf("writing the status of WindowsCluster %s: %w", req, err)
	}
	return ctrl.Result{}, nil
}

// setStatus computes the status. It is provisioned without an endpoint too: the provider of a hosted control plane waits for
// provisioned before it sets Cluster.spec.controlPlaneEndpoint. spec.controlPlaneEndpoint is read and never written.
func setStatus(object *infrav1.WindowsCluster, cluster *clusterv1.Cluster) {
	status := &object.Status
	status.Initialization.Provisioned = ptr.To(true)
	status.ObservedGeneration = object.Generation
	status.FailureDomains = nil
	for _, d := range object.Spec.FailureDomains {
		status.FailureDomains = append(status.FailureDomains, clusterv1.FailureDomain{Name: d.Name, ControlPlane: ptr.To(false)})
	}

	endpoint := metav1.Condition{Type: infrav1.EndpointAvailableCondition, Status: metav1.ConditionTrue, Reason: infrav1.EndpointAvailableReason}
	ready := metav1.Condition{Type: infrav1.ReadyCondition, Status: metav1.ConditionTrue, Reason: clusterv1.ReadyReason}
	if !object.Spec.ControlPlaneEndpoint.IsValid() && !cluster.Spec.ControlPlaneEndpoint.IsValid() {
		endpoint.Status, endpoint.Reason = metav1.ConditionFalse, infrav1.WaitingForEndpointReason
		endpoint.Message = fmt.Sprintf("Neither spec.controlPlaneEndpoint nor Cluster %s names the API server: set one of them, or wait for the control plane provider", cluster.Name)
		ready.Status, ready.Reason, ready.Message = endpoint.Status, endpoint.Reason, endpoint.Message
	}
	conditions.Set(object, endpoint)
	conditions.Set(object, ready)
}
