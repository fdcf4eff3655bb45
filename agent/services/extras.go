package services

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/runner"
)

// csiProxy is a console program unless it is told -windows-service.
func csiProxy(r *engine.Run) ([]host.Service, error) {
	o := r.Doc.Services.CSIProxy
	if o == nil {
		return nil, nil
	}
	return []host.Service{program{
		name:        CSIProxy,
		description: "Lets storage drivers in containers manage disks of the node.",
		options:     *o,
		artifact:    "csi-proxy",
		args:        []string{"-v=2"},
		mode:        runner.Service,
		depends:     []string{layout.ContainerdService},
	}.service(r)}, nil
}

// windowsExporter is a console program where the SCM did not start it itself, and then needs no event log.
func windowsExporter(r *engine.Run) ([]host.Service, error) {
	o := r.Doc.Services.WindowsExporter
	if o == nil {
		return nil, nil
	}
	args := []string{
		"--collectors.enabled=" + strings.Join(o.Collectors, ","),
		"--web.listen-address=:" + strconv.Itoa(int(o.Port)),
		"--log.file=stderr",
	}
	switch o.TLS {
	case "None":
	case "Kubelet", "Files":
		if o.TLS == "Files" && (o.TLSCertFile == "" || o.TLSKeyFile == "") {
			return nil, codes.New(codes.ServiceInvalid, "services.windowsExporter.tls is Files, so tlsCertFile and tlsKeyFile are needed")
		}
		args = append(args, "--web.config.file="+ExporterWebConfig)
	default:
		return nil, codes.New(codes.ServiceInvalid, "services.windowsExporter.tls: %q is not Kubelet, Files or None", o.TLS)
	}
	return []host.Service{program{
		name:        WindowsExporter,
		description: "Metrics of Windows for Prometheus.",
		options:     o.ServiceOptions,
		artifact:    "windows_exporter",
		args:        args,
		mode:        runner.Service,
	}.service(r)}, nil
}

// cloudNodeManager is a console program unless it is told --windows-service.
func cloudNodeManager(r *engine.Run) ([]host.Service, error) {
	o := r.Doc.Services.CloudNodeManager
	if o == nil {
		return nil, nil
	}
	return []host.Service{program{
		name:        CloudNodeManager,
		description: "Tells the cluster what Azure knows of this node.",
		options:     o.ServiceOptions,
		artifact:    "azure-cloud-node-manager",
		args: []string{
			"--node-name=" + r.Doc.Node.Name,
			"--wait-routes=" + strconv.FormatBool(o.WaitRoutes == "Enabled"),
			"--kubeconfig=" + o.Kubeconfig,
			"--v=2",
		},
		mode:    runner.Service,
		depends: []string{layout.KubeletService},
	}.service(r)}, nil
}

func additional(r *engine.Run) ([]host.Service, error) {
	var out []host.Service
	for _, a := range r.Doc.Services.Additional {
		if a.Name == "" || a.Path == "" || strings.ContainsAny(a.Name, `/\`) {
			return nil, codes.New(codes.ServiceInvalid, "services.additional %q needs a name without slashes, and a path", a.Name)
		}
		p := program{
			name:        a.Name,
			description: "Additional service of the Kubernetes node.",
			options:     a.ServiceOptions,
			args:        expand(r, MergeArgs(a.Args, a.ExtraArgs)),
			keepArgs:    true,
			depends:     a.DependsOn,
		}
		switch a.Kind {
		case "Console":
			p.mode = runner.Service
		case "Service":
			p.mode = runner.Exec
		default:
			return nil, codes.New(codes.ServiceInvalid, "services.additional %s: kind %q is not Console or Service", a.Name, a.Kind)
		}
		for _, name := range slices.Sorted(maps.Keys(a.Environment)) {
			p.env = append(p.env, name+"="+a.Environment[name])
		}
		out = append(out, p.service(r))
	}
	return out, nil
}

// expand replaces the variables that arguments of additional services may have. What they stand for is not looked at again.
func expand(r *engine.Run, args []string) []string {
	replacer := strings.NewReplacer(
		"${NODE_NAME}", r.Doc.Node.Name,
		"${NODE_IP}", firstNodeIP(r),
		"${API_SERVER}", endpoint(r),
		"${KUBECONFIG}", layout.Kubeconfig,
	)
	out := make([]string, len(args))
	for i, a := range args {
		out[i] = replacer.Replace(a)
	}
	return out
}
