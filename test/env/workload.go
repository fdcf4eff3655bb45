package env

import (
	"context"
	_ "embed"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
)

//go:embed workload.yaml
var workloadManifests []byte

// startWorkload starts the workload cluster and gives it what nodes need to join.
func (e *Environment) startWorkload(ctx context.Context) (err error) {
	if e.Workload, err = e.startCluster(ctx, workloadProfile()); err != nil {
		return fmt.Errorf("starting workload cluster: %w", err)
	}
	if err := e.startControllers(e.Workload); err != nil {
		return err
	}
	objs, err := decodeManifests(workloadManifests)
	if err != nil {
		return err
	}
	if err := e.Workload.create(ctx, objs); err != nil {
		return err
	}
	if err := e.Workload.createClusterInfo(ctx); err != nil {
		return err
	}
	return e.Workload.createKubeadmConfig(ctx)
}

// createKubeadmConfig publishes what "kubeadm join" reads before anything else.
func (c *Cluster) createKubeadmConfig(ctx context.Context) error {
	version, err := c.Version()
	if err != nil {
		return err
	}
	config := fmt.Sprintf(`apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
certificatesDir: /etc/kubernetes/pki
clusterName: %s
controlPlaneEndpoint: %s:%d
kubernetesVersion: %s
networking: {dnsDomain: cluster.local, serviceSubnet: 10.0.0.0/24}
`, c.Name, c.Host, c.Port, version)
	err = c.Client.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kubeadm-config"},
		Data:       map[string]string{"ClusterConfiguration": config},
	})
	if err != nil {
		return fmt.Errorf("creating kubeadm-config: %w", err)
	}
	return nil
}

// createClusterInfo publishes address and CA for nodes that know nothing but a bootstrap token.
// kube-controller-manager adds a signature per token.
func (c *Cluster) createClusterInfo(ctx context.Context) error {
	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"": {Server: c.URL(), CertificateAuthorityData: c.CA.CertPEM()}},
	})
	if err != nil {
		return fmt.Errorf("encoding cluster-info: %w", err)
	}
	err = c.Client.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: bootstrapapi.ConfigMapClusterInfo},
		Data:       map[string]string{bootstrapapi.KubeConfigKey: string(kubeconfig)},
	})
	if err != nil {
		return fmt.Errorf("creating cluster-info: %w", err)
	}
	return nil
}
