package bootstrap

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/bootstrap"
)

// +kubebuilder:webhook:verbs=create;update,path=/validate-bootstrap-cluster-x-k8s-io-v1alpha1-windowsconfig,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=bootstrap.cluster.x-k8s.io,resources=windowsconfigs,versions=v1alpha1,name=validation.windowsconfig.bootstrap.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

const immutableConfig = "is immutable: bootstrap data is used once, at first boot; create a new WindowsConfigTemplate and let the MachineDeployment roll over to it"

// WindowsConfig validates WindowsConfigs.
type WindowsConfig struct{}

var _ admission.Validator[*bootstrapv1.WindowsConfig] = WindowsConfig{}

// ValidateCreate applies the rules for a spec.
func (WindowsConfig) ValidateCreate(_ context.Context, config *bootstrapv1.WindowsConfig) (admission.Warnings, error) {
	return nil, invalid(config, bootstrap.Validate(&config.Spec, field.NewPath("spec")))
}

// ValidateUpdate refuses any change of the spec; CEL cannot refuse that of one that was left out at first. Everything
// else may change, also in an object that today's rules would not let in.
func (WindowsConfig) ValidateUpdate(_ context.Context, before, after *bootstrapv1.WindowsConfig) (admission.Warnings, error) {
	if equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		return nil, nil
	}
	return nil, invalid(after, field.ErrorList{field.Forbidden(field.NewPath("spec"), immutableConfig)})
}

// ValidateDelete has no objection.
func (WindowsConfig) ValidateDelete(context.Context, *bootstrapv1.WindowsConfig) (admission.Warnings, error) {
	return nil, nil
}

// invalid returns the API error for errs, nil if there are none.
func invalid(config *bootstrapv1.WindowsConfig, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(bootstrapv1.GroupVersion.WithKind("WindowsConfig").GroupKind(), config.Name, errs)
}
