// Package v1alpha1 holds the documents that travel between the management cluster and a Windows node. They are not
// Kubernetes API objects: a NodeConfiguration is rendered into the user data of a VM and read inside it.
package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// APIVersion of the documents in this package.
	APIVersion = "node.windows.cluster.x-k8s.io/v1alpha1"
	// NodeConfigurationKind is the kind of a NodeConfiguration.
	NodeConfigurationKind = "NodeConfiguration"
)

// NodeConfiguration is all that one node shall be. It is complete: the node needs nothing else from the management
// cluster. It contains the join credential, so it is as secret as that.
type NodeConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// Cluster is the cluster that the node belongs to.
	Cluster ClusterInfo `json:"cluster"`

	// Node is what the node registers as.
	Node NodeInfo `json:"node"`

	// Join is how it joins.
	Join JoinInfo `json:"join"`
}

// ClusterInfo names the cluster.
type ClusterInfo struct {
	// Namespace and Name of the Cluster in the management cluster.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// KubernetesVersion that the node shall run, such as v1.36.3.
	KubernetesVersion string `json:"kubernetesVersion"`
}

// NodeInfo is what the node registers as.
type NodeInfo struct {
	// Name is computer name and Node name: at most 15 characters, see bootstrap.ComputerName.
	Name string `json:"name"`
	// Labels set at registration.
	Labels map[string]string `json:"labels,omitempty"`
	// Taints set at registration, all of them.
	Taints []corev1.Taint `json:"taints,omitempty"`
	// ProviderID says where spec.providerID comes from: Auto (firmware) or None (external cloud provider).
	ProviderID string `json:"providerID"`
}

// JoinInfo is how the node joins: kubelet TLS bootstrap with a token that is checked against a pinned CA, as
// kubeadm's token discovery does.
type JoinInfo struct {
	// APIServerEndpoint as host:port.
	APIServerEndpoint string `json:"apiServerEndpoint"`
	// CACertHashes pin the cluster's CA, each as sha256:<hex of the SHA-256 of the Subject Public Key Info>.
	CACertHashes []string `json:"caCertHashes"`
	// Token is the bootstrap token, <6 characters>.<16 characters>.
	Token string `json:"token"`
}
