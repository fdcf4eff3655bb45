package webhooks

import (
	"context"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
)

// The rule of this test refuses the provider ID source None, and stands for a rule that came after the template.
func validator() Template[*bootstrapv1.WindowsConfigTemplate] {
	return Template[*bootstrapv1.WindowsConfigTemplate]{
		Parts: func(t *bootstrapv1.WindowsConfigTemplate) (clusterv1.ObjectMeta, any) {
			return t.Spec.Template.ObjectMeta, t.Spec.Template.Spec
		},
		ValidateSpec: func(t *bootstrapv1.WindowsConfigTemplate, path *field.Path) field.ErrorList {
			if t.Spec.Template.Spec.Node.ProviderID == bootstrapv1.ProviderIDNone {
				return field.ErrorList{field.Forbidden(path, "refused by the rule")}
			}
			return nil
		},
		Remedy: "create a new one",
	}
}

// outdated is a template that today's rules would not let in.
func outdated() *bootstrapv1.WindowsConfigTemplate {
	t := &bootstrapv1.WindowsConfigTemplate{}
	t.Spec.Template.ObjectMeta.Labels = map[string]string{"not a key": ""}
	t.Spec.Template.Spec = &bootstrapv1.WindowsConfigSpec{Node: bootstrapv1.NodeSpec{ProviderID: bootstrapv1.ProviderIDNone}}
	return t
}

func TestATemplateThatTodaysRulesWouldNotLetInCanBeUpdatedInWhatItLeavesAlone(t *testing.T) {
	const badMetadata, badSpec, immutable = "spec.template.metadata.labels", "refused by the rule", "is immutable: create a new one"
	for name, c := range map[string]struct {
		change func(*bootstrapv1.WindowsConfigTemplate)
		dryRun bool
		want   []string
	}{
		"B35, I14: an owner": {change: func(t *bootstrapv1.WindowsConfigTemplate) {
			t.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "c1", UID: "1"}}
		}},
		"metadata": {change: func(t *bootstrapv1.WindowsConfigTemplate) {
			t.Spec.Template.ObjectMeta.Annotations = map[string]string{"a": "b"}
		}, want: []string{badMetadata}},
		"metadata that heals": {change: func(t *bootstrapv1.WindowsConfigTemplate) { t.Spec.Template.ObjectMeta.Labels = nil }},
		"spec": {change: func(t *bootstrapv1.WindowsConfigTemplate) { t.Spec.Template.Spec.Agent.Source = bootstrapv1.AgentImage },
			want: []string{immutable}},
		"spec, tried out by the topology controller": {change: func(t *bootstrapv1.WindowsConfigTemplate) {
			t.Spec.Template.Spec.Agent.Source = bootstrapv1.AgentImage
		}, dryRun: true, want: []string{badSpec}},
		"spec that heals, tried out by the topology controller": {change: func(t *bootstrapv1.WindowsConfigTemplate) {
			t.Spec.Template.Spec.Node = bootstrapv1.NodeSpec{}
		}, dryRun: true},
	} {
		t.Run(name, func(t *testing.T) {
			after := outdated()
			c.change(after)
			if c.dryRun {
				after.Annotations = map[string]string{clusterv1.TopologyDryRunAnnotation: ""}
			}
			request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{DryRun: ptr.To(c.dryRun)}}
			_, err := validator().ValidateUpdate(admission.NewContextWithRequest(t.Context(), request), outdated(), after)
			expectErrors(t, err, c.want)
		})
	}
	_, err := validator().ValidateCreate(context.Background(), outdated())
	expectErrors(t, err, []string{badMetadata, badSpec})
}

func expectErrors(t *testing.T, err error, want []string) {
	t.Helper()
	if (err == nil) != (len(want) == 0) {
		t.Fatalf("got error %v, want one with %q", err, want)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("got error %v, want %q in it", err, w)
		}
	}
}
