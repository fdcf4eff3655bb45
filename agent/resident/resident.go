// Package resident keeps the services of a node as its document declares them, for as long as the node lives.
//
// It looks when the SCM tells that a service has changed, a moment later, and now and then without being told. What differs
// is put right: a service that was deleted, disabled or given another command line is registered again, one that was stopped
// is started. The SCM restarts programs that fail; the resident does so only when the SCM has given up. A service that does
// not stay up is tried again with growing pauses, and nothing that is as declared is ever touched.
//
// It reads its own Node, with the node's own identity, where a pod network asks for that, and nothing else of the cluster.
package resident

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/go-logr/logr"

	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/services"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

const (
	// interval is the time between two looks without a reason; it varies by a fifth, so that the nodes of a cluster which were
	// made at once do not act at once.
	interval = 5 * time.Minute
	// settle is the pause between a change and the look at it: most changes come in groups, and the SCM's first restart of a
	// failed service takes half of it.
	settle = 10 * time.Second
	// recheck is the time between two looks while something is awaited, such as a network.
	recheck = 30 * time.Second
	// checkTime bounds one look, in which every service may need minutes to stop and to start.
	checkTime = 15 * time.Minute
	// pruneEvery is the time between two looks at the log folders.
	pruneEvery = time.Hour
)

// Options of Run.
type Options struct {
	// Save makes the facts durable. Default: they are kept in memory, and found out again after a restart.
	Save func(ctx context.Context) error
	// Report is told every difference when it is seen first, and what came of it. It must not block. Default: nobody is told
	// beyond log and event log.
	Report func(Drift)
}

// Run keeps the services until ctx ends, and then returns nil. doc has its defaults; facts are those of the first boot, and
// nobody else changes them meanwhile. An error means that the process should start anew: a call into Windows hangs, or the
// document defines no services.
func Run(ctx context.Context, h *host.Host, doc *nodev1.NodeConfiguration, facts *engine.Facts, o Options) error {
	if o.Save == nil {
		o.Save = func(context.Context) error { return nil }
	}
	run := engine.NewRun(h, doc, facts, o.Save)
	desired, err := services.Desired(run)
	if err != nil {
		return err
	}
	k := &keeper{run: run, desired: desired, report: o.Report, watched: map[string]*watched{}}
	names := make([]string, len(desired))
	for i, s := range desired {
		names[i] = s.Name
		k.watched[s.Name] = &watched{}
	}
	var changes <-chan string
	timer := time.NewTimer(settle) // after a boot, the SCM is about to start them
	defer timer.Stop()
	for due := time.Now().Add(settle); ; {
		select {
		case <-ctx.Done():
			return nil
		case name, ok := <-changes:
			if !ok {
				changes = nil // it is asked for again at the next look
			} else if w := k.watched[name]; w != nil {
				w.changed = time.Now()
			}
			if soon := time.Now().Add(settle); soon.Before(due) {
				due = soon
				timer.Reset(settle)
			}
		case <-timer.C:
			if changes == nil { // before the look, so that no change is missed between the two
				changes = subscribe(ctx, h, names)
			}
			next, err := k.look(ctx)
			if err != nil {
				return err
			}
			due = time.Now().Add(next)
			timer.Reset(next)
		}
	}
}

func subscribe(ctx context.Context, h *host.Host, names []string) <-chan string {
	changes, err := h.Services.Changes(ctx, names)
	if err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "The SCM does not tell changes of services; looking now and then instead")
		return nil
	}
	return changes
}

// look puts right what differs, and returns when to look again.
func (k *keeper) look(ctx context.Context) (time.Duration, error) {
	k.again = jittered(interval)
	err := engine.Bounded(ctx, checkTime, "keep the services", func(ctx context.Context) error {
		k.keep(ctx)
		if time.Since(k.pruned) >= pruneEvery {
			k.pruned = time.Now()
			pruneLogs(ctx, k.run, k.desired)
		}
		return nil
	})
	return k.again, err
}

// sooner makes the next look come no later than in d.
func (k *keeper) sooner(d time.Duration) { k.again = min(k.again, max(d, time.Second)) }

func jittered(d time.Duration) time.Duration {
	return d - d/5 + rand.N(2*d/5) //nolint:gosec // no secret
}
