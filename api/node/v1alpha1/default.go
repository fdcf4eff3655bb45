package v1alpha1

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
)

// Default fills in what the document leaves out, where the default does not depend on the node. Defaults live here and not
// in the document, so that a document shows what its author wrote.
func (c *NodeConfiguration) Default() {
	set(&c.Join.Method, JoinKubelet)
	set(&c.Join.Kubeadm.Path, `C:\k\kubeadm.exe`)
	c.OS.LogRotation.merge(LogRotation{MaxSizeMiB: 100, MaxFiles: 5, MaxAgeHours: 168})

	c.defaultService(&c.Kubelet.ServiceOptions, `C:\k\kubelet.exe`, PriorityAboveNormal)
	set(&c.ContainerRuntime.Management, Managed)
	c.defaultService(&c.ContainerRuntime.ServiceOptions, `C:\Program Files\containerd\containerd.exe`, PriorityAboveNormal)
	c.defaultServices()

	for i := range c.Artifacts {
		c.Artifacts[i].defaults(c.Cluster.KubernetesVersion)
	}
	if c.OS.Features == nil {
		c.OS.Features = []string{"Containers"}
		if len(c.ContainerRuntime.HyperVBuilds) > 0 {
			c.OS.Features = append(c.OS.Features, "Microsoft-Hyper-V")
		}
	}
	if c.OS.DynamicPorts == (PortRange{}) {
		c.OS.DynamicPorts = PortRange{Start: 34000, Count: 31536}
	}
	set(&c.OS.Defender, "Exclude")
	for i := range c.Network.Adapters {
		if a := &c.Network.Adapters[i]; len(a.Addresses) > 0 {
			set(&a.DHCP, "Disabled")
		}
	}
	for i := range c.Files {
		set(&c.Files[i].ACL, ACLSystem)
	}
	for _, commands := range [][]Command{c.PreJoinCommands, c.PostJoinCommands} {
		for i := range commands {
			commands[i].defaults()
		}
	}
	set(&c.Boot.MaxBoots, 3)
	set(&c.Boot.DeadlineSeconds, 3600)
	set(&c.Boot.WaitFor, "Ready")
}

func (c *NodeConfiguration) defaultServices() {
	s := &c.Services
	if s.CNI != nil {
		c.defaultService(&s.CNI.ServiceOptions, map[CNIType]string{
			CNIFlannelHostGateway: `C:\k\flanneld.exe`,
			CNIFlannelOverlay:     `C:\k\flanneld.exe`,
			CNICalico:             `C:\CalicoWindows\calico-node.exe`,
			CNIAntrea:             `C:\k\antrea\bin\antrea-agent.exe`,
			CNIOVNHybridOverlay:   `C:\k\hybrid-overlay-node.exe`,
		}[s.CNI.Type], PriorityNormal)
		set(&s.CNI.BinDir, `C:\opt\cni\bin`)
		set(&s.CNI.ConfDir, `C:\etc\cni\net.d`)
		set(&s.CNI.VNI, 4096)
		set(&s.CNI.Port, 4789)
	}
	if s.KubeProxy != nil {
		c.defaultService(&s.KubeProxy.ServiceOptions, `C:\k\kube-proxy.exe`, PriorityNormal)
		set(&s.KubeProxy.DirectServerReturn, "Enabled")
		set(&s.KubeProxy.Kubeconfig, `C:\etc\kubernetes\kubelet.conf`)
		if s.CNI != nil {
			set(&s.KubeProxy.ClusterCIDR, s.CNI.PodCIDR)
		}
	}
	if s.CSIProxy != nil {
		c.defaultService(s.CSIProxy, `C:\k\csi-proxy.exe`, PriorityNormal)
	}
	if s.WindowsExporter != nil {
		c.defaultService(&s.WindowsExporter.ServiceOptions, `C:\k\windows_exporter.exe`, PriorityNormal)
		set(&s.WindowsExporter.Port, 9182)
		if s.WindowsExporter.Collectors == nil {
			s.WindowsExporter.Collectors = []string{"cpu", "cpu_info", "container", "logical_disk", "memory", "net", "os", "service", "system"}
		}
		set(&s.WindowsExporter.TLS, "Kubelet")
	}
	if s.CloudNodeManager != nil {
		c.defaultService(&s.CloudNodeManager.ServiceOptions, `C:\k\azure-cloud-node-manager.exe`, PriorityNormal)
		set(&s.CloudNodeManager.Kubeconfig, `C:\etc\kubernetes\kubelet.conf`)
		set(&s.CloudNodeManager.WaitRoutes, "Disabled")
	}
	for i := range s.Additional {
		c.defaultService(&s.Additional[i].ServiceOptions, "", PriorityNormal)
		set(&s.Additional[i].Kind, "Console")
	}
}

func (c *NodeConfiguration) defaultService(o *ServiceOptions, path string, priority PriorityClass) {
	set(&o.Path, path)
	set(&o.PriorityClass, priority)
	o.Log.merge(c.OS.LogRotation)
}

func (l *LogRotation) merge(from LogRotation) {
	set(&l.MaxSizeMiB, from.MaxSizeMiB)
	set(&l.MaxFiles, from.MaxFiles)
	set(&l.MaxAgeHours, from.MaxAgeHours)
}

func (a *Artifact) defaults(kubernetesVersion string) {
	switch a.Name {
	case "kubelet", "kubeadm", "kube-proxy":
		set(&a.Version, kubernetesVersion)
	}
	name := a.URL
	if u, err := url.Parse(a.URL); err == nil {
		name = u.Path
	}
	name = strings.ToLower(cmp.Or(name, a.Media))
	switch {
	case strings.HasSuffix(name, ".zip"):
		set(&a.Archive, "Zip")
	case strings.HasSuffix(name, ".tar.gz"), strings.HasSuffix(name, ".tgz"):
		set(&a.Archive, "TarGz")
	default:
		set(&a.Archive, "None")
	}
}

func (c *Command) defaults() {
	if len(c.Args) > 0 {
		set(&c.Name, c.Args[0])
	}
	set(&c.Name, "script")
	set(&c.Shell, "Cmd")
	set(&c.TimeoutSeconds, 300)
	set(&c.OnFailure, "Fail")
}

func set[T comparable](field *T, value T) { *field = cmp.Or(*field, value) }

// DeepCopy returns a document that shares nothing with c.
func (c *NodeConfiguration) DeepCopy() *NodeConfiguration {
	raw, err := json.Marshal(c)
	if err == nil {
		out := &NodeConfiguration{}
		if err = json.Unmarshal(raw, out); err == nil {
			return out
		}
	}
	panic(fmt.Sprintf("copying a node document: %v", err)) // of plain types, no error can occur
}

// Scrub removes all secrets: what stays on the node's disk after the join. Validate refuses a scrubbed document.
func (c *NodeConfiguration) Scrub() {
	for _, secret := range c.secrets() {
		*secret = ""
	}
	for i := range c.Files {
		c.Files[i].Content = nil
	}
	c.PreJoinCommands, c.PostJoinCommands = nil, nil
}

// Secrets returns the secrets in the document, for what must never show them.
func (c *NodeConfiguration) Secrets() []string {
	var out []string
	for _, secret := range c.secrets() {
		if *secret != "" {
			out = append(out, *secret)
		}
	}
	if _, secret, ok := strings.Cut(c.Join.Token, "."); ok {
		out = append(out, secret)
	}
	return out
}

func (c *NodeConfiguration) secrets() []*string {
	out := []*string{&c.Join.Token}
	for i := range c.OS.Users {
		out = append(out, &c.OS.Users[i].Password)
	}
	if d := c.OS.DomainJoin; d != nil {
		out = append(out, &d.OfflineBlob, &d.Password)
	}
	for i := range c.ContainerRuntime.Registries {
		r := &c.ContainerRuntime.Registries[i]
		out = append(out, &r.Password)
		for j := range r.Mirrors {
			out = append(out, &r.Mirrors[j].Password)
		}
	}
	return out
}
