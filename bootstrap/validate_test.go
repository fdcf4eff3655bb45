package bootstrap

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
)

func TestValidateLabels(t *testing.T) {
	for _, tc := range []struct {
		key, value string
		want       string // part of the error, empty for none
	}{
		{"plain", "", ""},
		{"example.com/rack", "r1", ""},
		{"node.kubernetes.io/instance-type", "large", ""},
		{"sub.node.kubernetes.io/x", "", ""},
		{"kubelet.kubernetes.io/x", "", ""},
		{"topology.kubernetes.io/zone", "a", ""},
		{"topology.kubernetes.io/region", "a", ""},
		{"failure-domain.beta.kubernetes.io/zone", "a", ""},
		{"beta.kubernetes.io/instance-type", "a", ""},
		// Not a kubernetes.io or k8s.io domain, however it looks.
		{"node.cluster.x-k8s.io/pool", "a", ""},
		{"notkubernetes.io/x", "a", ""},

		{"node-role.kubernetes.io/worker", "", "spec.template.metadata.labels of the MachineDeployment"},
		{"node-restriction.kubernetes.io/pci", "", "spec.template.metadata.labels of the MachineDeployment"},
		{"x.node-restriction.kubernetes.io/pci", "", "spec.template.metadata.labels of the MachineDeployment"},
		{"kubernetes.io/x", "", "use a domain of your own"},
		{"topology.kubernetes.io/rack", "a", "use a domain of your own"},
		{"k8s.io/x", "", "use a domain of your own"},
		{"apps.k8s.io/x", "", "use a domain of your own"},
		{"kubernetes.io/os", "linux", "the kubelet sets this label itself"},
		{"kubernetes.io/hostname", "x", "the kubelet sets this label itself"},
		{"beta.kubernetes.io/arch", "arm64", "the kubelet sets this label itself"},
		{"white space", "", "name part must consist of"},
		{"rack", "not/a value", "a valid label must be"},
		{"rack", strings.Repeat("x", 64), "must be no more than 63"},
	} {
		t.Run(tc.key+"="+tc.value, func(t *testing.T) {
			spec := bootstrapv1.WindowsConfigSpec{Node: bootstrapv1.NodeSpec{Labels: map[string]string{tc.key: tc.value}}}
			expectError(t, Validate(&spec, field.NewPath("spec")), "spec.node.labels["+tc.key+"]", tc.want)
		})
	}
}

func TestValidateTaints(t *testing.T) {
	for _, tc := range []struct {
		name   string
		taints []bootstrapv1.Taint
		path   string
		want   string
	}{
		{"none", nil, "", ""},
		{"with and without value", []bootstrapv1.Taint{{Key: "a", Effect: "NoSchedule"}, {Key: "b.example.com/c", Value: ptr.To("x"), Effect: "PreferNoSchedule"}}, "", ""},
		{"one key with two effects", []bootstrapv1.Taint{{Key: "a", Effect: "NoSchedule"}, {Key: "a", Effect: "NoExecute"}}, "", ""},
		{"a duplicate", []bootstrapv1.Taint{{Key: "a", Effect: "NoSchedule"}, {Key: "a", Value: ptr.To("x"), Effect: "NoSchedule"}}, "spec.node.taints[1]", "Duplicate value"},
		{"the reserved key", []bootstrapv1.Taint{{Key: "node.cluster.x-k8s.io/uninitialized", Effect: "NoExecute"}}, "spec.node.taints[0].key", "Cluster API owns this taint"},
		{"a bad key", []bootstrapv1.Taint{{Key: "-", Effect: "NoSchedule"}}, "spec.node.taints[0].key", "must consist of"},
		{"a bad value", []bootstrapv1.Taint{{Key: "a", Value: ptr.To("a b"), Effect: "NoSchedule"}}, "spec.node.taints[0].value", "a valid label must"},
		{"an unknown effect", []bootstrapv1.Taint{{Key: "a", Effect: "Never"}}, "spec.node.taints[0].effect", "Unsupported value"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := bootstrapv1.WindowsConfigSpec{Node: bootstrapv1.NodeSpec{Taints: &tc.taints}}
			expectError(t, Validate(&spec, field.NewPath("spec")), tc.path, tc.want)
		})
	}
}

func TestValidateEndpoint(t *testing.T) {
	const path = "spec.join.apiServerEndpoint."
	for _, tc := range []struct {
		host  string
		port  int32
		field string
		want  string
	}{
		{"", 0, "", ""},
		{"api.example.com", 6443, "", ""},
		{"10.0.0.1", 0, "", ""},
		{"2001:db8::1", 443, "", ""},
		{"https://api.example.com", 443, "host", "without scheme"},
		{"api.example.com:6443", 0, "host", "without scheme"},
		{"[2001:db8::1]", 443, "host", "brackets"},
		{"", 65536, "port", "must be between 1 and 65535"},
	} {
		t.Run(tc.host, func(t *testing.T) {
			spec := bootstrapv1.WindowsConfigSpec{Join: bootstrapv1.JoinSpec{APIServerEndpoint: clusterv1.APIEndpoint{Host: tc.host, Port: tc.port}}}
			expectError(t, Validate(&spec, field.NewPath("spec")), path+tc.field, tc.want)
		})
	}
}

// expectError wants exactly one error, at path and with part in its text, or none if part is empty.
func expectError(t *testing.T, errs field.ErrorList, path, part string) {
	t.Helper()
	switch {
	case part == "" && len(errs) > 0:
		t.Errorf("unexpected: %v", errs.ToAggregate())
	case part == "":
	case len(errs) != 1:
		t.Errorf("got %d errors, want one: %v", len(errs), errs.ToAggregate())
	case errs[0].Field != path || !strings.Contains(errs[0].Error(), part):
		t.Errorf("got %q, want %q with %q", errs[0].Error(), path, part)
	}
}
