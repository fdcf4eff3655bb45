// Package windowsmachinetemplate tells the cluster autoscaler what a node from a WindowsMachineTemplate would be, so that it
// can scale a MachineDeployment up from zero. Without it the autoscaler takes every node for linux/amd64.
package windowsmachinetemplate

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=windowsmachinetemplates,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=windowsmachinetemplates/status,verbs=get;patch

// Reconciler reconciles the status of WindowsMachineTemplates.
type Reconciler struct {
	Client client.Client
	// WatchFilterValue, when set, limits the reconciler to objects with this value of the label cluster.x-k8s.io/watch-filter.
	WatchFilterValue string
}

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, options controller.Options) error {
	err := ctrl.NewControllerManagedBy(mgr).
		WithOptions(options).
		For(&infrav1.WindowsMachineTemplate{}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the WindowsMachineTemplate controller: %w", err)
	}
	return nil
}

// Reconcile writes capacity and node information of one WindowsMachineTemplate.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	object := &infrav1.WindowsMachineTemplate{}
	if err := r.Client.Get(ctx, req.NamespacedName, object); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.WatchFilterValue != "" && !labels.HasWatchLabel(object, r.WatchFilterValue) {
		return ctrl.Result{}, nil
	}
	if annotations.HasPaused(object) || !object.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	base := object.DeepCopy()
	object.Status = status(object.Spec.Template.Spec)
	if equality.Semantic.DeepEqual(base.Status, object.Status) {
		return ctrl.Result{}, nil
	}
	if err := r.Client.Status().Patch(ctx, object, client.MergeFrom(base)); err != nil {
		return ctrl.Result{}, fmt.Errorf("writing the status of WindowsMachineTemplate %s: %w", req, err)
	}
	return ctrl.Result{}, nil
}

// status says what a node of the specification has, as far as it says it: what is left to the platform's own template is
// not known here, and a guess would make the autoscaler add nodes that its Pods do not fit on.
func status(spec infrav1.WindowsMachineSpec) infrav1.WindowsMachineTemplateStatus {
	s := infrav1.WindowsMachineTemplateStatus{NodeInfo: infrav1.NodeInfo{Architecture: "amd64", OperatingSystem: string(corev1.Windows)}}
	v := spec.VSphere
	if v == nil {
		return s
	}
	capacity := corev1.ResourceList{}
	if v.NumCPUs > 0 {
		capacity[corev1.ResourceCPU] = *resource.NewQuantity(int64(v.NumCPUs), resource.DecimalSI)
	}
	if v.MemoryMiB > 0 {
		capacity[corev1.ResourceMemory] = *resource.NewQuantity(v.MemoryMiB<<20, resource.BinarySI)
	}
	if len(capacity) > 0 {
		s.Capacity = capacity
	}
	return s
}
