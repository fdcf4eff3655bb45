package faultloop

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
)

// install is an idempotent procedure: a folder, a downloaded file that takes its place when it is complete, a name and a
// reboot for it, a service.
func install(ctx context.Context, h *host.Host) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, time.Minute)
		err := errors.Join(step(attempt, h))
		cancel()
		if err == nil || ctx.Err() != nil || errors.Is(err, sim.ErrPowerLost) || errors.Is(err, sim.ErrKilled) {
			return err
		}
		time.Sleep(time.Second)
	}
}

func step(ctx context.Context, h *host.Host) error {
	const dir, exe = `C:\k`, `C:\k\kubelet.exe`
	if err := h.Files.Mkdir(ctx, dir, host.ACLSystem); err != nil {
		return err
	}
	if _, err := h.Files.Stat(ctx, exe); errors.Is(err, fs.ErrNotExist) {
		if err := download(ctx, h, exe); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	now, next, err := h.System.ComputerName(ctx)
	switch {
	case err != nil:
		return err
	case next != "node-1":
		if err := h.System.SetComputerName(ctx, "node-1"); err != nil {
			return err
		}
		fallthrough
	case now != "node-1":
		if err := h.System.Reboot(ctx, "computer name"); err != nil {
			return err
		}
		<-ctx.Done() // the caller ends
		return ctx.Err()
	}
	if err := h.Services.Apply(ctx, host.Service{Name: "kubelet", Argv: []string{exe}, Start: host.StartAuto}); err != nil {
		return err
	}
	return h.Services.Start(ctx, "kubelet")
}

func download(ctx context.Context, h *host.Host, path string) error {
	if err := h.Files.Remove(ctx, path+".part"); err != nil {
		return err
	}
	w, err := h.Files.Append(ctx, path+".part", host.ACLInherited)
	if err != nil {
		return err
	}
	for range 3 {
		if _, err := w.Write([]byte(strings.Repeat("x", 100))); err != nil {
			return errors.Join(err, w.Close())
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return h.Files.Rename(ctx, path+".part", path)
}

func scenario(run func(ctx context.Context, h *host.Host) error) Scenario {
	return func(ctx context.Context, inject func(sim.Call) sim.Fault) (sim.Snapshot, error) {
		m := sim.New(sim.Options{Inject: inject, Programs: map[string]sim.Program{
			"kubelet.exe": func(ctx context.Context, p *sim.Process) int {
				p.Running()
				<-ctx.Done()
				return 0
			},
		}})
		err := Drive(ctx, m, run)
		snapshot := m.Snapshot()
		m.PowerOff()
		return snapshot, err
	}
}

func TestAnIdempotentProcedureSurvivesEveryFault(t *testing.T) {
	Loop(t, scenario(install), Options{Storms: 50})
}

func TestAServiceThatGoesOnAfterEveryFaultIsSeenToSurviveIt(t *testing.T) {
	Loop(t, func(ctx context.Context, inject func(sim.Call) sim.Fault) (sim.Snapshot, error) {
		m := sim.New(sim.Options{
			Inject: inject,
			Services: []host.Service{{
				Name: "agent", Argv: []string{`C:\agent.exe`}, Start: host.StartAuto, Restart: []time.Duration{time.Second},
			}},
			Programs: map[string]sim.Program{
				"kubelet.exe": func(ctx context.Context, p *sim.Process) int {
					p.Running()
					<-ctx.Done()
					return 0
				},
				`C:\agent.exe`: func(ctx context.Context, p *sim.Process) int {
					p.Running()
					if install(ctx, p.Host) != nil {
						return 1
					}
					<-ctx.Done()
					return 0
				},
			},
		})
		err := DriveServices(ctx, m, func() bool {
			return m.ServiceStatus("kubelet").State == host.ServiceRunning && m.ServiceStatus("agent").State == host.ServiceRunning
		})
		snapshot := m.Snapshot()
		m.PowerOff()
		return snapshot, err
	}, Options{Storms: 10})
}

func TestTheFirstDifferencesAreTold(t *testing.T) {
	g := NewWithT(t)
	long := strings.Repeat("a", 500)
	want := sim.Snapshot{"file a": "1", "file b": long + "x" + long, "file c": "", "file d": "same", "time": "1"}
	got := sim.Snapshot{"file a": "2", "file b": long + "y" + long, "file d": "same", "file e": "new", "time": "2"}
	ignore := func(key string) bool { return key == "time" }
	diff := Diff(want, got, ignore)
	g.Expect(diff).To(ContainSubstring("file a differs at byte 0\n  it is     \"2\"\n  should be \"1\""))
	g.Expect(diff).To(ContainSubstring("file b differs at byte 500"))
	g.Expect(diff).To(ContainSubstring("file c is missing"))
	g.Expect(diff).To(HaveSuffix("and 1 more"))
	g.Expect(len(diff)).To(BeNumerically("<", 1500))
	g.Expect(Diff(want, want, nil)).To(BeEmpty())
}

// problems disturbs a scenario as Loop does and returns what Loop would report.
func problems(t *testing.T, scenario Scenario, o Options) []string {
	t.Helper()
	l := newLoop(t, scenario, o)
	out := []string{}
	for _, kind := range l.o.Kinds {
		for _, call := range l.chosen() {
			if problem := l.disturb(t, kind, call); problem != "" {
				out = append(out, problem)
			}
		}
	}
	return out
}

// count adds one to a number in a file: no idempotent act.
func count(ctx context.Context, h *host.Host) error {
	before, err := h.Files.Read(ctx, `C:\count`)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := h.Files.Write(ctx, `C:\count`, append(before, 'x'), host.ACLInherited); err != nil {
		return err
	}
	return h.Files.Write(ctx, `C:\done`, nil, host.ACLInherited)
}

func TestAnActThatIsNotIdempotentIsFoundAtTheCallsWhereItMatters(t *testing.T) {
	g := NewWithT(t)
	found := problems(t, scenario(count), Options{Kinds: []sim.FaultKind{sim.PowerCutBefore, sim.PowerCutAfter}})
	g.Expect(found).To(HaveLen(3), strings.Join(found, "\n"))
	g.Expect(found[0]).To(HavePrefix(`PowerCutBefore at call 2 (boot 1) Files.Write(C:\done):`))
	g.Expect(found[1]).To(HavePrefix(`PowerCutAfter at call 1 (boot 1) Files.Write(C:\count):`))
	g.Expect(found[2]).To(HavePrefix(`PowerCutAfter at call 2 (boot 1) Files.Write(C:\done):`))
	g.Expect(found[0]).To(ContainSubstring(`it is     "\nxx"`))
}

func TestAnErrorIsFoundUnlessItIsAccepted(t *testing.T) {
	g := NewWithT(t)
	o := Options{Kinds: []sim.FaultKind{sim.Fail}}
	g.Expect(problems(t, scenario(count), o)).To(HaveLen(3))
	o.Accept = func(d Disturbance, outcome string) bool {
		return d.Call.Op == "Files.Read" && strings.Contains(outcome, "injected")
	}
	g.Expect(problems(t, scenario(count), o)).To(HaveLen(2))
	o.Only = func(c sim.Call) bool { return c.Op == "Files.Read" }
	g.Expect(problems(t, scenario(count), o)).To(BeEmpty())
}

func TestALifeThatNeverEndsIsFound(t *testing.T) {
	g := NewWithT(t)
	retry := func(ctx context.Context, h *host.Host) error {
		err := count(ctx, h)
		if err != nil && !errors.Is(err, sim.ErrPowerLost) {
			<-ctx.Done() // waits for what never comes
		}
		return err
	}
	found := problems(t, scenario(retry), Options{Kinds: []sim.FaultKind{sim.Fail}})
	g.Expect(found).To(HaveLen(3))
	g.Expect(found[0]).To(ContainSubstring("no end within 24h0m0s"))
}

func TestAGoroutineThatIsLeftIsFound(t *testing.T) {
	g := NewWithT(t)
	leak := func(ctx context.Context, h *host.Host) error {
		if err := h.Files.Write(ctx, `C:\done`, nil, host.ACLInherited); err != nil {
			go func() { <-make(chan struct{}) }()
		}
		return nil
	}
	found := problems(t, scenario(leak), Options{Kinds: []sim.FaultKind{sim.Fail}})
	g.Expect(found).To(HaveLen(1))
	g.Expect(found[0]).To(ContainSubstring("deadlock"))
}
