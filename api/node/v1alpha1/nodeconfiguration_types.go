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
// cluster. It contains the join credential, so it is as secret as that. What is left out has the default that Default sets.
type NodeConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// Cluster is the cluster that the node belongs to.
	Cluster ClusterInfo `json:"cluster"`

	// Node is what the node registers as.
	Node NodeInfo `json:"node"`

	// Join is how it joins.
	Join JoinInfo `json:"join"`

	// Kubelet is how the kubelet is configured.
	Kubelet KubeletInfo `json:"kubelet,omitzero"`

	// ContainerRuntime is how containerd is configured.
	ContainerRuntime ContainerRuntimeInfo `json:"containerRuntime,omitzero"`

	// Services are the Windows services beside kubelet and containerd; one that is left out is not managed.
	Services ServicesInfo `json:"services,omitzero"`

	// Artifacts are the files that the node needs and how it gets those that the image lacks.
	Artifacts []Artifact `json:"artifacts,omitempty"`

	// OS is how Windows is prepared.
	OS OSInfo `json:"os,omitzero"`

	// Network is how the adapters are configured where DHCP and cloudbase-init do not do it.
	Network NetworkInfo `json:"network,omitzero"`

	// Files are written before the container runtime starts.
	Files []File `json:"files,omitempty"`

	// PreJoinCommands run after Files were written and before the container runtime starts; PostJoinCommands run once the
	// services are up.
	PreJoinCommands  []Command `json:"preJoinCommands,omitempty"`
	PostJoinCommands []Command `json:"postJoinCommands,omitempty"`

	// Boot bounds the first boot.
	Boot BootInfo `json:"boot,omitzero"`
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
	// IP says which address the node reports. Default: the address of the adapter with the default route.
	IP NodeIPInfo `json:"ip,omitzero"`
}

// NodeIPInfo selects the node's address among those of the host. The fields narrow it down together.
type NodeIPInfo struct {
	// CIDRs that the address must be in, at most one per family. With one per family the node is dual stack.
	CIDRs []string `json:"cidrs,omitempty"`
	// MAC of the adapter, such as 00:50:56:aa:bb:01.
	MAC string `json:"mac,omitempty"`
}

// JoinMethod is who makes the host a member of the cluster.
type JoinMethod string

const (
	// JoinKubelet means that the agent discovers the cluster and lets the kubelet bootstrap its TLS credentials. Needs no kubeadm.exe.
	JoinKubelet JoinMethod = "Kubelet"
	// JoinKubeadm means that kubeadm.exe join does it, and the agent owns the kubelet service's command line afterwards.
	JoinKubeadm JoinMethod = "Kubeadm"
)

// JoinInfo is how the node joins: with a token that is checked against a pinned CA, as kubeadm's token discovery does.
type JoinInfo struct {
	// APIServerEndpoint as host:port.
	APIServerEndpoint string `json:"apiServerEndpoint"`
	// CACertHashes pin the cluster's CA, each as sha256:<hex of the SHA-256 of the Subject Public Key Info>.
	CACertHashes []string `json:"caCertHashes"`
	// Token is the bootstrap token, <6 characters>.<16 characters>. Secret; empty in the copy that stays on the node's disk
	// after the join.
	Token string `json:"token"`
	// Method. Default: Kubelet.
	Method JoinMethod `json:"method,omitempty"`
	// Kubeadm holds what only method Kubeadm reads.
	Kubeadm KubeadmInfo `json:"kubeadm,omitzero"`
}

// KubeadmInfo is what kubeadm join is told beside what the document says elsewhere.
type KubeadmInfo struct {
	// Path of kubeadm.exe. Default: C:\k\kubeadm.exe.
	Path string `json:"path,omitempty"`
	// IgnorePreflightErrors are names of kubeadm's preflight checks. On Windows they contain backslashes.
	IgnorePreflightErrors []string `json:"ignorePreflightErrors,omitempty"`
	// SkipPhases are phases of kubeadm join.
	SkipPhases []string `json:"skipPhases,omitempty"`
}
