package imagecheck

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
)

// programs looks at what the node runs. What is missing can be downloaded at first boot, unless the image is said to be for a
// version of Kubernetes.
func (c *checker) programs(ctx context.Context) {
	missing := Warning
	if c.o.KubernetesVersion != "" {
		missing = Error
	}
	const remedy = "Put it there, or have the document download it (artifacts)."
	for _, p := range []struct {
		name, path string
		missing    Severity
		args       []string
	}{
		{"kubelet", layout.Kubelet, missing, []string{"--version"}},
		{"kubeadm", layout.Kubeadm, Info, []string{"version", "-o", "short"}},
		{"containerd", layout.Containerd, missing, []string{"--version"}},
	} {
		if !c.exists(ctx, p.path) {
			c.add(p.missing, "ProgramMissing", remedy, "%s is not in the image", p.path)
			continue
		}
		v, err := c.version(ctx, append([]string{p.path}, p.args...))
		if err != nil {
			c.add(Error, "ProgramUnusable", "Replace the file: it may be of another architecture, or damaged.", "%s does not tell its version: %v", p.path, err)
			continue
		}
		c.report.Versions[p.name] = v
		switch {
		case p.name == "containerd":
			if parsed, err := version.ParseSemantic(v); err == nil && parsed.LessThan(version.MajorMinor(1, 6)) {
				c.add(Error, "ContainerdOld", "Install a version that Kubernetes supports.", "containerd %s knows no HostProcess containers, which came with 1.6", v)
			}
		case c.o.KubernetesVersion != "" && v != c.o.KubernetesVersion:
			c.add(Error, "VersionDiffers", "Build the image with the right version.", "%s is %s, the image shall be for %s", p.name, v, c.o.KubernetesVersion)
		}
	}
	if shim := layout.ContainerdDir + `\containerd-shim-runhcs-v1.exe`; c.exists(ctx, layout.Containerd) && !c.exists(ctx, shim) {
		c.add(Error, "ProgramMissing", "Install all of containerd's archive.", "%s is not in the image: containerd starts no container without it", shim)
	}
}

// version runs a program and returns the first version in what it says.
func (c *checker) version(ctx context.Context, argv []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	result, err := c.Processes.Run(ctx, host.Command{Argv: argv})
	if err != nil {
		return "", err
	}
	said := strings.TrimSpace(string(result.Stdout) + string(result.Stderr))
	v := regexp.MustCompile(`v?\d+\.\d+\.\d+[0-9A-Za-z.+-]*`).FindString(said)
	if v == "" {
		return "", fmt.Errorf("exit code %d, and it says %q", result.ExitCode, said[:min(len(said), 200)])
	}
	return "v" + strings.TrimPrefix(v, "v"), nil
}

// plugins lists the container network plug-ins. Many come with a DaemonSet.
func (c *checker) plugins(ctx context.Context) {
	entries, err := c.Files.List(ctx, layout.CNIBinDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.unreadable(layout.CNIBinDir, err)
		return
	}
	found := false
	for _, e := range entries {
		name, ok := strings.CutSuffix(strings.ToLower(e.Name), ".exe")
		if e.Dir || !ok {
			continue
		}
		found = true
		v, err := c.version(ctx, []string{layout.Join(layout.CNIBinDir, e.Name), "--version"})
		if err != nil {
			v = "of an unknown version"
		}
		c.report.Versions["cni/"+name] = v
	}
	if !found {
		c.add(Info, "NoNetworkPlugins", "Nothing, if a DaemonSet installs them.", "there are no network plug-ins in %s", layout.CNIBinDir)
	}
}

// services looks at what is left over from the image's build.
func (c *checker) services(ctx context.Context) {
	for _, name := range []string{layout.KubeletService, layout.ContainerdService, "kube-proxy", "flanneld", "csi-proxy", "windows_exporter"} {
		s, ok := c.service(ctx, name)
		if !ok {
			continue
		}
		if len(s.Argv) > 0 && strings.EqualFold(layout.Base(s.Argv[0]), "nssm.exe") {
			c.add(Info, "ServiceWrapped", "Nothing: the agent replaces it where the document manages the service.", "the service %s runs below nssm", name)
		}
		if name == layout.KubeletService && s.Start != host.StartManual && s.Start != host.StartDisabled {
			c.add(Warning, "KubeletStarts", "Make it start on demand (sc.exe config kubelet start= demand).",
				"the kubelet starts by itself before it is configured: it fails again and again until the agent takes it over")
		}
	}
	for _, name := range []string{"docker", "rke2", "rancher-wins"} {
		if _, ok := c.service(ctx, name); ok {
			c.add(Warning, "ForeignService", "Remove the service from the image.", "the service %s makes networks and containers of its own, which get in the way of the kubelet's", name)
		}
	}
}

// formerNode: whoever starts with another's identity never becomes a node of its own.
func (c *checker) formerNode(ctx context.Context) {
	const remedy = `Run "capw-node reset", or build the image from a machine that never joined.`
	for _, path := range []string{layout.Kubeconfig, layout.BootstrapKubeconfig, layout.KubeletClientCert} {
		if c.exists(ctx, path) {
			c.add(Error, "FormerNode", remedy, "%s is in the image: the identity of a node", path)
		}
	}
	for _, path := range []string{layout.Document, layout.Journal, layout.Sentinel} {
		if c.exists(ctx, path) {
			c.add(Error, "FormerBoot", remedy, "%s is in the image: machines take their first boot for done or begun", path)
		}
	}
}

func (c *checker) agent(ctx context.Context) {
	if !c.exists(ctx, layout.Agent) {
		c.add(Info, "AgentMissing", "Nothing, if machines get it on media or by URL.", "%s is not in the image", layout.Agent)
		return
	}
	v, err := c.version(ctx, []string{layout.Agent, "version"})
	if err != nil {
		c.add(Error, "ProgramUnusable", "Replace the file: it may be of another architecture, or damaged.", "%s does not tell its version: %v", layout.Agent, err)
		return
	}
	c.report.Versions["capw-node"] = v
}

// vmwareTools looks at what connects the machine with vSphere.
func (c *checker) vmwareTools(ctx context.Context) {
	if !c.vmware() {
		return
	}
	const (
		rpctool = `C:\Program Files\VMware\VMware Tools\rpctool.exe`
		conf    = `C:\ProgramData\VMware\VMware Tools\tools.conf`
	)
	if !c.exists(ctx, rpctool) {
		c.add(Error, "VMwareToolsMissing", "Install VMware Tools, all of it.", "%s is not in the image: cloudbase-init cannot read guestinfo, and vSphere sees no address", rpctool)
	}
	text, _ := c.file(ctx, conf)
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if strings.EqualFold(strings.TrimSpace(key), "exclude-nics") && strings.Contains(strings.ToLower(value), "vethernet") {
			c.add(Warning, "AddressesHidden", "Leave vEthernet* out of exclude-nics in "+conf+".",
				"VMware Tools do not report adapters vEthernet*, where HNS moves the node's own address: vSphere loses sight of it")
		}
	}
}
