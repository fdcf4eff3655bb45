package kubelet_test

import (
	"encoding/json"
	"reflect"
	"testing"

	. "github.com/onsi/gomega"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubeletv1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/kubelet"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// document returns one with a kubelet.config, if it is not empty.
func document(config string) *nodev1.NodeConfiguration {
	doc := &nodev1.NodeConfiguration{Node: nodev1.NodeInfo{Name: "win-a", Taints: []corev1.Taint{
		{Key: "os", Value: "windows", Effect: corev1.TaintEffectNoSchedule},
	}}}
	if config != "" {
		raw, err := yaml.YAMLToJSON([]byte(config))
		if err != nil {
			panic(err)
		}
		doc.Kubelet.Config = &runtime.RawExtension{Raw: raw}
	}
	doc.Default()
	return doc
}

const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

func parse(g Gomega, config string) kubelet.Config {
	c, err := kubelet.ParseConfig([]byte(head + config))
	g.Expect(err).NotTo(HaveOccurred())
	return c
}

func build(g Gomega, cluster, own string) (kubelet.Config, []string) {
	c, notes, err := kubelet.NewConfig(parse(g, cluster), kubelet.ConfigInput{Doc: document(own), ProviderID: "vsphere://1", MemoryBytes: 16 << 30})
	g.Expect(err).NotTo(HaveOccurred())
	return c, notes
}

func TestWhatAKubeletOnWindowsDoesNotAcceptIsTakenOutOfTheClustersConfiguration(t *testing.T) {
	for field, value := range map[string]string{
		"singleProcessOOMKill": "true", "userNamespaces": "{maxPods: 100}", "cgroupDriver": "systemd", "cpuManagerPolicy": "static",
		"topologyManagerPolicy": "best-effort", "memoryManagerPolicy": "Static", "kubeReservedCgroup": "/kube", "systemReservedCgroup": "/sys",
		"protectKernelDefaults": "true", "failSwapOn": "false", "memorySwap": "{swapBehavior: NoSwap}", "podPidsLimit": "4096",
		"imageServiceEndpoint": "unix:///run/images.sock", "volumePluginDir": "/usr/libexec/kubernetes", "podLogsDir": "/var/log/pods",
		"tlsCertFile": "/etc/kubelet.crt", "aFieldOfTheFuturePath": "/etc/future",
	} {
		t.Run(field, func(t *testing.T) {
			g := NewWithT(t)
			c, notes := build(g, field+": "+value, "")
			g.Expect(c).NotTo(HaveKey(field))
			g.Expect(notes).To(Equal([]string{field}))
		})
	}
}

func TestTheClustersPathsAndEndpointsBecomeThoseOfWindows(t *testing.T) {
	g := NewWithT(t)
	c, notes := build(g, `
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
staticPodPath: /etc/kubernetes/manifests
resolvConf: /run/systemd/resolve/resolv.conf
authentication: {x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}, anonymous: {enabled: false}}
cgroupsPerQOS: true
enforceNodeAllocatable: [pods]
`, "")
	g.Expect(c).To(And(
		HaveKeyWithValue("containerRuntimeEndpoint", "npipe:////./pipe/containerd-containerd"),
		HaveKeyWithValue("staticPodPath", `C:\etc\kubernetes\manifests`),
		HaveKeyWithValue("resolvConf", ""),
		HaveKeyWithValue("cgroupsPerQOS", false),
		HaveKeyWithValue("enforceNodeAllocatable", BeEmpty()),
		HaveKeyWithValue("authentication", Equal(map[string]any{
			"x509": map[string]any{"clientCAFile": `C:\etc\kubernetes\pki\ca.crt`}, "anonymous": map[string]any{"enabled": false},
		})),
	))
	g.Expect(notes).To(ConsistOf("containerRuntimeEndpoint", "staticPodPath", "resolvConf", "authentication.x509.clientCAFile"))
}

func TestThresholdsFitWindows(t *testing.T) {
	for name, c := range map[string]struct {
		cluster            string
		memory             uint64
		eviction, reserved string
	}{
		"nothing is given": {"", 16 << 30, "500Mi", "2Gi"},
		"what is made for Linux is raised": {
			"{evictionHard: {memory.available: 100Mi, nodefs.inodesFree: 5%, pid.available: 10%}, systemReserved: {memory: 512Mi, cpu: 200m}}",
			16 << 30, "500Mi", "2Gi",
		},
		"more stays":                     {"{evictionHard: {memory.available: 1Gi}, systemReserved: {memory: 4Gi}}", 16 << 30, "1Gi", "4Gi"},
		"a percentage stays":             {"{evictionHard: {memory.available: 5%}}", 16 << 30, "5%", "2Gi"},
		"a small machine keeps one half": {"", 3<<30 + 1, "500Mi", "1536Mi"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var cluster kubelet.Config
			if c.cluster != "" {
				g.Expect(yaml.Unmarshal([]byte(c.cluster), &cluster)).To(Succeed())
			}
			got, _, err := kubelet.NewConfig(cluster, kubelet.ConfigInput{Doc: document(""), MemoryBytes: c.memory})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got["evictionHard"]).To(Equal(map[string]any{
				"memory.available": c.eviction, "nodefs.available": "10%", "imagefs.available": "15%",
			}))
			g.Expect(got["systemReserved"]).To(HaveKeyWithValue("memory", c.reserved))
		})
	}
}

func TestAFieldThatTheAgentDoesNotKnowPassesThrough(t *testing.T) {
	g := NewWithT(t)
	c, _ := build(g, "aFieldOfTheFuture: {deep: [1, {a: b}], big: 9007199254740993}", "another: true")
	g.Expect(c).To(HaveKeyWithValue("aFieldOfTheFuture", Equal(map[string]any{
		"deep": []any{int64(1), map[string]any{"a": "b"}}, "big": int64(9007199254740993),
	})))
	g.Expect(c).To(HaveKeyWithValue("another", true))
}

func TestTheDocumentsConfigurationWins(t *testing.T) {
	g := NewWithT(t)
	c, _ := build(g, "maxPods: 110\nclusterDNS: [10.96.0.10]\nevictionHard: {memory.available: 1Gi}\nlogging: {verbosity: 2}", `
maxPods: 30
clusterDNS: [169.254.20.10]
evictionHard: {memory.available: 300Mi, nodefs.available: null}
logging: null
serverTLSBootstrap: false
`)
	g.Expect(c).To(HaveKeyWithValue("maxPods", int64(30)))
	g.Expect(c.ClusterDNS()).To(Equal([]string{"169.254.20.10"}))
	g.Expect(c["evictionHard"]).To(Equal(map[string]any{"memory.available": "300Mi", "imagefs.available": "15%"}))
	g.Expect(c).NotTo(HaveKey("logging"))
	g.Expect(c).To(HaveKeyWithValue("serverTLSBootstrap", false))
}

func TestTaintsAndProviderIDAreTheDocumentsAlone(t *testing.T) {
	g := NewWithT(t)
	cluster := parse(g, "registerWithTaints: [{key: a, effect: NoSchedule}]\nproviderID: foo\nregisterNode: false")
	doc := document("")
	doc.Kubelet.CloudProvider = "external"
	doc.Node.Taints = append(doc.Node.Taints, doc.Node.Taints[0])
	c, _, err := kubelet.NewConfig(cluster, kubelet.ConfigInput{Doc: doc, MemoryBytes: 8 << 30})
	g.Expect(err).NotTo(HaveOccurred())
	raw, err := c.YAML()
	g.Expect(err).NotTo(HaveOccurred())
	typed := kubeletv1.KubeletConfiguration{}
	g.Expect(yaml.UnmarshalStrict(raw, &typed)).To(Succeed())
	g.Expect(typed.RegisterWithTaints).To(Equal([]corev1.Taint{
		{Key: "os", Value: "windows", Effect: corev1.TaintEffectNoSchedule},
		{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule},
	}))
	g.Expect(typed.ProviderID).To(BeEmpty())
	g.Expect(*typed.RegisterNode).To(BeTrue())
}

func TestADocumentsConfigurationThatCannotWorkIsRefused(t *testing.T) {
	for config, part := range map[string]string{
		"registerWithTaints: []":                                "node.taints",
		"providerID: a":                                         "node.providerID",
		"singleProcessOOMKill: false":                           "not supported on Windows",
		"userNamespaces: {}":                                    "not supported on Windows",
		`containerRuntimeEndpoint: \\.\pipe\containerd`:         "npipe://",
		"containerRuntimeEndpoint: unix:///run/containerd.sock": "npipe://",
		"apiVersion: kubelet.config.k8s.io/v1":                  "v1beta1",
		"kind: KubeProxyConfiguration":                          "KubeletConfiguration",
		"[]":                                                    "no JSON object",
	} {
		t.Run(config, func(t *testing.T) {
			g := NewWithT(t)
			_, _, err := kubelet.NewConfig(nil, kubelet.ConfigInput{Doc: document(config)})
			g.Expect(err).To(MatchError(ContainSubstring(part)))
			info, _ := codes.Of(err)
			g.Expect(info.Code).To(Equal(codes.KubeletConfigRefused))
		})
	}
}

func TestThePatchMakesTheNodesConfigurationOfTheClusters(t *testing.T) {
	g := NewWithT(t)
	cluster := parse(g, "cgroupDriver: systemd\nmaxPods: 110\nresolvConf: /etc/resolv.conf\nevictionHard: {nodefs.inodesFree: 5%}\nlogging: {verbosity: 2, format: json}")
	before := mustJSON(cluster)
	node, _, err := kubelet.NewConfig(cluster, kubelet.ConfigInput{Doc: document("logging: {format: null}"), MemoryBytes: 8 << 30})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(mustJSON(cluster)).To(MatchJSON(before), "the cluster's must not change")

	patched, err := jsonpatch.MergePatch(before, mustJSON(kubelet.Patch(cluster, node)))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(patched).To(MatchJSON(mustJSON(node)))
	g.Expect(kubelet.Patch(node, node)).To(BeEmpty())
}

func mustJSON(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

func TestHealthzIsWhereTheConfigurationSays(t *testing.T) {
	g := NewWithT(t)
	for config, want := range map[string]string{
		"":                              "127.0.0.1:10248",
		"healthzPort: 0":                "",
		"healthzPort: 4242":             "127.0.0.1:4242",
		"healthzBindAddress: 0.0.0.0":   "127.0.0.1:10248",
		`healthzBindAddress: "::"`:      "[::1]:10248",
		"healthzBindAddress: 10.0.0.10": "10.0.0.10:10248",
	} {
		g.Expect(parse(g, config).Healthz()).To(Equal(want), config)
	}
}

func TestParseConfigRefusesWhatIsNoKubeletConfiguration(t *testing.T) {
	for _, raw := range []string{"", "[]", "kind: Pod", "\t"} {
		if c, err := kubelet.ParseConfig([]byte(raw)); err == nil {
			t.Errorf("%q was read as %v", raw, reflect.ValueOf(c))
		}
	}
}
