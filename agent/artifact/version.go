package artifact

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// VersionArgs returns the arguments with which a program says its version and ends; ok is false for a program that is not
// known to do so, which must not be started for that.
func VersionArgs(program string) (args []string, ok bool) {
	switch program {
	case "kubelet", "kube-proxy", "containerd", "windows_exporter":
		return []string{"--version"}, true
	case "kubeadm":
		return []string{"version", "-o", "short"}, true
	default:
		return nil, false
	}
}

// ParseVersion reads what a program says about its version: "Kubernetes v1.36.3" (kubelet, kube-proxy), "v1.36.3" (kubeadm),
// "containerd github.com/containerd/containerd/v2 v2.2.0 <revision>", "windows_exporter, version 0.31.1 (branch: ...)". The
// result begins with v.
func ParseVersion(program, output string) (string, error) {
	fields := strings.Fields(output)
	var said string
	switch program {
	case "kubelet", "kube-proxy":
		if len(fields) == 2 && fields[0] == "Kubernetes" {
			said = fields[1]
		}
	case "kubeadm":
		if len(fields) == 1 {
			said = fields[0]
		}
	case "containerd":
		if len(fields) >= 3 && fields[0] == "containerd" {
			said = fields[2]
		}
	default:
		said = regexp.MustCompile(`\bv?\d+\.\d+\.\d+[0-9A-Za-z.+-]*`).FindString(output)
	}
	said = "v" + strings.TrimPrefix(said, "v")
	if _, err := version.ParseSemantic(said); err != nil {
		return "", errors.New("no version in what it says")
	}
	return said, nil
}

// SameVersion says whether a program of version have is what want asks for: major, minor and patch are the same, and so is
// a pre-release (alpha, beta, rc). What a distribution appends, such as -eks-1a2b3c or +k3s1, only counts if want has it.
func SameVersion(have, want string) (bool, error) {
	h, err := version.ParseSemantic(have)
	if err != nil {
		return false, fmt.Errorf("version %q: %w", have, err)
	}
	w, err := version.ParseSemantic(want)
	if err != nil {
		return false, fmt.Errorf("version %q: %w", want, err)
	}
	if h.Major() != w.Major() || h.Minor() != w.Minor() || h.Patch() != w.Patch() {
		return false, nil
	}
	if w.BuildMetadata() != "" && h.BuildMetadata() != w.BuildMetadata() {
		return false, nil
	}
	if w.PreRelease() == "" {
		return !isPreRelease(h.PreRelease()), nil
	}
	return h.PreRelease() == w.PreRelease(), nil
}

func isPreRelease(suffix string) bool {
	for _, kind := range []string{"alpha", "beta", "rc"} {
		if strings.HasPrefix(strings.ToLower(suffix), kind) {
			return true
		}
	}
	return false
}
