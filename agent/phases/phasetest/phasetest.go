// Package phasetest runs phases with the engine on a simulated machine, for their tests.
package phasetest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim/faultloop"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// Document returns a document with defaults, after change.
func Document(change func(doc *nodev1.NodeConfiguration)) *nodev1.NodeConfiguration {
	doc := &nodev1.NodeConfiguration{
		Cluster: nodev1.ClusterInfo{Namespace: "default", Name: "prod", KubernetesVersion: "v1.36.3"},
		Node:    nodev1.NodeInfo{Name: "prod-ki54itvck1", ProviderID: "Auto"},
		Join: nodev1.JoinInfo{
			APIServerEndpoint: "prod.example.test:6443",
			CACertHashes:      []string{"sha256:" + strings.Repeat("0123456789abcdef", 4)},
			Token:             "abcdef.0123456789abcdef",
		},
	}
	if change != nil {
		change(doc)
	}
	doc.Default()
	return doc
}

// Result is how phases went.
type Result struct {
	Facts engine.Facts
	// Statuses are all that were reported.
	Statuses []nodev1.BootStatus
}

// Run runs phases on a machine until they are done or have failed, through reboots and power cuts. It is called in a bubble of
// testing/synctest.
func Run(ctx context.Context, m *sim.Machine, doc *nodev1.NodeConfiguration, phases ...engine.Phase) (Result, error) {
	var out Result
	err := faultloop.Drive(ctx, m, func(ctx context.Context, h *host.Host) error {
		err := runOnce(ctx, h, doc, &out, phases)
		switch {
		case err == nil:
		case errors.Is(err, engine.ErrRebooting):
			<-m.Off()
		case hung(err):
			m.Cut() // the agent would end, and with it the call that hangs
		}
		return err
	})
	return out, err
}

func runOnce(ctx context.Context, h *host.Host, doc *nodev1.NodeConfiguration, out *Result, phases []engine.Phase) error {
	journal, err := load(ctx, h)
	for range 3 {
		if err == nil || hung(err) {
			break
		}
		journal, err = load(ctx, h)
	}
	if err != nil {
		return err
	}
	e := &engine.Engine{Host: h, Doc: doc, Phases: phases, Journal: journal, Report: func(_ context.Context, s nodev1.BootStatus) {
		out.Statuses = append(out.Statuses, s)
	}}
	err = e.Run(ctx)
	out.Facts = journal.Facts
	return err
}

func hung(err error) bool {
	info, _ := codes.Of(err)
	return info.Code == codes.StepHung
}

// load returns the journal, a new one on a new machine.
func load(ctx context.Context, h *host.Host) (*engine.Journal, error) {
	loaded := make(chan *engine.Journal, 1)
	err := engine.Bounded(ctx, time.Minute, "load", func(ctx context.Context) error {
		if err := h.Files.Mkdir(ctx, layout.StateDir, host.ACLSystem); err != nil {
			return err
		}
		journal, err := engine.LoadJournal(ctx, h.Files)
		if errors.Is(err, fs.ErrNotExist) {
			journal, err = &engine.Journal{}, nil
		}
		loaded <- journal
		return err
	})
	if err != nil {
		return nil, err
	}
	return <-loaded, nil
}

// Test runs a phase on a new machine in a bubble, and hands over how it went.
func Test(t *testing.T, o sim.Options, doc *nodev1.NodeConfiguration, phase engine.Phase, then func(m *sim.Machine, r Result, err error)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := sim.New(o)
		defer m.PowerOff()
		r, err := Run(t.Context(), m, doc, phase)
		then(m, r, err)
	})
}

// Loop disturbs a phase at host calls, in every way: it ends as undisturbed. Of calls that are made again and again the first
// is disturbed. Some lives have many faults, by chance.
func Loop(t *testing.T, o sim.Options, doc *nodev1.NodeConfiguration, phase engine.Phase, prepare func(ctx context.Context, m *sim.Machine)) {
	t.Helper()
	loop(t, o, doc, phase, 1, prepare)
}

// LoopAll is Loop at every single call.
func LoopAll(t *testing.T, o sim.Options, doc *nodev1.NodeConfiguration, phase engine.Phase, prepare func(ctx context.Context, m *sim.Machine)) {
	t.Helper()
	loop(t, o, doc, phase, 0, prepare)
}

func loop(t *testing.T, o sim.Options, doc *nodev1.NodeConfiguration, phase engine.Phase, same int, prepare func(ctx context.Context, m *sim.Machine)) {
	t.Helper()
	scenario := func(ctx context.Context, inject func(sim.Call) sim.Fault) (sim.Snapshot, error) {
		m := sim.New(o)
		defer m.PowerOff()
		if prepare != nil {
			prepare(ctx, m)
		}
		m.SetInject(inject)
		r, err := Run(ctx, m, doc, phase)
		snapshot := m.Snapshot()
		r.Facts.RebootsFor, r.Facts.CleanedBootID = nil, ""           // which boot it was differs
		slices.SortFunc(r.Facts.Traces, func(a, b engine.Trace) int { // their order, where things are done at once
			return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
		})
		facts, jsonErr := json.Marshal(r.Facts)
		snapshot["facts"], err = string(facts), errors.Join(err, jsonErr)
		return snapshot, err
	}
	faultloop.Loop(t, scenario, faultloop.Options{
		Same: same, Storms: 20,
		// A journal that cannot be read is replaced by the one before, which lacks what a phase did last: the engine's matter.
		Only:   func(c sim.Call) bool { return c.Op != "Files.Read" || c.Detail != layout.Journal },
		Ignore: func(key string) bool { return strings.HasPrefix(key, "file "+layout.StateDir) },
	})
}

// Code returns the code of an error of Run; empty without one.
func Code(err error) codes.Code {
	if f := (*engine.Failure)(nil); errors.As(err, &f) {
		return f.Code
	}
	return ""
}
