package kubelet

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// Ready says whether a Node is, and else what its condition says.
func Ready(node *corev1.Node) (ready bool, why string) {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue, fmt.Sprintf("%s: %s", c.Reason, c.Message)
		}
	}
	return false, "the kubelet has not reported its status yet"
}

// Differences says which labels and taints a Node registered with that it does not have now. Others may have changed them
// meanwhile, and for taints that mark a Node as new that is their purpose.
func Differences(node *corev1.Node, doc *nodev1.NodeConfiguration) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(doc.Node.Labels)) {
		if have, there := node.Labels[key]; !there || have != doc.Node.Labels[key] {
			out = append(out, fmt.Sprintf("label %s is %q, not %q", key, have, doc.Node.Labels[key]))
		}
	}
	for _, want := range Taints(doc) {
		if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&want) }) {
			out = append(out, fmt.Sprintf("taint %s is missing", want.ToString()))
		}
	}
	return out
}
