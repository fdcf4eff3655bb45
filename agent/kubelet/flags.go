package kubelet

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// Flags returns the kubelet's flags without its path: the agent's, then those of base that the agent does not set (what
// kubeadm computed; usually none), with each that the document repeats replaced by the document's, which come last. No flag
// occurs twice. nodeIPs are at most one per family. Its errors have codes.
func Flags(doc *nodev1.NodeConfiguration, nodeIPs []string, base []string) ([]string, error) {
	if err := checkLabels(doc.Node.Labels); err != nil {
		return nil, codes.New(codes.NodeLabelRefused, "node.labels: %w", err)
	}
	own, err := documentFlags(doc.Kubelet.ExtraArgs)
	if err != nil {
		return nil, codes.New(codes.KubeletFlagRefused, "kubelet.extraArgs: %w", err)
	}
	out := append(pathFlags(), nodeFlags(doc, nodeIPs)...)
	for _, flag := range base {
		if !slices.Contains(ownedFlags(), flagName(flag)) && !slices.Contains(removedFlags(), flagName(flag)) {
			out = replaceFlag(out, flag)
		}
	}
	for _, flag := range own {
		out = replaceFlag(out, flag)
	}
	return out, nil
}

// KubeadmArgs returns the flags that a JoinConfiguration names as extra ones, by name without dashes: all that are not about
// this agent's paths and service, so that kubeadm's files say what is true. Values with spaces are left out: kubeadm joins
// all flags with spaces.
func KubeadmArgs(doc *nodev1.NodeConfiguration, nodeIPs []string) ([][2]string, error) {
	flags, err := Flags(doc, nodeIPs, nil)
	if err != nil {
		return nil, err
	}
	var out [][2]string
	for _, flag := range flags[len(pathFlags()):] {
		name, value := flagName(flag), "true"
		if i := strings.IndexByte(flag, '='); i >= 0 {
			value = flag[i+1:]
		}
		if !slices.Contains(ownedFlags(), name) && !strings.ContainsAny(value, " \t") {
			out = append(out, [2]string{name, value})
		}
	}
	return out, nil
}

func pathFlags() []string {
	return []string{
		"--config=" + layout.KubeletConfig,
		"--bootstrap-kubeconfig=" + layout.BootstrapKubeconfig,
		"--kubeconfig=" + layout.Kubeconfig,
		"--cert-dir=" + layout.KubeletPKIDir,
		"--windows-service",
	}
}

func nodeFlags(doc *nodev1.NodeConfiguration, nodeIPs []string) []string {
	// Windows may show its computer name in capitals; a Node's name has none, and a cloud provider looks for exactly this one.
	out := []string{"--hostname-override=" + strings.ToLower(doc.Node.Name)}
	if len(nodeIPs) > 0 {
		out = append(out, "--node-ip="+strings.Join(nodeIPs, ","))
	}
	if len(doc.Node.Labels) > 0 {
		labels := make([]string, 0, len(doc.Node.Labels))
		for _, key := range slices.Sorted(maps.Keys(doc.Node.Labels)) {
			labels = append(labels, key+"="+doc.Node.Labels[key])
		}
		out = append(out, "--node-labels="+strings.Join(labels, ","))
	}
	if doc.Kubelet.CloudProvider == "external" {
		out = append(out, "--cloud-provider=external")
	}
	return append(out, "--windows-priorityclass="+priorityClass(doc.Kubelet.PriorityClass), "--v=2")
}

// priorityClass returns the name that the kubelet wants.
func priorityClass(p nodev1.PriorityClass) string {
	switch p {
	case nodev1.PriorityBelowNormal:
		return "BELOW_NORMAL_PRIORITY_CLASS"
	case nodev1.PriorityNormal:
		return "NORMAL_PRIORITY_CLASS"
	case nodev1.PriorityHigh:
		return "HIGH_PRIORITY_CLASS"
	default:
		return "ABOVE_NORMAL_PRIORITY_CLASS"
	}
}

// ownedFlags are those that the agent alone decides: it looks for the kubelet's files there, or the document says it elsewhere.
// A flag register-with-taints would silently replace all taints of the configuration.
func ownedFlags() []string {
	return []string{
		"config", "config-dir", "bootstrap-kubeconfig", "kubeconfig", "cert-dir", "root-dir", "hostname-override", "windows-service",
		"register-with-taints", "register-node", "provider-id", "container-runtime-endpoint",
	}
}

// removedFlags are gone from newer kubelets, which end when they see one; to those that have them they do nothing with
// containerd.
func removedFlags() []string { return []string{"container-runtime", "pod-infra-container-image"} }

func documentFlags(given []string) ([]string, error) {
	for _, flag := range given {
		name := flagName(flag)
		switch {
		case name == "" || !strings.HasPrefix(flag, "-"):
			return nil, fmt.Errorf("%q is no flag: write --name=value", flag)
		case name == "register-with-taints":
			return nil, fmt.Errorf("--%s would drop all other taints: use node.taints", name)
		case slices.Contains(ownedFlags(), name):
			return nil, fmt.Errorf("the agent itself sets --%s", name)
		case slices.Contains(removedFlags(), name):
			return nil, fmt.Errorf("kubelets do not have --%s any more", name)
		}
	}
	return given, nil
}

// replaceFlag adds a flag at the end, without any of its name before it.
func replaceFlag(flags []string, flag string) []string {
	name := flagName(flag)
	flags = slices.DeleteFunc(flags, func(have string) bool { return flagName(have) == name })
	return append(flags, flag)
}

// flagName returns the name of --name=value, as the kubelet understands it: _ is the same as -.
func flagName(flag string) string {
	name, _, _ := strings.Cut(strings.TrimLeft(flag, "-"), "=")
	return strings.ReplaceAll(name, "_", "-")
}

// checkLabels is the kubelet's own check: it ends when it may not set one on its Node.
func checkLabels(labels map[string]string) error {
	allowed := []string{
		corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
		corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
		corev1.LabelInstanceType, corev1.LabelInstanceTypeStable,
		corev1.LabelOSStable, corev1.LabelArchStable, "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
	}
	within := func(domain, of string) bool { return domain == of || strings.HasSuffix(domain, "."+of) }
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		domain, _, hasDomain := strings.Cut(key, "/")
		if !hasDomain || slices.Contains(allowed, key) {
			continue
		}
		if (within(domain, "kubernetes.io") || within(domain, "k8s.io")) &&
			!within(domain, corev1.LabelNamespaceSuffixKubelet) && !within(domain, corev1.LabelNamespaceSuffixNode) {
			return fmt.Errorf("the kubelet may not set %q on its own Node", key)
		}
	}
	return nil
}
