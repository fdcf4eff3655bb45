package artifact

import "testing"

func TestParseVersionReadsWhatProgramsSay(t *testing.T) {
	for _, tc := range []struct{ program, output, want string }{
		{"kubelet", "Kubernetes v1.36.3\r\n", "v1.36.3"},
		{"kube-proxy", "Kubernetes v1.37.0-beta.1+5f0c2d\n", "v1.37.0-beta.1+5f0c2d"},
		{"kubelet", "Kubernetes v1.34.1-eks-113cf36", "v1.34.1-eks-113cf36"},
		{"kubeadm", "v1.36.3\n", "v1.36.3"},
		{"containerd", "containerd github.com/containerd/containerd/v2 v2.2.0 1c4457e00facac03ce1d75f7b6777a7a851e5c41\n", "v2.2.0"},
		{"containerd", "containerd github.com/containerd/containerd 1.7.29 442cb34bda9a6a0fed82a2ca7cade05c5c749582\n", "v1.7.29"},
		{"windows_exporter", "windows_exporter, version 0.31.1 (branch: HEAD, revision: abc)\n  build user: x\n  go version: go1.25.3\n", "v0.31.1"},
		{"windows_exporter", "v0.27.2", "v0.27.2"},
		{"kubelet", "", ""},
		{"kubelet", "The system cannot find the file", ""},
		{"kubelet", "Kubernetes v1.36", ""},
		{"containerd", "containerd github.com/containerd/containerd/v2 2.3.0+unknown", "v2.3.0+unknown"},
		{"containerd", "nerdctl version 2.0.0", ""},
		{"kubeadm", "I1130 12:00:00 warning\nv1.36.3", ""},
	} {
		got, err := ParseVersion(tc.program, tc.output)
		if got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%s says %q: %q, %v; want %q", tc.program, tc.output, got, err, tc.want)
		}
	}
}

func TestOnlyProgramsThatAreKnownToTellTheirVersionAreAsked(t *testing.T) {
	for _, program := range []string{"kubelet", "kubeadm", "kube-proxy", "containerd", "windows_exporter"} {
		if args, ok := VersionArgs(program); !ok || len(args) == 0 {
			t.Errorf("%s is not asked", program)
		}
	}
	for _, program := range []string{"csi-proxy", "cni", "", "my-agent"} {
		if args, ok := VersionArgs(program); ok {
			t.Errorf("%s is started with %q", program, args)
		}
	}
}

func TestSameVersionLooksAtWhatTheDocumentSays(t *testing.T) {
	for _, tc := range []struct {
		have, want string
		same       bool
	}{
		{"v1.36.3", "v1.36.3", true},
		{"1.36.3", "v1.36.3", true},
		{"v1.36.2", "v1.36.3", false},
		{"v1.35.3", "v1.36.3", false},
		{"v1.36.3+k3s1", "v1.36.3", true},
		{"v1.34.1-eks-113cf36", "v1.34.1", true},
		{"v1.36.0-rc.1", "v1.36.0", false},
		{"v1.36.0-Alpha.1", "v1.36.0", false},
		{"v1.36.0-rc.1", "v1.36.0-rc.1", true},
		{"v1.36.0", "v1.36.0-rc.1", false},
		{"v1.36.3+k3s1", "v1.36.3+k3s1", true},
		{"v1.36.3", "v1.36.3+k3s1", false},
	} {
		if same, err := SameVersion(tc.have, tc.want); err != nil || same != tc.same {
			t.Errorf("%s where %s is wanted: %v, %v", tc.have, tc.want, same, err)
		}
	}
	for _, bad := range [][2]string{{"v1.36", "v1.36.3"}, {"v1.36.3", "latest"}} {
		if _, err := SameVersion(bad[0], bad[1]); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}
