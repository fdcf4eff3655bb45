// Package layout says where things are on a node. All paths are Windows paths, absolute and with backslashes, on whatever
// system this runs.
package layout

import "strings"

// The agent's own.
const (
	// ProgramDir holds the agent, where the image may bring it already.
	ProgramDir = `C:\Program Files\capw`
	// Agent is the agent's executable.
	Agent = ProgramDir + `\capw-node.exe`
	// StateDir holds what the agent remembers; SYSTEM and Administrators only.
	StateDir = `C:\ProgramData\capw`
	// Document is the node document. After the join it holds no secrets.
	Document = StateDir + `\node.json`
	// Journal is what was done, JournalBackup the one before.
	Journal       = StateDir + `\journal.json`
	JournalBackup = StateDir + `\journal.bak`
	// Status is the last status line.
	Status = StateDir + `\status.json`
	// DownloadDir holds downloads that are not complete yet.
	DownloadDir = StateDir + `\download`
	// Sentinel says that the first boot succeeded; its path is part of Cluster API's bootstrap contract.
	Sentinel = `C:\run\cluster-api\bootstrap-success.complete`
	// AgentService is the agent's Windows service.
	AgentService = "capw-node"
	// LogDir holds one folder per service.
	LogDir = `C:\var\log`
)

// Kubernetes'.
const (
	// BinDir holds the programs, as in image-builder's images.
	BinDir = `C:\k`
	// Kubelet is the default path of kubelet.exe; the service is named KubeletService, as kubeadm wants it.
	Kubelet        = BinDir + `\kubelet.exe`
	KubeletService = "kubelet"
	Kubeadm        = BinDir + `\kubeadm.exe`
	// KubernetesDir and KubeletDir are kubeadm's /etc/kubernetes and /var/lib/kubelet.
	KubernetesDir = `C:\etc\kubernetes`
	KubeletDir    = `C:\var\lib\kubelet`
	ManifestDir   = KubernetesDir + `\manifests`
	CACertificate = KubernetesDir + `\pki\ca.crt`
	// BootstrapKubeconfig holds the token; it is removed once the kubelet has its certificate.
	BootstrapKubeconfig = KubernetesDir + `\bootstrap-kubelet.conf`
	// Kubeconfig of the kubelet: the node's identity.
	Kubeconfig = KubernetesDir + `\kubelet.conf`
	// KubeletPKIDir holds the kubelet's certificates; KubeletClientCert is the current one for clients, with its key, and
	// KubeletServerCert the one that it serves with.
	KubeletPKIDir     = KubeletDir + `\pki`
	KubeletClientCert = KubeletPKIDir + `\kubelet-client-current.pem`
	KubeletServerCert = KubeletPKIDir + `\kubelet-server-current.pem`
	KubeletConfig     = KubeletDir + `\config.yaml`
	// KubeadmFlags is where kubeadm writes flags that nobody on Windows reads, except us.
	KubeadmFlags = KubeletDir + `\kubeadm-flags.env`
	PatchesDir   = KubernetesDir + `\patches`
	// KubeadmJoin is what kubeadm join reads. It holds the token; it is removed after the join.
	KubeadmJoin = StateDir + `\kubeadm-join.yaml`
)

// containerd's.
const (
	ContainerdDir     = `C:\Program Files\containerd`
	Containerd        = ContainerdDir + `\containerd.exe`
	ContainerdConfig  = ContainerdDir + `\config.toml`
	ContainerdService = "containerd"
	// ContainerdCertsDir holds a folder with hosts.toml per registry host.
	ContainerdCertsDir = ContainerdDir + `\certs.d`
	// ContainerdRoot and ContainerdState are its data.
	ContainerdRoot  = `C:\ProgramData\containerd\root`
	ContainerdState = `C:\ProgramData\containerd\state`
	// CRIPipe is its named pipe, CRIEndpoint the same as Kubernetes writes it.
	CRIPipe     = `\\.\pipe\containerd-containerd`
	CRIEndpoint = "npipe:////./pipe/containerd-containerd"
	CNIBinDir   = `C:\opt\cni\bin`
	CNIConfDir  = `C:\etc\cni\net.d`
)

// Join joins parts of a path with backslashes.
func Join(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		if p == "" {
			continue
		}
		if s := b.String(); s != "" && !strings.HasSuffix(s, `\`) {
			b.WriteByte('\\')
		}
		b.WriteString(p)
	}
	return b.String()
}

// Dir returns the folder of a path.
func Dir(path string) string {
	i := strings.LastIndexByte(path, '\\')
	switch {
	case i < 0:
		return ""
	case i == 2 && path[1] == ':': // C:\file
		return path[:3]
	default:
		return path[:i]
	}
}

// Base returns the last part of a path.
func Base(path string) string { return path[strings.LastIndexByte(path, '\\')+1:] }

// Log returns the path of a service's log.
func Log(service string) string { return Join(LogDir, service, service+".log") }
