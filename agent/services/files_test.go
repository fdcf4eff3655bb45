package services

import (
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

func decode(g *WithT, content []byte, err error) map[string]any {
	g.Expect(err).NotTo(HaveOccurred())
	out := map[string]any{}
	g.Expect(yaml.UnmarshalStrict(content, &out)).To(Succeed())
	return out
}

func TestKubeProxyIsConfiguredForTheKernelAndItsNetwork(t *testing.T) {
	g := NewWithT(t)
	r := given(everything(nodev1.CNIFlannelOverlay))
	r.Facts.SourceVIP = "10.244.3.2"
	content, err := kubeProxyConfig(r)
	g.Expect(decode(g, content, err)).To(Equal(map[string]any{
		"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "kernelspace",
		"hostnameOverride": "win-1", "clusterCIDR": "10.244.0.0/16",
		"clientConnection": map[string]any{"kubeconfig": `C:\etc\kubernetes\kubelet.conf`},
		"winkernel":        map[string]any{"networkName": "flannel.4096", "sourceVip": "10.244.3.2", "enableDSR": true},
	}))
}

func TestTheGateOfDirectServerReturnIsSetWhereItIsKnownAndNeeded(t *testing.T) {
	for name, tc := range map[string]struct {
		version, dsr string
		gates        map[string]bool
		want         any
	}{
		"before 1.34":                    {"v1.33.9", "Enabled", nil, map[string]any{"WinDSR": true}},
		"before 1.34, with others":       {"v1.33.9", "Enabled", map[string]bool{"X": false}, map[string]any{"WinDSR": true, "X": false}},
		"before 1.34, as the user wants": {"v1.33.9", "Enabled", map[string]bool{"WinDSR": false}, map[string]any{"WinDSR": false}},
		"before 1.34, without it":        {"v1.33.9", "Disabled", nil, nil},
		"from 1.34 on":                   {"v1.34.0", "Enabled", nil, nil},
		"much later":                     {"v1.40.1", "Enabled", map[string]bool{"X": true}, map[string]any{"X": true}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := given(func(doc *nodev1.NodeConfiguration) {
				doc.Cluster.KubernetesVersion = tc.version
				doc.Services.KubeProxy = &nodev1.KubeProxy{NetworkName: "x", DirectServerReturn: tc.dsr, FeatureGates: tc.gates}
			})
			content, err := kubeProxyConfig(r)
			c := decode(g, content, err)
			if tc.want == nil {
				g.Expect(c).NotTo(HaveKey("featureGates"))
			} else {
				g.Expect(c["featureGates"]).To(Equal(tc.want))
			}
			g.Expect(c["winkernel"]).To(HaveKeyWithValue("enableDSR", tc.dsr == "Enabled"))
			g.Expect(r.Doc.Services.KubeProxy.FeatureGates).To(Equal(tc.gates), "the document stays as it is")
		})
	}
}

func TestTheExporterServesWithTheCertificateOfTheDocument(t *testing.T) {
	for tls, want := range map[string]any{
		"Kubelet": map[string]any{"cert_file": `C:\var\lib\kubelet\pki\kubelet-server-current.pem`, "key_file": `C:\var\lib\kubelet\pki\kubelet-server-current.pem`},
		"Files":   map[string]any{"cert_file": `C:\tls.crt`, "key_file": `C:\tls.key`},
	} {
		g := NewWithT(t)
		content, err := exporterWebConfig(given(func(doc *nodev1.NodeConfiguration) {
			doc.Services.WindowsExporter = &nodev1.WindowsExporter{TLS: tls, TLSCertFile: `C:\tls.crt`, TLSKeyFile: `C:\tls.key`}
		}))
		g.Expect(decode(g, content, err)).To(Equal(map[string]any{"tls_server_config": want}))
	}
	g := NewWithT(t)
	content, err := exporterWebConfig(given(func(doc *nodev1.NodeConfiguration) {
		doc.Services.WindowsExporter = &nodev1.WindowsExporter{TLS: "None"}
	}))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(content).To(BeNil())
}
