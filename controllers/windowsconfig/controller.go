// Package windowsconfig makes bootstrap data: it turns each WindowsConfig into a Secret with the user data that makes
// one Windows worker join its cluster, and keeps the bootstrap token in it valid until the worker has joined.
//
// The Secret is the only memory that the controller has. Its token is generated before the Secret is written and read
// back from it ever after; the workload cluster is told of it next, and only then does the status name the Secret. So a
// crash at any point leaves one token per WindowsConfig at most, data that was handed out always holds a token that was
// valid at that time, and clusterctl move, which carries the Secret along, carries the token too.
package windowsconfig

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
)

// DefaultTokenTTL is how long a bootstrap token is valid unless it is extended. A Windows first boot takes 5 to 30
// minutes; an hour also outlasts an outage of the management cluster meanwhile.
const DefaultTokenTTL = time.Hour

// reconcileTimeout bounds one reconcile, so that a workload cluster that swallows requests cannot hold a worker.
const reconcileTimeout = time.Minute

// Two permissions are only for API servers with the admission plugin OwnerReferencesPermissionEnforcement: who makes a
// WindowsConfig the owner of a Secret must be allowed to set its finalizers (the reference blocks its deletion), and to
// delete the Secret if it exists already (the reference lets the garbage collector do so). Nothing is deleted here.
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=windowsconfigs,verbs=get;list;watch
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=windowsconfigs/status,verbs=patch
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=windowsconfigs/finalizers,verbs=update
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machines,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// Reconciler reconciles WindowsConfigs.
type Reconciler struct {
	// Client of the management cluster. It must read Secrets from the API server, not from a cache.
	Client client.Client
	// ClusterCache holds the connections to the workload clusters.
	ClusterCache clustercache.ClusterCache
	// WatchFilterValue, if set, restricts the controller to WindowsConfigs whose label cluster.x-k8s.io/watch-filter has
	// this value.
	WatchFilterValue string
	// TokenTTL is how long a bootstrap token is valid unless it is extended. Default: DefaultTokenTTL.
	TokenTTL time.Duration
	// Recorder tells people what was made and what was refused. It takes core/v1 Events: the recorder of events.k8s.io/v1
	// folds all events with one reason into one series and drops the message of every one but the first. Default: the
	// manager's.
	Recorder record.EventRecorder
}

// SetupWithManager adds the controller to a manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil || r.ClusterCache == nil {
		return errors.New("the Reconciler needs a Client and a ClusterCache")
	}
	if r.TokenTTL == 0 {
		r.TokenTTL = DefaultTokenTTL
	}
	if options.ReconciliationTimeout == 0 {
		options.ReconciliationTimeout = reconcileTimeout
	}
	if r.Recorder == nil {
		r.Recorder = mgr.GetEventRecorderFor("windowsconfig-controller") //nolint:staticcheck // see Reconciler.Recorder
	}

	if err := r.watch(ctx, mgr).WithOptions(options).Complete(r); err != nil {
		return fmt.Errorf("building controller: %w", err)
	}
	return nil
}

// Reconcile drives one WindowsConfig towards a Secret with bootstrap data and a valid token in it. It waits for nothing
// by time: what it lacks is watched, and wakes it.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (_ ctrl.Result, rerr error) {
	s, err := r.newScope(ctx, req.NamespacedName)
	if s == nil || err != nil {
		return ctrl.Result{}, err
	}
	ctx = ctrl.LoggerInto(ctx, s.log)
	defer func() { rerr = errors.Join(rerr, r.close(ctx, s, rerr)) }()

	return s.run(ctx,
		refuseOwner,          // scope.go: workers of Machines only
		requireCluster,       // scope.go
		takeOverHandedOut,    // scope.go: after clusterctl move or a restore
		r.findDataSecret,     // secret.go: ours, or nothing, or refused
		waitForCluster,       // discovery.go
		r.connect,            // discovery.go
		r.discoverClusterCA,  // discovery.go
		r.writeDataSecret,    // secret.go
		r.ensureToken,        // token.go
		publishDataSecret,    // secret.go: from here on the Machine takes it
		r.refreshTokenInTime, // token.go
	)
}
