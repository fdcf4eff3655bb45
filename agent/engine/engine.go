package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// grace is how long a step may go on after its context has ended, before it counts as hung.
const grace = 30 * time.Second

// lastReboot is the first phase that may no longer reboot: the node is a member from then on, and only people or Cluster API
// decide when a member goes down.
const lastReboot = "Join"

// mostAsked is how often one reboot is asked for, over all starts of the agent.
const mostAsked = 10

// ErrRebooting says that Windows was asked to reboot: the first boot goes on after that.
var ErrRebooting = errors.New("rebooting")

// Engine runs phases.
type Engine struct {
	// Host is the machine, Doc its document with defaults, Phases what is done.
	Host   *host.Host
	Doc    *nodev1.NodeConfiguration
	Phases []Phase
	// Journal as LoadJournal returned it, or a new one.
	Journal *Journal
	// Report is told every change. It must return soon.
	Report func(ctx context.Context, s nodev1.BootStatus)
	// Version of the agent, for the status.
	Version string
}

// execution is one run of an Engine in one boot.
type execution struct {
	*Engine
	run  *Run
	info host.Info
	// base is Journal.Spent when this run began, at begin by the monotonic clock.
	base  time.Duration
	begin time.Time
	// phaseBase and phaseBegin are the same for the phase that runs.
	phaseBase  time.Duration
	phaseBegin time.Time
	// started is Journal.Started, last the last status that was made from the journal.
	started time.Time
	last    nodev1.BootStatus
}

// Run goes on with the first boot where the journal says. It returns nil when all is done, ErrRebooting when the machine goes
// down, a *Failure when nothing more will be tried, and any other error when this process must end and be started again: its
// context has ended, or a call into Windows hangs.
//
// A phase that was interrupted is run again from its first step; phases that are done are not. How the first boot has ended
// is reported at every start: a power cut may have come before the first report, and a hypervisor forgets what it was told
// when the machine is powered off.
func (e *Engine) Run(ctx context.Context) error {
	x := &execution{Engine: e, base: e.Journal.Spent, begin: time.Now(), started: e.Journal.Started}
	x.run = NewRun(e.Host, e.Doc, &e.Journal.Facts, x.save)
	switch {
	case e.Journal.Failure != nil:
		x.reportFailed(ctx)
		return e.Journal.Failure
	case e.Journal.Done:
		x.reportDone(ctx)
		return nil
	}
	if err := x.enter(ctx); err != nil {
		return err
	}
	for _, p := range e.Phases {
		if e.Journal.phase(p.Name).Done {
			continue
		}
		if err := x.phase(ctx, p); err != nil {
			return err
		}
	}
	e.Journal.Done = true
	if err := x.persist(ctx); err != nil {
		return err
	}
	x.reportDone(ctx)
	return nil
}

// enter records this boot, and asks for a reboot again that has not happened yet.
func (x *execution) enter(ctx context.Context) error {
	return x.forever(ctx, "Preflight", "enter this boot", func(ctx context.Context) error {
		info, err := x.Host.System.Info(ctx)
		if err != nil {
			return fmt.Errorf("reading what machine this is: %w", err)
		}
		x.info = info
		if x.Journal.BootID != info.BootID {
			x.Journal.BootID = info.BootID
			x.Journal.Boots++
		}
		if x.Journal.RebootFrom == info.BootID {
			if x.Journal.Asked++; x.Journal.Asked > mostAsked {
				return codes.New(codes.TooManyReboots, "windows was asked %d times for one reboot and does not reboot, or every boot looks the same (%s)", x.Journal.Asked, info.BootID)
			}
			if err := x.save(ctx); err != nil {
				return err
			}
			return x.reboot(ctx, "Host", "a reboot that was asked for before")
		}
		return nil
	})
}

// phase runs one phase to its end.
func (x *execution) phase(ctx context.Context, p Phase) error {
	log := logr.FromContextOrDiscard(ctx).WithValues("phase", p.Name)
	ctx = logr.NewContext(ctx, log)
	record := x.Journal.phase(p.Name)
	x.phaseBase, x.phaseBegin = record.Spent, time.Now()
	log.Info("Phase begins")
	x.report(ctx, nodev1.BootStatus{State: nodev1.BootRunning, Phase: p.Name})
	for _, s := range p.Steps {
		if s.When != nil && !s.When(x.run) {
			continue
		}
		if err := x.step(logr.NewContext(ctx, log.WithValues("step", s.Name)), p, s); err != nil {
			return err
		}
	}
	if reasons := x.Journal.Facts.RebootReasons; len(reasons) > 0 {
		return x.rebootFor(ctx, p, reasons)
	}
	record = x.Journal.phase(p.Name)
	record.Done = true
	if err := x.persist(ctx); err != nil {
		return err
	}
	log.Info("Phase is done", "spent", x.Journal.phase(p.Name).Spent.Round(time.Millisecond))
	x.phaseBegin = time.Time{}
	x.report(ctx, nodev1.BootStatus{State: nodev1.BootRunning, Phase: p.Name})
	return nil
}

// step tries one step until it succeeds or its time is over.
func (x *execution) step(ctx context.Context, p Phase, s Step) error {
	var giveUp <-chan time.Time
	if s.Budget.Total > 0 {
		t := time.NewTimer(s.Budget.Total)
		defer t.Stop()
		giveUp = t.C
	}
	deadline := time.NewTimer(x.left())
	defer deadline.Stop()
	pause := wait.Backoff{
		Duration: s.Budget.Interval, Cap: s.Budget.MaxInterval, Factor: 2, Jitter: 0.2, Steps: 1 << 30,
	}
	log := logr.FromContextOrDiscard(ctx)
	for attempt := int32(1); ; attempt++ {
		err := x.attempt(ctx, s)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s, %s: %w", p.Name, s.Name, context.Cause(ctx))
		}
		info, message := codes.Of(err)
		if info.Code == codes.StepHung {
			x.reportHung(ctx, nodev1.BootStatus{State: nodev1.BootWaiting, Phase: p.Name, Step: s.Name, Attempt: attempt, Code: string(info.Code), Message: message})
			return err
		}
		if info.Class == codes.Terminal {
			return x.fail(ctx, &Failure{Code: info.Code, Phase: p.Name, Step: s.Name, Message: message})
		}
		log.Info("Step failed", "attempt", attempt, "code", info.Code, "error", message)
		x.report(ctx, nodev1.BootStatus{State: nodev1.BootWaiting, Phase: p.Name, Step: s.Name, Attempt: attempt, Code: string(info.Code), Message: message})
		if s.Budget.Interval == 0 { // Once
			return x.fail(ctx, &Failure{Code: info.Code, Phase: p.Name, Step: s.Name, Message: message})
		}
		next := time.NewTimer(pause.Step())
		select {
		case <-ctx.Done():
			next.Stop()
			return fmt.Errorf("%s, %s: %w", p.Name, s.Name, context.Cause(ctx))
		case <-deadline.C:
			next.Stop()
			return x.fail(ctx, &Failure{Code: codes.DeadlineExceeded, Phase: p.Name, Step: s.Name, Message: fmt.Sprintf(
				"not done after %s; the last error was %s %s: %s", x.deadline(), info.Code, info.Name, message)})
		case <-giveUp:
			next.Stop()
			return x.fail(ctx, &Failure{Code: info.Code, Phase: p.Name, Step: s.Name, Message: message})
		case <-next.C:
		}
	}
}

// attempt does a step once, and remembers what it found out.
func (x *execution) attempt(ctx context.Context, s Step) error {
	return Bounded(ctx, min(s.Budget.Attempt, x.left()), s.Name, func(ctx context.Context) error {
		if err := s.Do(ctx, x.run); err != nil {
			return err
		}
		return x.save(ctx)
	})
}

// Bounded calls do with a context that ends after limit. It returns even if do does not, with code StepHung; the caller then
// ends its process. A panic of do becomes an error.
func Bounded(ctx context.Context, limit time.Duration, name string, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	result := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				logr.FromContextOrDiscard(ctx).Error(nil, "Panic", "what", name, "panic", p, "stack", string(debug.Stack()))
				result <- codes.New(codes.Internal, "panic: %v", p)
			}
		}()
		result <- do(ctx)
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
	}
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case err := <-result:
		return err
	case <-t.C:
		return codes.New(codes.StepHung, "step %q did not return %s after its %s were over", name, grace, limit)
	}
}

// rebootFor reboots at the end of a phase, which runs once more after that.
func (x *execution) rebootFor(ctx context.Context, p Phase, reasons []string) error {
	why := strings.Join(reasons, ", ")
	if !x.mayReboot(p.Name) {
		return x.fail(ctx, &Failure{Code: codes.Internal, Phase: p.Name, Step: "reboot", Message: "a reboot after the join was asked for: " + why})
	}
	if x.Journal.Reboots >= x.Doc.Boot.MaxBoots {
		return x.fail(ctx, &Failure{Code: codes.TooManyReboots, Phase: p.Name, Step: "reboot", Message: fmt.Sprintf(
			"rebooted %d times, and Windows still needs a reboot for: %s", x.Journal.Reboots, why)})
	}
	x.Journal.Reboots++
	x.Journal.RebootFrom, x.Journal.Asked = x.info.BootID, 0
	x.Journal.Facts.RebootReasons = nil
	if err := x.persist(ctx); err != nil {
		return err
	}
	return x.forever(ctx, p.Name, "reboot", func(ctx context.Context) error { return x.reboot(ctx, p.Name, why) })
}

func (x *execution) reboot(ctx context.Context, phase, why string) error {
	logr.FromContextOrDiscard(ctx).Info("Rebooting", "reason", why, "reboots", x.Journal.Reboots)
	x.report(ctx, nodev1.BootStatus{State: nodev1.BootRebooting, Phase: phase, Message: why})
	if err := x.Host.System.Reboot(ctx, "Cluster API Provider Windows: "+why); err != nil {
		return fmt.Errorf("asking Windows to reboot: %w", err)
	}
	return ErrRebooting
}

func (x *execution) mayReboot(phase string) bool {
	for _, p := range x.Phases {
		switch p.Name {
		case lastReboot:
			return false
		case phase:
			return true
		}
	}
	return true
}

// persist saves, and tries until it works or the deadline is over.
func (x *execution) persist(ctx context.Context) error {
	return x.forever(ctx, "", "save the journal", func(context.Context) error { return nil })
}

// forever does what belongs to no step as a step.
func (x *execution) forever(ctx context.Context, phase, name string, do func(ctx context.Context) error) error {
	rebooting := false
	err := x.step(ctx, Phase{Name: phase}, Step{Name: name, Budget: Retry(time.Minute, time.Second, 0), Do: func(ctx context.Context, _ *Run) error {
		err := do(ctx)
		if rebooting = errors.Is(err, ErrRebooting); rebooting {
			return nil
		}
		return err
	}})
	if err == nil && rebooting {
		return ErrRebooting
	}
	return err
}

// fail ends the first boot.
func (x *execution) fail(ctx context.Context, f *Failure) error {
	x.Journal.Failure = f
	// If even this cannot be saved, the next start tries everything once more, and fails the same way.
	if err := Bounded(ctx, time.Minute, "save the journal", x.save); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Remembering the failure")
	}
	x.reportFailed(ctx)
	return f
}

func (x *execution) save(ctx context.Context) error {
	x.Journal.Spent = x.base + time.Since(x.begin)
	if n := len(x.Journal.Phases); n > 0 && !x.phaseBegin.IsZero() {
		x.Journal.Phases[n-1].Spent = x.phaseBase + time.Since(x.phaseBegin)
	}
	return SaveJournal(ctx, x.Host.Files, x.Journal)
}

func (x *execution) deadline() time.Duration {
	return time.Duration(x.Doc.Boot.DeadlineSeconds) * time.Second
}

// left is the time until the deadline; never 0, so that every start tries once.
func (x *execution) left() time.Duration {
	return max(x.deadline()-x.base-time.Since(x.begin), time.Second)
}

func (x *execution) reportDone(ctx context.Context) {
	x.report(ctx, nodev1.BootStatus{State: nodev1.BootDone, Phase: x.Phases[len(x.Phases)-1].Name})
}

func (x *execution) reportFailed(ctx context.Context) {
	f := x.Journal.Failure
	x.report(ctx, nodev1.BootStatus{State: nodev1.BootFailed, Phase: f.Phase, Step: f.Step, Code: string(f.Code), Message: f.Message})
}

// report completes a status and hands it on.
func (x *execution) report(ctx context.Context, s nodev1.BootStatus) {
	if x.Report == nil || ctx.Err() != nil {
		return
	}
	s.BootID, s.Boots = x.Journal.BootID, x.Journal.Boots
	s.IPs = slices.Clone(x.Journal.Facts.NodeIPs)
	s.Elapsed = map[string]int64{}
	for _, p := range x.Journal.Phases {
		if p.Done {
			s.Elapsed[p.Name] = p.Spent.Milliseconds()
		}
	}
	x.last = s
	x.tell(ctx, s)
}

// reportHung does so while a step that hangs may still change the journal: with what the journal said before.
func (x *execution) reportHung(ctx context.Context, s nodev1.BootStatus) {
	if x.Report == nil {
		return
	}
	s.BootID, s.Boots, s.IPs, s.Elapsed = x.last.BootID, x.last.Boots, x.last.IPs, x.last.Elapsed
	x.tell(ctx, s)
}

func (x *execution) tell(ctx context.Context, s nodev1.BootStatus) {
	s.APIVersion, s.Agent, s.Node = nodev1.APIVersion, x.Version, x.Doc.Node.Name
	s.Started, s.Time = metav1.NewTime(x.started), metav1.Now()
	x.Report(ctx, s)
}
