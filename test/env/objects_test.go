package env_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capw-dev/cluster-api-provider-windows/test/env"
)

func createNamespace(ctx context.Context) string {
	GinkgoHelper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "env-"}}
	Expect(testEnv.Management.Client.Create(ctx, ns)).To(Succeed())
	return ns.Name
}

// newCluster returns a Cluster whose control plane is hosted, without infrastructure of its own.
func newCluster(namespace, name string) *clusterv1.Cluster {
	kind := env.HostedControlPlaneKind()
	return &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: clusterv1.ClusterSpec{
			ControlPlaneRef: clusterv1.ContractVersionedObjectReference{APIGroup: kind.Group, Kind: kind.Kind, Name: name},
		},
	}
}

// createConnectedCluster creates a Cluster, its HostedControlPlane and the connection to the workload cluster.
func createConnectedCluster(ctx context.Context, namespace, name string) *clusterv1.Cluster {
	GinkgoHelper()
	hcp := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"version": kubernetesVersion}}}
	hcp.SetGroupVersionKind(env.HostedControlPlaneKind())
	hcp.SetNamespace(namespace)
	hcp.SetName(name)
	Expect(testEnv.Management.Client.Create(ctx, hcp)).To(Succeed())
	cluster := newCluster(namespace, name)
	Expect(testEnv.Management.Client.Create(ctx, cluster)).To(Succeed())
	Expect(testEnv.ConnectCluster(ctx, client.ObjectKeyFromObject(cluster))).To(Succeed())
	return cluster
}
