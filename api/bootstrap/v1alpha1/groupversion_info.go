// Package v1alpha1 holds the API of the CAPW bootstrap provider: what a Windows worker shall be, independent of where
// it runs.
//
// It follows the Cluster API bootstrap provider contract v1beta2
// (https://cluster-api.sigs.k8s.io/developer/providers/contracts/bootstrap-config).
//
// +kubebuilder:object:generate=true
// +groupName=bootstrap.cluster.x-k8s.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the types in this package.
var GroupVersion = schema.GroupVersion{Group: "bootstrap.cluster.x-k8s.io", Version: "v1alpha1"}

// AddToScheme adds the types of this package to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&WindowsConfig{}, &WindowsConfigList{},
		&WindowsConfigTemplate{}, &WindowsConfigTemplateList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
