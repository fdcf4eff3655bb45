package kubelet

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// CloudProviderTaint marks a Node that an external cloud provider has not initialized yet. It removes the taint then, and
// leaves alone a Node that registered without it.
const CloudProviderTaint = "node.cloudprovider.kubernetes.io/uninitialized"

// Taints returns all taints that the node registers with, each key and effect once.
func Taints(doc *nodev1.NodeConfiguration) []corev1.Taint {
	all := slices.Clone(doc.Node.Taints)
	if doc.Kubelet.CloudProvider == "external" {
		all = append(all, corev1.Taint{Key: CloudProviderTaint, Value: "true", Effect: corev1.TaintEffectNoSchedule})
	}
	var out []corev1.Taint
	for _, t := range all {
		if !slices.ContainsFunc(out, func(have corev1.Taint) bool { return have.Key == t.Key && have.Effect == t.Effect }) {
			out = append(out, t)
		}
	}
	return out
}
