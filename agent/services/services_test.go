package services

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/runner"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// given returns a Run without a host: what is pure needs none.
func given(change func(*nodev1.NodeConfiguration)) *engine.Run {
	doc := &nodev1.NodeConfiguration{
		Cluster: nodev1.ClusterInfo{Namespace: "default", Name: "prod", KubernetesVersion: "v1.36.3"},
		Node:    nodev1.NodeInfo{Name: "win-1", ProviderID: "Auto"},
		Join:    nodev1.JoinInfo{APIServerEndpoint: "prod.example.test:6443", Token: "abcdef.0123456789abcdef"},
	}
	if change != nil {
		change(doc)
	}
	doc.Default()
	facts := &engine.Facts{
		NodeIPs: []string{"10.0.0.10"}, KubeletArgs: []string{`--config=C:\var\lib\kubelet\config.yaml`, "--windows-service"},
		ClusterDNS: []string{"10.96.0.10"}, ClusterDomain: "cluster.local",
	}
	return engine.NewRun(nil, doc, facts, func(context.Context) error { return nil })
}

// everything declares all services, with a pod network of a type.
func everything(cni nodev1.CNIType) func(*nodev1.NodeConfiguration) {
	return func(doc *nodev1.NodeConfiguration) {
		doc.Services = nodev1.ServicesInfo{
			CNI:              &nodev1.CNI{Type: cni, PodCIDR: "10.244.0.0/16", ServiceCIDR: "10.96.0.0/12"},
			KubeProxy:        &nodev1.KubeProxy{},
			CSIProxy:         &nodev1.ServiceOptions{},
			WindowsExporter:  &nodev1.WindowsExporter{},
			CloudNodeManager: &nodev1.CloudNodeManager{},
			Additional: []nodev1.AdditionalService{
				{Name: "late", ServiceOptions: nodev1.ServiceOptions{Path: `C:\late.exe`}, DependsOn: []string{"Early", "kube-proxy"}},
				{
					Name: "early", ServiceOptions: nodev1.ServiceOptions{Path: `C:\early.exe`}, Kind: "Service",
					Args:        []string{"--node=${NODE_NAME}", "--ip=${NODE_IP}", "--server=${API_SERVER}", "${KUBECONFIG} $${NODE_NAME}"},
					Environment: map[string]string{"B": "2", "A": "1"},
				},
			},
		}
	}
}

func desired(g *WithT, r *engine.Run) map[string]host.Service {
	list, err := Desired(r)
	g.Expect(err).NotTo(HaveOccurred())
	out := map[string]host.Service{}
	for _, s := range list {
		out[s.Name] = s
	}
	return out
}

func names(services []host.Service) []string {
	var out []string
	for _, s := range services {
		out = append(out, s.Name)
	}
	return out
}

func TestAllServicesStartInAnOrderThatTheirDependenciesAllow(t *testing.T) {
	for cni, its := range map[nodev1.CNIType][]string{
		nodev1.CNIFlannelHostGateway: {Flannel},
		nodev1.CNIFlannelOverlay:     {Flannel},
		nodev1.CNICalico:             {CalicoNode, CalicoFelix},
		nodev1.CNIAntrea:             {AntreaAgent},
		nodev1.CNIOVNHybridOverlay:   {HybridOverlayNode},
	} {
		t.Run(string(cni), func(t *testing.T) {
			g := NewWithT(t)
			list, err := Desired(given(everything(cni)))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(names(list)).To(Equal(slices.Concat(
				[]string{"containerd", "kubelet", CSIProxy, WindowsExporter, CloudNodeManager}, its, []string{KubeProxy, "early", "late"})))
			for i, s := range list {
				for _, d := range s.DependsOn {
					if j := slices.IndexFunc(list, func(o host.Service) bool { return strings.EqualFold(o.Name, d) }); j >= 0 {
						g.Expect(j).To(BeNumerically("<", i), "%s comes before %s", d, s.Name)
					} else {
						g.Expect(d).To(BeElementOf(layout.AgentService, "ovs-vswitchd"))
					}
				}
			}
			g.Expect(list[len(list)-3].DependsOn).To(ConsistOf("kubelet", its[0]), "kube-proxy waits for what makes the network")
		})
	}
}

func TestEveryServiceComesBackByItselfAndKeepsALog(t *testing.T) {
	g := NewWithT(t)
	for name, s := range desired(g, given(everything(nodev1.CNICalico))) {
		g.Expect(s.Start).To(Equal(host.StartAuto), name)
		g.Expect(s.Restart).To(Equal([]time.Duration{5 * time.Second, 30 * time.Second, time.Minute}), name)
		g.Expect(s.ResetAfter).To(Equal(time.Hour), name)
		g.Expect(s.DisplayName).NotTo(BeEmpty(), name)
		g.Expect(s.Description).NotTo(BeEmpty(), name)
		g.Expect(slices.IsSorted(s.Environment)).To(BeTrue(), name)
		inner, o, ok := runner.Unwrap(s.Argv)
		g.Expect(ok).To(BeTrue(), name)
		g.Expect(inner[0]).To(MatchRegexp(`^C:\\.*\.exe$`), name)
		g.Expect(o.LogFile).To(Equal(`C:\var\log\`+name+`\`+name+`.log`), name)
		g.Expect(o.Rotation).To(Equal(nodev1.LogRotation{MaxSizeMiB: 100, MaxFiles: 5, MaxAgeHours: 168}), name)
	}
}

func TestNothingThatMakesNetworksStartsBeforeTheAgentHasCleanedThem(t *testing.T) {
	for name, change := range map[string]func(*nodev1.NodeConfiguration){
		"our containerd":         nil,
		"the image's containerd": func(doc *nodev1.NodeConfiguration) { doc.ContainerRuntime.Management = nodev1.Existing },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			all := desired(g, given(func(doc *nodev1.NodeConfiguration) {
				everything(nodev1.CNIFlannelOverlay)(doc)
				if change != nil {
					change(doc)
				}
			}))
			var waits func(name string) bool
			waits = func(name string) bool {
				return name == layout.AgentService || slices.ContainsFunc(all[name].DependsOn, waits)
			}
			for _, name := range []string{"kubelet", Flannel, KubeProxy} {
				g.Expect(waits(name)).To(BeTrue(), name)
			}
		})
	}
}

func TestTheCommandLinesAreThoseOfTheDocument(t *testing.T) {
	g := NewWithT(t)
	r := given(func(doc *nodev1.NodeConfiguration) {
		everything(nodev1.CNIOVNHybridOverlay)(doc)
		doc.Services.CNI.Port = 9898
		doc.Services.WindowsExporter.ExtraArgs = []string{"--web.listen-address", "10.0.0.10:9999", "--collector.x"}
		doc.Services.CloudNodeManager.WaitRoutes = "Enabled"
		doc.ContainerRuntime.PriorityClass = nodev1.PriorityHigh
		doc.ContainerRuntime.Log.MaxFiles = 9
		doc.ContainerRuntime.ExtraArgs = []string{"--log-level=debug"}
	})
	r.Facts.Paths = map[string]string{"kubelet": `D:\kubelet.exe`}
	all := desired(g, r)
	inner := func(name string) []string {
		argv, _, ok := runner.Unwrap(all[name].Argv)
		g.Expect(ok).To(BeTrue())
		return argv
	}
	g.Expect(all["containerd"].Argv).To(Equal([]string{
		`C:\Program Files\capw\capw-node.exe`, "service", "--name", "containerd", "--log-file", `C:\var\log\containerd\containerd.log`,
		"--max-size-mib", "100", "--max-files", "9", "--max-age-hours", "168", "--priority", "High", "--leave-children", "--",
		`C:\Program Files\containerd\containerd.exe`, "--config", `C:\Program Files\containerd\config.toml`, "--log-level=debug",
	}))
	g.Expect(all["kubelet"].Argv[1]).To(Equal("exec"))
	g.Expect(inner("kubelet")).To(Equal(append([]string{`D:\kubelet.exe`}, r.Facts.KubeletArgs...)))
	g.Expect(inner(CSIProxy)).To(Equal([]string{`C:\k\csi-proxy.exe`, "-v=2"}))
	g.Expect(inner(WindowsExporter)).To(Equal([]string{
		`C:\k\windows_exporter.exe`, "--collectors.enabled=cpu,cpu_info,container,logical_disk,memory,net,os,service,system",
		"--log.file=stderr", `--web.config.file=C:\var\lib\windows_exporter\web-config.yaml`,
		"--web.listen-address", "10.0.0.10:9999", "--collector.x",
	}))
	g.Expect(inner(CloudNodeManager)).To(Equal([]string{
		`C:\k\azure-cloud-node-manager.exe`, "--node-name=win-1", "--wait-routes=true", `--kubeconfig=C:\etc\kubernetes\kubelet.conf`, "--v=2",
	}))
	g.Expect(inner(HybridOverlayNode)).To(Equal([]string{
		`C:\k\hybrid-overlay-node.exe`, "--node=win-1", `--bootstrap-kubeconfig=C:\etc\kubernetes\kubelet.conf`,
		`--cert-dir=C:\var\lib\hybrid-overlay-node\certs`, "--cert-duration=24h", "--k8s-apiserver=https://prod.example.test:6443",
		`--k8s-cacert=C:\etc\kubernetes\pki\ca.crt`, "--hybrid-overlay-vxlan-port=9898",
	}))
	g.Expect(inner(KubeProxy)).To(Equal([]string{`C:\k\kube-proxy.exe`, `--config=C:\var\lib\kube-proxy\config.conf`, "--v=2"}))
	g.Expect(inner("early")).To(Equal([]string{
		`C:\early.exe`, "--node=win-1", "--ip=10.0.0.10", "--server=https://prod.example.test:6443", `C:\etc\kubernetes\kubelet.conf $win-1`,
	}))
	g.Expect(all["early"].Argv[1]).To(Equal("exec"))
	g.Expect(all["early"].Environment).To(Equal([]string{"A=1", "B=2"}))
	g.Expect(all["late"].Argv[1]).To(Equal("service"))
}

func TestFlannelKnowsItsNodeAndItsFilesByAbsolutePaths(t *testing.T) {
	g := NewWithT(t)
	s := desired(g, given(everything(nodev1.CNIFlannelOverlay)))[Flannel]
	argv, _, _ := runner.Unwrap(s.Argv)
	g.Expect(argv).To(Equal([]string{
		`C:\k\flanneld.exe`, "--kube-subnet-mgr", `--kubeconfig-file=C:\etc\kubernetes\kubelet.conf`,
		`--net-config-path=C:\etc\kube-flannel\net-conf.json`, `--subnet-file=C:\run\flannel\subnet.env`, "--ip-masq", "--iface=10.0.0.10",
	}))
	g.Expect(s.Environment).To(Equal([]string{"NODE_NAME=win-1"}))
}

func TestCalicoIsConfiguredByItsEnvironment(t *testing.T) {
	g := NewWithT(t)
	all := desired(g, given(func(doc *nodev1.NodeConfiguration) {
		everything(nodev1.CNICalico)(doc)
		doc.Services.CNI.ExtraArgs = []string{"vxlan_vni=5000", "FELIX_LOGSEVERITYSCREEN=debug"}
	}))
	argv, o, _ := runner.Unwrap(all[CalicoNode].Argv)
	g.Expect(argv[len(argv)-2:]).To(Equal([]string{"-File", `C:\CalicoWindows\node\node-service.ps1`}))
	g.Expect(o.Dir).To(Equal(`C:\CalicoWindows`), "the scripts find each other by it")
	g.Expect(all[CalicoFelix].DependsOn).To(Equal([]string{CalicoNode}))
	g.Expect(all[CalicoNode].Environment).To(ContainElements(
		"CALICO_NETWORKING_BACKEND=vxlan", "NODENAME=win-1", "IP=10.0.0.10", "K8S_SERVICE_CIDR=10.96.0.0/12", "DNS_NAME_SERVERS=10.96.0.10",
		"DNS_SEARCH=svc.cluster.local", `CNI_CONF_DIR=C:\etc\cni\net.d`, "VXLAN_VNI=5000", "FELIX_LOGSEVERITYSCREEN=debug"))
	_, err := Desired(given(func(doc *nodev1.NodeConfiguration) {
		everything(nodev1.CNICalico)(doc)
		doc.Services.CNI.ExtraArgs = []string{"--debug"}
	}))
	g.Expect(code(err)).To(Equal(codes.ServiceInvalid))
}

func TestAScrubbedDocumentDefinesTheSameServices(t *testing.T) {
	g := NewWithT(t)
	r := given(everything(nodev1.CNIFlannelOverlay))
	before, err := Desired(r)
	g.Expect(err).NotTo(HaveOccurred())
	r.Doc.Scrub()
	g.Expect(Desired(r)).To(Equal(before))
}

func TestADocumentCannotDeclareServicesThatNeverRun(t *testing.T) {
	for name, change := range map[string]func(*nodev1.ServicesInfo){
		"a circle": func(s *nodev1.ServicesInfo) {
			s.Additional = []nodev1.AdditionalService{add("a", "b"), add("b", "C"), add("c", "a")}
		},
		"itself":            func(s *nodev1.ServicesInfo) { s.Additional = []nodev1.AdditionalService{add("a", "A")} },
		"a name twice":      func(s *nodev1.ServicesInfo) { s.Additional = []nodev1.AdditionalService{add("a"), add("A")} },
		"one of ours":       func(s *nodev1.ServicesInfo) { s.Additional = []nodev1.AdditionalService{add("Kube-Proxy")} },
		"the kubelet":       func(s *nodev1.ServicesInfo) { s.Additional = []nodev1.AdditionalService{add("Kubelet")} },
		"the agent":         func(s *nodev1.ServicesInfo) { s.Additional = []nodev1.AdditionalService{add("capw-node")} },
		"no name":           func(s *nodev1.ServicesInfo) { s.Additional = []nodev1.AdditionalService{add("")} },
		"a slash":           func(s *nodev1.ServicesInfo) { s.Additional = []nodev1.AdditionalService{add(`a\b`)} },
		"no program":        func(s *nodev1.ServicesInfo) { s.Additional = []nodev1.AdditionalService{{Name: "a"}} },
		"an unknown kind":   func(s *nodev1.ServicesInfo) { s.Additional[0].Kind = "Driver" },
		"an unknown TLS":    func(s *nodev1.ServicesInfo) { s.WindowsExporter.TLS = "Yes" },
		"TLS without files": func(s *nodev1.ServicesInfo) { s.WindowsExporter.TLS = "Files" },
		"an unknown CNI":    func(s *nodev1.ServicesInfo) { s.CNI.Type = "Weave" },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := Desired(given(func(doc *nodev1.NodeConfiguration) {
				everything(nodev1.CNIAntrea)(doc)
				change(&doc.Services)
			}))
			g.Expect(code(err)).To(Equal(codes.ServiceInvalid), "%v", err)
		})
	}
}

func add(name string, dependsOn ...string) nodev1.AdditionalService {
	return nodev1.AdditionalService{Name: name, ServiceOptions: nodev1.ServiceOptions{Path: `C:\x.exe`}, DependsOn: dependsOn}
}

func code(err error) codes.Code {
	info, _ := codes.Of(err)
	return info.Code
}

func TestSharedDependenciesAreNoCircle(t *testing.T) {
	g := NewWithT(t)
	in := []host.Service{{Name: "d", DependsOn: []string{"b", "c"}}, {Name: "c", DependsOn: []string{"a"}}, {Name: "b", DependsOn: []string{"a"}}, {Name: "a"}}
	out, err := sortByDependencies(in)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(names(out)).To(Equal([]string{"a", "b", "c", "d"}))
	g.Expect(names(Only(out, "b"))).To(Equal([]string{"b", "d"}))
	g.Expect(names(Without(out, "b"))).To(Equal([]string{"a", "c"}))
}

func TestExtraArgumentsReplaceTheFlagsThatTheyRepeat(t *testing.T) {
	for name, tc := range map[string]struct{ args, extra, want []string }{
		"nothing extra":         {[]string{"--a=1", "b"}, nil, []string{"--a=1", "b"}},
		"another flag":          {[]string{"--a=1"}, []string{"--b=2"}, []string{"--a=1", "--b=2"}},
		"the same flag":         {[]string{"--a=1", "--b=2"}, []string{"--a=3"}, []string{"--b=2", "--a=3"}},
		"one dash for two":      {[]string{"-v=2"}, []string{"--v=4"}, []string{"--v=4"}},
		"a value behind":        {[]string{"--a", "1", "--b"}, []string{"--a=2"}, []string{"--b", "--a=2"}},
		"an extra value behind": {[]string{"--a=1"}, []string{"--a", "2"}, []string{"--a", "2"}},
		"a prefix of a flag":    {[]string{"--node-ip=1"}, []string{"--node=2"}, []string{"--node-ip=1", "--node=2"}},
		"an empty value":        {[]string{"--a=1"}, []string{"--a="}, []string{"--a="}},
		"a list of the same":    {[]string{"--a=1"}, []string{"--a=2", "--a=3"}, []string{"--a=2", "--a=3"}},
		"words":                 {[]string{"run"}, []string{"run"}, []string{"run", "run"}},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(MergeArgs(tc.args, tc.extra)).To(Equal(tc.want))
		})
	}
}
