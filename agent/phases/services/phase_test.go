package services

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim/faultloop"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim/simkubelet"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/phasetest"
	"github.com/capw-dev/cluster-api-provider-windows/agent/runner"
	"github.com/capw-dev/cluster-api-provider-windows/agent/services"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// image returns a machine whose agent runs and that has all programs.
func image() sim.Options {
	return sim.Options{
		Services: []host.Service{{Name: layout.AgentService, Argv: []string{layout.Agent, "run"}, Start: host.StartAuto}},
		Programs: map[string]sim.Program{
			layout.Agent: func(ctx context.Context, p *sim.Process) int {
				if _, _, ok := runner.Unwrap(p.Argv); ok {
					return simkubelet.Runner(ctx, p)
				}
				return simkubelet.Idle(ctx, p)
			},
			layout.Containerd:             simkubelet.Idle,
			layout.Kubelet:                simkubelet.Idle,
			`C:\k\flanneld.exe`:           makesNetwork("flannel.4096", "Overlay"),
			`C:\k\kube-proxy.exe`:         needsConfig,
			`C:\k\csi-proxy.exe`:          simkubelet.Idle,
			`C:\k\windows_exporter.exe`:   simkubelet.Idle,
			`C:\k\antrea\bin\x.exe`:       simkubelet.Idle,
			`C:\tools\agent.exe`:          simkubelet.Idle,
			`C:\Windows\System32\cmd.exe`: func(context.Context, *sim.Process) int { return 0 },
		},
	}
}

// makesNetwork is a CNI's service: it makes its HNS network when it starts.
func makesNetwork(name, kind string) sim.Program {
	return func(ctx context.Context, p *sim.Process) int {
		networks, err := p.Host.HNS.Networks(ctx)
		if err != nil {
			return 1
		}
		for _, n := range networks {
			if n.Name == name {
				return simkubelet.Idle(ctx, p)
			}
		}
		_, err = p.Host.HNS.CreateNetwork(ctx, []byte(`{"Name":"`+name+`","Type":"`+kind+`","SchemaVersion":{"Major":2},`+
			`"Ipams":[{"Subnets":[{"IpAddressPrefix":"10.244.3.0/24"}]}]}`))
		if err != nil {
			return 1
		}
		return simkubelet.Idle(ctx, p)
	}
}

// needsConfig is kube-proxy: without a source VIP it ends.
func needsConfig(ctx context.Context, p *sim.Process) int {
	config, err := p.Host.Files.Read(ctx, services.KubeProxyConfig)
	if err != nil || !strings.Contains(string(config), "sourceVip: 10.244.3.") {
		return 1
	}
	return simkubelet.Idle(ctx, p)
}

// afterJoin is the phase as it finds things after the join.
func afterJoin() engine.Phase {
	phase := Phase()
	phase.Steps = append([]engine.Step{{Name: "join", Budget: engine.Retry(time.Minute, time.Second, time.Hour), Do: func(_ context.Context, r *engine.Run) error {
		r.Facts.KubeletArgs = []string{"--windows-service"}
		r.Facts.NodeIPs = []string{"10.0.0.10"}
		r.Facts.ClusterDNS = []string{"10.96.0.10"}
		return nil
	}}}, phase.Steps...)
	return phase
}

func overlay(doc *nodev1.NodeConfiguration) {
	doc.Services = nodev1.ServicesInfo{
		CNI:             &nodev1.CNI{Type: nodev1.CNIFlannelOverlay, PodCIDR: "10.244.0.0/16", ServiceCIDR: "10.96.0.0/12"},
		KubeProxy:       &nodev1.KubeProxy{},
		CSIProxy:        &nodev1.ServiceOptions{},
		WindowsExporter: &nodev1.WindowsExporter{},
		Additional: []nodev1.AdditionalService{
			{Name: "tool", ServiceOptions: nodev1.ServiceOptions{Path: `C:\tools\agent.exe`}, DependsOn: []string{"kube-proxy"}, Kind: "Service"},
		},
	}
	doc.PostJoinCommands = []nodev1.Command{{Args: []string{`C:\Windows\System32\cmd.exe`, "/c", "ver"}}}
}

func running(m *sim.Machine) []string {
	var out []string
	for name := range m.Services() {
		if m.ServiceStatus(name).State == host.ServiceRunning {
			out = append(out, name)
		}
	}
	return out
}

func TestAllServicesOfANodeRunInTheEnd(t *testing.T) {
	doc := phasetest.Document(overlay)
	phasetest.Test(t, image(), doc, afterJoin(), func(m *sim.Machine, r phasetest.Result, err error) {
		g := NewWithT(t)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(running(m)).To(ConsistOf("capw-node", "containerd", "kubelet", "flanneld", "kube-proxy", "csi-proxy", "tool"))
		g.Expect(m.Services()).To(HaveKey("windows_exporter"), "it starts once the kubelet has a serving certificate")
		g.Expect(r.Facts.SourceVIP).To(HavePrefix("10.244.3."))
		g.Expect(r.Facts.HNSNetwork).To(Equal("flannel.4096"))
		g.Expect(r.Facts.RanCommands).To(Equal([]string{"postJoin/0"}))
		for _, name := range []string{"containerd", "kubelet", "flanneld", "kube-proxy", "csi-proxy", "windows_exporter", "tool"} {
			g.Expect(r.Facts.Traces).To(ContainElement(engine.Trace{Kind: engine.TraceService, Name: name}))
		}
	})
}

func TestAnInterruptedPhaseEndsAsAnUndisturbedOne(t *testing.T) {
	faultloop.Loop(t, func(ctx context.Context, inject func(sim.Call) sim.Fault) (sim.Snapshot, error) {
		o := image()
		o.Inject = inject
		o.Files = map[string]string{layout.KubeletServerCert: "certificate and key"}
		m := sim.New(o)
		defer m.PowerOff()
		_, err := phasetest.Run(ctx, m, phasetest.Document(func(doc *nodev1.NodeConfiguration) {
			overlay(doc)
			doc.PostJoinCommands = nil // one that fails ends the first boot
		}), afterJoin())
		time.Sleep(10 * time.Minute) // the SCM restarts what a fault has killed
		return m.Snapshot(), err
	}, faultloop.Options{
		Same: 2,
		Ignore: func(key string) bool {
			return strings.HasPrefix(key, "file "+layout.StateDir) || strings.HasPrefix(key, "file "+layout.LogDir)
		},
		Only:   func(c sim.Call) bool { return c.Program == "" }, // the agent's, not those of the services
		Storms: 30,
	})
}

func TestAServiceThatDoesNotStartIsNamed(t *testing.T) {
	o := image()
	o.Programs[`C:\tools\agent.exe`] = func(context.Context, *sim.Process) int { return 3 }
	phasetest.Test(t, o, phasetest.Document(overlay), afterJoin(), func(_ *sim.Machine, _ phasetest.Result, err error) {
		g := NewWithT(t)
		g.Expect(phasetest.Code(err)).To(Equal(codes.ServiceNotStarted))
		g.Expect(err).To(MatchError(And(ContainSubstring("tool"), ContainSubstring("exit code 3"))))
	})
}

func TestAPodNetworkThatNeverComesIsNamed(t *testing.T) {
	o := image()
	o.Programs[`C:\k\flanneld.exe`] = simkubelet.Idle
	phasetest.Test(t, o, phasetest.Document(overlay), afterJoin(), func(_ *sim.Machine, _ phasetest.Result, err error) {
		g := NewWithT(t)
		g.Expect(phasetest.Code(err)).To(Equal(codes.PodNetworkMissing))
		g.Expect(err).To(MatchError(ContainSubstring("flannel.4096")))
	})
}

func TestANetworkThatComesWithPodsKeepsNoNodeFromBeingReady(t *testing.T) {
	doc := phasetest.Document(func(doc *nodev1.NodeConfiguration) {
		doc.Services.KubeProxy = &nodev1.KubeProxy{NetworkName: "Calico"}
	})
	phasetest.Test(t, image(), doc, afterJoin(), func(m *sim.Machine, _ phasetest.Result, err error) {
		g := NewWithT(t)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(running(m)).To(ConsistOf("capw-node", "containerd", "kubelet"))
		g.Expect(m.Services()).To(HaveKey("kube-proxy"))
	})
}

func TestWithoutServicesThePhaseOnlyLooksAtKubeletAndContainerd(t *testing.T) {
	phasetest.Test(t, image(), phasetest.Document(nil), afterJoin(), func(m *sim.Machine, r phasetest.Result, err error) {
		g := NewWithT(t)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(running(m)).To(ConsistOf("capw-node", "containerd", "kubelet"))
		g.Expect(r.Facts.HNSNetwork).To(BeEmpty())
	})
}

func TestOVNsNetworkIsCompletedByTheNodesAnnotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		c := newCluster(t)
		o := image()
		o.Dial = c.DialContext
		o.Files = c.identity(g)
		o.Programs[`C:\k\hybrid-overlay-node.exe`] = func(ctx context.Context, p *sim.Process) int {
			time.Sleep(time.Minute)
			c.SetNode(node(map[string]string{"k8s.ovn.org/hybrid-overlay-node-subnet": "10.244.3.0/24"}))
			time.Sleep(time.Minute)
			return makesNetwork("OVNKubernetesHybridOverlayNetwork", "Overlay")(ctx, p)
		}
		c.SetNode(node(nil))
		m := sim.New(o)
		defer m.PowerOff()
		began := time.Now()
		r, err := phasetest.Run(t.Context(), m, phasetest.Document(func(doc *nodev1.NodeConfiguration) {
			doc.Services.CNI = &nodev1.CNI{Type: nodev1.CNIOVNHybridOverlay, ServiceCIDR: "10.96.0.0/12"}
			doc.Services.KubeProxy = &nodev1.KubeProxy{}
		}), afterJoin())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(time.Since(began)).To(BeNumerically("<", 4*time.Minute))
		conf, err := m.ReadFile(`C:\etc\cni\net.d\10-ovn-hybrid-overlay.conf`)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(conf)).To(And(ContainSubstring(`"10.244.3.0/24"`), ContainSubstring(`"ProviderAddress": "10.0.0.10"`)))
		g.Expect(r.Facts.PodCIDR).To(Equal("10.244.3.0/24"))
		g.Expect(running(m)).To(ContainElements("hybrid-overlay-node", "kube-proxy"))
	})
}

func node(annotations map[string]string) *corev1.Node {
	n := &corev1.Node{}
	n.Name, n.Annotations = "prod-ki54itvck1", annotations
	return n
}
