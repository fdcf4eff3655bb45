package env

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/capw-dev/cluster-api-provider-windows/test/env/process"
)

// managerGracePeriod is the terminationGracePeriodSeconds that a manager has in a Pod, doubled for a busy machine.
const managerGracePeriod = 20 * time.Second

// Manager is a controller manager that may be started and ended any number of times. All its runs share ports, identity
// and log file. Methods are safe for concurrent use.
type Manager struct {
	// Diagnostics is the base URL of /metrics and /debug/pprof.
	Diagnostics string

	// Log is the path of the log.
	Log string

	spec     process.Spec
	runner   *process.Runner
	health   string // base URL of /healthz and /readyz
	webhooks string // base URL of the webhook server

	mu      sync.Mutex
	current *process.Process
}

// newManager prepares a manager of the management cluster that acts as user, and does not start it. Its flags are those
// that all Cluster API managers have in common.
func (e *Environment) newManager(name, path, user string, groups []string, args ...string) (*Manager, error) {
	var taken [3]int
	for i := range taken {
		port, err := e.ports.Take()
		if err != nil {
			return nil, err
		}
		taken[i] = port
	}
	webhookPort, healthAddr, diagnosticsAddr := taken[0], loopback+":"+strconv.Itoa(taken[1]), loopback+":"+strconv.Itoa(taken[2])

	kubeconfig, err := e.Management.KubeconfigFor(user, groups...)
	if err != nil {
		return nil, err
	}
	kubeconfigPath, err := e.writeFile(name+".kubeconfig", kubeconfig)
	if err != nil {
		return nil, err
	}
	serving, err := e.Management.CA.Server(name, loopback)
	if err != nil {
		return nil, err
	}
	certDir := e.path(name + "-webhook")
	if _, _, err := serving.Write(certDir, "tls"); err != nil {
		return nil, err
	}
	return &Manager{
		Diagnostics: "http://" + diagnosticsAddr,
		Log:         e.path(logDir, name+".log"),
		health:      "http://" + healthAddr,
		webhooks:    "https://" + loopback + ":" + strconv.Itoa(webhookPort),
		runner:      e.runner,
		spec: process.Spec{
			Name: name,
			Path: path,
			Args: append(args,
				"--kubeconfig="+kubeconfigPath,
				"--webhook-port="+strconv.Itoa(webhookPort),
				"--webhook-cert-dir="+certDir,
				"--health-addr="+healthAddr,
				"--diagnostics-address="+diagnosticsAddr,
				"--insecure-diagnostics",
			),
			GracePeriod: managerGracePeriod,
		},
	}, nil
}

// Start runs the manager and returns when it is ready, webhooks included. It is an error if the manager is running.
func (m *Manager) Start(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.start(ctx)
}

func (m *Manager) start(ctx context.Context, args ...string) error {
	spec := m.spec
	spec.Args = slices.Concat(spec.Args, args)
	p, err := m.runner.Start(spec)
	if err != nil {
		return err
	}
	m.current = p
	return p.Await(ctx, startTimeout, func(ctx context.Context) error {
		return probe(ctx, http.DefaultClient, m.health+"/readyz")
	})
}

// Stop asks the manager to end (SIGTERM) and returns when it has. It is an error if the manager does not end in time or
// not with status 0. Stopping a manager that does not run is no error, unless it had ended by itself.
func (m *Manager) Stop(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stop(ctx)
}

func (m *Manager) stop(ctx context.Context) error {
	if m.current == nil {
		return nil
	}
	err := m.current.Stop(ctx)
	m.current = nil
	return err
}

// Kill ends the manager as a crash does (SIGKILL) and returns when it is gone.
func (m *Manager) Kill() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current == nil {
		return errors.New("killing manager: it does not run")
	}
	err := m.current.Kill()
	m.current = nil
	return err
}

// Restart stops the manager, as a rollout of its Deployment would, and starts it again, this once with args added to its
// command line.
func (m *Manager) Restart(ctx context.Context, args ...string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.stop(ctx); err != nil {
		return fmt.Errorf("restarting: %w", err)
	}
	return m.start(ctx, args...)
}

// Process returns the running process, or nil.
func (m *Manager) Process() *process.Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current
}
