package hostprep

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

func openFirewall(ctx context.Context, r *engine.Run) error {
	for _, rule := range firewallRules(r.Doc) {
		if err := r.Trace(ctx, engine.Trace{Kind: engine.TraceFirewall, Name: rule.Name}); err != nil {
			return fmt.Errorf("remembering the firewall rule %q: %w", rule.Name, err)
		}
		if err := r.Host.Firewall.Apply(ctx, rule); err != nil {
			return refused(err, codes.FirewallRefused, codes.FirewallNotConfigured, "making the firewall rule %q", rule.Name)
		}
	}
	return nil
}

// firewallRules returns the rules that the node's programs need, and the document's. Node ports need none: kube-proxy has HNS
// pass them on below the firewall.
func firewallRules(doc *nodev1.NodeConfiguration) []host.FirewallRule {
	tcp := func(name, program string, port int32) host.FirewallRule {
		return host.FirewallRule{Name: name, Protocol: "TCP", Ports: []string{strconv.Itoa(int(port))}, Program: program}
	}
	out := []host.FirewallRule{tcp("CAPW kubelet", doc.Kubelet.Path, kubeletPort(doc))}
	if e := doc.Services.WindowsExporter; e != nil {
		out = append(out, tcp("CAPW windows_exporter", e.Path, e.Port))
	}
	if cni := doc.Services.CNI; cni != nil && (cni.Type == nodev1.CNIFlannelOverlay || cni.Type == nodev1.CNIOVNHybridOverlay) {
		// VXLAN comes in at the kernel, for no program.
		out = append(out, host.FirewallRule{Name: "CAPW VXLAN", Protocol: "UDP", Ports: []string{strconv.Itoa(int(cni.Port))}})
	}
	for _, r := range doc.OS.Firewall {
		out = append(out, host.FirewallRule(r))
	}
	return out
}

// kubeletPort returns the port that the kubelet serves at. What cannot be read fails where the configuration is written.
func kubeletPort(doc *nodev1.NodeConfiguration) int32 {
	config := struct {
		Port int32 `json:"port"`
	}{}
	if doc.Kubelet.Config != nil {
		_ = json.Unmarshal(doc.Kubelet.Config.Raw, &config)
	}
	if config.Port == 0 {
		return 10250
	}
	return config.Port
}

// setDynamicPorts widens the range of outgoing ports: HNS reserves blocks in it for the ports of pods, until connections of the
// host find none any more (Azure/AKS issue 1375).
func setDynamicPorts(ctx context.Context, r *engine.Run) error {
	want := r.Doc.OS.DynamicPorts
	start, count, err := r.Host.Network.DynamicPorts(ctx)
	if err != nil {
		return codes.New(codes.HostUnreadable, "reading the range of dynamic ports: %w", err)
	}
	if int32(start) == want.Start && int32(count) == want.Count {
		return nil
	}
	if want.Start < 0 || want.Start > 65535 || want.Count < 0 || want.Count > 65535 {
		return codes.New(codes.DynamicPortsRefused, "%d ports from %d: there are 65535 ports", want.Count, want.Start)
	}
	if err := r.Host.Network.SetDynamicPorts(ctx, uint16(want.Start), uint16(want.Count)); err != nil {
		return refused(err, codes.DynamicPortsRefused, codes.DynamicPortsNotSet, "setting %d dynamic ports from %d", want.Count, want.Start)
	}
	return nil
}
