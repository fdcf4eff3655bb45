// Package network is the phase Network: the adapters are what the document says, the node knows its address, and the API server
// can be reached with a clock that lets certificates be valid.
package network

import (
	"context"
	"time"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
)

// Phase returns the phase Network.
func Phase() engine.Phase {
	return engine.Phase{Name: "Network", Steps: []engine.Step{
		// First, as it gives the adapters back their addresses.
		{Name: "remove stale container networks", Do: CleanHNS, Budget: engine.Retry(2*time.Minute, 2*time.Second, 10*time.Minute)},
		{Name: "configure adapters", Do: ConfigureAdapters, When: hasAdapters, Budget: engine.Retry(time.Minute, 2*time.Second, 10*time.Minute)},
		{Name: "wait for a default route", Do: awaitDefaultRoute, When: needsDefaultRoute, Budget: engine.Retry(20*time.Second, time.Second, 15*time.Minute)},
		{Name: "find the node's address", Do: awaitNodeAddress, Budget: engine.Retry(20*time.Second, time.Second, 15*time.Minute)},
		{Name: "resolve the API server's name", Do: resolveAPIServer, Budget: engine.Retry(30*time.Second, time.Second, 15*time.Minute)},
		{Name: "reach the API server", Do: reachAPIServer, Budget: engine.Retry(30*time.Second, 2*time.Second, 30*time.Minute)},
		{Name: "compare clocks", Do: compareClocks, Budget: engine.Retry(time.Minute, 2*time.Second, 15*time.Minute)},
	}}
}

func hasAdapters(r *engine.Run) bool { return len(r.Doc.Network.Adapters) > 0 }

// needsDefaultRoute: whoever says which address the node has may have a network without one.
func needsDefaultRoute(r *engine.Run) bool {
	return len(r.Doc.Node.IP.CIDRs) == 0 && r.Doc.Node.IP.MAC == ""
}

// pollInterval is how often a condition is looked at when Windows tells no change.
const pollInterval = 5 * time.Second

// await waits until check succeeds, and looks again whenever the network may have changed. When ctx ends it returns the last
// error of check that is not ctx's own.
func await(ctx context.Context, r *engine.Run, check func(ctx context.Context) error) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	changes, err := r.Host.Network.Changes(watching)
	if err != nil {
		changes = nil // the timer is left
	}
	timer := time.NewTicker(pollInterval)
	defer timer.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if info, _ := codes.Of(err); info.Class == codes.Terminal {
			return err
		}
		select {
		case <-ctx.Done():
			return last
		case _, ok := <-changes:
			if !ok {
				changes = nil
			}
		case <-timer.C:
		}
	}
}
