// Package simkubelet are stand-ins for programs of Kubernetes on a simulated machine: a kubelet, kubeadm, and the agent's
// runner below which they run. They know the machine by the same files, flags and services as the real ones, and refuse what
// those refuse on Windows. The API server that they talk to may be a real one.
package simkubelet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	kubeletv1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
)

// Options are how a kubelet is.
type Options struct {
	// Version that it reports. Default: v1.36.3.
	Version string
	// Heartbeat is the pause between reports of its status, and renewals of its Lease. Default: ten seconds.
	Heartbeat time.Duration
	// WithoutRuntime: it does not ask whether the container runtime answers on its pipe.
	WithoutRuntime bool
	// NotReady is why the Node is not Ready, such as that the network is not; nil or empty: it is Ready.
	NotReady func(ctx context.Context, p *sim.Process) string
}

// Program returns the kubelet. It logs to stderr as the real one does.
func Program(o Options) sim.Program {
	if o.Version == "" {
		o.Version = "v1.36.3"
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = 10 * time.Second
	}
	return func(ctx context.Context, p *sim.Process) int {
		k := &daemon{Options: o, p: p}
		if err := k.run(ctx); err != nil && ctx.Err() == nil {
			k.logf('E', "run.go:72", `"command failed" err=%q`, err.Error())
			return 1
		}
		return 0
	}
}

// daemon is a kubelet that runs.
type daemon struct {
	Options
	p      *sim.Process
	flags  map[string]string
	config kubeletv1.KubeletConfiguration
}

func (k *daemon) logf(severity byte, at, format string, args ...any) {
	fmt.Fprintf(k.p.Stderr, "%c%s %7d %s] %s\n", severity, time.Now().Format("0102 15:04:05.000000"), k.p.PID, at, fmt.Sprintf(format, args...)) //nolint:errcheck // a log
}

func (k *daemon) run(ctx context.Context) error {
	var err error
	if k.flags, err = parseFlags(k.p.Argv[1:]); err != nil {
		return err
	}
	if k.flags["windows-service"] == "true" {
		k.p.Running() // before anything else is known to work
	}
	if err := k.loadConfig(ctx); err != nil {
		return err
	}
	if !k.WithoutRuntime {
		if err := k.dialRuntime(ctx); err != nil {
			return err
		}
	}
	identity, err := k.identity(ctx)
	if err != nil {
		return fmt.Errorf("failed to run Kubelet: %w", err)
	}
	defer identity.Close()
	if err := k.serveHealth(ctx); err != nil {
		return err
	}
	return k.live(ctx, identity)
}

// knownFlags are those of kubelet v1.36 that the agent, kubeadm and people use. It ends when it is given any other.
func knownFlags() []string {
	return []string{
		"config", "config-dir", "bootstrap-kubeconfig", "kubeconfig", "cert-dir", "root-dir", "hostname-override", "node-ip", "node-labels",
		"windows-service", "windows-priorityclass", "v", "cloud-provider", "register-with-taints", "max-pods",
		"image-credential-provider-bin-dir", "image-credential-provider-config", "container-runtime-endpoint", "provider-id",
	}
}

func parseFlags(args []string) (map[string]string, error) {
	out := map[string]string{}
	for _, arg := range args {
		name, value, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		name = strings.ReplaceAll(name, "_", "-")
		known := false
		for _, k := range knownFlags() {
			known = known || k == name
		}
		switch {
		case !strings.HasPrefix(arg, "-"):
			return nil, fmt.Errorf("unknown command %s", arg)
		case !known:
			return nil, fmt.Errorf("failed to parse kubelet flag: unknown flag: --%s", name)
		case !hasValue:
			value = "true"
		}
		out[name] = value
	}
	switch out["windows-priorityclass"] {
	case "", "IDLE_PRIORITY_CLASS", "BELOW_NORMAL_PRIORITY_CLASS", "NORMAL_PRIORITY_CLASS", "ABOVE_NORMAL_PRIORITY_CLASS", "HIGH_PRIORITY_CLASS":
	default:
		return nil, fmt.Errorf("unknown valid priority class %q", out["windows-priorityclass"])
	}
	return out, nil
}

// loadConfig reads the configuration. As the real one, it is strict first, and lets unknown fields pass with a warning.
func (k *daemon) loadConfig(ctx context.Context) error {
	path := k.flags["config"]
	raw, err := k.p.Host.Files.Read(ctx, path)
	if err != nil {
		return fmt.Errorf("failed to load kubelet config file, path: %s, error: %w", path, err)
	}
	if err := yaml.UnmarshalStrict(raw, &k.config); err != nil {
		k.logf('W', "config.go:1", "using lenient decoding as strict decoding failed: %v", err)
		k.config = kubeletv1.KubeletConfiguration{}
		if err := yaml.Unmarshal(raw, &k.config); err != nil {
			return fmt.Errorf("failed to load kubelet config file, path: %s, error: %w", path, err)
		}
	}
	return errors.Join(k.checkConfig(), k.checkPaths(ctx))
}

// checkConfig is what kubelet v1.36 refuses on Windows, and what older ones do.
func (k *daemon) checkConfig() error {
	c := k.config
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("invalid configuration: "+format, args...)
	}
	switch {
	case c.SingleProcessOOMKill != nil:
		return invalid("singleProcessOOMKill is not supported on Windows")
	case c.UserNamespaces != nil:
		return invalid("userNamespaces is not supported on Windows")
	case c.CgroupsPerQOS == nil || *c.CgroupsPerQOS:
		return invalid("CgroupsPerQOS (--cgroups-per-qos) true is not supported on Windows")
	case c.EnforceNodeAllocatable == nil || len(c.EnforceNodeAllocatable) > 0:
		return invalid("EnforceNodeAllocatable (--enforce-node-allocatable) %v is not supported on Windows", c.EnforceNodeAllocatable)
	case !strings.HasPrefix(c.ContainerRuntimeEndpoint, "npipe://") && !strings.HasPrefix(c.ContainerRuntimeEndpoint, "tcp://"):
		return invalid("container runtime endpoint %q: protocol not supported", c.ContainerRuntimeEndpoint)
	}
	for signal := range c.EvictionHard {
		if strings.HasSuffix(signal, "inodesFree") {
			return invalid("unknown eviction signal %s on Windows", signal)
		}
	}
	return nil
}

// checkPaths opens what the configuration points to.
func (k *daemon) checkPaths(ctx context.Context) error {
	for name, path := range map[string]string{
		"clientCAFile": k.config.Authentication.X509.ClientCAFile, "staticPodPath": k.config.StaticPodPath,
	} {
		if path == "" {
			continue
		}
		if len(path) < 3 || path[1:3] != `:\` {
			return fmt.Errorf("%s %q is not an absolute path", name, path)
		}
		if _, err := k.p.Host.Files.Stat(ctx, path); err != nil {
			return fmt.Errorf("failed to run Kubelet: unable to load %s %s: %w", name, path, err)
		}
	}
	return nil
}

func (k *daemon) dialRuntime(ctx context.Context) error {
	pipe := strings.ReplaceAll(strings.TrimPrefix(k.config.ContainerRuntimeEndpoint, "npipe://"), "/", `\`)
	if strings.HasPrefix(pipe, `.\`) { // npipe://./pipe/name
		pipe = `\\` + pipe
	}
	c, err := k.p.Host.Network.DialContext(ctx, "pipe", pipe)
	if err != nil {
		return fmt.Errorf("failed to run Kubelet: validate service connection: validate CRI v1 runtime API for endpoint %q: %w", k.config.ContainerRuntimeEndpoint, err)
	}
	return c.Close()
}

func (k *daemon) serveHealth(ctx context.Context) error {
	port := int32(10248)
	if k.config.HealthzPort != nil {
		port = *k.config.HealthzPort
	}
	if port == 0 {
		return nil
	}
	address := k.config.HealthzBindAddress
	if address == "" {
		address = "127.0.0.1"
	}
	l, err := k.p.Listen(fmt.Sprintf("%s:%d", address, port))
	if err != nil {
		return fmt.Errorf("failed to start healthz server: %w", err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			http.NotFound(w, r)
			return
		}
		w.Write([]byte("ok")) //nolint:errcheck // nobody is left to be told
	})}
	go server.Serve(l)                                //nolint:errcheck // it ends with the process
	context.AfterFunc(ctx, func() { server.Close() }) //nolint:errcheck // see above
	return nil
}
