package services

import (
	"cmp"
	"context"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
)

// ConfigureExporter writes the configuration of windows_exporter's server, where it has one.
func ConfigureExporter(ctx context.Context, r *engine.Run) error {
	content, err := exporterWebConfig(r)
	if content == nil || err != nil {
		return err
	}
	// The exporter reads it with every connection: no restart is needed.
	if _, err := WriteFile(ctx, r, ExporterWebConfig, content); err != nil {
		return codes.New(codes.ServiceFileNotMade, "configuring windows_exporter: %w", err)
	}
	return nil
}

// webConfig is the configuration file of Prometheus exporters (exporter-toolkit, docs/web-configuration.md).
type webConfig struct {
	TLSServerConfig struct {
		CertFile string `json:"cert_file"`
		KeyFile  string `json:"key_file"`
	} `json:"tls_server_config"`
}

func exporterWebConfig(r *engine.Run) ([]byte, error) {
	o := r.Doc.Services.WindowsExporter
	if o == nil || o.TLS == "None" {
		return nil, nil
	}
	var c webConfig
	c.TLSServerConfig.CertFile, c.TLSServerConfig.KeyFile = o.TLSCertFile, o.TLSKeyFile
	if o.TLS == "Kubelet" { // one file holds both, and the kubelet renews it
		c.TLSServerConfig.CertFile, c.TLSServerConfig.KeyFile = layout.KubeletServerCert, layout.KubeletServerCert
	}
	return encode(c)
}

// proxyConfiguration is the part of KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1) that a Windows node sets.
type proxyConfiguration struct {
	APIVersion       string          `json:"apiVersion"`
	Kind             string          `json:"kind"`
	FeatureGates     map[string]bool `json:"featureGates,omitempty"`
	ClientConnection struct {
		Kubeconfig string `json:"kubeconfig"`
	} `json:"clientConnection"`
	HostnameOverride string `json:"hostnameOverride"`
	Mode             string `json:"mode"`
	ClusterCIDR      string `json:"clusterCIDR,omitempty"`
	Winkernel        struct {
		NetworkName string `json:"networkName"`
		SourceVIP   string `json:"sourceVip,omitempty"`
		EnableDSR   bool   `json:"enableDSR"`
	} `json:"winkernel"`
}

// ConfigureKubeProxy writes kube-proxy's configuration by the facts. kube-proxy reads it when it starts, so one that has
// another is stopped first: after a crash between the two, one that runs has the file that is there.
func ConfigureKubeProxy(ctx context.Context, r *engine.Run) error {
	content, err := kubeProxyConfig(r)
	if err != nil {
		return err
	}
	if have, err := r.Host.Files.Read(ctx, KubeProxyConfig); err == nil && string(have) != string(content) {
		if err := r.Host.Services.Stop(ctx, KubeProxy); err != nil && !isNotFound(err) {
			return codes.New(codes.ServiceNotStopped, "stopping service %s to give it another configuration: %w", KubeProxy, err)
		}
	}
	if _, err := WriteFile(ctx, r, KubeProxyConfig, content); err != nil {
		return codes.New(codes.ServiceFileNotMade, "configuring kube-proxy: %w", err)
	}
	return nil
}

func kubeProxyConfig(r *engine.Run) ([]byte, error) {
	o := r.Doc.Services.KubeProxy
	c := proxyConfiguration{
		APIVersion:       "kubeproxy.config.k8s.io/v1alpha1",
		Kind:             "KubeProxyConfiguration",
		FeatureGates:     maps.Clone(o.FeatureGates),
		HostnameOverride: r.Doc.Node.Name,
		Mode:             "kernelspace",
		ClusterCIDR:      o.ClusterCIDR,
	}
	c.ClientConnection.Kubeconfig = o.Kubeconfig
	c.Winkernel.NetworkName = NetworkName(r.Doc)
	c.Winkernel.SourceVIP = cmp.Or(o.SourceVIP, r.Facts.SourceVIP)
	c.Winkernel.EnableDSR = o.DirectServerReturn == "Enabled"
	// From 1.34 on the gate is always on, and one day it will be unknown.
	if v, err := version.ParseSemantic(r.Doc.Cluster.KubernetesVersion); err == nil && v.LessThan(version.MajorMinor(1, 34)) && c.Winkernel.EnableDSR {
		if c.FeatureGates == nil {
			c.FeatureGates = map[string]bool{}
		}
		if _, ok := c.FeatureGates["WinDSR"]; !ok {
			c.FeatureGates["WinDSR"] = true
		}
	}
	return encode(c)
}

func encode(v any) ([]byte, error) {
	raw, err := yaml.Marshal(v)
	if err != nil {
		return nil, codes.New(codes.Internal, "encoding a configuration: %w", fmt.Errorf("%T: %w", v, err))
	}
	return raw, nil
}
