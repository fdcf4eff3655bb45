// Package env starts a whole Cluster API installation as plain processes on this machine, without containers:
//
//   - a management cluster (kube-apiserver, kube-controller-manager) with the real Cluster API core provider, its webhooks,
//     its RBAC, and our two providers;
//   - a workload cluster, separate from it, that looks as "kubeadm init" leaves one;
//   - one etcd for both, and a simulated vCenter.
//
// Everything listens on 127.0.0.1, on ports of its own, in a folder of its own, so that any number of environments run at
// the same time. No process survives the one that started the environment, however that ends.
package env

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/capw-dev/cluster-api-provider-windows/test/env/assets"
	"github.com/capw-dev/cluster-api-provider-windows/test/env/ports"
	"github.com/capw-dev/cluster-api-provider-windows/test/env/process"
	"github.com/capw-dev/cluster-api-provider-windows/test/env/workdir"
)

// Options for Start. The zero value starts everything, quietly.
type Options struct {
	// Progress receives one line per stage. Default: none.
	Progress io.Writer

	// Dir is the folder for data, keys, kubeconfig files and logs; it must be empty or missing. Default: a new folder below
	// the system's temporary folder. Stop removes it unless Keep is set.
	Dir string

	// Keep leaves Dir behind, for a look at the logs.
	Keep bool

	// NoWorkload leaves out the workload cluster.
	NoWorkload bool

	// NoManagement leaves out the management cluster, and with it Cluster API and our providers: what is left is a cluster to
	// join.
	NoManagement bool

	// NoCAPI leaves out Cluster API and with it our providers: the management cluster is a bare Kubernetes.
	NoCAPI bool

	// NoManager leaves out our manager with its webhooks and RBAC; our CRDs are there.
	NoManager bool

	// NoVCSim leaves out the simulated vCenter.
	NoVCSim bool

	// ManagerArgs are added to the command line of our manager.
	ManagerArgs []string

	// VCSimArgs are added to the command line of the simulated vCenter.
	VCSimArgs []string
}

// logDir is the folder of the logs below Environment.Dir.
const logDir = "logs"

// Environment is what Start has started. Parts that the Options leave out are nil.
type Environment struct {
	// Dir holds data, keys, kubeconfig files (<name>.kubeconfig) and logs (logs/<process>.log).
	Dir string

	// Assets are the programs in use; kubectl and clusterctl are there for the caller.
	Assets *assets.Assets

	// Management is the cluster that Cluster API runs in.
	Management *Cluster

	// Workload is the cluster that nodes join.
	Workload *Cluster

	// Core is the manager of the Cluster API core provider.
	Core *Manager

	// Manager is our manager, which runs both of our providers.
	Manager *Manager

	// VCSim is the simulated vCenter.
	VCSim *VCSim

	opts   Options
	scheme *runtime.Scheme
	runner *process.Runner
	ports  *ports.Set
	dir    *workdir.Dir
	etcd   string // URL

	progressMu sync.Mutex
}

// Start starts an environment and returns when every part of it is ready. ctx bounds the start only; the environment then
// lives until Stop. After an error nothing is left running.
func Start(ctx context.Context, opts Options) (_ *Environment, rerr error) {
	if opts.Progress == nil {
		opts.Progress = io.Discard
	}
	scheme, err := newScheme()
	if err != nil {
		return nil, fmt.Errorf("building scheme: %w", err)
	}
	dir, err := workdir.New(opts.Dir, "capw-env-*")
	if err != nil {
		return nil, err
	}
	e := &Environment{Dir: dir.Path, opts: opts, scheme: scheme, dir: dir, ports: &ports.Set{}}
	defer func() {
		if rerr != nil {
			// With what is left of ctx nothing could be stopped in order.
			rerr = errors.Join(rerr, e.Stop(context.WithoutCancel(ctx)))
		}
	}()
	if e.runner, err = process.NewRunner(e.path(logDir), e.noticeExit); err != nil {
		return nil, err
	}
	if e.Assets, err = assets.Ensure(ctx, assets.Options{Progress: (*progress)(e)}); err != nil {
		return nil, fmt.Errorf("providing programs: %w", err)
	}
	if err := e.startAll(ctx); err != nil {
		return nil, err
	}
	return e, nil
}

// startAll starts what does not depend on each other at the same time: two processors have to be shared by all of it.
func (e *Environment) startAll(ctx context.Context) error {
	begin := time.Now()
	built := newBuilds(e)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return built.run(ctx) })
	g.Go(func() error {
		if err := e.startEtcd(ctx); err != nil {
			return err
		}
		if !e.opts.NoManagement {
			g.Go(func() error { return e.startManagement(ctx, built) })
		}
		if !e.opts.NoWorkload {
			g.Go(func() error { return e.startWorkload(ctx) })
		}
		return nil
	})
	if !e.opts.NoVCSim {
		g.Go(func() error { return e.startVCSim(ctx, built) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	e.progressf("environment ready in %s: %s", time.Since(begin).Round(100*time.Millisecond), e.Dir)
	return nil
}

// startManagement starts the management cluster and everything that runs against it.
func (e *Environment) startManagement(ctx context.Context, built *builds) (err error) {
	if e.Management, err = e.startCluster(ctx, managementProfile()); err != nil {
		return fmt.Errorf("starting management cluster: %w", err)
	}
	if e.opts.NoCAPI {
		return e.startControllers(e.Management)
	}
	if err := e.installProviders(ctx); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return e.Core.Start(ctx) })
	if !e.opts.NoManager {
		g.Go(func() error {
			if err := built.await(ctx, managerBinary); err != nil {
				return err
			}
			return e.Manager.Start(ctx)
		})
	}
	return g.Wait()
}

// Stop ends all processes, the managers first because they were started last, and removes the folder. With a nil error no
// process of the environment is left, none had ended before without being asked to, and the managers ended in order.
func (e *Environment) Stop(ctx context.Context) error {
	var errs []error
	if e.runner != nil {
		errs = append(errs, e.runner.Close(ctx))
	}
	e.ports.Release()
	errs = append(errs, e.dir.Close(e.opts.Keep))
	return errors.Join(errs...)
}

// KeepDir makes Stop leave Dir behind, as Options.Keep does: for a test that has failed.
func (e *Environment) KeepDir() { e.opts.Keep = true }

// noticeExit tells at once what would otherwise surface as a puzzling time-out somewhere else.
func (e *Environment) noticeExit(p *process.Process) {
	if err := p.Err(); err != nil {
		e.progressf("%v", err)
	}
}

func (e *Environment) progressf(format string, args ...any) {
	_, _ = fmt.Fprintf((*progress)(e), format+"\n", args...)
}

// progress lets several goroutines write to Options.Progress.
type progress Environment

func (p *progress) Write(b []byte) (int, error) {
	p.progressMu.Lock()
	defer p.progressMu.Unlock()
	return p.opts.Progress.Write(b)
}

func (e *Environment) path(elem ...string) string {
	return filepath.Join(append([]string{e.Dir}, elem...)...)
}

func (e *Environment) writeFile(name string, data []byte) (string, error) {
	path := e.path(name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return "", fmt.Errorf("writing %s: %w", name, err)
	}
	return path, nil
}
