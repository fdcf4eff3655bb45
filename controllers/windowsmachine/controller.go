// Package windowsmachine drives a WindowsMachine towards one running instance that consumes its bootstrap data.
//
// Reconcile is a list of phases over one scope. A phase asks for one thing and leaves a fact on the scope; it never
// touches conditions. status.go turns the facts into status, conditions and events, once per reconcile. Nothing is polled:
// the API server wakes the reconciler through watches, the platform through its Changes.
package windowsmachine

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/infrastructure"
)

// Retries of a failed reconcile. Most failures need a person (a template that does not exist, a password that is refused),
// so the first retries are quick enough for a hiccup and the last ones rare enough to leave the platform in peace.
const (
	retryFirst = 200 * time.Millisecond
	retryLast  = 2 * time.Minute
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=windowsmachines,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=windowsmachines/status,verbs=get;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machines,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// Reconciler reconciles WindowsMachines.
type Reconciler struct {
	// Client reads Secrets uncached: a cache of every Secret in the cluster would be both large and more than this
	// controller needs to know.
	Client client.Client
	// Platforms that this manager runs.
	Platforms Platforms
	// Namespace that the manager watches; empty for all.
	Namespace string
	// WatchFilterValue, when set, limits the reconciler to objects with this value of the label cluster.x-k8s.io/watch-filter.
	WatchFilterValue string
	// Recorder tells people of failures. It takes core/v1 Events: the recorder of events.k8s.io/v1 folds all events with one
	// reason into one series and drops the message of every one but the first.
	Recorder record.EventRecorder
}

// Platforms are the platforms that a WindowsMachine can choose; nil where this manager does not run one.
type Platforms struct {
	VSphere infrastructure.Platform
}

// of returns the platform that the WindowsMachine chooses, or nil when this manager does not run it.
func (p Platforms) of(m *infrav1.WindowsMachine) infrastructure.Platform {
	if m.Spec.VSphere != nil {
		return p.VSphere
	}
	return nil
}

// all returns the platforms that this manager runs.
func (p Platforms) all() []infrastructure.Platform {
	if p.VSphere == nil {
		return nil
	}
	return []infrastructure.Platform{p.VSphere}
}

// SetupWithManager registers the reconciler, its watches and its index.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if options.RateLimiter == nil {
		options.RateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryFirst, retryLast)
	}
	secrets, err := r.newSecretCache(mgr)
	if err != nil {
		return err
	}
	b := ctrl.NewControllerManagedBy(mgr).WithOptions(options)
	if err := r.watch(ctx, mgr, b, secrets); err != nil {
		return fmt.Errorf("setting up the WindowsMachine controller: %w", err)
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("setting up the WindowsMachine controller: %w", err)
	}
	credentials := &credentialsReconciler{client: r.Client, live: mgr.GetAPIReader(), secrets: secrets}
	if err := credentials.setup(mgr, controller.Options{SkipNameValidation: options.SkipNameValidation}, secrets); err != nil {
		return fmt.Errorf("setting up the controller for credentials: %w", err)
	}
	return nil
}

// Reconcile drives one WindowsMachine towards a running instance that consumes its bootstrap data, or towards nothing when
// it is being deleted.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (result ctrl.Result, rerr error) {
	s, err := r.newScope(ctx, req)
	if apierrors.IsConflict(err) {
		return afterConflict(), nil
	}
	if s == nil || err != nil {
		return ctrl.Result{}, err
	}
	defer func() { result, rerr = r.close(ctx, s, rerr) }()

	if s.deleting() {
		return ctrl.Result{}, run(ctx, s,
			r.deleteUnclaimed,
			r.requirePlatform,
			r.deleteInstance, // the platform's Changes wake us
		)
	}
	return ctrl.Result{}, run(ctx, s,
		r.refuseControlPlane,
		r.requirePlatform,
		r.observeInstance,   // one that was seen before is looked at, and never created again
		r.waitForCluster,    // its watch wakes us
		r.readBootstrapData, // the Machine's watch wakes us
		r.claim,
		r.protectCredentials, // credentials.go
		r.ensureInstance,     // the platform's Changes wake us
	)
}

// afterConflict is the result when an object had changed since it was read. The cache may have been behind a write of our own,
// whose event wakes nobody.
func afterConflict() ctrl.Result { return ctrl.Result{RequeueAfter: retryFirst} }

// A phase asks for one thing and records it on the scope. proceed is false when the phases after it have nothing to do now.
type phase func(ctx context.Context, s *scope) (proceed bool, err error)

// run runs the phases in their order, up to the first that fails or does not proceed.
func run(ctx context.Context, s *scope, phases ...phase) error {
	for _, p := range phases {
		if proceed, err := p(ctx, s); err != nil || !proceed {
			return err
		}
	}
	return nil
}

// refuseControlPlane stops at a control plane Machine: Windows nodes are workers only.
func (r *Reconciler) refuseControlPlane(_ context.Context, s *scope) (bool, error) {
	if _, controlPlane := s.machine.Labels[clusterv1.MachineControlPlaneLabel]; controlPlane {
		s.wait(infrav1.ControlPlaneNotSupportedReason, fmt.Sprintf("Machine %s is a control plane Machine, and Windows nodes can only be workers: "+
			"use WindowsMachineTemplates in MachineDeployments", s.machine.Name))
		return false, nil
	}
	return true, nil
}

// requirePlatform stops at a WindowsMachine whose platform this manager does not run.
func (r *Reconciler) requirePlatform(_ context.Context, s *scope) (bool, error) {
	if s.platform == nil {
		return false, fmt.Errorf("%w: this manager does not run the platform that the WindowsMachine chooses", infrastructure.ErrUnavailable)
	}
	return true, nil
}
