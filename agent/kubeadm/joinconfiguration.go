// Package kubeadm knows what kubeadm.exe join reads and writes. kubeadm's own packages cannot be used for that: outside
// Windows their defaults and checks are those of Linux, and they would make the agent several times as large.
package kubeadm

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"
)

// Join is what a JoinConfiguration says, in any of its versions.
type Join struct {
	// KubernetesVersion decides about the version: v1beta4 from Kubernetes 1.31 on, v1beta3 before.
	KubernetesVersion string
	// NodeName, CRISocket and CACertPath (absolute, with its drive) of the node.
	NodeName   string
	CRISocket  string
	CACertPath string
	// Taints that the node registers with; none is not the same as kubeadm's default.
	Taints []corev1.Taint
	// KubeletArgs are flags of the kubelet, name without dashes and value, each name once.
	KubeletArgs [][2]string
	// APIServerEndpoint, Token and CACertHashes find the cluster. Token is secret.
	APIServerEndpoint string
	Token             string
	CACertHashes      []string
	// PatchesDir holds kubeadm's patches; empty: none.
	PatchesDir string
	// IgnorePreflightErrors and SkipPhases as kubeadm has them.
	IgnorePreflightErrors []string
	SkipPhases            []string
}

// How long kubeadm waits. Windows takes longer than its defaults allow.
const (
	kubeletHealthCheck = "6m0s"
	tlsBootstrap       = "10m0s"
	discoveryTimeout   = "10m0s"
)

// YAML returns the JoinConfiguration. It holds the token.
func (j Join) YAML() ([]byte, error) {
	v, err := version.ParseSemantic(j.KubernetesVersion)
	if err != nil {
		return nil, fmt.Errorf("parsing the Kubernetes version %q: %w", j.KubernetesVersion, err)
	}
	out := joinConfiguration{
		APIVersion: "kubeadm.k8s.io/v1beta4", Kind: "JoinConfiguration", CACertPath: j.CACertPath, SkipPhases: j.SkipPhases,
		Discovery: discovery{BootstrapToken: bootstrapToken{
			Token: j.Token, APIServerEndpoint: j.APIServerEndpoint, CACertHashes: j.CACertHashes,
		}},
		NodeRegistration: nodeRegistration{
			Name: j.NodeName, CRISocket: j.CRISocket, Taints: j.Taints, IgnorePreflightErrors: j.IgnorePreflightErrors,
			ImagePullPolicy: corev1.PullIfNotPresent,
		},
	}
	if out.NodeRegistration.Taints == nil {
		out.NodeRegistration.Taints = []corev1.Taint{} // null is kubeadm's default
	}
	if j.PatchesDir != "" {
		out.Patches = &patches{Directory: j.PatchesDir}
	}
	if v.LessThan(version.MajorMinor(1, 31)) {
		args := map[string]string{}
		for _, a := range j.KubeletArgs {
			args[a[0]] = a[1]
		}
		out.APIVersion, out.NodeRegistration.KubeletExtraArgs = "kubeadm.k8s.io/v1beta3", args
		out.Discovery.Timeout = discoveryTimeout
	} else {
		args := make([]arg, 0, len(j.KubeletArgs))
		for _, a := range j.KubeletArgs {
			args = append(args, arg{Name: a[0], Value: a[1]})
		}
		out.NodeRegistration.KubeletExtraArgs = args
		out.Timeouts = &timeouts{KubeletHealthCheck: kubeletHealthCheck, TLSBootstrap: tlsBootstrap, Discovery: discoveryTimeout}
	}
	return yaml.Marshal(out)
}

// joinConfiguration is JoinConfiguration of v1beta3 and v1beta4, where they agree.
type joinConfiguration struct {
	APIVersion       string           `json:"apiVersion"`
	Kind             string           `json:"kind"`
	CACertPath       string           `json:"caCertPath,omitempty"`
	Discovery        discovery        `json:"discovery"`
	NodeRegistration nodeRegistration `json:"nodeRegistration"`
	Patches          *patches         `json:"patches,omitempty"`
	SkipPhases       []string         `json:"skipPhases,omitempty"`
	// Timeouts is not in v1beta3, which has discovery.timeout instead.
	Timeouts *timeouts `json:"timeouts,omitempty"`
}

type discovery struct {
	BootstrapToken bootstrapToken `json:"bootstrapToken"`
	Timeout        string         `json:"timeout,omitempty"`
}

type bootstrapToken struct {
	Token             string   `json:"token"`
	APIServerEndpoint string   `json:"apiServerEndpoint"`
	CACertHashes      []string `json:"caCertHashes"`
}

type nodeRegistration struct {
	Name      string         `json:"name"`
	CRISocket string         `json:"criSocket"`
	Taints    []corev1.Taint `json:"taints"`
	// KubeletExtraArgs is a map in v1beta3 and a list in v1beta4.
	KubeletExtraArgs      any               `json:"kubeletExtraArgs,omitempty"`
	IgnorePreflightErrors []string          `json:"ignorePreflightErrors,omitempty"`
	ImagePullPolicy       corev1.PullPolicy `json:"imagePullPolicy"`
}

type arg struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type patches struct {
	Directory string `json:"directory"`
}

type timeouts struct {
	KubeletHealthCheck string `json:"kubeletHealthCheck"`
	TLSBootstrap       string `json:"tlsBootstrap"`
	Discovery          string `json:"discovery"`
}
