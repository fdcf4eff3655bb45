package services

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/runner"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// Files of flannel. It takes paths without a drive for those of the drive that it runs on, so all are given to it.
const (
	FlannelNetConf   = `C:\etc\kube-flannel\net-conf.json`
	FlannelSubnetEnv = `C:\run\flannel\subnet.env`
)

// CalicoLogDir is where Calico writes logs beside those that the runner takes.
const CalicoLogDir = layout.LogDir + `\calico`

// antreaConfig is where Antrea's Windows package has its configuration.
const antreaConfig = `C:\k\antrea\etc\antrea-agent.conf`

// NetworkName returns the name of the HNS network that pods are in; "" if the document has no pod network and does not name
// it for kube-proxy.
func NetworkName(doc *nodev1.NodeConfiguration) string {
	if p := doc.Services.KubeProxy; p != nil && p.NetworkName != "" {
		return p.NetworkName
	}
	if doc.Services.CNI == nil {
		return ""
	}
	switch doc.Services.CNI.Type {
	case nodev1.CNIFlannelHostGateway:
		return "cbr0"
	case nodev1.CNIFlannelOverlay:
		return fmt.Sprintf("flannel.%d", doc.Services.CNI.VNI)
	case nodev1.CNICalico:
		return "Calico"
	case nodev1.CNIAntrea:
		return "antrea-hnsnetwork"
	case nodev1.CNIOVNHybridOverlay:
		return "OVNKubernetesHybridOverlayNetwork"
	default:
		return ""
	}
}

// cniNames returns the names of the pod network's services; the last one makes the network.
func cniNames(r *engine.Run) []string {
	if r.Doc.Services.CNI == nil {
		return nil
	}
	switch r.Doc.Services.CNI.Type {
	case nodev1.CNIFlannelHostGateway, nodev1.CNIFlannelOverlay:
		return []string{Flannel}
	case nodev1.CNICalico:
		return []string{CalicoFelix, CalicoNode}
	case nodev1.CNIAntrea:
		return []string{AntreaAgent}
	case nodev1.CNIOVNHybridOverlay:
		return []string{HybridOverlayNode}
	default:
		return nil
	}
}

// cni returns the services of the pod network. All of them are console programs: none does more as a service of its own.
func cni(r *engine.Run) ([]host.Service, error) {
	o := r.Doc.Services.CNI
	if o == nil {
		return nil, nil
	}
	switch o.Type {
	case nodev1.CNIFlannelHostGateway, nodev1.CNIFlannelOverlay:
		return []host.Service{flannel(r, o)}, nil
	case nodev1.CNICalico:
		return calico(r, o)
	case nodev1.CNIAntrea:
		return []host.Service{antrea(r, o)}, nil
	case nodev1.CNIOVNHybridOverlay:
		return []host.Service{hybridOverlay(r, o)}, nil
	default:
		return nil, codes.New(codes.ServiceInvalid, "services.cni.type: there is no pod network %q", o.Type)
	}
}

// flannel uses the kubelet's identity, whose group system:nodes must then be bound to flannel's cluster role;
// --kubeconfig-file in extraArgs names another.
func flannel(r *engine.Run, o *nodev1.CNI) host.Service {
	args := []string{
		"--kube-subnet-mgr",
		"--kubeconfig-file=" + layout.Kubeconfig,
		"--net-config-path=" + FlannelNetConf,
		"--subnet-file=" + FlannelSubnetEnv,
		"--ip-masq",
	}
	if ip := firstNodeIP(r); ip != "" {
		args = append(args, "--iface="+ip)
	}
	return program{
		name:        Flannel,
		description: "Pod network of the Kubernetes node (flannel).",
		options:     o.ServiceOptions,
		artifact:    "flanneld",
		args:        args,
		mode:        runner.Service,
		depends:     []string{layout.KubeletService},
		env:         []string{"NODE_NAME=" + r.Doc.Node.Name},
	}.service(r)
}

// calico runs the service scripts that come with Calico for Windows, as its own installation does: they make the virtual
// switch, register the node again whenever the kubelet starts, and know what the programs of their version are called. They
// take their whole configuration from the environment. extraArgs are further variables, NAME=value.
//
// They use the kubeconfig that services.cni.config names, or else the kubelet's, whose group system:nodes must then be bound
// to Calico's cluster roles.
func calico(r *engine.Run, o *nodev1.CNI) ([]host.Service, error) {
	root := layout.Dir(o.Path)
	env := map[string]string{
		"CALICO_NETWORKING_BACKEND": "vxlan",
		"CALICO_DATASTORE_TYPE":     "kubernetes",
		"CALICO_K8S_NODE_REF":       r.Doc.Node.Name,
		"NODENAME":                  r.Doc.Node.Name,
		"KUBECONFIG":                cmp.Or(o.Config, layout.Kubeconfig),
		"KUBE_NETWORK":              "Calico.*",
		"K8S_SERVICE_CIDR":          o.ServiceCIDR,
		"DNS_NAME_SERVERS":          strings.Join(PodDNS(r), ","),
		"DNS_SEARCH":                strings.Join(PodSearch(r), ","),
		"CNI_BIN_DIR":               o.BinDir,
		"CNI_CONF_DIR":              o.ConfDir,
		"CNI_CONF_FILENAME":         "10-calico.conf",
		"CNI_IPAM_TYPE":             "calico-ipam",
		"VXLAN_VNI":                 strconv.Itoa(int(o.VNI)),
		"IP":                        cmp.Or(firstNodeIP(r), "autodetect"),
		"CALICO_LOG_DIR":            CalicoLogDir,
		// Felix speaks to its console, which is its log.
		"FELIX_LOGSEVERITYFILE": "none",
		"FELIX_LOGSEVERITYSYS":  "none",
	}
	for _, extra := range o.ExtraArgs {
		name, value, ok := strings.Cut(extra, "=")
		if !ok || name == "" {
			return nil, codes.New(codes.ServiceInvalid, "services.cni.extraArgs of Calico are variables, NAME=value, and %q is not", extra)
		}
		env[strings.ToUpper(name)] = value
	}
	script := func(name, file, description string, depends ...string) host.Service {
		options := o.ServiceOptions
		options.Path = `C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe`
		p := program{
			name: name, description: description, options: options, keepArgs: true,
			args: []string{"-NoLogo", "-NoProfile", "-NonInteractive", "-ExecutionPolicy", "Bypass", "-File", layout.Join(root, file)},
			// PowerShell takes CTRL_BREAK for a breakpoint; what it runs ends by it.
			mode: runner.Service, runner: runner.Options{Dir: root, Grace: 5 * time.Second}, depends: depends,
		}
		for k, v := range env {
			if v != "" {
				p.env = append(p.env, k+"="+v)
			}
		}
		return p.service(r)
	}
	return []host.Service{
		script(CalicoNode, `node\node-service.ps1`, "Pod network of the Kubernetes node (Calico).", layout.KubeletService),
		script(CalicoFelix, `felix\felix-service.ps1`, "Network policies of the Kubernetes node (Calico).", CalicoNode),
	}, nil
}

// antrea needs Open vSwitch, whose services the image brings.
func antrea(r *engine.Run, o *nodev1.CNI) host.Service {
	return program{
		name:        AntreaAgent,
		description: "Pod network of the Kubernetes node (Antrea).",
		options:     o.ServiceOptions,
		artifact:    "antrea-agent",
		args:        []string{"--config=" + cmp.Or(o.Config, antreaConfig), "--logtostderr=true"},
		mode:        runner.Service,
		depends:     []string{"ovs-vswitchd", layout.KubeletService},
		env:         []string{"NODE_NAME=" + r.Doc.Node.Name},
	}.service(r)
}

// hybridOverlay asks for a certificate of its own with the kubelet's identity.
func hybridOverlay(r *engine.Run, o *nodev1.CNI) host.Service {
	args := []string{
		"--node=" + r.Doc.Node.Name,
		"--bootstrap-kubeconfig=" + layout.Kubeconfig,
		`--cert-dir=C:\var\lib\hybrid-overlay-node\certs`,
		"--cert-duration=24h",
		"--k8s-apiserver=" + endpoint(r),
		"--k8s-cacert=" + layout.CACertificate,
	}
	if o.Port != 4789 {
		args = append(args, fmt.Sprintf("--hybrid-overlay-vxlan-port=%d", o.Port))
	}
	return program{
		name:        HybridOverlayNode,
		description: "Pod network of the Kubernetes node (OVN hybrid overlay).",
		options:     o.ServiceOptions,
		artifact:    "hybrid-overlay-node",
		args:        args,
		mode:        runner.Service,
		depends:     []string{layout.KubeletService},
	}.service(r)
}

// PodDNS returns the DNS servers of pods: those of the document, or else the kubelet's.
func PodDNS(r *engine.Run) []string {
	if c := r.Doc.Services.CNI; c != nil && len(c.DNSServers) > 0 {
		return c.DNSServers
	}
	return slices.Clone(r.Facts.ClusterDNS)
}

// PodSearch returns the search domains of pods where the kubelet does not give them.
func PodSearch(r *engine.Run) []string {
	if c := r.Doc.Services.CNI; c != nil && len(c.DNSSearch) > 0 {
		return c.DNSSearch
	}
	return []string{"svc." + cmp.Or(r.Facts.ClusterDomain, "cluster.local")}
}
