package windowsmachine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/infrastructure"
)

// maxAddresses is the bound of status.addresses.
const maxAddresses = 128

// close writes what the reconcile found, and says when to come back. phaseErr is the error of the phases.
func (r *Reconciler) close(ctx context.Context, s *scope, phaseErr error) (ctrl.Result, error) {
	var writeErr error
	if !apierrors.IsConflict(phaseErr) {
		writeErr = r.write(ctx, s, phaseErr)
	}
	switch {
	case apierrors.IsConflict(phaseErr), apierrors.IsConflict(writeErr):
		return afterConflict(), nil
	case writeErr != nil:
		return ctrl.Result{}, errors.Join(phaseErr, writeErr)
	}
	if wait := retryAfter(phaseErr); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	return ctrl.Result{}, phaseErr
}

// retryAfter returns when the platform wants to be asked again after a failure; zero when it does not say.
func retryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*infrastructure.CreateError](err); ok {
		return e.RetryAfter
	}
	if e, ok := errors.AsType[*infrastructure.DeleteError](err); ok {
		return e.RetryAfter
	}
	return 0
}

// write writes spec.providerID, then the status, then tells people; or removes the finalizer when nothing is left. The order
// matters: Cluster API shall never see provisioned without a provider ID, also not when one of the writes fails.
func (r *Reconciler) write(ctx context.Context, s *scope, err error) error {
	if s.deletion.Done {
		return r.removeFinalizer(ctx, s)
	}
	if err := r.writeProviderID(ctx, s); err != nil {
		return err
	}
	s.setStatus(err)
	if equality.Semantic.DeepEqual(s.base.Status, s.object.Status) {
		return nil
	}
	// A merge patch replaces the list of conditions as a whole, hence the lock.
	patch := client.MergeFromWithOptions(s.base, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, s.object.DeepCopy(), patch); err != nil {
		if s.claimWithdrawn && apierrors.IsConflict(err) {
			err = errors.Join(err, r.withdrawClaim(ctx, s))
		}
		return fmt.Errorf("writing the status of WindowsMachine %s: %w", client.ObjectKeyFromObject(s.object), err)
	}
	r.tell(s.base, s.object)
	return nil
}

// withdrawClaim takes back nothing but the claim that this reconcile made, without a lock: what came in between is most likely a
// deletion, which would have to ask the platform for what was never created if the claim stayed.
func (r *Reconciler) withdrawClaim(ctx context.Context, s *scope) error {
	withdrawn := s.base.DeepCopy()
	withdrawn.Status.Instance.State = ""
	return client.IgnoreNotFound(r.Client.Status().Patch(ctx, withdrawn, client.MergeFrom(s.base)))
}

// writeProviderID writes spec.providerID as soon as the platform knows it.
func (r *Reconciler) writeProviderID(ctx context.Context, s *scope) error {
	if s.object.Spec.ProviderID != "" || s.instance == nil || s.instance.ProviderID == "" {
		return nil
	}
	written := s.base.DeepCopy()
	written.Spec.ProviderID = s.instance.ProviderID
	if err := r.Client.Patch(ctx, written, client.MergeFrom(s.base)); err != nil {
		return fmt.Errorf("writing provider ID %s of WindowsMachine %s: %w", s.instance.ProviderID, client.ObjectKeyFromObject(s.object), err)
	}
	s.object, s.base = written, written.DeepCopy()
	return nil
}

// removeFinalizer lets the WindowsMachine go.
func (r *Reconciler) removeFinalizer(ctx context.Context, s *scope) error {
	released := s.base.DeepCopy()
	controllerutil.RemoveFinalizer(released, infrav1.MachineFinalizer)
	patch := client.MergeFromWithOptions(s.base, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, released, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the finalizer of WindowsMachine %s: %w", client.ObjectKeyFromObject(s.object), err)
	}
	r.tellDeleted(s.object)
	return nil
}

// setStatus turns the facts of the scope and the error of its phases into the status.
func (s *scope) setStatus(err error) {
	if s.instance != nil {
		s.setInstance(*s.instance)
	}
	if s.deleting() {
		s.object.Status.Instance.State = infrav1.InstanceDeleting
	}
	if s.claimWithdrawn {
		s.object.Status.Instance.State = ""
	}

	instance, deleting := s.instanceCondition(err), s.deletingCondition(err)
	ready := metav1.Condition{Type: infrav1.ReadyCondition, Status: instance.Status, Reason: instance.Reason, Message: instance.Message}
	switch {
	case deleting.Status == metav1.ConditionTrue:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, deleting.Reason, deleting.Message
	case instance.Status == metav1.ConditionTrue:
		ready.Reason = clusterv1.ReadyReason
	}
	for _, c := range []metav1.Condition{instance, deleting, ready} {
		conditions.Set(s.object, c)
	}
	if err == nil {
		s.object.Status.ObservedGeneration = s.object.Generation
	}
}

// setInstance takes over what the platform knows.
func (s *scope) setInstance(i infrastructure.Instance) {
	status := &s.object.Status
	status.Instance = infrav1.InstanceStatus{Name: s.instanceName(), ID: i.ID, State: i.State}
	if i.State == infrav1.InstanceMissing {
		status.Addresses = nil
		return
	}
	status.Addresses = addresses(status.Instance.Name, i.Addresses)
	if i.FailureDomain != "" {
		status.FailureDomain = i.FailureDomain
	}
	status.Interruptible = nil
	if i.Interruptible {
		status.Interruptible = ptr.To(true)
	}
	if i.State == infrav1.InstanceRunning && s.object.Spec.ProviderID != "" {
		status.Initialization.Provisioned = ptr.To(true)
	}
}

// addresses returns the host name and then what the guest reported, each once.
func addresses(hostName string, reported []clusterv1.MachineAddress) []clusterv1.MachineAddress {
	all := []clusterv1.MachineAddress{{Type: clusterv1.MachineHostName, Address: hostName}}
	for _, a := range reported {
		if len(all) < maxAddresses && !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	return all
}

// instanceCondition is InstanceProvisioned.
func (s *scope) instanceCondition(err error) metav1.Condition {
	c := metav1.Condition{Type: infrav1.InstanceProvisionedCondition, Status: metav1.ConditionFalse}
	switch {
	case s.deleting():
		c.Reason, c.Message = infrav1.InstanceDeletingReason, "The instance is being deleted"
	case err != nil && s.provisioned():
		// Nobody knows how the instance is. False would let a MachineHealthCheck replace every Machine because a vCenter is away.
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, reasonOf(err), err.Error()
	case err != nil:
		c.Reason, c.Message = reasonOf(err), err.Error()
	case s.waiting.reason != "":
		c.Reason, c.Message = s.waiting.reason, s.waiting.message
	case s.instance != nil:
		c.Status, c.Reason, c.Message = stateCondition(s.object, *s.instance)
	}
	return c
}

// stateCondition says what the state of an instance means for InstanceProvisioned.
func stateCondition(m *infrav1.WindowsMachine, i infrastructure.Instance) (status metav1.ConditionStatus, reason, message string) {
	name := m.Status.Instance.Name
	switch i.State {
	case infrav1.InstanceRunning:
		if m.Spec.ProviderID == "" {
			return metav1.ConditionFalse, infrav1.InstanceCreatingReason, fmt.Sprintf("Instance %s runs; waiting for its provider ID", name)
		}
		return metav1.ConditionTrue, infrav1.InstanceProvisionedReason, ""
	case infrav1.InstancePoweredOff:
		return metav1.ConditionFalse, infrav1.InstancePoweredOffReason, cmp.Or(i.Message, fmt.Sprintf("Instance %s is powered off: power it on, or delete the Machine", name))
	case infrav1.InstanceSuspended:
		return metav1.ConditionFalse, infrav1.InstancePoweredOffReason, cmp.Or(i.Message, fmt.Sprintf("Instance %s is suspended: resume it, or delete the Machine", name))
	case infrav1.InstanceMissing:
		return metav1.ConditionFalse, infrav1.InstanceMissingReason, fmt.Sprintf("Instance %s (%s) does not exist any more and is not created again: "+
			"delete the Machine, or let a MachineHealthCheck replace it", name, m.Spec.ProviderID)
	case infrav1.InstanceDeleting:
		return metav1.ConditionFalse, infrav1.InstanceDeletingReason, cmp.Or(i.Message, fmt.Sprintf("Instance %s is being deleted", name))
	}
	return metav1.ConditionFalse, infrav1.InstanceCreatingReason, cmp.Or(i.Message, fmt.Sprintf("Instance %s is being created", name))
}

// deletingCondition is Deleting.
func (s *scope) deletingCondition(err error) metav1.Condition {
	c := metav1.Condition{Type: infrav1.DeletingCondition, Status: metav1.ConditionTrue}
	switch {
	case !s.deleting():
		c.Status, c.Reason = metav1.ConditionFalse, clusterv1.NotDeletingReason
	case err != nil:
		c.Reason, c.Message = reasonOf(err), err.Error()
	default:
		c.Reason, c.Message = infrav1.InstanceDeletingReason, cmp.Or(s.deletion.Message, "The instance is being deleted")
	}
	return c
}

// reasonOf returns the reason for an error of a phase. The message is the error's own.
func reasonOf(err error) string {
	switch {
	case isA[*infrastructure.ForeignInstanceError](err):
		return infrav1.ForeignInstanceReason
	case isA[*infrastructure.CreateError](err):
		return infrav1.InstanceCreateFailedReason
	case isA[*infrastructure.DeleteError](err):
		return infrav1.InstanceDeleteFailedReason
	case isA[*infrastructure.ConfigError](err):
		return infrav1.InvalidConfigurationReason
	case isA[*infrastructure.FailureDomainError](err):
		return infrav1.FailureDomainNotFoundReason
	case isA[*infrastructure.TooLargeError](err):
		return infrav1.BootstrapDataTooLargeReason
	case errors.Is(err, errBootstrapData):
		return infrav1.InvalidBootstrapDataReason
	case errors.Is(err, infrastructure.ErrIdentity):
		return infrav1.IdentityUnavailableReason
	case errors.Is(err, infrastructure.ErrUnavailable):
		return infrav1.PlatformUnavailableReason
	}
	return infrav1.InternalErrorReason
}

// isA is true when err is an E, or wraps one.
func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
