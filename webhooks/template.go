// Package webhooks holds what the admission webhooks of both providers have in common.
package webhooks

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/topology"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Template validates a template kind: spec.template.metadata is valid metadata, and spec.template.spec never changes,
// because Cluster API rolls out a change only when the name of the template changes. The topology controller of ClusterClass
// is excepted: it applies the template that it wants as a dry run, to learn whether it needs a new one. CEL sees no request,
// so it cannot make this exception.
//
// What an update leaves as it was is not validated again: Cluster API must be able to set the owner also of a template that
// today's rules would not let in.
type Template[T client.Object] struct {
	// GroupKind of the template.
	GroupKind schema.GroupKind
	// Parts returns spec.template.metadata and spec.template.spec.
	Parts func(T) (metadata clusterv1.ObjectMeta, spec any)
	// ValidateSpec applies the rules for spec.template.spec, which is at path. Optional.
	ValidateSpec func(template T, path *field.Path) field.ErrorList
	// Remedy says what to do instead of changing spec.template.spec.
	Remedy string
}

// ValidateCreate implements admission.Validator.
func (t Template[T]) ValidateCreate(_ context.Context, template T) (admission.Warnings, error) {
	metadata, _ := t.Parts(template)
	return nil, t.invalid(template, append(metadata.Validate(metadataPath()), t.specErrors(template)...))
}

// ValidateUpdate implements admission.Validator.
func (t Template[T]) ValidateUpdate(ctx context.Context, before, after T) (admission.Warnings, error) {
	request, err := admission.RequestFromContext(ctx)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("reading the admission request: %w", err))
	}
	oldMetadata, oldSpec := t.Parts(before)
	metadata, spec := t.Parts(after)
	var errs field.ErrorList
	if !equality.Semantic.DeepEqual(oldMetadata, metadata) {
		errs = append(errs, metadata.Validate(metadataPath())...)
	}
	switch {
	case equality.Semantic.DeepEqual(oldSpec, spec):
	case topology.IsDryRunRequest(request, after):
		errs = append(errs, t.specErrors(after)...)
	default:
		errs = append(errs, field.Forbidden(specPath(), "is immutable: "+t.Remedy))
	}
	return nil, t.invalid(after, errs)
}

// ValidateDelete implements admission.Validator: it has no objection.
func (t Template[T]) ValidateDelete(context.Context, T) (admission.Warnings, error) {
	return nil, nil
}

func (t Template[T]) specErrors(template T) field.ErrorList {
	if t.ValidateSpec == nil {
		return nil
	}
	return t.ValidateSpec(template, specPath())
}

// invalid returns the errors in the form of the API server, or nil.
func (t Template[T]) invalid(template T, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(t.GroupKind, template.GetName(), errs)
}

func metadataPath() *field.Path { return field.NewPath("spec", "template", "metadata") }

func specPath() *field.Path { return field.NewPath("spec", "template", "spec") }
