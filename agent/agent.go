// Package agent makes one Windows machine the node that its document describes, and keeps it so.
//
// It runs in two processes. "bootstrap" is started by the first-boot script: it installs the agent as a Windows service and
// ends. "run" is that service: it works through the phases of the first boot, over crashes and reboots, and then stays as the
// resident that keeps the declared services running.
package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/network"
	"github.com/capw-dev/cluster-api-provider-windows/agent/reset"
	"github.com/capw-dev/cluster-api-provider-windows/agent/resident"
	"github.com/capw-dev/cluster-api-provider-windows/agent/status"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// rebootPatience is how long Windows may take to go down before it is asked again.
const rebootPatience = 5 * time.Minute

// Agent is the node agent on one machine.
type Agent struct {
	Host *host.Host
	// Executable is the path of the program that runs.
	Executable string
	// Version of the agent.
	Version string
	// ServiceArgs are added to the service's command line.
	ServiceArgs []string
}

// Run is the service. It calls ready once the SCM may start what depends on the agent, works through the first boot, and
// then keeps the node's services until ctx ends. An error asks for a restart by the SCM; that a first boot has failed, and
// that nothing more will be tried, is none.
func (a *Agent) Run(ctx context.Context, ready func()) error {
	log := logr.FromContextOrDiscard(ctx)
	var doc *nodev1.NodeConfiguration
	var journal *engine.Journal
	if err := engine.Bounded(ctx, time.Minute, "load document and journal", func(ctx context.Context) (err error) {
		doc, journal, err = a.load(ctx)
		return err
	}); err != nil {
		ready()
		return err
	}
	reporter := status.New(a.Host, doc.Boot.StatusPort)
	e := &engine.Engine{
		Host: a.Host, Doc: doc, Phases: phases.All(), Journal: journal, Version: a.Version, Report: reporter.Report,
	}
	if journal.Done {
		// Containers start with kubelet and containerd, which wait for us: networks of the boot before must be gone by then.
		if err := engine.Bounded(ctx, 2*time.Minute, "remove stale networks", func(ctx context.Context) error {
			return a.cleanNetworks(ctx, doc, journal)
		}); err != nil {
			log.Error(err, "Removing stale networks of containers; pods may lack a network")
		}
	}
	ready()
	err := e.Run(ctx)
	failure := (*engine.Failure)(nil)
	switch {
	case errors.Is(err, engine.ErrRebooting):
		return a.awaitReboot(ctx)
	case errors.As(err, &failure):
		log.Info("First boot has failed", "code", failure.Code, "phase", failure.Phase, "step", failure.Step,
			"error", failure.Message, "remedy", codes.Lookup(failure.Code).Remedy)
		return nil
	case err != nil:
		return err
	}
	log.Info("First boot is done, keeping the services as declared")
	return resident.Run(ctx, a.Host, doc, &journal.Facts, resident.Options{Save: func(ctx context.Context) error {
		return engine.SaveJournal(ctx, a.Host.Files, journal)
	}})
}

func (a *Agent) cleanNetworks(ctx context.Context, doc *nodev1.NodeConfiguration, journal *engine.Journal) error {
	run := engine.NewRun(a.Host, doc, &journal.Facts, func(ctx context.Context) error {
		return engine.SaveJournal(ctx, a.Host.Files, journal)
	})
	return network.CleanHNS(ctx, run)
}

// awaitReboot waits for the end of this boot.
func (a *Agent) awaitReboot(ctx context.Context) error {
	t := time.NewTimer(rebootPatience)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return nil
	case <-t.C:
		return fmt.Errorf("windows did not reboot within %s", rebootPatience)
	}
}

// Reset undoes what the agent did on this machine. It goes on after failures, and returns all of them; to call it again is
// safe. The agent's program stays.
func (a *Agent) Reset(ctx context.Context) error {
	if err := a.Host.Services.Stop(ctx, layout.AgentService); err != nil && !errors.Is(err, host.ErrNotFound) {
		return fmt.Errorf("stopping service %s: %w", layout.AgentService, err)
	}
	facts := engine.Facts{}
	journal, err := engine.LoadJournal(ctx, a.Host.Files)
	if err == nil {
		facts = journal.Facts
	}
	if err := reset.Run(ctx, a.Host, &facts, reset.Options{}); err != nil {
		return err
	}
	return a.uninstall(ctx)
}
