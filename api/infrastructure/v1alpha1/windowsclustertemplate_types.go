package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// WindowsClusterTemplateSpec holds the template.
type WindowsClusterTemplateSpec struct {
	// template is what each WindowsCluster is made from. Its spec is immutable.
	// +required
	Template WindowsClusterTemplateResource `json:"template,omitempty,omitzero"`
}

// WindowsClusterTemplateResource is what each WindowsCluster is made from.
// +kubebuilder:validation:MinProperties=1
type WindowsClusterTemplateResource struct {
	// metadata is copied to each WindowsCluster.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is copied to each WindowsCluster; it may be empty: "spec: {}".
	// +required
	Spec *WindowsClusterSpec `json:"spec,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:path=windowsclustertemplates,scope=Namespaced,categories=cluster-api,shortName=winct
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"

// WindowsClusterTemplate is what a ClusterClass makes WindowsClusters from.
type WindowsClusterTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec holds the template.
	// +required
	Spec WindowsClusterTemplateSpec `json:"spec,omitempty,omitzero"`
}

// +kubebuilder:object:root=true

// WindowsClusterTemplateList is a list of WindowsClusterTemplates.
type WindowsClusterTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the WindowsClusterTemplates.
	Items []WindowsClusterTemplate `json:"items"`
}
