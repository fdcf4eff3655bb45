// Package simagent is the node agent on a simulated machine: its real command line, started by the simulated Windows, with
// stand-ins for the programs that it manages.
package simagent

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capw-dev/cluster-api-provider-windows/agent/cli"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim/simkubelet"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/runner"
)

// ContainerdVersion is the version of the simulated containerd.
const ContainerdVersion = "v2.2.0"

// Options are how the programs of an image are.
type Options struct {
	// Kubelet is how the kubelet is.
	Kubelet simkubelet.Options
	// Log takes what the agent logs. Default: nothing.
	Log io.Writer
}

// Programs are those of an image that has all a node needs: the agent, kubelet, kubeadm and containerd.
func Programs(o Options) map[string]sim.Program {
	version := cmp.Or(o.Kubelet.Version, "v1.36.3")
	return map[string]sim.Program{
		layout.Agent:      Agent(o.Log),
		layout.Kubelet:    versioned(simkubelet.Program(o.Kubelet), "Kubernetes "+version, "--version"),
		layout.Kubeadm:    versioned(simkubelet.Kubeadm, version, "version", "-o", "short"),
		layout.Containerd: versioned(containerd, "containerd github.com/containerd/containerd/v2 "+ContainerdVersion+" 1c4457e00facac03ce1d75f7b6777a7a851e5c41", "--version"),
		serviceHost:       simkubelet.Idle,
	}
}

// serviceHost runs Windows' own services.
const serviceHost = `C:\Windows\System32\svchost.exe`

// Services are those of every Windows that the agent deals with. The time service starts at boot, as it does after the agent
// has set its start type in the registry, which the simulation does not read.
func Services() []host.Service {
	return []host.Service{{Name: "W32Time", Argv: []string{serviceHost}, Start: host.StartAuto}}
}

// versioned is a program that also answers which version it is.
func versioned(run sim.Program, version string, args ...string) sim.Program {
	return func(ctx context.Context, p *sim.Process) int {
		if !slices.Equal(p.Argv[1:], args) {
			return run(ctx, p)
		}
		fmt.Fprintln(p.Stdout, version) //nolint:errcheck // it has nobody else to tell
		return 0
	}
}

// Agent is capw-node.exe.
func Agent(log io.Writer) sim.Program {
	if log == nil {
		log = io.Discard
	}
	return func(ctx context.Context, p *sim.Process) int {
		if _, _, ok := runner.Unwrap(p.Argv); ok {
			return simkubelet.Runner(ctx, p)
		}
		return cli.Main(ctx, cli.Environment{
			Executable: p.Argv[0],
			NewHost:    func(bool) (*host.Host, error) { return p.Host, nil },
			RunService: func(_ string, do func(ctx context.Context, ready func()) error) error {
				return do(ctx, p.Running)
			},
			Log: func(bool) (logr.Logger, io.Closer, error) {
				return logr.FromSlogHandler(slog.NewTextHandler(log, nil)), io.NopCloser(nil), nil
			},
			Stdout: p.Stdout,
			Stderr: p.Stderr,
		}, p.Argv[1:])
	}
}

// containerd is a container runtime that answers on its pipe that it works, and runs nothing.
func containerd(ctx context.Context, p *sim.Process) int {
	l, err := p.ListenPipe(layout.CRIPipe)
	if err != nil {
		fmt.Fprintln(p.Stderr, "containerd:", err) //nolint:errcheck // a log
		return 1
	}
	s := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(s, containerRuntime{})
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	p.Running()
	if err := s.Serve(l); err != nil && ctx.Err() == nil {
		fmt.Fprintln(p.Stderr, "containerd:", err) //nolint:errcheck // a log
		return 1
	}
	return 0
}

// containerRuntime is the part of CRI that is asked whether the runtime works.
type containerRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
}

// Version implements CRI.
func (containerRuntime) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "containerd", RuntimeVersion: ContainerdVersion, RuntimeApiVersion: "v1"}, nil
}

// Status implements CRI. A network comes later, as on a real node.
func (containerRuntime) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Status: false, Reason: "NetworkPluginNotReady"},
	}}}, nil
}
