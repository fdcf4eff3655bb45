package windowsconfig

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/labels"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/cluster-api/util/paused"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
)

const kind = "WindowsConfig"

// scope is one reconcile of one WindowsConfig: what it is about, and the facts that its phases found.
type scope struct {
	log   logr.Logger
	patch *patch.Helper

	config *bootstrapv1.WindowsConfig
	// machine is nil when a MachinePool owns the WindowsConfig.
	machine *clusterv1.Machine
	// cluster is nil only before requireCluster: it does not exist, or a MachinePool owns the WindowsConfig and it is unknown
	// which Cluster that belongs to.
	cluster *clusterv1.Cluster

	// secret is the data Secret, nil while there is none.
	secret *corev1.Secret
	// token is the bootstrap token in the data.
	token string
	// workload is the client of the workload cluster, nil while there is no connection and when none is needed.
	workload client.Client
	// caCertHashes pin the cluster's CA.
	caCertHashes []string
	// tokenValid says that the workload cluster knows the token.
	tokenValid bool
	// tokenRevoked says that the node has joined and the workload cluster does not know the token any more. Once true it
	// stays so: the condition keeps it.
	tokenRevoked bool
	// tokenProblem says why nothing can be done for the token any more, empty if nothing is wrong.
	tokenProblem string

	// stopped says why the reconcile could not go on, nil if it could.
	stopped *stop
	result  ctrl.Result
}

// stop ends a reconcile that cannot go on, without being a failure: what is missing or wrong becomes the condition, and
// something that is watched wakes the reconciler when it has changed.
type stop struct {
	reason, message string
	// refused says that waiting does not help: a person must change something.
	refused bool
}

func (s *stop) Error() string { return s.message }

func waitFor(reason, format string, args ...any) error {
	return &stop{reason: reason, message: fmt.Sprintf(format, args...)}
}

func refuse(reason, format string, args ...any) error {
	return &stop{reason: reason, message: fmt.Sprintf(format, args...), refused: true}
}

// newScope returns nil when there is nothing to do, or nothing to do yet.
func (r *Reconciler) newScope(ctx context.Context, key types.NamespacedName) (*scope, error) {
	config := &bootstrapv1.WindowsConfig{}
	if err := r.Client.Get(ctx, key, config); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	// The watches of Machines, Clusters and Secrets know nothing of the WindowsConfig's labels.
	if r.WatchFilterValue != "" && !labels.HasWatchLabel(config, r.WatchFilterValue) {
		return nil, nil
	}
	// There is nothing to tidy up: the Secret goes with its owner and the token expires.
	if !config.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	s := &scope{log: ctrl.LoggerFrom(ctx), config: config}

	clusterName, owned, err := r.findOwner(ctx, s)
	if err != nil || !owned {
		return nil, err
	}
	if s.machine != nil && !s.machine.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	s.tokenRevoked = s.joined() && conditions.GetReason(config, bootstrapv1.BootstrapTokenValidCondition) == bootstrapv1.NodeJoinedReason
	if clusterName != "" {
		s.log = s.log.WithValues("Cluster", klog.KRef(key.Namespace, clusterName))
		s.cluster, err = util.GetClusterByName(ctx, r.Client, key.Namespace, clusterName)
		switch {
		case apierrors.IsNotFound(err) && s.handedOut():
			return nil, nil // the data is as good as it was, and the token cannot be reached
		case client.IgnoreNotFound(err) != nil:
			return nil, err
		}
	}

	s.patch, err = patch.NewHelper(config, r.Client)
	if err != nil {
		return nil, fmt.Errorf("preparing to patch: %w", err)
	}
	isPaused, requeue, err := paused.EnsurePausedCondition(ctx, r.Client, s.cluster, config)
	if err != nil || isPaused || requeue {
		return nil, err
	}
	return s, nil
}

// findOwner sets the owning Machine, and returns the name of the Cluster and whether there is an owner.
func (r *Reconciler) findOwner(ctx context.Context, s *scope) (clusterName string, owned bool, _ error) {
	machine, err := util.GetOwnerMachine(ctx, r.Client, s.config.ObjectMeta)
	switch {
	case apierrors.IsNotFound(err): // its appearance wakes us
		return "", false, nil
	case err != nil:
		return "", false, fmt.Errorf("getting owner Machine: %w", err)
	case machine != nil:
		s.machine = machine
		s.log = s.log.WithValues("Machine", klog.KObj(machine))
		return machine.Spec.ClusterName, true, nil
	}
	return s.config.Labels[clusterv1.ClusterNameLabel], ownedByMachinePool(s.config), nil
}

func ownedByMachinePool(config *bootstrapv1.WindowsConfig) bool {
	for _, ref := range config.OwnerReferences {
		gv, err := schema.ParseGroupVersion(ref.APIVersion)
		if err == nil && gv.Group == clusterv1.GroupVersion.Group && ref.Kind == "MachinePool" {
			return true
		}
	}
	return false
}

// run goes through phases until one fails or cannot go on.
func (s *scope) run(ctx context.Context, phases ...func(context.Context, *scope) error) (ctrl.Result, error) {
	for _, phase := range phases {
		err := phase(ctx, s)
		if errors.As(err, &s.stopped) {
			s.log.Info("Cannot go on", "reason", s.stopped.reason, "message", s.stopped.message)
			return ctrl.Result{}, nil
		}
		if err != nil {
			return ctrl.Result{}, err
		}
	}
	return s.result, nil
}

// refuseOwner keeps to what Windows can be: a worker, which is one Machine.
func refuseOwner(_ context.Context, s *scope) error {
	if s.machine == nil {
		return refuse(bootstrapv1.MachinePoolNotSupportedReason,
			"a MachinePool owns this WindowsConfig, only Machines are supported; use a MachineDeployment")
	}
	if util.IsControlPlaneMachine(s.machine) {
		return refuse(bootstrapv1.ControlPlaneNotSupportedReason,
			"Machine %s is a control plane Machine, Windows nodes are workers only; use a bootstrap provider for Linux there", s.machine.Name)
	}
	return nil
}

// requireCluster waits for the Cluster to be created; its watch wakes us.
func requireCluster(_ context.Context, s *scope) error {
	if s.cluster == nil {
		return waitFor(bootstrapv1.WaitingForClusterInfrastructureReason,
			"waiting for Cluster %s, which Machine %s names, to be created", s.machine.Spec.ClusterName, s.machine.Name)
	}
	return nil
}

// takeOverHandedOut restores the status that clusterctl move and backups leave behind: a Machine that names its data
// Secret took it from here.
func takeOverHandedOut(_ context.Context, s *scope) error {
	if name := ptr.Deref(s.machine.Spec.Bootstrap.DataSecretName, ""); name != "" && !s.handedOut() {
		s.publish(name)
	}
	return nil
}

// handedOut says that the Machine may have taken the data: from then on it is never changed.
func (s *scope) handedOut() bool {
	return ptr.Deref(s.config.Status.Initialization.DataSecretCreated, false) && s.config.Status.DataSecretName != ""
}

func (s *scope) publish(dataSecretName string) {
	s.config.Status.DataSecretName = dataSecretName
	s.config.Status.Initialization.DataSecretCreated = ptr.To(true)
}

// joined says that the node has joined, so that token and data have served.
func (s *scope) joined() bool { return s.machine != nil && s.machine.Status.NodeRef.IsDefined() }

// mustWriteData says whether there is data to be made. That is so until it is handed out, and again when its Secret
// vanished before an instance was made from it; after that, new data could never reach the instance.
func (s *scope) mustWriteData() bool {
	if !s.handedOut() {
		return true
	}
	return s.secret == nil && s.config.Status.DataSecretName == s.config.Name &&
		!s.joined() && !ptr.Deref(s.machine.Status.Initialization.InfrastructureProvisioned, false)
}
