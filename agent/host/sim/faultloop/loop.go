// Package faultloop disturbs a scenario at every host call that it makes, in every way, and compares how it ends.
package faultloop

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
)

// Scenario is one life of a machine: it makes a machine with inject (sim.Options.Inject), powers it on, again after every
// power cut (see Drive), and returns how it ended. Two undisturbed lives end in the same way. It runs in a bubble of
// testing/synctest, in parallel with others, and leaves no goroutine. Its context ends after Options.Limit.
type Scenario func(ctx context.Context, inject func(sim.Call) sim.Fault) (sim.Snapshot, error)

// Options say how a scenario is disturbed and what is compared.
type Options struct {
	// Kinds of faults. Default: AllKinds.
	Kinds []sim.FaultKind
	// Same bounds how often calls of the same Op, Detail and Program are disturbed: the first ones. 0: always.
	Same int
	// Only says which calls are disturbed. Nil: all.
	Only func(sim.Call) bool
	// Ignore says what of a snapshot is not compared, by its key: what differs in every life, or what a disturbance may leave.
	Ignore func(key string) bool
	// Outcome puts the error of a scenario into words that are compared. Default: "success", or the error's text.
	Outcome func(error) string
	// Accept says whether a disturbed scenario may end with an outcome that differs from the undisturbed one, such as the
	// documented code of a failure that nothing can cure. Its snapshot is not compared then. Nil: it may not.
	Accept func(d Disturbance, outcome string) bool
	// Storms are additional lives in which many calls are disturbed, by chance.
	Storms int
	// Limit is the virtual time of one life; of one in a storm, ten times that. Default: one day.
	Limit time.Duration
}

// AllKinds returns all kinds of faults.
func AllKinds() []sim.FaultKind {
	return []sim.FaultKind{
		sim.Fail, sim.FailAfter, sim.PowerCutBefore, sim.PowerCutAfter, sim.KillBefore, sim.KillAfter, sim.Hang, sim.HangForever,
	}
}

// Disturbance is a fault at a call.
type Disturbance struct {
	Kind sim.FaultKind
	Call sim.Call
}

// String returns one line for people.
func (d Disturbance) String() string { return string(d.Kind) + " at " + d.Call.String() }

// Loop runs a scenario undisturbed and then once for each kind of fault at each call, and fails the test where it does not
// end as the undisturbed one.
func Loop(t *testing.T, scenario Scenario, o Options) {
	t.Helper()
	l := newLoop(t, scenario, o)
	o = l.o
	if diff := l.compare(l.live(t, o.Limit, nil)); diff != "" {
		t.Fatalf("two undisturbed lives end differently, so that nothing can be compared:\n%s", diff)
	}
	calls := l.chosen()
	t.Logf("the undisturbed scenario makes %d host calls and ends with %q; %d calls are disturbed in %d ways",
		len(l.undisturbed.calls), l.undisturbed.outcome, len(calls), len(o.Kinds))
	for _, kind := range o.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			for _, call := range calls {
				if problem := l.disturb(t, kind, call); problem != "" {
					t.Error(problem)
				}
			}
		})
	}
	for seed := range o.Storms {
		t.Run(fmt.Sprintf("storm %d", seed), func(t *testing.T) {
			t.Parallel()
			if problem := l.storm(t, uint64(seed)); problem != "" { //nolint:gosec // not negative
				t.Error(problem)
			}
		})
	}
}

type loop struct {
	scenario    Scenario
	o           Options
	undisturbed life
}

// newLoop lives the undisturbed life.
func newLoop(t *testing.T, scenario Scenario, o Options) *loop {
	t.Helper()
	if o.Kinds == nil {
		o.Kinds = AllKinds()
	}
	if o.Limit == 0 {
		o.Limit = 24 * time.Hour
	}
	if o.Outcome == nil {
		o.Outcome = func(err error) string {
			if err != nil {
				return err.Error()
			}
			return "success"
		}
	}
	l := &loop{scenario: scenario, o: o}
	l.undisturbed = l.live(t, l.o.Limit, nil)
	return l
}

// life is how a scenario went.
type life struct {
	calls    []sim.Call
	snapshot sim.Snapshot
	outcome  string
}

// live runs the scenario in a bubble.
func (l *loop) live(t *testing.T, limit time.Duration, inject func(sim.Call) sim.Fault) (out life) {
	t.Helper()
	var mu sync.Mutex
	defer func() {
		if r := recover(); r != nil { // such as that all goroutines of the bubble wait for each other
			stacks := make([]byte, 1<<20)
			out.outcome = fmt.Sprintf("panic: %v, after %s\n%s", r, last(out.calls), stacks[:runtime.Stack(stacks, true)])
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		snapshot, err := l.scenario(ctx, func(c sim.Call) sim.Fault {
			mu.Lock()
			out.calls = append(out.calls, c)
			mu.Unlock()
			if inject == nil {
				return sim.Fault{}
			}
			return inject(c)
		})
		out.snapshot, out.outcome = snapshot, l.o.Outcome(err)
		if ctx.Err() != nil {
			out.outcome = fmt.Sprintf("no end within %s: %s", limit, out.outcome)
		}
	})
	return out
}

func last(calls []sim.Call) string {
	if len(calls) == 0 {
		return "no call"
	}
	return calls[len(calls)-1].String()
}

// same is what calls have in common that are the same one at another time. An index would not do: goroutines call in another
// order in each life.
type same struct{ op, detail, program string }

func sameAs(c sim.Call) same { return same{c.Op, c.Detail, c.Program} }

// chosenCall is a call to disturb: the nth of its kind, from 1.
type chosenCall struct {
	sim.Call
	nth int
}

// chosen returns the calls of the undisturbed life that are disturbed.
func (l *loop) chosen() []chosenCall {
	var out []chosenCall
	seen := map[same]int{}
	for _, c := range l.undisturbed.calls {
		seen[sameAs(c)]++
		if nth := seen[sameAs(c)]; (l.o.Same == 0 || nth <= l.o.Same) && (l.o.Only == nil || l.o.Only(c)) {
			out = append(out, chosenCall{c, nth})
		}
	}
	return out
}

// disturb runs the scenario with one fault and says what is wrong then.
func (l *loop) disturb(t *testing.T, kind sim.FaultKind, planned chosenCall) string {
	t.Helper()
	var mu sync.Mutex
	seen := 0
	got := l.live(t, l.o.Limit, func(c sim.Call) sim.Fault {
		if sameAs(c) != sameAs(planned.Call) {
			return sim.Fault{}
		}
		mu.Lock()
		defer mu.Unlock()
		if seen++; seen != planned.nth {
			return sim.Fault{}
		}
		return sim.Fault{Kind: kind}
	})
	d := Disturbance{Kind: kind, Call: planned.Call}
	return l.check(d.String(), []Disturbance{d}, got)
}

// storm runs the scenario with many faults and says what is wrong then.
func (l *loop) storm(t *testing.T, seed uint64) string {
	t.Helper()
	const most, oneIn = 25, 20
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // it shall be repeatable
	faults := []Disturbance{}
	got := l.live(t, 10*l.o.Limit, func(c sim.Call) sim.Fault {
		mu.Lock()
		defer mu.Unlock()
		if len(faults) == most || random.IntN(oneIn) != 0 || l.o.Only != nil && !l.o.Only(c) {
			return sim.Fault{}
		}
		d := Disturbance{Kind: l.o.Kinds[random.IntN(len(l.o.Kinds))], Call: c}
		faults = append(faults, d)
		return sim.Fault{Kind: d.Kind}
	})
	lines := []string{}
	for _, d := range faults {
		lines = append(lines, d.String())
	}
	return l.check("a storm of\n"+strings.Join(lines, "\n"), faults, got)
}

// check says what is wrong with how a life ended; "" if it ended as the undisturbed one, or as it may.
func (l *loop) check(what string, faults []Disturbance, got life) string {
	if got.outcome != l.undisturbed.outcome && l.o.Accept != nil &&
		slices.ContainsFunc(faults, func(d Disturbance) bool { return l.o.Accept(d, got.outcome) }) {
		return ""
	}
	if diff := l.compare(got); diff != "" {
		return what + ":\n" + diff
	}
	return ""
}

// compare says how a life ended differently; "" if it did not.
func (l *loop) compare(got life) string {
	if got.outcome != l.undisturbed.outcome {
		return fmt.Sprintf("it ended with %q\ninstead of    %q", got.outcome, l.undisturbed.outcome)
	}
	return Diff(l.undisturbed.snapshot, got.snapshot, l.o.Ignore)
}
