package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime"
)

// PriorityClass is a Windows process priority class, see SetPriorityClass.
type PriorityClass string

// Priority classes that a node's services may have; realtime is not among them.
const (
	PriorityBelowNormal PriorityClass = "BelowNormal"
	PriorityNormal      PriorityClass = "Normal"
	PriorityAboveNormal PriorityClass = "AboveNormal"
	PriorityHigh        PriorityClass = "High"
)

// ServiceOptions are what every managed service can be told.
type ServiceOptions struct {
	// Path of the executable. Its default is the service's own.
	Path string `json:"path,omitempty"`
	// ExtraArgs are appended to the command line, each as one argument, quoted by the agent. One that repeats a flag of the
	// agent replaces it.
	ExtraArgs []string `json:"extraArgs,omitempty"`
	// PriorityClass. Default: AboveNormal for kubelet and containerd, Normal for the others.
	PriorityClass PriorityClass `json:"priorityClass,omitempty"`
	// Log bounds the service's log file. Default: OS.LogRotation.
	Log LogRotation `json:"log,omitzero"`
}

// LogRotation bounds the files of one log.
type LogRotation struct {
	// MaxSizeMiB of one file. Default: 100.
	MaxSizeMiB int32 `json:"maxSizeMiB,omitempty"`
	// MaxFiles that are kept beside the current one. Default: 5.
	MaxFiles int32 `json:"maxFiles,omitempty"`
	// MaxAgeHours after which a rotated file is removed. Default: 168, one week.
	MaxAgeHours int32 `json:"maxAgeHours,omitempty"`
}

// KubeletInfo is how the kubelet is configured. Labels, taints, address and provider ID stand in NodeInfo.
type KubeletInfo struct {
	ServiceOptions `json:",inline"`
	// Config is a KubeletConfiguration (kubelet.config.k8s.io/v1beta1) that is merged over the Windows-safe defaults, which
	// are merged over the cluster's kubelet-config.
	Config *runtime.RawExtension `json:"config,omitempty"`
	// CloudProvider is "external" when a cloud controller manager of the cluster initializes its nodes. Default: none.
	CloudProvider string `json:"cloudProvider,omitempty"`
}

// ContainerRuntimeInfo is how containerd is configured.
type ContainerRuntimeInfo struct {
	ServiceOptions `json:",inline"`
	// Management says who owns containerd's configuration and service: Managed (the agent) or Existing (the image; the agent
	// only waits until it answers). Default: Managed.
	Management Management `json:"management,omitempty"`
	// PauseImage is the sandbox image. Default: that of the agent for the Windows build.
	PauseImage string `json:"pauseImage,omitempty"`
	// Registries are hosts with mirrors, certificates or credentials of their own.
	Registries []Registry `json:"registries,omitempty"`
	// HyperVBuilds are the Windows builds, such as 20348, for which a Hyper-V isolated runtime
	// runhcs-wcow-hypervisor-<build> is configured.
	HyperVBuilds []int32 `json:"hyperVBuilds,omitempty"`
	// ExtraTOML is a fragment that containerd merges over its configuration, in the layout of the containerd that runs.
	ExtraTOML string `json:"extraTOML,omitempty"`
}

// Management says who owns something.
type Management string

const (
	// Managed means the agent.
	Managed Management = "Managed"
	// Existing means the image, or a person.
	Existing Management = "Existing"
)

// Registry is one registry host as containerd sees it (hosts.toml).
type Registry struct {
	// Host as in image names, such as registry.example.com:5000, or _default.
	Host string `json:"host"`
	// Server that is asked when no mirror has the image. Default: https://<Host>.
	Server string `json:"server,omitempty"`
	// Mirrors are asked first, in this order.
	Mirrors []RegistryMirror `json:"mirrors,omitempty"`
	// CA, PEM, for Server.
	CA string `json:"ca,omitempty"`
	// Username and Password for Server, sent as basic authentication. Secret.
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
}

// RegistryMirror is a mirror of a registry.
type RegistryMirror struct {
	// URL, with a path when the mirror keeps the images below one.
	URL string `json:"url"`
	// OverridePath says that URL's path is the whole API path, without /v2.
	OverridePath bool `json:"overridePath,omitempty"`
	// CA, PEM.
	CA string `json:"ca,omitempty"`
	// SkipVerify turns off the verification of the mirror's certificate.
	SkipVerify bool `json:"skipVerify,omitempty"`
	// Username and Password. Secret.
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
}

// ServicesInfo are the Windows services beside kubelet and containerd. A nil one is not managed: it is a DaemonSet of
// HostProcess containers, or not wanted.
type ServicesInfo struct {
	CNI              *CNI                `json:"cni,omitempty"`
	KubeProxy        *KubeProxy          `json:"kubeProxy,omitempty"`
	CSIProxy         *ServiceOptions     `json:"csiProxy,omitempty"`
	WindowsExporter  *WindowsExporter    `json:"windowsExporter,omitempty"`
	CloudNodeManager *CloudNodeManager   `json:"cloudNodeManager,omitempty"`
	Additional       []AdditionalService `json:"additional,omitempty"`
}

// CNIType is a pod network.
type CNIType string

const (
	// CNIFlannelHostGateway is flannel with backend host-gw, HNS network type L2Bridge.
	CNIFlannelHostGateway CNIType = "FlannelHostGateway"
	// CNIFlannelOverlay is flannel with backend vxlan, HNS network type Overlay.
	CNIFlannelOverlay CNIType = "FlannelOverlay"
	// CNICalico is Calico for Windows with its own services.
	CNICalico CNIType = "Calico"
	// CNIAntrea is the Antrea agent; Open vSwitch comes with the image.
	CNIAntrea CNIType = "Antrea"
	// CNIOVNHybridOverlay is OVN-Kubernetes' hybrid-overlay-node.
	CNIOVNHybridOverlay CNIType = "OVNHybridOverlay"
)

// CNI is the pod network as Windows services.
type CNI struct {
	ServiceOptions `json:",inline"`
	// Type of the network.
	Type CNIType `json:"type"`
	// BinDir holds the CNI plug-ins. Default: C:\opt\cni\bin.
	BinDir string `json:"binDir,omitempty"`
	// ConfDir holds the CNI configuration. Default: C:\etc\cni\net.d.
	ConfDir string `json:"confDir,omitempty"`
	// PodCIDR is the cluster's pod range, and ServiceCIDR its service range.
	PodCIDR     string `json:"podCIDR,omitempty"`
	ServiceCIDR string `json:"serviceCIDR,omitempty"`
	// DNSServers and DNSSearch that pods get. Default of DNSServers: the kubelet's clusterDNS.
	DNSServers []string `json:"dnsServers,omitempty"`
	DNSSearch  []string `json:"dnsSearch,omitempty"`
	// VNI and Port of the overlay. Default: 4096 and 4789.
	VNI  int32 `json:"vni,omitempty"`
	Port int32 `json:"port,omitempty"`
	// Config is the plug-in's own configuration file where it has one (antrea-agent.conf).
	Config string `json:"config,omitempty"`
}

// KubeProxy is kube-proxy in mode kernelspace.
type KubeProxy struct {
	ServiceOptions `json:",inline"`
	// NetworkName is the HNS network whose pods it serves. Default: that of CNI.
	NetworkName string `json:"networkName,omitempty"`
	// SourceVIP is the address that an overlay network needs; empty: the agent takes one by an HNS endpoint of its own.
	SourceVIP string `json:"sourceVIP,omitempty"`
	// DirectServerReturn is Enabled or Disabled. Default: Enabled.
	DirectServerReturn string `json:"directServerReturn,omitempty"`
	// ClusterCIDR is the cluster's pod range. Default: CNI.PodCIDR.
	ClusterCIDR string `json:"clusterCIDR,omitempty"`
	// FeatureGates of kube-proxy.
	FeatureGates map[string]bool `json:"featureGates,omitempty"`
	// Kubeconfig. Default: the kubelet's, whose group system:nodes must then be bound to system:node-proxier.
	Kubeconfig string `json:"kubeconfig,omitempty"`
}

// WindowsExporter is the Prometheus exporter for Windows.
type WindowsExporter struct {
	ServiceOptions `json:",inline"`
	// Port. Default: 9182.
	Port int32 `json:"port,omitempty"`
	// Collectors. Default: cpu, cpu_info, container, logical_disk, memory, net, os, service, system.
	Collectors []string `json:"collectors,omitempty"`
	// TLS is Kubelet (the kubelet's serving certificate), Files (TLSCertFile, TLSKeyFile) or None. Default: Kubelet.
	TLS         string `json:"tls,omitempty"`
	TLSCertFile string `json:"tlsCertFile,omitempty"`
	TLSKeyFile  string `json:"tlsKeyFile,omitempty"`
}

// CloudNodeManager is Azure's cloud node manager.
type CloudNodeManager struct {
	ServiceOptions `json:",inline"`
	// Kubeconfig. Default: the kubelet's.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// WaitRoutes is Enabled or Disabled. Default: Disabled.
	WaitRoutes string `json:"waitRoutes,omitempty"`
}

// AdditionalService is a user's own service.
type AdditionalService struct {
	ServiceOptions `json:",inline"`
	// Name of the service.
	Name string `json:"name"`
	// Args of the executable. ${NODE_NAME}, ${NODE_IP}, ${API_SERVER} and ${KUBECONFIG} are replaced.
	Args []string `json:"args,omitempty"`
	// Kind is Console (the agent runs the program as a service) or Service (it is one itself). Default: Console.
	Kind string `json:"kind,omitempty"`
	// DependsOn are services that start before it.
	DependsOn []string `json:"dependsOn,omitempty"`
	// Environment of the process.
	Environment map[string]string `json:"environment,omitempty"`
}

// Artifact is a file, or an archive of files, that the node needs.
type Artifact struct {
	// Name for people; kubelet, kubeadm, containerd and kube-proxy have their version checked against the document.
	Name string `json:"name"`
	// Destination is the file, or for an archive the folder.
	Destination string `json:"destination"`
	// URL it can be had from; empty: it must be in the image or on media.
	URL string `json:"url,omitempty"`
	// SHA256 of the file that URL gives, in lower-case hexadecimal digits. Required with URL.
	SHA256 string `json:"sha256,omitempty"`
	// Media is a path on an attached volume, such as kubelet.exe, that is tried before URL.
	Media string `json:"media,omitempty"`
	// Archive is None, Zip or TarGz. Default: by the end of URL's path.
	Archive string `json:"archive,omitempty"`
	// StripComponents removes leading folders of names in an archive.
	StripComponents int32 `json:"stripComponents,omitempty"`
	// Version that the program must have, such as v2.2.0. Default for kubelet, kubeadm and kube-proxy: the cluster's.
	Version string `json:"version,omitempty"`
}
