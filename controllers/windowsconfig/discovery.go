package windowsconfig

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/bootstrap"
)

// waitForCluster waits until there is a cluster to join. MachineSets do not: worker Machines appear as soon as the
// control plane reports a version.
func waitForCluster(_ context.Context, s *scope) error {
	if !s.mustWriteData() {
		return nil
	}
	if !ptr.Deref(s.cluster.Status.Initialization.InfrastructureProvisioned, false) {
		return waitFor(bootstrapv1.WaitingForClusterInfrastructureReason,
			"waiting for Cluster status.initialization.infrastructureProvisioned to be true")
	}
	if !conditions.IsTrue(s.cluster, clusterv1.ClusterControlPlaneInitializedCondition) {
		return waitFor(bootstrapv1.WaitingForControlPlaneReason,
			"waiting for Cluster condition %s to be true", clusterv1.ClusterControlPlaneInitializedCondition)
	}
	if _, known := bootstrap.Endpoint(&s.config.Spec.Join, s.cluster); !known {
		return waitFor(bootstrapv1.WaitingForEndpointReason,
			"waiting for Cluster spec.controlPlaneEndpoint; set it there, or set spec.join.apiServerEndpoint in the WindowsConfig")
	}
	return nil
}

// connect gets the client of the workload cluster, which must know the token. Data that is already handed out does not
// wait for it.
func (r *Reconciler) connect(ctx context.Context, s *scope) error {
	if s.tokenRevoked {
		return nil
	}
	workload, err := r.ClusterCache.GetUncachedClient(ctx, client.ObjectKeyFromObject(s.cluster))
	switch {
	case errors.Is(err, clustercache.ErrClusterNotConnected) && s.mustWriteData():
		return waitFor(bootstrapv1.WaitingForConnectionReason,
			"waiting for a connection to the workload cluster with the kubeconfig in Secret %s", secret.Name(s.cluster.Name, secret.Kubeconfig))
	case errors.Is(err, clustercache.ErrClusterNotConnected):
		return nil
	case err != nil:
		return fmt.Errorf("connecting to the workload cluster: %w", err)
	}
	s.workload = workload
	return nil
}

// discoverClusterCA pins the CA that the node shall trust: that of Secret <cluster>-ca, or, where the control plane is
// managed by others and keeps its CA to itself, the one that the management cluster itself trusts.
func (r *Reconciler) discoverClusterCA(ctx context.Context, s *scope) error {
	if !s.mustWriteData() {
		return nil
	}
	bundle, source, err := r.clusterCA(ctx, client.ObjectKeyFromObject(s.cluster))
	if err != nil {
		return err
	}
	s.caCertHashes, err = bootstrap.CACertHashes(bundle)
	if err != nil {
		return waitFor(bootstrapv1.WaitingForClusterCAReason, "reading the cluster's CA from %s: %s", source, err)
	}
	return nil
}

// clusterCA returns the PEM bundle with the CA of a cluster, and where it was found.
func (r *Reconciler) clusterCA(ctx context.Context, cluster client.ObjectKey) (bundle []byte, source string, _ error) {
	ca, err := secret.GetFromNamespacedName(ctx, r.Client, cluster, secret.ClusterCA)
	if client.IgnoreNotFound(err) != nil {
		return nil, "", fmt.Errorf("reading Secret %s: %w", secret.Name(cluster.Name, secret.ClusterCA), err)
	}
	if err == nil && len(ca.Data[secret.TLSCrtDataName]) > 0 {
		return ca.Data[secret.TLSCrtDataName], fmt.Sprintf("Secret %s, key %s", ca.Name, secret.TLSCrtDataName), nil
	}

	name := secret.Name(cluster.Name, secret.Kubeconfig)
	missing := waitFor(bootstrapv1.WaitingForClusterCAReason,
		"waiting for the cluster's CA: neither Secret %s (key %s) nor the kubeconfig in Secret %s holds it",
		secret.Name(cluster.Name, secret.ClusterCA), secret.TLSCrtDataName, name)
	data, err := kubeconfig.FromSecret(ctx, r.Client, cluster)
	if apierrors.IsNotFound(err) {
		return nil, "", missing
	}
	if err != nil {
		return nil, "", fmt.Errorf("reading Secret %s: %w", name, err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		return nil, "", waitFor(bootstrapv1.WaitingForClusterCAReason, "reading the kubeconfig in Secret %s: %s", name, err)
	}
	if len(config.CAData) == 0 {
		return nil, "", missing
	}
	return config.CAData, fmt.Sprintf("the kubeconfig in Secret %s", name), nil
}
