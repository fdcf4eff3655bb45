package kubeadm_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/capw-dev/cluster-api-provider-windows/agent/kubeadm"
)

func aJoin(version string) kubeadm.Join {
	return kubeadm.Join{
		KubernetesVersion: version, NodeName: "win-a", CRISocket: "npipe:////./pipe/containerd-containerd",
		CACertPath: `C:\etc\kubernetes\pki\ca.crt`, APIServerEndpoint: "10.0.0.1:6443", Token: "abcdef.0123456789abcdef",
		CACertHashes: []string{"sha256:00"}, PatchesDir: `C:\etc\kubernetes\patches`,
		KubeletArgs: [][2]string{{"node-ip", "10.0.0.10"}, {"v", "2"}}, SkipPhases: []string{"preflight"},
		IgnorePreflightErrors: []string{`FileAvailable-\etc\kubernetes\kubelet.conf`},
	}
}

func decode(t *testing.T, j kubeadm.Join) map[string]any {
	t.Helper()
	raw, err := j.YAML()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	if err := yaml.UnmarshalStrict(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestJoinConfigurationIsOfTheVersionThatTheClustersKubeadmReads(t *testing.T) {
	for version, want := range map[string]string{
		"v1.30.9": "kubeadm.k8s.io/v1beta3", "v1.31.0": "kubeadm.k8s.io/v1beta4", "v1.31.0-rc.1": "kubeadm.k8s.io/v1beta4",
		"v1.36.3": "kubeadm.k8s.io/v1beta4",
	} {
		NewWithT(t).Expect(decode(t, aJoin(version))).To(HaveKeyWithValue("apiVersion", want), version)
	}
	_, err := kubeadm.Join{KubernetesVersion: "latest"}.YAML()
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring(`"latest"`)))
}

func TestJoinConfigurationHasFlagsAndTimeoutsInTheShapeOfItsVersion(t *testing.T) {
	g := NewWithT(t)
	old, now := decode(t, aJoin("v1.30.9")), decode(t, aJoin("v1.36.3"))
	g.Expect(old["nodeRegistration"]).To(HaveKeyWithValue("kubeletExtraArgs", Equal(map[string]any{"node-ip": "10.0.0.10", "v": "2"})))
	g.Expect(now["nodeRegistration"]).To(HaveKeyWithValue("kubeletExtraArgs", ConsistOf(
		map[string]any{"name": "node-ip", "value": "10.0.0.10"}, map[string]any{"name": "v", "value": "2"})))
	g.Expect(old["discovery"]).To(HaveKeyWithValue("timeout", "10m0s"))
	g.Expect(old).NotTo(HaveKey("timeouts"))
	g.Expect(now["discovery"]).NotTo(HaveKey("timeout"))
	g.Expect(now["timeouts"]).To(HaveKeyWithValue("kubeletHealthCheck", "6m0s"))
}

func TestJoinConfigurationSaysThatThereAreNoTaints(t *testing.T) {
	g := NewWithT(t)
	j := aJoin("v1.36.3")
	g.Expect(decode(t, j)["nodeRegistration"]).To(HaveKeyWithValue("taints", BeEmpty()))
	j.Taints = []corev1.Taint{{Key: "os", Value: "windows", Effect: corev1.TaintEffectNoSchedule}}
	g.Expect(decode(t, j)["nodeRegistration"]).To(HaveKeyWithValue("taints", ConsistOf(
		map[string]any{"key": "os", "value": "windows", "effect": "NoSchedule"})))
}

func TestParseFlags(t *testing.T) {
	for name, c := range map[string]struct {
		content string
		want    []string
		err     string
	}{
		"doubled backslashes": {
			content: `KUBELET_KUBEADM_ARGS="--config-dir=C:\\k8s\\conf.d --node-ip=10.0.0.1"` + "\n",
			want:    []string{`--config-dir=C:\k8s\conf.d`, "--node-ip=10.0.0.1"},
		},
		"leading characters of KUBELET_ARGS in a value": {content: `KUBELET_KUBEADM_ARGS="--AB=KUBELET"`, want: []string{"--AB=KUBELET"}},
		"Windows line ends and comments":                {content: "# by kubeadm\r\nKUBELET_KUBEADM_ARGS=\"--v=2\"\r\n", want: []string{"--v=2"}},
		"quotes in a value":                             {content: `KUBELET_KUBEADM_ARGS="--a=\"b\""`, want: []string{`--a="b"`}},
		"nothing":                                       {content: `KUBELET_KUBEADM_ARGS=""`},
		"a value with spaces":                           {content: `KUBELET_KUBEADM_ARGS="--cert-dir=C:\\Program Files\\k"`, err: `"Files\\k"`},
		"dashes alone":                                  {content: `KUBELET_KUBEADM_ARGS="--a=b --"`, err: `"--"`},
		"no literal":                                    {content: `KUBELET_KUBEADM_ARGS=--a=b`, err: "no Go string"},
		"another variable":                              {content: `KUBELET_EXTRA_ARGS="--a=b"`, err: "there is no"},
		"an empty file":                                 {err: "there is no"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := kubeadm.ParseFlags([]byte(c.content))
			if c.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(c.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(Equal(c.want))
		})
	}
}

func FuzzParseFlags(f *testing.F) {
	for _, seed := range []string{"--a=b --c=d", `--a=C:\x`, "--a=\"b\"", "--a=ü\x00\t--b", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, joined string) {
		got, err := kubeadm.ParseFlags(fmt.Appendf(nil, "%s=%q\n", kubeadm.FlagsVariable, joined))
		if err != nil {
			return // some part is no flag
		}
		if strings.Join(got, " ") != strings.Join(strings.Fields(joined), " ") {
			t.Errorf("%q was read as %q", joined, got)
		}
	})
}
