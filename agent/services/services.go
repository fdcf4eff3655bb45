// Package services defines the Windows services of a node: a pure function from the node document and the facts of the node
// to what the service control manager (SCM) shall hold, and the act that makes it so.
//
// Every service starts automatically, so that a node comes back from a reboot without the API server, is restarted by the
// SCM after a failure, and runs below the agent's runner (package runner), which keeps its log.
//
// containerd depends on the agent's own service, which says that it runs only once the networks that a former boot left in
// the Host Networking Service are gone. Everything else depends on containerd, so nothing that makes networks or attaches
// pods starts before. The SCM restarts the agent if it fails, and the agent starts what the SCM then gave up.
package services

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/runner"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// Names of the services that the agent defines, beside those in package layout.
const (
	KubeProxy         = "kube-proxy"
	CSIProxy          = "csi-proxy"
	WindowsExporter   = "windows_exporter"
	CloudNodeManager  = "cloud-node-manager"
	Flannel           = "flanneld"
	CalicoNode        = "CalicoNode"
	CalicoFelix       = "CalicoFelix"
	AntreaAgent       = "antrea-agent"
	HybridOverlayNode = "hybrid-overlay-node"
)

// Desired returns the services that the document declares, in the order in which they start: containerd, kubelet, then the
// rest. It depends on r.Doc and r.Facts alone, and a scrubbed document gives the same. containerd is missing if it is the
// image's. The document has its defaults. Errors: codes.ServiceInvalid.
func Desired(r *engine.Run) ([]host.Service, error) {
	var out []host.Service
	if r.Doc.ContainerRuntime.Management != nodev1.Existing {
		s, err := Containerd(r)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	kubelet, err := Kubelet(r)
	if err != nil {
		return nil, err
	}
	rest, err := Rest(r)
	if err != nil {
		return nil, err
	}
	return append(append(out, kubelet), rest...), nil
}

// Rest returns the services beside containerd and kubelet, in the order in which they start. Those that wait for nothing
// come first, so that a pod network which takes its time holds up none of them.
func Rest(r *engine.Run) ([]host.Service, error) {
	var out []host.Service
	for _, define := range []func(*engine.Run) ([]host.Service, error){
		csiProxy, windowsExporter, cloudNodeManager, cni, kubeProxy, additional,
	} {
		services, err := define(r)
		if err != nil {
			return nil, err
		}
		out = append(out, services...)
	}
	return sortByDependencies(out)
}

// program is how one program becomes a service.
type program struct {
	name, display, description string
	options                    nodev1.ServiceOptions
	// artifact is the name under which the facts may hold another path of the program.
	artifact string
	args     []string
	// keepArgs: extraArgs of the options are already in args.
	keepArgs bool
	mode     string // of runner
	runner   runner.Options
	depends  []string
	env      []string
}

func (p program) service(r *engine.Run) host.Service {
	argv := append([]string{p.path(r)}, p.args...)
	if !p.keepArgs {
		argv = append(argv[:1:1], MergeArgs(p.args, p.options.ExtraArgs)...)
	}
	o := p.runner
	o.Mode = p.mode
	if o.Mode == runner.Service {
		o.Name = p.name
	}
	o.LogFile, o.Rotation, o.Priority, o.Argv = layout.Log(p.name), p.options.Log, p.options.PriorityClass, argv
	slices.Sort(p.env)
	return host.Service{
		Name:        p.name,
		DisplayName: cmp.Or(p.display, p.name),
		Description: p.description,
		Argv:        runner.Command(o),
		Start:       host.StartAuto,
		DependsOn:   p.depends,
		Restart:     []time.Duration{5 * time.Second, 30 * time.Second, time.Minute},
		ResetAfter:  time.Hour,
		Environment: p.env,
	}
}

func (p program) path(r *engine.Run) string {
	if path := r.Facts.Paths[p.artifact]; p.artifact != "" && path != "" {
		return path
	}
	return p.options.Path
}

// sortByDependencies returns services so that each comes after those among them that it depends on, and otherwise in the
// order given. A circle, and a name that is there twice, is an error.
func sortByDependencies(in []host.Service) ([]host.Service, error) {
	byName := map[string]host.Service{}
	for _, s := range in {
		key := strings.ToLower(s.Name)
		if _, ok := byName[key]; ok || reserved(key) {
			return nil, codes.New(codes.ServiceInvalid, "there is more than one service %s", s.Name)
		}
		byName[key] = s
	}
	var out []host.Service
	const visiting, visited = 1, 2
	state := map[string]int{}
	var visit func(s host.Service) error
	visit = func(s host.Service) error {
		key := strings.ToLower(s.Name)
		switch state[key] {
		case visited:
			return nil
		case visiting:
			return codes.New(codes.ServiceInvalid, "service %s depends on itself", s.Name)
		}
		state[key] = visiting
		for _, d := range s.DependsOn {
			if dependency, ok := byName[strings.ToLower(d)]; ok {
				if err := visit(dependency); err != nil {
					return err
				}
			}
		}
		state[key] = visited
		out = append(out, s)
		return nil
	}
	for _, s := range in {
		if err := visit(s); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// reserved says whether a lower-case name is that of a service which Rest does not define.
func reserved(name string) bool {
	return name == layout.KubeletService || name == layout.ContainerdService || name == layout.AgentService
}

// firstNodeIP returns the node's first address, or "".
func firstNodeIP(r *engine.Run) string {
	if len(r.Facts.NodeIPs) == 0 {
		return ""
	}
	return r.Facts.NodeIPs[0]
}

func endpoint(r *engine.Run) string { return fmt.Sprintf("https://%s", r.Doc.Join.APIServerEndpoint) }

// Without returns services except the named one and those that depend on it, and Only returns the rest. services are in the
// order of Desired.
func Without(services []host.Service, name string) []host.Service {
	return slices.DeleteFunc(slices.Clone(services), dependsOn(services, name))
}

// Only returns the named service and those that depend on it.
func Only(services []host.Service, name string) []host.Service {
	depends := dependsOn(services, name)
	return slices.DeleteFunc(slices.Clone(services), func(s host.Service) bool { return !depends(s) })
}

func dependsOn(services []host.Service, name string) func(host.Service) bool {
	names := map[string]bool{strings.ToLower(name): true}
	for _, s := range services {
		if slices.ContainsFunc(s.DependsOn, func(d string) bool { return names[strings.ToLower(d)] }) {
			names[strings.ToLower(s.Name)] = true
		}
	}
	return func(s host.Service) bool { return names[strings.ToLower(s.Name)] }
}
