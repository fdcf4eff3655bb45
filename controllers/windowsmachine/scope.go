package windowsmachine

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/labels"
	"sigs.k8s.io/cluster-api/util/paused"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/bootstrap"
	"github.com/capw-dev/cluster-api-provider-windows/infrastructure"
)

// scope is what one reconcile works on: first what was read, then the facts that the phases find.
type scope struct {
	// object is the WindowsMachine; base is how the API server has it.
	object, base *infrav1.WindowsMachine
	// machine may be nil while the WindowsMachine is being deleted, and only then.
	machine *clusterv1.Machine
	// cluster is nil when it does not exist: not yet, or not any more.
	cluster *clusterv1.Cluster
	// platform that the WindowsMachine chooses; nil when this manager does not run it.
	platform infrastructure.Platform

	// bootstrapData is set by readBootstrapData.
	bootstrapData []byte
	// newClaim is true when this reconcile made the claim, claimWithdrawn when it takes it back.
	newClaim, claimWithdrawn bool

	// waiting says what the next phase waits for; empty when it waits for nothing.
	waiting condition
	// instance is what the platform answered; nil when it was not asked, or failed.
	instance *infrastructure.Instance
	// deletion is how far the platform is with the deletion.
	deletion infrastructure.Progress
}

// condition is reason and message of a condition.
type condition struct{ reason, message string }

// wait records what the next phase waits for.
func (s *scope) wait(reason, message string) { s.waiting = condition{reason, message} }

// newScope reads what belongs to a WindowsMachine. It returns nil when there is nothing to do now; a watch wakes us.
func (r *Reconciler) newScope(ctx context.Context, req ctrl.Request) (*scope, error) {
	log := ctrl.LoggerFrom(ctx)
	s := &scope{object: &infrav1.WindowsMachine{}}
	if err := r.Client.Get(ctx, req.NamespacedName, s.object); apierrors.IsNotFound(err) {
		for _, p := range r.Platforms.all() {
			p.Forget(req.NamespacedName)
		}
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading WindowsMachine %s: %w", req, err)
	}
	// The filter stands here and not in a predicate, because the platform wakes us by name only.
	if r.WatchFilterValue != "" && !labels.HasWatchLabel(s.object, r.WatchFilterValue) {
		return nil, nil
	}
	if s.deleting() && !controllerutil.ContainsFinalizer(s.object, infrav1.MachineFinalizer) {
		return nil, nil
	}

	var err error
	if s.machine, err = util.GetOwnerMachine(ctx, r.Client, s.object.ObjectMeta); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the Machine that owns WindowsMachine %s: %w", req, err)
	}
	if s.machine == nil && !s.deleting() {
		log.V(4).Info("Waiting for the Machine to set its owner reference")
		return nil, nil
	}
	s.cluster, err = util.GetClusterByName(ctx, r.Client, s.object.Namespace, s.clusterName())
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading Cluster %s/%s: %w", s.object.Namespace, s.clusterName(), err)
	}

	// Only now, with an owner: a MachineSet edits a new object's managed fields and gives up after three conflicts.
	if added, err := r.addFinalizer(ctx, s.object); err != nil || added {
		return nil, err
	}
	s.base = s.object.DeepCopy()
	if isPaused, changed, err := paused.EnsurePausedCondition(ctx, r.Client, s.cluster, s.object); err != nil || isPaused || changed {
		return nil, err
	}
	s.platform = r.Platforms.of(s.object)
	return s, nil
}

// addFinalizer adds the finalizer. The patch replaces the list of finalizers as a whole, hence the lock.
func (r *Reconciler) addFinalizer(ctx context.Context, m *infrav1.WindowsMachine) (added bool, err error) {
	base := m.DeepCopy()
	if !m.DeletionTimestamp.IsZero() || !controllerutil.AddFinalizer(m, infrav1.MachineFinalizer) {
		return false, nil
	}
	if err := r.Client.Patch(ctx, m, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
		return false, fmt.Errorf("adding the finalizer of WindowsMachine %s: %w", client.ObjectKeyFromObject(m), err)
	}
	return true, nil
}

// deleting is true when the WindowsMachine is being deleted.
func (s *scope) deleting() bool { return !s.object.DeletionTimestamp.IsZero() }

// provisioned is true once the instance was seen running; it never becomes false again.
func (s *scope) provisioned() bool {
	return ptr.Deref(s.object.Status.Initialization.Provisioned, false)
}

// claimed is true when the platform may have an instance: it was asked for one, or one was seen.
func claimed(m *infrav1.WindowsMachine) bool {
	return m.Status.Instance.State != "" || m.Spec.ProviderID != ""
}

// clusterName is known also when Machine and Cluster are gone.
func (s *scope) clusterName() string {
	if s.machine != nil {
		return s.machine.Spec.ClusterName
	}
	return s.object.Labels[clusterv1.ClusterNameLabel]
}

// instanceName is the name of VM, computer and Node: the one that was claimed, else the one that the bootstrap controller
// computes too, from the Machine's name. The owner reference still has it when the Machine is gone.
func (s *scope) instanceName() string {
	if name := s.object.Status.Instance.Name; name != "" {
		return name
	}
	machineName := s.object.Name
	for _, ref := range s.object.OwnerReferences {
		if ref.Kind == "Machine" {
			machineName = ref.Name
		}
	}
	return bootstrap.ComputerName(s.object.Namespace, s.clusterName(), machineName)
}

// wanted is the instance as the platform finds it.
func (s *scope) wanted() infrastructure.Machine {
	m := infrastructure.Machine{
		Owner: infrastructure.Owner{
			UID:       s.object.UID,
			Namespace: s.object.Namespace,
			Name:      s.object.Name,
			Cluster:   s.clusterName(),
		},
		InstanceName:  s.instanceName(),
		ProviderID:    s.object.Spec.ProviderID,
		ID:            s.object.Status.Instance.ID,
		FailureDomain: s.object.Status.FailureDomain,
		Spec:          *s.object.Spec.DeepCopy(),
	}
	// Where it was placed decides, once it was; until then, what the Machine asks for.
	if m.FailureDomain == "" && s.machine != nil {
		m.FailureDomain = s.machine.Spec.FailureDomain
	}
	return m
}
