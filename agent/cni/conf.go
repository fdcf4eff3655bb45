// Package cni configures the pod network of a node: the files that the network's service and the CNI plug-ins read, and the
// address that kube-proxy needs in an overlay network.
//
// Files are written as a whole, and only when their content changes: containerd loads a CNI configuration again when it is
// touched, and pods that start at that moment fail.
package cni

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/services"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// flannelDataDir is where flannel's plug-in remembers what it told the one below it.
const flannelDataDir = `C:\var\lib\cni\flannel`

// file is a file to be.
type file struct {
	path    string
	content []byte
}

// netConf is the CNI configuration of the plug-ins that Windows nodes use (containernetworking/cni, SPEC.md, with the fields
// of plugins/pkg/hns, flannel-io/cni-plugin and Calico's).
type netConf struct {
	CNIVersion   string          `json:"cniVersion,omitempty"`
	Name         string          `json:"name,omitempty"`
	Type         string          `json:"type"`
	APIVersion   int             `json:"apiVersion,omitempty"`
	Capabilities map[string]bool `json:"capabilities,omitempty"`
	IPAM         *ipam           `json:"ipam,omitempty"`
	DNS          *dns            `json:"dns,omitempty"`
	Policies     []policy        `json:"policies,omitempty"`
	LoopbackDSR  bool            `json:"loopbackDSR,omitempty"`

	// flannel
	SubnetFile string   `json:"subnetFile,omitempty"`
	DataDir    string   `json:"dataDir,omitempty"`
	Delegate   *netConf `json:"delegate,omitempty"`

	// Calico
	SingleNetwork bool        `json:"windows_use_single_network,omitempty"`
	Mode          string      `json:"mode,omitempty"`
	MACPrefix     string      `json:"vxlan_mac_prefix,omitempty"`
	VNI           int32       `json:"vxlan_vni,omitempty"`
	Policy        *typed      `json:"policy,omitempty"`
	LogLevel      string      `json:"log_level,omitempty"`
	CalicoDSR     bool        `json:"windows_loopback_DSR,omitempty"`
	NodenameFile  string      `json:"nodename_file,omitempty"`
	DatastoreType string      `json:"datastore_type,omitempty"`
	Kubernetes    *kubernetes `json:"kubernetes,omitempty"`
}

type ipam struct {
	Type   string `json:"type"`
	Subnet string `json:"subnet,omitempty"`
}

type dns struct {
	Nameservers []string `json:"nameservers,omitempty"`
	Search      []string `json:"search,omitempty"`
}

type typed struct {
	Type string `json:"type"`
}

type kubernetes struct {
	Kubeconfig string `json:"kubeconfig"`
}

// policy is an endpoint policy of HNS. Settings are those of the second version of its API; Calico's plug-in reads the fields
// of the first one and translates them.
type policy struct {
	Name  string `json:"name"`
	Value struct {
		Type     string          `json:"Type"`
		Settings *policySettings `json:"Settings,omitempty"`

		ExceptionList     []string `json:"ExceptionList,omitempty"`
		DestinationPrefix string   `json:"DestinationPrefix,omitempty"`
		NeedEncap         bool     `json:"NeedEncap,omitempty"`
	} `json:"value"`
}

type policySettings struct {
	Exceptions        []string `json:"Exceptions,omitempty"`
	DestinationPrefix string   `json:"DestinationPrefix,omitempty"`
	NeedEncap         bool     `json:"NeedEncap,omitempty"`
	ProviderAddress   string   `json:"ProviderAddress,omitempty"`
}

func endpointPolicy(kind string, settings policySettings) policy {
	p := policy{Name: "EndpointPolicy"}
	p.Value.Type, p.Value.Settings = kind, &settings
	return p
}

// noNAT says where pods go with their own address, and encapsulated those that are routed by the virtual switch.
func noNAT(exceptions ...string) policy {
	return endpointPolicy("OutBoundNAT", policySettings{Exceptions: exceptions})
}

func encapsulated(prefix string) policy {
	return endpointPolicy("SDNRoute", policySettings{DestinationPrefix: prefix, NeedEncap: true})
}

// staticFiles returns what can be written before the network's service runs.
func staticFiles(r *engine.Run) ([]file, error) {
	o := r.Doc.Services.CNI
	if err := validate(o); err != nil {
		return nil, err
	}
	switch o.Type {
	case nodev1.CNIFlannelHostGateway, nodev1.CNIFlannelOverlay:
		return flannelFiles(r, o)
	case nodev1.CNICalico:
		return one(o, "10-calico.conf", calicoConf(r, o))
	case nodev1.CNIAntrea:
		type conflist struct {
			CNIVersion string    `json:"cniVersion"`
			Name       string    `json:"name"`
			Plugins    []netConf `json:"plugins"`
		}
		return one(o, "10-antrea.conflist", conflist{"0.3.0", "antrea", []netConf{
			{Type: "antrea", IPAM: &ipam{Type: "host-local"}, Capabilities: map[string]bool{"dns": true}},
		}})
	default: // OVN's needs the subnet
		return nil, nil
	}
}

func validate(o *nodev1.CNI) error {
	wrong := func(format string, args ...any) error {
		return codes.New(codes.PodNetworkInvalid, "services.cni of type "+string(o.Type)+": "+format, args...)
	}
	cidr := func(field, value string) error {
		for _, part := range strings.Split(value, ",") {
			if _, err := netip.ParsePrefix(part); err != nil {
				return wrong("%s %q is no address range such as 10.244.0.0/16", field, value)
			}
		}
		return nil
	}
	flannel := o.Type == nodev1.CNIFlannelHostGateway || o.Type == nodev1.CNIFlannelOverlay
	if o.Type != nodev1.CNIAntrea {
		if err := cidr("serviceCIDR", o.ServiceCIDR); err != nil {
			return err
		}
	}
	if flannel {
		if err := cidr("podCIDR", o.PodCIDR); err != nil {
			return err
		}
	}
	// flannel itself refuses these on Windows (pkg/backend/vxlan/vxlan_windows.go), after it was started.
	if o.Type == nodev1.CNIFlannelOverlay && o.Port != 4789 {
		return wrong("port %d: flannel can only use 4789 on Windows", o.Port)
	}
	if o.Type == nodev1.CNIFlannelOverlay && o.VNI < 4096 {
		return wrong("vni %d: Windows needs 4096 or more", o.VNI)
	}
	return nil
}

func flannelFiles(r *engine.Run, o *nodev1.CNI) ([]file, error) {
	type backend struct {
		Type string `json:"Type"`
		Name string `json:"Name"`
		VNI  int32  `json:"VNI,omitempty"`
		Port int32  `json:"Port,omitempty"`
	}
	net := struct {
		Network string  `json:"Network"`
		Backend backend `json:"Backend"`
	}{firstCIDR(o.PodCIDR), backend{Type: "host-gw", Name: networkName(o)}}
	plugin := "win-bridge"
	if o.Type == nodev1.CNIFlannelOverlay {
		net.Backend.Type, net.Backend.VNI, net.Backend.Port = "vxlan", o.VNI, o.Port
		plugin = "win-overlay"
	}
	policies := []policy{noNAT(firstCIDR(o.ServiceCIDR), firstCIDR(o.PodCIDR)), encapsulated(firstCIDR(o.ServiceCIDR))}
	if ips := r.Facts.NodeIPs; o.Type == nodev1.CNIFlannelHostGateway && len(ips) > 0 {
		policies = append(policies, encapsulated(ips[0]+"/32")) // pods reach their own node by the switch
	}
	conf, err := one(o, "10-flannel.conf", netConf{
		CNIVersion: "0.3.0", Name: networkName(o), Type: "flannel", Capabilities: map[string]bool{"portMappings": true, "dns": true},
		SubnetFile: services.FlannelSubnetEnv, DataDir: flannelDataDir,
		Delegate: &netConf{
			Type: plugin, APIVersion: 2, DNS: podDNS(r), Policies: policies, LoopbackDSR: true,
		},
	})
	if err != nil {
		return nil, err
	}
	raw, err := encode(net)
	return append(conf, file{services.FlannelNetConf, raw}), err
}

func calicoConf(r *engine.Run, o *nodev1.CNI) netConf {
	nat, route := policy{Name: "EndpointPolicy"}, policy{Name: "EndpointPolicy"}
	nat.Value.Type, nat.Value.ExceptionList = "OutBoundNAT", []string{firstCIDR(o.ServiceCIDR)}
	route.Value.Type, route.Value.DestinationPrefix, route.Value.NeedEncap = "SDNROUTE", firstCIDR(o.ServiceCIDR), true
	kubeconfig := o.Config
	if kubeconfig == "" {
		kubeconfig = layout.Kubeconfig
	}
	return netConf{
		CNIVersion: "0.3.1", Name: "Calico", Type: "calico", SingleNetwork: true, Mode: "vxlan", MACPrefix: "0E-2A", VNI: o.VNI,
		Policy: &typed{"k8s"}, LogLevel: "info", CalicoDSR: true, Capabilities: map[string]bool{"dns": true}, DNS: podDNS(r),
		NodenameFile: layout.Join(layout.Dir(o.Path), "nodename"), DatastoreType: "kubernetes", Kubernetes: &kubernetes{kubeconfig},
		IPAM: &ipam{Type: "calico-ipam", Subnet: "usePodCidr"}, Policies: []policy{nat, route},
	}
}

// ovnFile returns the CNI configuration of OVN-Kubernetes' hybrid overlay for the node's subnet, and for the host's address
// in the network.
func ovnFile(o *nodev1.CNI, subnet, managementIP string) ([]file, error) {
	service := firstCIDR(o.ServiceCIDR)
	return one(o, "10-ovn-hybrid-overlay.conf", netConf{
		CNIVersion: "0.3.0", Name: networkName(o), Type: "win-overlay", APIVersion: 2,
		Capabilities: map[string]bool{"portMappings": true, "dns": true}, IPAM: &ipam{Type: "host-local", Subnet: subnet},
		Policies: []policy{
			noNAT(service), encapsulated(service),
			endpointPolicy("ProviderAddress", policySettings{ProviderAddress: managementIP}),
		},
	})
}

// networkName returns the HNS network of a pod network; the plug-ins find it by the name of their configuration.
func networkName(o *nodev1.CNI) string {
	return services.NetworkName(&nodev1.NodeConfiguration{Services: nodev1.ServicesInfo{CNI: o}})
}

// podDNS is used for pods to which the kubelet gives no DNS.
func podDNS(r *engine.Run) *dns {
	servers := services.PodDNS(r)
	if len(servers) == 0 {
		return nil
	}
	return &dns{Nameservers: servers, Search: services.PodSearch(r)}
}

// firstCIDR returns the first of the ranges of a dual-stack cluster: the plug-ins for Windows know one.
func firstCIDR(s string) string {
	first, _, _ := strings.Cut(s, ",")
	return first
}

func one(o *nodev1.CNI, name string, v any) ([]file, error) {
	raw, err := encode(v)
	return []file{{layout.Join(o.ConfDir, name), raw}}, err
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return nil, codes.New(codes.Internal, "encoding the configuration of the pod network: %w", fmt.Errorf("%T: %w", v, err))
	}
	return b.Bytes(), nil
}
