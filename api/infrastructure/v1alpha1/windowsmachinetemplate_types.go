package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// WindowsMachineTemplateSpec holds the template.
type WindowsMachineTemplateSpec struct {
	// template is what each WindowsMachine is made from. Its spec is immutable: create a new template to roll out a change.
	// +required
	Template WindowsMachineTemplateResource `json:"template,omitempty,omitzero"`
}

// WindowsMachineTemplateResource is what each WindowsMachine is made from.
type WindowsMachineTemplateResource struct {
	// metadata is copied to each WindowsMachine.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is copied to each WindowsMachine.
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(self.providerID)",message="providerID belongs to one instance and cannot stand in a template: remove spec.template.spec.providerID"
	Spec WindowsMachineSpec `json:"spec,omitempty,omitzero"`
}

// WindowsMachineTemplateStatus tells the cluster autoscaler what a node from this template would be, so that it can scale
// a MachineDeployment up from zero.
// +kubebuilder:validation:MinProperties=1
type WindowsMachineTemplateStatus struct {
	// capacity is what one node from this template has, as far as the template says it.
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`

	// nodeInfo is the platform of a node from this template.
	// +optional
	NodeInfo NodeInfo `json:"nodeInfo,omitempty,omitzero"`
}

// NodeInfo is the platform of a node.
// +kubebuilder:validation:MinProperties=1
type NodeInfo struct {
	// architecture is the CPU architecture.
	// +optional
	// +kubebuilder:validation:Enum=amd64;arm64;s390x;ppc64le
	Architecture string `json:"architecture,omitempty"`

	// operatingSystem is always windows.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	OperatingSystem string `json:"operatingSystem,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=windowsmachinetemplates,scope=Namespaced,categories=cluster-api,shortName=winmt
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:printcolumn:name="CPU",type="string",JSONPath=".status.capacity.cpu",description="Virtual CPUs"
// +kubebuilder:printcolumn:name="Memory",type="string",JSONPath=".status.capacity.memory",description="Memory"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"

// WindowsMachineTemplate is what a MachineDeployment or ClusterClass makes WindowsMachines from.
type WindowsMachineTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec holds the template.
	// +required
	Spec WindowsMachineTemplateSpec `json:"spec,omitempty,omitzero"`

	// status tells the cluster autoscaler what a node from this template would be.
	// +optional
	Status WindowsMachineTemplateStatus `json:"status,omitempty,omitzero"`
}

// +kubebuilder:object:root=true

// WindowsMachineTemplateList is a list of WindowsMachineTemplates.
type WindowsMachineTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the WindowsMachineTemplates.
	Items []WindowsMachineTemplate `json:"items"`
}
