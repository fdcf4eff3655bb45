// Package infrastructure holds the admission webhooks of the infrastructure provider: the rules that neither the schema of
// the CRDs nor CEL can say. WindowsMachine and WindowsCluster have none of that kind, and so no webhook.
package infrastructure

import (
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/webhooks"
)

// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1alpha1-windowsmachinetemplate,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=windowsmachinetemplates,versions=v1alpha1,name=validation.windowsmachinetemplate.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1
// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1alpha1-windowsclustertemplate,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=windowsclustertemplates,versions=v1alpha1,name=validation.windowsclustertemplate.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

// SetupWithManager registers the webhooks of the infrastructure provider.
func SetupWithManager(mgr ctrl.Manager) error {
	if err := register(mgr, "WindowsMachineTemplate", &infrav1.WindowsMachineTemplate{}, func(t *infrav1.WindowsMachineTemplate) (clusterv1.ObjectMeta, any) {
		return t.Spec.Template.ObjectMeta, t.Spec.Template.Spec
	}); err != nil {
		return err
	}
	return register(mgr, "WindowsClusterTemplate", &infrav1.WindowsClusterTemplate{}, func(t *infrav1.WindowsClusterTemplate) (clusterv1.ObjectMeta, any) {
		return t.Spec.Template.ObjectMeta, t.Spec.Template.Spec
	})
}

func register[T client.Object](mgr ctrl.Manager, kind string, object T, parts func(T) (clusterv1.ObjectMeta, any)) error {
	validator := webhooks.Template[T]{
		GroupKind: infrav1.GroupVersion.WithKind(kind).GroupKind(),
		Parts:     parts,
		Remedy:    fmt.Sprintf("create a new %s and refer to it", kind),
	}
	if err := ctrl.NewWebhookManagedBy(mgr, object).WithValidator(validator).Complete(); err != nil {
		return fmt.Errorf("creating webhook %s: %w", kind, err)
	}
	return nil
}
