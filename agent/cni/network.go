package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"

	"github.com/capw-dev/cluster-api-provider-windows/agent/apiclient"
	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/services"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

const (
	// subnetAnnotation is where OVN-Kubernetes tells a node of the hybrid overlay its subnet.
	subnetAnnotation = "k8s.ovn.org/hybrid-overlay-node-subnet"
	// vipName is our endpoint; its address is kube-proxy's source VIP. calicoVIPName is the one that Calico's plug-in makes.
	vipName       = "capw-source-vip"
	calicoVIPName = "Calico_ep"
	// hostLocalDir is where the plug-in host-local keeps a file per address that is taken.
	hostLocalDir = `C:\var\lib\cni\networks`
)

// Configure writes the configuration of the pod network that does not depend on its service; all but that of the OVN hybrid
// overlay. Errors: codes.PodNetworkInvalid, codes.PodNetworkNotWritten.
func Configure(ctx context.Context, r *engine.Run) error {
	if r.Doc.Services.CNI == nil {
		return nil
	}
	files, err := staticFiles(r)
	if err != nil {
		return err
	}
	return write(ctx, r, files)
}

func write(ctx context.Context, r *engine.Run, files []file) error {
	for _, f := range files {
		if _, err := services.WriteFile(ctx, r, f.path, f.content); err != nil {
			return codes.New(codes.PodNetworkNotWritten, "configuring the pod network: %w", err)
		}
	}
	return nil
}

// Complete writes the configuration of the OVN hybrid overlay once the cluster has given the node its subnet, and the
// network's service has made the network. It does nothing for others. Errors: codes.NodeSubnetMissing,
// codes.PodNetworkMissing, codes.PodNetworkNotWritten.
func Complete(ctx context.Context, r *engine.Run) error {
	o := r.Doc.Services.CNI
	if o == nil || o.Type != nodev1.CNIOVNHybridOverlay {
		return nil
	}
	subnet, err := hybridSubnet(ctx, r)
	if err != nil {
		return err
	}
	network, err := find(ctx, r, networkName(o))
	if err != nil {
		return err
	}
	if !slices.Contains(network.Subnets, subnet) || network.ManagementIP == "" {
		return codes.New(codes.PodNetworkMissing, "the HNS network %s is of subnets %v with host address %q, not yet of the node's %s",
			network.Name, network.Subnets, network.ManagementIP, subnet)
	}
	files, err := ovnFile(o, subnet, network.ManagementIP)
	if err != nil {
		return err
	}
	if err := write(ctx, r, files); err != nil {
		return err
	}
	return remember(ctx, r, func(f *engine.Facts) { f.PodCIDR = subnet })
}

// hybridSubnet returns the node's subnet, read with the node's own identity.
func hybridSubnet(ctx context.Context, r *engine.Run) (string, error) {
	client, err := apiclient.ForNode(ctx, r.Host)
	if err != nil {
		return "", codes.New(codes.NodeSubnetMissing, "using the node's identity: %w", err)
	}
	defer client.Close()
	node, err := client.Node(ctx, r.Doc.Node.Name)
	if err != nil {
		return "", codes.New(codes.NodeSubnetMissing, "%w", err)
	}
	subnet := node.Annotations[subnetAnnotation]
	if _, err := netip.ParsePrefix(subnet); err != nil {
		return "", codes.New(codes.NodeSubnetMissing, "the Node's annotation %s is %q, which is no address range", subnetAnnotation, subnet)
	}
	return subnet, nil
}

// find returns an HNS network by name.
func find(ctx context.Context, r *engine.Run, name string) (host.HNSNetwork, error) {
	networks, err := r.Host.HNS.Networks(ctx)
	if err != nil {
		return host.HNSNetwork{}, codes.New(codes.PodNetworkMissing, "listing the networks of HNS: %w", err)
	}
	i := slices.IndexFunc(networks, func(n host.HNSNetwork) bool { return n.Name == name })
	if i < 0 {
		return host.HNSNetwork{}, codes.New(codes.PodNetworkMissing, "there is no HNS network %s", name)
	}
	return networks[i], nil
}

// Deferred says whether the network that kube-proxy serves appears only when pods run, so that a first boot must not wait
// for it: Calico's plug-in makes it with the first pod, and one that is not ours may come with a DaemonSet.
func Deferred(doc *nodev1.NodeConfiguration) bool {
	return doc.Services.CNI == nil || doc.Services.CNI.Type == nodev1.CNICalico
}

// PrepareKubeProxy finds the network that kube-proxy serves, takes the source VIP that it needs in an overlay network, and
// writes its configuration. After a boot the address is, if possible, the same. It does nothing if the document has no
// kube-proxy. Errors: codes.PodNetworkMissing, codes.SourceVIPNotTaken, and those of services.ConfigureKubeProxy.
func PrepareKubeProxy(ctx context.Context, r *engine.Run) error {
	o := r.Doc.Services.KubeProxy
	if o == nil {
		return nil
	}
	name := services.NetworkName(r.Doc)
	if name == "" {
		return codes.New(codes.ServiceInvalid, "services.kubeProxy needs networkName, as the document has no pod network")
	}
	network, err := find(ctx, r, name)
	if err != nil {
		return err
	}
	vip := ""
	if strings.EqualFold(network.Type, "Overlay") && o.SourceVIP == "" {
		if vip, err = sourceVIP(ctx, r, network); err != nil {
			return err
		}
	}
	if err := remember(ctx, r, func(f *engine.Facts) { f.HNSNetwork, f.SourceVIP = name, vip }); err != nil {
		return err
	}
	return services.ConfigureKubeProxy(ctx, r)
}

func sourceVIP(ctx context.Context, r *engine.Run, network host.HNSNetwork) (string, error) {
	endpoints, err := r.Host.HNS.Endpoints(ctx, network.ID)
	if err != nil {
		return "", codes.New(codes.SourceVIPNotTaken, "listing the endpoints of %s: %w", network.Name, err)
	}
	calico := r.Doc.Services.CNI != nil && r.Doc.Services.CNI.Type == nodev1.CNICalico
	before := r.Facts.SourceVIP
	i := slices.IndexFunc(endpoints, func(e host.HNSEndpoint) bool {
		if calico {
			return e.Name == calicoVIPName
		}
		// kube-proxy makes the endpoint itself when it starts before us, with the address that it knows.
		return e.Name == vipName || before != "" && e.IP == before
	})
	if i < 0 && calico {
		return "", codes.New(codes.PodNetworkMissing, "the HNS network %s has no endpoint %s yet, which the first pod makes", network.Name, calicoVIPName)
	}
	if i >= 0 && calico {
		return endpoints[i].IP, nil
	}
	var endpoint host.HNSEndpoint
	if i >= 0 {
		endpoint = endpoints[i]
	} else if endpoint, err = createVIP(ctx, r, network, before); err != nil {
		return "", codes.New(codes.SourceVIPNotTaken, "making the endpoint %s in %s: %w", vipName, network.Name, err)
	}
	if err := reserve(ctx, r, network.Name, endpoint); err != nil {
		return "", err
	}
	return endpoint.IP, nil
}

// createVIP makes the endpoint, with the address that it had before if that can be.
func createVIP(ctx context.Context, r *engine.Run, network host.HNSNetwork, before string) (host.HNSEndpoint, error) {
	type address struct {
		IPAddress string `json:"IpAddress"`
	}
	settings := struct {
		Name               string         `json:"Name"`
		HostComputeNetwork string         `json:"HostComputeNetwork"`
		IPConfigurations   []address      `json:"IpConfigurations,omitempty"`
		SchemaVersion      map[string]int `json:"SchemaVersion"`
	}{Name: vipName, HostComputeNetwork: network.ID, SchemaVersion: map[string]int{"Major": 2, "Minor": 0}}
	if within(before, network.Subnets) {
		settings.IPConfigurations = []address{{before}}
	}
	for {
		raw, err := json.Marshal(settings)
		if err != nil {
			return host.HNSEndpoint{}, err
		}
		endpoint, err := r.Host.HNS.CreateEndpoint(ctx, network.ID, raw)
		if err == nil && endpoint.IP == "" {
			err = errors.New("it has no address")
		}
		if err == nil || settings.IPConfigurations == nil || ctx.Err() != nil {
			return endpoint, err
		}
		settings.IPConfigurations = nil
	}
}

func within(ip string, subnets []string) bool {
	addr, err := netip.ParseAddr(ip)
	return err == nil && slices.ContainsFunc(subnets, func(s string) bool {
		prefix, err := netip.ParsePrefix(s)
		return err == nil && prefix.Contains(addr)
	})
}

// reserve keeps host-local, which hands out the addresses of pods and knows nothing of HNS, from giving the address to a pod:
// to it, a file that is named like an address says who has it. If a pod was faster, the endpoint is given up.
func reserve(ctx context.Context, r *engine.Run, network string, e host.HNSEndpoint) error {
	path := layout.Join(hostLocalDir, network, e.IP)
	owner := vipName + "\r\neth0"
	have, err := r.Host.Files.Read(ctx, path)
	switch {
	case err == nil && string(have) == owner:
		return nil
	case err == nil:
		if err := r.Host.HNS.DeleteEndpoint(ctx, e.ID); err != nil {
			return codes.New(codes.SourceVIPNotTaken, "giving up %s, which is a pod's: %w", e.IP, err)
		}
		return codes.New(codes.SourceVIPNotTaken, "%s is a pod's already", e.IP)
	case !errors.Is(err, fs.ErrNotExist):
		return codes.New(codes.SourceVIPNotTaken, "reading %s: %w", path, err)
	}
	if _, err := services.WriteFile(ctx, r, path, []byte(owner)); err != nil {
		return codes.New(codes.SourceVIPNotTaken, "reserving %s: %w", e.IP, err)
	}
	return nil
}

// remember changes facts, durably if they change.
func remember(ctx context.Context, r *engine.Run, change func(*engine.Facts)) error {
	was := *r.Facts
	change(r.Facts)
	if was.PodCIDR == r.Facts.PodCIDR && was.HNSNetwork == r.Facts.HNSNetwork && was.SourceVIP == r.Facts.SourceVIP {
		return nil
	}
	if err := r.Save(ctx); err != nil {
		return fmt.Errorf("remembering the pod network: %w", err)
	}
	return nil
}

// Waiting says whether an error of PrepareKubeProxy or Complete only means that the network is not there yet.
func Waiting(err error) bool {
	info, _ := codes.Of(err)
	return err != nil && (info.Code == codes.PodNetworkMissing || info.Code == codes.NodeSubnetMissing)
}
