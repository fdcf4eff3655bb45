package windowsmachine

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/infrastructure"
)

// The bootstrap Secret is part of the Cluster API contract.
const (
	dataKey           = "value"
	formatKey         = "format"
	formatCloudConfig = "cloud-config"
	formatUnmarked    = "" // the contract does not demand a format
)

// errBootstrapData marks bootstrap data that a Windows guest cannot consume.
var errBootstrapData = errors.New("invalid bootstrap data")

// waitForCluster waits for the infrastructure of the Cluster, of whatever kind it is.
func (r *Reconciler) waitForCluster(_ context.Context, s *scope) (bool, error) {
	if s.cluster == nil {
		s.wait(infrav1.WaitingForClusterInfrastructureReason, fmt.Sprintf("Waiting for Cluster %s, which Machine %s names, to be created", s.clusterName(), s.machine.Name))
		return false, nil
	}
	if !ptr.Deref(s.cluster.Status.Initialization.InfrastructureProvisioned, false) {
		s.wait(infrav1.WaitingForClusterInfrastructureReason, fmt.Sprintf("Waiting for the infrastructure of Cluster %s to be provisioned", s.cluster.Name))
		return false, nil
	}
	return true, nil
}

// readBootstrapData waits for the bootstrap provider, and reads what it made.
func (r *Reconciler) readBootstrapData(ctx context.Context, s *scope) (bool, error) {
	name := s.machine.Spec.Bootstrap.DataSecretName
	if name == nil {
		s.wait(infrav1.WaitingForBootstrapDataReason, fmt.Sprintf("Waiting for the bootstrap provider to set spec.bootstrap.dataSecretName of Machine %s", s.machine.Name))
		return false, nil
	}
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: s.machine.Namespace, Name: *name}
	if err := r.Client.Get(ctx, key, secret); apierrors.IsNotFound(err) {
		return false, fmt.Errorf("%w: Secret %s does not exist; Machine %s names it as its bootstrap data: restore it, or delete the Machine", errBootstrapData, key, s.machine.Name)
	} else if err != nil {
		return false, fmt.Errorf("reading bootstrap data from Secret %s: %w", key, err)
	}
	switch format := string(secret.Data[formatKey]); format {
	case formatUnmarked, formatCloudConfig:
	default:
		return false, fmt.Errorf("%w: Secret %s has format %q, which cloudbase-init cannot consume: "+
			"use a WindowsConfigTemplate, or set the format of the KubeadmConfigTemplate to %s", errBootstrapData, key, format, formatCloudConfig)
	}
	if s.bootstrapData = secret.Data[dataKey]; len(s.bootstrapData) == 0 {
		return false, fmt.Errorf("%w: Secret %s has no key %q, or nothing under it: the bootstrap provider has to write the data there", errBootstrapData, key, dataKey)
	}
	return true, nil
}

// claim records that the platform is about to be asked for an instance for the first time. Without a claim there has never
// been one, and the WindowsMachine can be deleted without credentials or platform: also one that names a credentials Secret
// or a vCenter that does not exist. The optimistic lock puts the claim before or after a deletion, so that a deletion which
// sees no claim can rely on it.
func (r *Reconciler) claim(ctx context.Context, s *scope) (bool, error) {
	if claimed(s.object) {
		return true, nil
	}
	claimed := s.object.DeepCopy()
	claimed.Status.Instance.Name = s.instanceName()
	claimed.Status.Instance.State = infrav1.InstanceCreating
	patch := client.MergeFromWithOptions(s.base, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, claimed, patch); err != nil {
		return false, fmt.Errorf("claiming instance name %s: %w", s.instanceName(), err)
	}
	s.object, s.base, s.newClaim = claimed, claimed.DeepCopy(), true
	return true, nil
}

// ensureInstance asks the platform for the instance. A claim of this reconcile is withdrawn when the platform refuses before
// it creates anything; an older one stays, because the outcome of an earlier call may be unknown.
func (r *Reconciler) ensureInstance(ctx context.Context, s *scope) (bool, error) {
	instance, err := s.platform.Ensure(ctx, infrastructure.InstanceSpec{Machine: s.wanted(), UserData: s.bootstrapData})
	if err != nil {
		s.claimWithdrawn = s.newClaim && refused(err)
		return false, err
	}
	s.instance = &instance
	return true, nil
}

// refused is true for the errors of Ensure which say that nothing was created.
func refused(err error) bool {
	if errors.Is(err, infrastructure.ErrNotAsked) {
		return true
	}
	switch reasonOf(err) {
	case infrav1.IdentityUnavailableReason, infrav1.InvalidConfigurationReason, infrav1.FailureDomainNotFoundReason,
		infrav1.BootstrapDataTooLargeReason, infrav1.ForeignInstanceReason:
		return true
	}
	return false
}
