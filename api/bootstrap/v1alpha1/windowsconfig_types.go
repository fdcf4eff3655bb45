package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Conditions of a WindowsConfig, and their reasons.
const (
	// ReadyCondition summarises the other conditions; Cluster API mirrors it to the Machine as BootstrapConfigReady.
	ReadyCondition = clusterv1.ReadyCondition

	// DataSecretAvailableCondition is true once the Secret with the bootstrap data exists.
	DataSecretAvailableCondition = "DataSecretAvailable"

	// DataSecretAvailableReason: the Secret exists and status.dataSecretName names it.
	DataSecretAvailableReason = clusterv1.AvailableReason
	// WaitingForClusterInfrastructureReason: the Cluster's infrastructure is not provisioned yet, or there is no Cluster yet.
	WaitingForClusterInfrastructureReason = "WaitingForClusterInfrastructureProvisioned"
	// WaitingForControlPlaneReason: the Cluster's control plane is not initialized, so there is nothing to join yet.
	WaitingForControlPlaneReason = "WaitingForControlPlaneInitialized"
	// WaitingForEndpointReason: neither the Cluster nor the WindowsConfig names an API server endpoint.
	WaitingForEndpointReason = "WaitingForControlPlaneEndpoint"
	// WaitingForClusterCAReason: neither the <cluster>-ca nor the <cluster>-kubeconfig Secret holds the cluster's CA.
	WaitingForClusterCAReason = "WaitingForClusterCA"
	// WaitingForConnectionReason: the workload cluster's API server cannot be reached, so no bootstrap token can be made.
	WaitingForConnectionReason = "WaitingForWorkloadClusterConnection"
	// ControlPlaneNotSupportedReason: a control plane Machine asks for Windows; Windows nodes are workers only.
	ControlPlaneNotSupportedReason = "ControlPlaneNotSupported"
	// MachinePoolNotSupportedReason: a MachinePool owns the WindowsConfig; only Machines are supported.
	MachinePoolNotSupportedReason = "MachinePoolNotSupported"
	// InvalidConfigurationReason: the configuration, or what it was combined with, can never become a node; the message names
	// field, value and remedy.
	InvalidConfigurationReason = "InvalidConfiguration"
	// BootstrapDataTooLargeReason: the rendered data exceeds what the delivery channel carries.
	BootstrapDataTooLargeReason = "BootstrapDataTooLarge"
	// SecretNotOwnedReason: a Secret of the wanted name exists and belongs to something else.
	SecretNotOwnedReason = "DataSecretNotOwned"
	// InternalErrorReason: an unexpected error; it is retried with back-off.
	InternalErrorReason = clusterv1.InternalErrorReason

	// BootstrapTokenValidCondition is true while the bootstrap token in the data is valid in the workload cluster, and
	// after the node has joined. It is reported once the data has been made.
	BootstrapTokenValidCondition = "BootstrapTokenValid"

	// BootstrapTokenValidReason: the token is valid, and is extended until the node has joined.
	BootstrapTokenValidReason = "Valid"
	// NodeJoinedReason: the node has joined, so the token is no longer needed and was deleted.
	NodeJoinedReason = "NodeJoined"
	// TokenRefreshFailedReason: the token could not be checked or extended; the node must join before it expires.
	TokenRefreshFailedReason = "BootstrapTokenRefreshFailed"
)

// ProviderIDSource says where a node's spec.providerID comes from.
// +kubebuilder:validation:Enum=Auto;None
type ProviderIDSource string

const (
	// ProviderIDAuto makes the node derive its provider ID from the firmware (SMBIOS), as the infrastructure provider does.
	ProviderIDAuto ProviderIDSource = "Auto"
	// ProviderIDNone leaves it to an external cloud provider (CPI) of the workload cluster.
	ProviderIDNone ProviderIDSource = "None"
)

// AgentSource says where the first-boot script looks for the node agent capw-node.exe.
// +kubebuilder:validation:Enum=Auto;Image;Media;URL
type AgentSource string

const (
	// AgentAuto tries the image, then attached media, then the URL when there is one.
	AgentAuto AgentSource = "Auto"
	// AgentImage takes C:\Program Files\capw\capw-node.exe and nothing else.
	AgentImage AgentSource = "Image"
	// AgentMedia takes capw-node.exe from the root of an attached volume and nothing else.
	AgentMedia AgentSource = "Media"
	// AgentURL downloads it and checks its SHA-256 before it is started.
	AgentURL AgentSource = "URL"
)

// WindowsConfigSpec says what a Windows worker shall be. It is immutable: bootstrap data is used once, at first boot;
// to change running nodes create a new WindowsConfigTemplate and let the MachineDeployment roll over to it.
// +kubebuilder:validation:MinProperties=0
type WindowsConfigSpec struct {
	// join says how the node finds and joins its cluster.
	// +optional
	Join JoinSpec `json:"join,omitempty,omitzero"`

	// node says how the node registers itself.
	// +optional
	Node NodeSpec `json:"node,omitempty,omitzero"`

	// agent says where the first-boot script finds the node agent.
	// +optional
	Agent AgentSpec `json:"agent,omitempty,omitzero"`
}

// JoinSpec says how the node finds its cluster.
// +kubebuilder:validation:MinProperties=1
type JoinSpec struct {
	// apiServerEndpoint overrides the address that the node joins, as host:port, where nodes reach the API server by
	// another address than the management cluster does. Its serving certificate must be valid for this host. host and port
	// may be set alone; the one that is left out is that of Cluster.spec.controlPlaneEndpoint.
	// Default: Cluster.spec.controlPlaneEndpoint.
	// +optional
	APIServerEndpoint clusterv1.APIEndpoint `json:"apiServerEndpoint,omitempty,omitzero"`
}

// NodeSpec says how the node registers itself.
// +kubebuilder:validation:MinProperties=1
type NodeSpec struct {
	// labels are set by the kubelet when it registers. Keys in the kubernetes.io and k8s.io domains are limited to those
	// that the kubelet may set itself (https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction);
	// give node-role.kubernetes.io/* labels to the Machine template instead, Cluster API syncs them.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]string `json:"labels,omitempty"`

	// taints are set by the kubelet when it registers. Default: os=windows:NoSchedule, which keeps Linux pods away; give an
	// empty list for none. node.cluster.x-k8s.io/uninitialized:NoSchedule is always added and is removed by Cluster API.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	// +kubebuilder:validation:MinItems=0
	// +kubebuilder:validation:MaxItems=64
	Taints *[]Taint `json:"taints,omitempty"`

	// providerID says where the node's spec.providerID comes from. Auto: the node derives it from its firmware, as the
	// infrastructure provider does. None: an external cloud provider (CPI) of the workload cluster sets it. Default: Auto.
	// +optional
	ProviderID ProviderIDSource `json:"providerID,omitempty"`
}

// Taint is a node taint.
type Taint struct {
	// key is a qualified name such as "os" or "example.com/gpu".
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)$`
	Key string `json:"key,omitempty"`

	// value is the taint's value; it may be empty.
	// +optional
	// +kubebuilder:validation:MinLength=0
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`
	Value *string `json:"value,omitempty"`

	// effect is what the taint does to pods that do not tolerate it.
	// +required
	// +kubebuilder:validation:Enum=NoSchedule;PreferNoSchedule;NoExecute
	Effect corev1.TaintEffect `json:"effect,omitempty"`
}

// AgentSpec says where the first-boot script finds the node agent.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.source) || self.source != 'URL' || has(self.url)",message="source URL needs url: set agent.url and agent.sha256, or use source Image or Media"
// +kubebuilder:validation:XValidation:rule="has(self.url) == has(self.sha256)",message="url and sha256 belong together: set both agent.url and agent.sha256 (the file's SHA-256 in lower-case hex), or neither"
// +kubebuilder:validation:XValidation:rule="!has(self.url) || !has(self.source) || self.source in ['Auto', 'URL']",message="url is read only with source Auto or URL: remove agent.url or change agent.source"
type AgentSpec struct {
	// source says where to look. Image: C:\Program Files\capw\capw-node.exe. Media: capw-node.exe in the root of an attached
	// volume. URL: url, checked against sha256. Auto: the image, then media, then url if there is one. Default: Auto.
	// +optional
	Source AgentSource `json:"source,omitempty"`

	// url is where capw-node.exe is downloaded from; it needs sha256. It is fetched with the curl.exe that Windows Server 2019 and later carry.
	// Only characters that cmd.exe passes through unchanged are allowed.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[A-Za-z0-9._~:/?#@$,;=+-]+$')",message="url must begin with http:// or https:// and have only characters that cmd.exe passes through unchanged: letters, digits and . _ ~ : / ? # @ $ , ; = + -"
	URL string `json:"url,omitempty"`

	// sha256 is the SHA-256 of the file at url as 64 lower-case hexadecimal digits; a file that differs is never started.
	// +optional
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	SHA256 string `json:"sha256,omitempty"`
}

// WindowsConfigStatus is what the bootstrap controller observed.
// +kubebuilder:validation:MinProperties=1
type WindowsConfigStatus struct {
	// conditions are Ready, DataSecretAvailable, BootstrapTokenValid, Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// initialization reports the start of the node's life; it is part of the Cluster API contract and is never reset.
	// +optional
	Initialization WindowsConfigInitializationStatus `json:"initialization,omitempty,omitzero"`

	// dataSecretName is the name of the Secret, in this namespace, that holds the bootstrap data under the key "value".
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	DataSecretName string `json:"dataSecretName,omitempty"`

	// observedGeneration is the generation that the last error-free reconcile saw.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// WindowsConfigInitializationStatus reports the start of the node's life.
// +kubebuilder:validation:MinProperties=1
type WindowsConfigInitializationStatus struct {
	// dataSecretCreated is true once the Secret exists.
	// +optional
	DataSecretCreated *bool `json:"dataSecretCreated,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=windowsconfigs,scope=Namespaced,categories=cluster-api,shortName=wincfg
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=`.metadata.labels['cluster\.x-k8s\.io/cluster-name']`,description="Cluster"
// +kubebuilder:printcolumn:name="Data secret created",type="string",JSONPath=".status.initialization.dataSecretCreated",description="Whether the bootstrap data exists"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status",description="Ready condition"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].reason",description="Reason of the Ready condition"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message",description="Message of the Ready condition",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"

// WindowsConfig is the bootstrap configuration of one Windows worker Machine. The controller renders it into a Secret
// with cloudbase-init user data; usually a MachineDeployment makes it from a WindowsConfigTemplate.
type WindowsConfig struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec says what the Windows worker shall be. It is immutable.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec is immutable: bootstrap data is used once, at first boot; create a new WindowsConfigTemplate and let the MachineDeployment roll over to it"
	Spec WindowsConfigSpec `json:"spec,omitempty,omitzero"`

	// status is what the controller observed.
	// +optional
	Status WindowsConfigStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of this object.
func (c *WindowsConfig) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions sets the conditions of this object.
func (c *WindowsConfig) SetConditions(conditions []metav1.Condition) {
	c.Status.Conditions = conditions
}

// +kubebuilder:object:root=true

// WindowsConfigList is a list of WindowsConfigs.
type WindowsConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the WindowsConfigs.
	Items []WindowsConfig `json:"items"`
}
