package bootstrap

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/bootstrap"
	"github.com/capw-dev/cluster-api-provider-windows/webhooks"
)

// +kubebuilder:webhook:verbs=create;update,path=/validate-bootstrap-cluster-x-k8s-io-v1alpha1-windowsconfigtemplate,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=bootstrap.cluster.x-k8s.io,resources=windowsconfigtemplates,versions=v1alpha1,name=validation.windowsconfigtemplate.bootstrap.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

// windowsConfigTemplate validates WindowsConfigTemplates.
func windowsConfigTemplate() webhooks.Template[*bootstrapv1.WindowsConfigTemplate] {
	return webhooks.Template[*bootstrapv1.WindowsConfigTemplate]{
		GroupKind: bootstrapv1.GroupVersion.WithKind("WindowsConfigTemplate").GroupKind(),
		Parts: func(t *bootstrapv1.WindowsConfigTemplate) (clusterv1.ObjectMeta, any) {
			return t.Spec.Template.ObjectMeta, t.Spec.Template.Spec
		},
		ValidateSpec: func(t *bootstrapv1.WindowsConfigTemplate, path *field.Path) field.ErrorList {
			spec := ptr.Deref(t.Spec.Template.Spec, bootstrapv1.WindowsConfigSpec{})
			return bootstrap.Validate(&spec, path)
		},
		Remedy: "create a new WindowsConfigTemplate and name it in spec.template.spec.bootstrap.configRef of the MachineDeployment",
	}
}
