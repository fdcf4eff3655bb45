package windowsmachine

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
)

// instanceDeletedReason is the reason of the Event for an instance that is gone.
const instanceDeletedReason = "InstanceDeleted"

// maxEventMessage bounds the message of an Event in bytes; the condition has all of it.
const maxEventMessage = 1024

// tell sends an Event for what changed between two statuses that a person wants to know: the instance runs, or something
// failed. A failure that a retry only repeats is no change, and sends nothing.
func (r *Reconciler) tell(before, after *infrav1.WindowsMachine) {
	for _, t := range []string{infrav1.InstanceProvisionedCondition, infrav1.DeletingCondition} {
		older, newer := conditions.Get(before, t), conditions.Get(after, t)
		if older != nil && older.Reason == newer.Reason && older.Message == newer.Message {
			continue
		}
		switch {
		case newer.Reason == infrav1.InstanceProvisionedReason:
			r.Recorder.Eventf(after, corev1.EventTypeNormal, newer.Reason, "Instance %s (%s) runs", after.Status.Instance.Name, after.Spec.ProviderID)
		case failure(newer.Reason):
			r.Recorder.Event(after, corev1.EventTypeWarning, newer.Reason, truncated(newer.Message))
		}
	}
}

// tellDeleted sends the last Event of a WindowsMachine that may have had an instance. The name alone says nothing: it stays
// when a claim is withdrawn.
func (r *Reconciler) tellDeleted(m *infrav1.WindowsMachine) {
	if claimed(m) {
		r.Recorder.Eventf(m, corev1.EventTypeNormal, instanceDeletedReason, "Instance %s is gone", m.Status.Instance.Name)
	}
}

// failure is true for the reasons that need a person, or a MachineHealthCheck.
func failure(reason string) bool {
	return slices.Contains([]string{
		infrav1.InvalidBootstrapDataReason,
		infrav1.BootstrapDataTooLargeReason,
		infrav1.InvalidConfigurationReason,
		infrav1.FailureDomainNotFoundReason,
		infrav1.IdentityUnavailableReason,
		infrav1.PlatformUnavailableReason,
		infrav1.InstanceCreateFailedReason,
		infrav1.ForeignInstanceReason,
		infrav1.InstancePoweredOffReason,
		infrav1.InstanceMissingReason,
		infrav1.InstanceDeleteFailedReason,
		infrav1.ControlPlaneNotSupportedReason,
		infrav1.InternalErrorReason,
	}, reason)
}

// truncated returns message within maxEventMessage, and valid UTF-8.
func truncated(message string) string {
	if len(message) <= maxEventMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxEventMessage-len("…")], "") + "…"
}
