package kubelet_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/kubelet"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

func TestFlagsOfAPlainNode(t *testing.T) {
	g := NewWithT(t)
	doc := document("")
	doc.Node.Name = "WIN-A"
	doc.Node.Labels = map[string]string{"b": "2", "a": ""}
	doc.Kubelet.CloudProvider = "external"
	got, err := kubelet.Flags(doc, []string{"10.0.0.10", "fd00::10"}, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got).To(Equal([]string{
		`--config=C:\var\lib\kubelet\config.yaml`,
		`--bootstrap-kubeconfig=C:\etc\kubernetes\bootstrap-kubelet.conf`,
		`--kubeconfig=C:\etc\kubernetes\kubelet.conf`,
		`--cert-dir=C:\var\lib\kubelet\pki`,
		"--windows-service",
		"--hostname-override=win-a",
		"--node-ip=10.0.0.10,fd00::10",
		"--node-labels=a=,b=2",
		"--cloud-provider=external",
		"--windows-priorityclass=ABOVE_NORMAL_PRIORITY_CLASS",
		"--v=2",
	}))
}

func TestTheDocumentsFlagsReplaceOthersAndComeLast(t *testing.T) {
	g := NewWithT(t)
	doc := document("")
	doc.Kubelet.ExtraArgs = []string{"-v=4", "--max_pods=20", `--image-credential-provider-bin-dir=C:\Program Files\x`}
	got, err := kubelet.Flags(doc, nil, []string{
		"--max-pods=10", "--node-ip=10.0.0.9", "--register-with-taints=a=b:NoSchedule", `--config=\x`, "--pod-infra-container-image=p",
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got[5:]).To(Equal([]string{
		"--hostname-override=win-a", "--windows-priorityclass=ABOVE_NORMAL_PRIORITY_CLASS", "--node-ip=10.0.0.9",
		"-v=4", "--max_pods=20", `--image-credential-provider-bin-dir=C:\Program Files\x`,
	}))
}

func TestFlagsForKubeadmAreWithoutPathsAndSpaces(t *testing.T) {
	g := NewWithT(t)
	doc := document("")
	doc.Kubelet.ExtraArgs = []string{"--v=4", `--image-credential-provider-bin-dir=C:\Program Files\x`, "--fail-on-x"}
	got, err := kubelet.KubeadmArgs(doc, []string{"10.0.0.10"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got).To(Equal([][2]string{
		{"node-ip", "10.0.0.10"}, {"windows-priorityclass", "ABOVE_NORMAL_PRIORITY_CLASS"}, {"v", "4"}, {"fail-on-x", "true"},
	}))
}

func TestFlagsAndLabelsThatCannotWorkAreRefused(t *testing.T) {
	for flag, part := range map[string]string{
		"--register-with-taints=a:NoSchedule": "node.taints",
		"--register_with_taints=a:NoSchedule": "node.taints",
		"--hostname-override=x":               "the agent itself",
		"--kubeconfig=x":                      "the agent itself",
		"--pod-infra-container-image=x":       "any more",
		"4":                                   "no flag",
		"--":                                  "no flag",
		"":                                    "no flag",
	} {
		t.Run(flag, func(t *testing.T) {
			doc := document("")
			doc.Kubelet.ExtraArgs = []string{flag}
			expectRefused(t, doc, codes.KubeletFlagRefused, part)
		})
	}
	for _, label := range []string{"kubernetes.io/x", "node-role.kubernetes.io/worker", "x.k8s.io/y"} {
		t.Run(label, func(t *testing.T) {
			doc := document("")
			doc.Node.Labels = map[string]string{label: ""}
			expectRefused(t, doc, codes.NodeLabelRefused, label)
		})
	}
}

func expectRefused(t *testing.T, doc *nodev1.NodeConfiguration, code codes.Code, part string) {
	t.Helper()
	g := NewWithT(t)
	_, err := kubelet.Flags(doc, nil, nil)
	g.Expect(err).To(MatchError(ContainSubstring(part)))
	info, _ := codes.Of(err)
	g.Expect(info.Code).To(Equal(code))
}

func TestLabelsThatTheKubeletMaySetPass(t *testing.T) {
	doc := document("")
	doc.Node.Labels = map[string]string{
		"a": "", "example.com/a": "", "topology.kubernetes.io/zone": "z", "node.kubernetes.io/x": "", "kubelet.kubernetes.io/x": "",
		"x.node.kubernetes.io/y": "", "notkubernetes.io/x": "",
	}
	_, err := kubelet.Flags(doc, nil, nil)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
}

func TestDifferencesNameLabelsAndTaintsThatAreMissing(t *testing.T) {
	g := NewWithT(t)
	doc := document("")
	doc.Node.Labels = map[string]string{"a": "1"}
	node := &corev1.Node{}
	node.Labels = map[string]string{"a": "2"}
	g.Expect(kubelet.Differences(node, doc)).To(Equal([]string{`label a is "2", not "1"`, "taint os=windows:NoSchedule is missing"}))
	node.Labels["a"], node.Spec.Taints = "1", doc.Node.Taints
	g.Expect(kubelet.Differences(node, doc)).To(BeEmpty())
}
