package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// WindowsConfigTemplateSpec holds the template.
type WindowsConfigTemplateSpec struct {
	// template is what each WindowsConfig is made from. Its spec is immutable: create a new template to roll out a change.
	// +required
	Template WindowsConfigTemplateResource `json:"template,omitempty,omitzero"`
}

// WindowsConfigTemplateResource is what each WindowsConfig is made from.
// +kubebuilder:validation:MinProperties=1
type WindowsConfigTemplateResource struct {
	// metadata is copied to each WindowsConfig.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is copied to each WindowsConfig. An empty spec, "spec: {}", is a plain Windows worker.
	// +required
	Spec *WindowsConfigSpec `json:"spec,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:path=windowsconfigtemplates,scope=Namespaced,categories=cluster-api,shortName=wincfgt
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"

// WindowsConfigTemplate is what a MachineDeployment or ClusterClass makes WindowsConfigs from.
type WindowsConfigTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec holds the template.
	// +required
	Spec WindowsConfigTemplateSpec `json:"spec,omitempty,omitzero"`
}

// +kubebuilder:object:root=true

// WindowsConfigTemplateList is a list of WindowsConfigTemplates.
type WindowsConfigTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the WindowsConfigTemplates.
	Items []WindowsConfigTemplate `json:"items"`
}
