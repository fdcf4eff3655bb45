package services

import (
	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/runner"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// KubeProxyConfig is kube-proxy's configuration, ExporterWebConfig that of windows_exporter's server.
const (
	KubeProxyConfig   = `C:\var\lib\kube-proxy\config.conf`
	ExporterWebConfig = `C:\var\lib\windows_exporter\web-config.yaml`
)

// Containerd returns the service containerd.
//
// It is a console program below the runner. As a service of its own it would look whether the SCM started it, which is not
// so below any program that keeps its log.
func Containerd(r *engine.Run) (host.Service, error) {
	return program{
		name:        layout.ContainerdService,
		description: "Container runtime of the Kubernetes node.",
		options:     r.Doc.ContainerRuntime.ServiceOptions,
		artifact:    "containerd",
		args:        []string{"--config", layout.ContainerdConfig},
		mode:        runner.Service,
		runner:      runner.Options{LeaveChildren: true}, // its shims hold the containers
		depends:     []string{layout.AgentService},
	}.service(r), nil
}

// Kubelet returns the service kubelet with the flags in the facts, which the phase Join puts there (package kubelet), the
// document's extraArgs among them.
//
// It is a Windows service itself (--windows-service): it then knows how to shut pods down when Windows does.
func Kubelet(r *engine.Run) (host.Service, error) {
	if len(r.Facts.KubeletArgs) == 0 {
		return host.Service{}, codes.New(codes.Internal, "the kubelet's flags are not known before the phase Join")
	}
	depends := []string{layout.ContainerdService}
	if r.Doc.ContainerRuntime.Management == nodev1.Existing { // whose service knows nothing of us
		depends = append(depends, layout.AgentService)
	}
	return program{
		name:        layout.KubeletService,
		description: "Kubernetes node agent.",
		options:     r.Doc.Kubelet.ServiceOptions,
		artifact:    "kubelet",
		args:        r.Facts.KubeletArgs,
		keepArgs:    true,
		mode:        runner.Exec,
		depends:     depends,
	}.service(r), nil
}

// kubeProxy is a console program: as a service of its own it does nothing more, and ends no better.
func kubeProxy(r *engine.Run) ([]host.Service, error) {
	o := r.Doc.Services.KubeProxy
	if o == nil {
		return nil, nil
	}
	depends := []string{layout.KubeletService}
	if names := cniNames(r); len(names) > 0 {
		depends = append(depends, names[len(names)-1]) // that makes the network which it serves
	}
	return []host.Service{program{
		name:        KubeProxy,
		description: "Kubernetes service proxy.",
		options:     o.ServiceOptions,
		artifact:    "kube-proxy",
		args:        []string{"--config=" + KubeProxyConfig, "--v=2"},
		mode:        runner.Service,
		depends:     depends,
	}.service(r)}, nil
}
