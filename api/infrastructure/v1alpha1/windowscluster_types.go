package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Conditions of a WindowsCluster, and their reasons. ReadyCondition is mirrored to the Cluster as InfrastructureReady.
const (
	// EndpointAvailableCondition is true once the API server endpoint of the cluster is known.
	EndpointAvailableCondition = "ControlPlaneEndpointAvailable"

	// EndpointAvailableReason: the endpoint is known.
	EndpointAvailableReason = clusterv1.AvailableReason
	// WaitingForEndpointReason: neither the WindowsCluster nor the Cluster names an endpoint yet. It does not block
	// provisioning: a control plane provider may set it later.
	WaitingForEndpointReason = "WaitingForControlPlaneEndpoint"
)

// WindowsClusterSpec is what a cluster needs that has no infrastructure cluster of another provider. It creates
// nothing: the control plane is managed elsewhere.
// +kubebuilder:validation:MinProperties=0
type WindowsClusterSpec struct {
	// controlPlaneEndpoint is where the API server of the cluster is reached. Leave it empty when a control plane provider
	// (for a hosted control plane) sets Cluster.spec.controlPlaneEndpoint. host and port belong together.
	// +optional
	// +kubebuilder:validation:XValidation:rule="has(self.host) == has(self.port)",message="host and port belong together: set both controlPlaneEndpoint.host and controlPlaneEndpoint.port, or remove controlPlaneEndpoint"
	ControlPlaneEndpoint clusterv1.APIEndpoint `json:"controlPlaneEndpoint,omitempty,omitzero"`

	// failureDomains are offered to Cluster API for spreading Machines; a WindowsMachineTemplate says what each name means
	// (spec.template.spec.vsphere.failureDomains).
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	FailureDomains []WindowsClusterFailureDomain `json:"failureDomains,omitempty"`
}

// WindowsClusterFailureDomain is one failure domain for worker Machines.
type WindowsClusterFailureDomain struct {
	// name of the failure domain.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name,omitempty"`
}

// WindowsClusterStatus is what the infrastructure controller observed.
// +kubebuilder:validation:MinProperties=1
type WindowsClusterStatus struct {
	// conditions are Ready, ControlPlaneEndpointAvailable, Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// initialization is part of the Cluster API contract and is never reset.
	// +optional
	Initialization WindowsClusterInitializationStatus `json:"initialization,omitempty,omitzero"`

	// failureDomains are those of the spec, in the form that Cluster API reads.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	FailureDomains []clusterv1.FailureDomain `json:"failureDomains,omitempty"`

	// observedGeneration is the generation that the last error-free reconcile saw.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// WindowsClusterInitializationStatus reports the start of the cluster's life.
// +kubebuilder:validation:MinProperties=1
type WindowsClusterInitializationStatus struct {
	// provisioned is true once Machines may be created.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=windowsclusters,scope=Namespaced,categories=cluster-api,shortName=winc
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=`.metadata.labels['cluster\.x-k8s\.io/cluster-name']`,description="Cluster"
// +kubebuilder:printcolumn:name="Provisioned",type="string",JSONPath=".status.initialization.provisioned",description="Whether Machines may be created"
// +kubebuilder:printcolumn:name="Endpoint",type="string",JSONPath=".spec.controlPlaneEndpoint.host",description="API server"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status",description="Ready condition"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"

// WindowsCluster is the infrastructure of a cluster that has none of another provider: an externally managed or hosted
// control plane with Windows workers. WindowsMachines do not depend on it; beside Linux nodes of another provider use
// that provider's infrastructure cluster.
type WindowsCluster struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is what the cluster needs.
	// +optional
	Spec WindowsClusterSpec `json:"spec,omitempty,omitzero"`

	// status is what the controller observed.
	// +optional
	Status WindowsClusterStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of this object.
func (c *WindowsCluster) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions sets the conditions of this object.
func (c *WindowsCluster) SetConditions(conditions []metav1.Condition) {
	c.Status.Conditions = conditions
}

// +kubebuilder:object:root=true

// WindowsClusterList is a list of WindowsClusters.
type WindowsClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the WindowsClusters.
	Items []WindowsCluster `json:"items"`
}
