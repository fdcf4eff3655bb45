// Package v1alpha1 holds the API of the CAPW infrastructure provider: the virtual machine that a Windows worker runs on.
//
// It follows the Cluster API infrastructure provider contracts v1beta2
// (https://cluster-api.sigs.k8s.io/developer/providers/contracts/infra-machine and .../infra-cluster).
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.cluster.x-k8s.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the types in this package.
var GroupVersion = schema.GroupVersion{Group: "infrastructure.cluster.x-k8s.io", Version: "v1alpha1"}

// AddToScheme adds the types of this package to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&WindowsMachine{}, &WindowsMachineList{},
		&WindowsMachineTemplate{}, &WindowsMachineTemplateList{},
		&WindowsCluster{}, &WindowsClusterList{},
		&WindowsClusterTemplate{}, &WindowsClusterTemplateList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
