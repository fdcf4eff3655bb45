package windowsconfig

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"

	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
)

// close turns the facts of a reconcile into conditions and writes the status.
func (r *Reconciler) close(ctx context.Context, s *scope, failure error) error {
	available := dataSecretAvailable(s, failure)
	before := conditions.Get(s.config, available.Type)
	if s.stopped != nil && s.stopped.refused && (before == nil || !conditions.HasSameStateExceptObservedGeneration(before, &available)) {
		r.Recorder.Event(s.config, corev1.EventTypeWarning, s.stopped.reason, s.stopped.message)
	}
	conditions.Set(s.config, available)
	if s.handedOut() {
		conditions.Set(s.config, bootstrapTokenValid(s, failure))
	}
	summaryErr := setReady(s.config)

	options := []patch.Option{patch.WithOwnedConditions{Conditions: []string{
		bootstrapv1.ReadyCondition,
		bootstrapv1.DataSecretAvailableCondition,
		bootstrapv1.BootstrapTokenValidCondition,
		clusterv1.PausedCondition,
	}}}
	if failure == nil && summaryErr == nil {
		options = append(options, patch.WithStatusObservedGeneration{})
	}
	return errors.Join(summaryErr, s.patch.Patch(ctx, s.config, options...))
}

func dataSecretAvailable(s *scope, failure error) metav1.Condition {
	c := metav1.Condition{Type: bootstrapv1.DataSecretAvailableCondition}
	switch {
	case s.stopped != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, s.stopped.reason, s.stopped.message
	case s.handedOut():
		c.Status, c.Reason = metav1.ConditionTrue, bootstrapv1.DataSecretAvailableReason
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, bootstrapv1.InternalErrorReason, errorMessage(failure)
	}
	return c
}

// bootstrapTokenValid is about data that was handed out.
func bootstrapTokenValid(s *scope, failure error) metav1.Condition {
	c := metav1.Condition{Type: bootstrapv1.BootstrapTokenValidCondition}
	switch {
	case s.tokenRevoked:
		c.Status, c.Reason = metav1.ConditionTrue, bootstrapv1.NodeJoinedReason
	case s.tokenValid, s.joined():
		c.Status, c.Reason = metav1.ConditionTrue, bootstrapv1.BootstrapTokenValidReason
	case s.tokenProblem != "":
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, bootstrapv1.TokenRefreshFailedReason, s.tokenProblem
	case failure != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, bootstrapv1.TokenRefreshFailedReason, errorMessage(failure)
	case s.stopped != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, s.stopped.reason, s.stopped.message
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, bootstrapv1.WaitingForConnectionReason,
			"waiting for a connection to the workload cluster to extend the bootstrap token"
	}
	return c
}

func errorMessage(err error) string { return fmt.Sprintf("%s; it is tried again", err) }

// setReady summarises the other conditions under the reason of the first that is at fault, so that the Machine, which
// mirrors it, says more than "not ready".
func setReady(config *bootstrapv1.WindowsConfig) error {
	reason := func(issues, unknown, _ []conditions.ConditionWithOwnerInfo) string {
		switch {
		case len(issues) > 0:
			return issues[0].Reason
		case len(unknown) > 0:
			return unknown[0].Reason
		}
		return clusterv1.ReadyReason
	}
	err := conditions.SetSummaryCondition(config, config, bootstrapv1.ReadyCondition,
		conditions.ForConditionTypes{bootstrapv1.DataSecretAvailableCondition, bootstrapv1.BootstrapTokenValidCondition},
		conditions.IgnoreTypesIfMissing{bootstrapv1.BootstrapTokenValidCondition},
		conditions.CustomMergeStrategy{MergeStrategy: conditions.DefaultMergeStrategy(conditions.ComputeReasonFunc(reason))},
	)
	if err != nil {
		return fmt.Errorf("summarising conditions: %w", err)
	}
	return nil
}
