package cloudbase

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// aDocument returns the document of a plain worker, as the bootstrap controller makes it.
func aDocument() *nodev1.NodeConfiguration {
	return &nodev1.NodeConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: nodev1.APIVersion, Kind: nodev1.NodeConfigurationKind},
		Cluster:  nodev1.ClusterInfo{Namespace: "default", Name: "prod", KubernetesVersion: "v1.36.3"},
		Node: nodev1.NodeInfo{
			Name:   "prod-0a1b2c3d4e",
			Labels: map[string]string{"example.com/pool": "win"},
			Taints: []corev1.Taint{
				{Key: "os", Value: "windows", Effect: corev1.TaintEffectNoSchedule},
				{Key: "node.cluster.x-k8s.io/uninitialized", Effect: corev1.TaintEffectNoSchedule},
			},
			ProviderID: "Auto",
		},
		Join: nodev1.JoinInfo{
			APIServerEndpoint: "prod.example.com:6443",
			CACertHashes:      []string{"sha256:" + strings.Repeat("0123456789abcdef", 4)},
			Token:             "abcdef.0123456789abcdef",
		},
	}
}
