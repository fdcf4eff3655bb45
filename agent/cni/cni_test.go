package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/services"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// given returns a Run on a machine that has a pod network of a type, and kube-proxy.
func given(m *sim.Machine, cni nodev1.CNIType, change func(*nodev1.NodeConfiguration)) *engine.Run {
	doc := &nodev1.NodeConfiguration{
		Cluster: nodev1.ClusterInfo{KubernetesVersion: "v1.36.3"}, Node: nodev1.NodeInfo{Name: "win-1"},
		Services: nodev1.ServicesInfo{
			CNI:       &nodev1.CNI{Type: cni, PodCIDR: "10.244.0.0/16", ServiceCIDR: "10.96.0.0/12"},
			KubeProxy: &nodev1.KubeProxy{},
		},
	}
	if change != nil {
		change(doc)
	}
	doc.Default()
	facts := &engine.Facts{NodeIPs: []string{"10.0.0.10"}, ClusterDNS: []string{"10.96.0.10"}, ClusterDomain: "cluster.local"}
	return engine.NewRun(m.Host(), doc, facts, func(context.Context) error { return nil })
}

// onMachine runs a test on a machine with power.
func onMachine(t *testing.T, test func(g *WithT, m *sim.Machine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := sim.New(sim.Options{})
		defer m.PowerOff()
		m.PowerOn(t.Context())
		test(NewWithT(t), m)
	})
}

// conf returns the CNI configuration of a type as a program would read it.
func conf(g *WithT, files []file, path string) map[string]any {
	for _, f := range files {
		if f.path == path {
			g.Expect(f.content).NotTo(ContainElement(byte('\r')), "containerd takes a changed line end for a change")
			out := map[string]any{}
			g.Expect(json.Unmarshal(f.content, &out)).To(Succeed())
			return out
		}
	}
	g.Expect(files).To(ContainElement(HaveField("path", path)))
	return nil
}

func TestFlannelTellsThePluginBelowWhereItsNetworkIs(t *testing.T) {
	for _, tc := range []struct {
		cni             nodev1.CNIType
		network, plugin string
		backend         map[string]any
		routes          int
	}{
		{nodev1.CNIFlannelHostGateway, "cbr0", "win-bridge", map[string]any{"Type": "host-gw", "Name": "cbr0"}, 2},
		{nodev1.CNIFlannelOverlay, "flannel.4096", "win-overlay", map[string]any{"Type": "vxlan", "Name": "flannel.4096", "VNI": 4096.0, "Port": 4789.0}, 1},
	} {
		t.Run(string(tc.cni), func(t *testing.T) {
			onMachine(t, func(g *WithT, m *sim.Machine) {
				files, err := staticFiles(given(m, tc.cni, nil))
				g.Expect(err).NotTo(HaveOccurred())
				net := conf(g, files, services.FlannelNetConf)
				g.Expect(net).To(Equal(map[string]any{"Network": "10.244.0.0/16", "Backend": tc.backend}))
				c := conf(g, files, `C:\etc\cni\net.d\10-flannel.conf`)
				g.Expect(c).To(HaveKeyWithValue("name", tc.network), "the plug-in finds the network by it")
				g.Expect(c).To(HaveKeyWithValue("type", "flannel"))
				g.Expect(c).To(HaveKeyWithValue("subnetFile", services.FlannelSubnetEnv))
				delegate := c["delegate"].(map[string]any)
				g.Expect(delegate).To(HaveKeyWithValue("type", tc.plugin))
				g.Expect(delegate).To(HaveKeyWithValue("apiVersion", 2.0))
				g.Expect(delegate).NotTo(Or(HaveKey("name"), HaveKey("ipam")), "flannel refuses them")
				g.Expect(delegate["dns"]).To(Equal(map[string]any{"nameservers": []any{"10.96.0.10"}, "search": []any{"svc.cluster.local"}}))
				g.Expect(delegate["policies"]).To(HaveLen(1 + tc.routes))
			})
		})
	}
}

func TestOVNsConfigurationIsTheOneThatTheNetworkPluginsShow(t *testing.T) {
	g := NewWithT(t)
	o := &nodev1.CNI{Type: nodev1.CNIOVNHybridOverlay, ServiceCIDR: "172.30.0.0/16", ConfDir: `C:\etc\cni\net.d`}
	files, err := ovnFile(o, "10.132.0.0/24", "10.0.133.170")
	g.Expect(err).NotTo(HaveOccurred())
	// The meaning of sample-v2.conf of win-overlay in containernetworking/plugins.
	want := map[string]any{}
	sample, err := os.ReadFile(filepath.Join("testdata", "win-overlay.json"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(json.Unmarshal(sample, &want)).To(Succeed())
	g.Expect(conf(g, files, `C:\etc\cni\net.d\10-ovn-hybrid-overlay.conf`)).To(Equal(want))
}

func TestCalicoAndAntreaHaveTheirConfiguration(t *testing.T) {
	onMachine(t, func(g *WithT, m *sim.Machine) {
		files, err := staticFiles(given(m, nodev1.CNICalico, nil))
		g.Expect(err).NotTo(HaveOccurred())
		c := conf(g, files, `C:\etc\cni\net.d\10-calico.conf`)
		g.Expect(c).To(HaveKeyWithValue("nodename_file", `C:\CalicoWindows\nodename`))
		g.Expect(c).To(HaveKeyWithValue("mode", "vxlan"))
		g.Expect(c["kubernetes"]).To(HaveKeyWithValue("kubeconfig", `C:\etc\kubernetes\kubelet.conf`))
		g.Expect(c["policies"]).To(HaveLen(2))

		files, err = staticFiles(given(m, nodev1.CNIAntrea, nil))
		g.Expect(err).NotTo(HaveOccurred())
		c = conf(g, files, `C:\etc\cni\net.d\10-antrea.conflist`)
		g.Expect(c["plugins"]).To(HaveLen(1))
	})
}

func TestAPodNetworkThatCannotBeIsRefusedBeforeItsServiceStarts(t *testing.T) {
	for name, tc := range map[string]struct {
		cni    nodev1.CNIType
		change func(*nodev1.CNI)
	}{
		"no pod range":        {nodev1.CNIFlannelHostGateway, func(c *nodev1.CNI) { c.PodCIDR = "" }},
		"no service range":    {nodev1.CNICalico, func(c *nodev1.CNI) { c.ServiceCIDR = "" }},
		"half a range":        {nodev1.CNIOVNHybridOverlay, func(c *nodev1.CNI) { c.ServiceCIDR = "10.96.0.0" }},
		"another VXLAN port":  {nodev1.CNIFlannelOverlay, func(c *nodev1.CNI) { c.Port = 8472 }},
		"Linux' usual number": {nodev1.CNIFlannelOverlay, func(c *nodev1.CNI) { c.VNI = 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			onMachine(t, func(g *WithT, m *sim.Machine) {
				err := Configure(t.Context(), given(m, tc.cni, func(doc *nodev1.NodeConfiguration) { tc.change(doc.Services.CNI) }))
				g.Expect(code(err)).To(Equal(codes.PodNetworkInvalid), "%v", err)
				g.Expect(codes.Lookup(codes.PodNetworkInvalid).Class).To(Equal(codes.Terminal))
			})
		})
	}
}

func code(err error) codes.Code {
	if err == nil {
		return ""
	}
	info, _ := codes.Of(err)
	return info.Code
}

func TestConfigurationThatIsRightIsNotWrittenAgain(t *testing.T) {
	onMachine(t, func(g *WithT, m *sim.Machine) {
		r := given(m, nodev1.CNIFlannelOverlay, nil)
		g.Expect(Configure(t.Context(), r)).To(Succeed())
		writes := 0
		m.SetInject(func(c sim.Call) sim.Fault {
			if c.Op == "Files.Write" {
				writes++
			}
			return sim.Fault{}
		})
		g.Expect(Configure(t.Context(), r)).To(Succeed())
		g.Expect(writes).To(BeZero())
		m.WriteFile(`C:\etc\cni\net.d\10-flannel.conf`, "{}")
		g.Expect(Configure(t.Context(), r)).To(Succeed())
		g.Expect(writes).To(Equal(1))
	})
}

// network makes an HNS network as a CNI would.
func network(ctx context.Context, g *WithT, r *engine.Run, name, kind string) string {
	n, err := r.Host.HNS.CreateNetwork(ctx, []byte(`{"Name":"`+name+`","Type":"`+kind+`","SchemaVersion":{"Major":2},`+
		`"Ipams":[{"Subnets":[{"IpAddressPrefix":"10.244.3.0/24"}]}]}`))
	g.Expect(err).NotTo(HaveOccurred())
	return n.ID
}

func proxyConfig(g *WithT, m *sim.Machine) string {
	content, err := m.ReadFile(services.KubeProxyConfig)
	g.Expect(err).NotTo(HaveOccurred())
	return string(content)
}

func TestKubeProxyWaitsForItsNetworkAndTakesAnAddressInAnOverlay(t *testing.T) {
	onMachine(t, func(g *WithT, m *sim.Machine) {
		ctx, r := t.Context(), given(m, nodev1.CNIFlannelOverlay, nil)
		err := PrepareKubeProxy(ctx, r)
		g.Expect(code(err)).To(Equal(codes.PodNetworkMissing))
		g.Expect(Waiting(err)).To(BeTrue())

		id := network(ctx, g, r, "flannel.4096", "Overlay")
		for range 2 {
			g.Expect(PrepareKubeProxy(ctx, r)).To(Succeed())
		}
		g.Expect(r.Host.HNS.Endpoints(ctx, id)).To(HaveLen(1))
		vip := r.Facts.SourceVIP
		g.Expect(vip).To(HavePrefix("10.244.3."))
		g.Expect(proxyConfig(g, m)).To(And(ContainSubstring("sourceVip: "+vip), ContainSubstring("networkName: flannel.4096")))
		reserved, err := m.ReadFile(`C:\var\lib\cni\networks\flannel.4096\` + vip)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(bytes.Split(reserved, []byte("\r\n"))).To(HaveLen(2), "who has it, and the interface")

		// A boot: the network is made anew.
		g.Expect(r.Host.HNS.DeleteNetwork(ctx, id)).To(Succeed())
		id = network(ctx, g, r, "flannel.4096", "Overlay")
		_, err = r.Host.HNS.CreateEndpoint(ctx, id, []byte(`{"Name":"pod","SchemaVersion":{"Major":2},"IpConfigurations":[{"IpAddress":"10.244.3.9"}]}`))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(PrepareKubeProxy(ctx, r)).To(Succeed())
		g.Expect(r.Facts.SourceVIP).To(Equal(vip), "it is the same as before")
	})
}

func TestAnEndpointThatKubeProxyMadeItselfIsTaken(t *testing.T) {
	onMachine(t, func(g *WithT, m *sim.Machine) {
		ctx, r := t.Context(), given(m, nodev1.CNIFlannelOverlay, nil)
		r.Facts.SourceVIP = "10.244.3.77"
		id := network(ctx, g, r, "flannel.4096", "Overlay")
		_, err := r.Host.HNS.CreateEndpoint(ctx, id, []byte(`{"SchemaVersion":{"Major":2},"IpConfigurations":[{"IpAddress":"10.244.3.77"}]}`))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(PrepareKubeProxy(ctx, r)).To(Succeed())
		g.Expect(r.Facts.SourceVIP).To(Equal("10.244.3.77"))
		g.Expect(r.Host.HNS.Endpoints(ctx, id)).To(HaveLen(1))
	})
}

func TestAnAddressThatAPodHasIsGivenUp(t *testing.T) {
	onMachine(t, func(g *WithT, m *sim.Machine) {
		ctx, r := t.Context(), given(m, nodev1.CNIFlannelOverlay, nil)
		id := network(ctx, g, r, "flannel.4096", "Overlay")
		m.WriteFile(`C:\var\lib\cni\networks\flannel.4096\10.244.3.2`, "pod\r\neth0") // reserved, its endpoint is still to be made
		g.Expect(code(PrepareKubeProxy(ctx, r))).To(Equal(codes.SourceVIPNotTaken))
		g.Expect(r.Host.HNS.Endpoints(ctx, id)).To(BeEmpty())
		_, err := r.Host.HNS.CreateEndpoint(ctx, id, []byte(`{"Name":"pod","SchemaVersion":{"Major":2},"IpConfigurations":[{"IpAddress":"10.244.3.2"}]}`))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(PrepareKubeProxy(ctx, r)).To(Succeed())
		g.Expect(r.Facts.SourceVIP).To(Equal("10.244.3.3"))
	})
}

func TestNoAddressIsTakenWhereNoneIsNeeded(t *testing.T) {
	onMachine(t, func(g *WithT, m *sim.Machine) {
		ctx := t.Context()
		r := given(m, nodev1.CNIFlannelHostGateway, nil)
		id := network(ctx, g, r, "cbr0", "L2Bridge")
		g.Expect(PrepareKubeProxy(ctx, r)).To(Succeed())
		g.Expect(proxyConfig(g, m)).NotTo(ContainSubstring("sourceVip"))
		g.Expect(r.Host.HNS.Endpoints(ctx, id)).To(BeEmpty())

		r = given(m, nodev1.CNIFlannelOverlay, func(doc *nodev1.NodeConfiguration) { doc.Services.KubeProxy.SourceVIP = "10.244.3.200" })
		id = network(ctx, g, r, "flannel.4096", "Overlay")
		g.Expect(PrepareKubeProxy(ctx, r)).To(Succeed())
		g.Expect(proxyConfig(g, m)).To(ContainSubstring("sourceVip: 10.244.3.200"))
		g.Expect(r.Host.HNS.Endpoints(ctx, id)).To(BeEmpty())
	})
}

func TestCalicosOwnEndpointGivesTheAddress(t *testing.T) {
	onMachine(t, func(g *WithT, m *sim.Machine) {
		ctx, r := t.Context(), given(m, nodev1.CNICalico, nil)
		g.Expect(Deferred(r.Doc)).To(BeTrue())
		id := network(ctx, g, r, "Calico", "Overlay")
		g.Expect(Waiting(PrepareKubeProxy(ctx, r))).To(BeTrue())
		_, err := r.Host.HNS.CreateEndpoint(ctx, id, []byte(`{"Name":"Calico_ep","SchemaVersion":{"Major":2},"IpConfigurations":[{"IpAddress":"10.244.3.66"}]}`))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(PrepareKubeProxy(ctx, r)).To(Succeed())
		g.Expect(proxyConfig(g, m)).To(ContainSubstring("sourceVip: 10.244.3.66"))
	})
}

func TestKubeProxyNeedsANetworkByName(t *testing.T) {
	onMachine(t, func(g *WithT, m *sim.Machine) {
		r := given(m, "", func(doc *nodev1.NodeConfiguration) { doc.Services.CNI = nil })
		g.Expect(code(PrepareKubeProxy(t.Context(), r))).To(Equal(codes.ServiceInvalid))
	})
}
