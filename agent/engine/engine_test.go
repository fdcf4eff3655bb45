package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// bench is a machine with an engine on it.
type bench struct {
	*sim.Machine
	*WithT
	t        *testing.T
	doc      *nodev1.NodeConfiguration
	phases   []engine.Phase
	statuses []nodev1.BootStatus
	// did are the names of steps, each time they are done.
	did []string
}

// inBubble runs a test with virtual time.
func inBubble(t *testing.T, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{Machine: sim.New(sim.Options{}), WithT: NewWithT(t), t: t, doc: &nodev1.NodeConfiguration{}}
		b.doc.Default()
		b.PowerOn(b.t.Context())
		defer b.PowerOff()
		b.Expect(b.Host().Files.Mkdir(t.Context(), layout.StateDir, host.ACLSystem)).To(Succeed())
		test(b)
	})
}

// run is one start of the agent.
func (b *bench) run() error {
	h := b.Host()
	var j *engine.Journal
	if err := engine.Bounded(b.t.Context(), time.Minute, "load", func(ctx context.Context) (err error) {
		j, err = engine.LoadJournal(ctx, h.Files)
		return err
	}); err != nil {
		j = &engine.Journal{}
	}
	e := &engine.Engine{Host: h, Doc: b.doc, Phases: b.phases, Journal: j, Report: func(_ context.Context, s nodev1.BootStatus) {
		b.statuses = append(b.statuses, s)
	}}
	return e.Run(b.t.Context())
}

func (b *bench) journal() *engine.Journal {
	b.t.Helper()
	j, err := engine.LoadJournal(b.t.Context(), b.Host().Files)
	b.Expect(err).NotTo(HaveOccurred())
	return j
}

// step counts itself and then does do.
func (b *bench) step(name string, budget engine.Budget, do func(ctx context.Context, r *engine.Run) error) engine.Step {
	return engine.Step{Name: name, Budget: budget, Do: func(ctx context.Context, r *engine.Run) error {
		b.did = append(b.did, name)
		if do == nil {
			return nil
		}
		return do(ctx, r)
	}}
}

func (b *bench) states() []string {
	var out []string
	for _, s := range b.statuses {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s", s.State, s.Phase, s.Code)))
	}
	return out
}

func TestPhasesAreDoneInOrderAndOnlyOnce(t *testing.T) {
	inBubble(t, func(b *bench) {
		once := engine.Once(time.Minute)
		skipped := b.step("skipped", once, nil)
		skipped.When = func(*engine.Run) bool { return false }
		b.phases = []engine.Phase{
			{Name: "Host", Steps: []engine.Step{b.step("a", once, nil), skipped, b.step("b", once, func(_ context.Context, r *engine.Run) error {
				r.Facts.PodCIDR = "10.244.1.0/24"
				return nil
			})}},
			{Name: "Join", Steps: []engine.Step{b.step("c", once, nil)}},
		}
		b.Expect(b.run()).To(Succeed())
		b.Expect(b.run()).To(Succeed())
		b.Expect(b.did).To(Equal([]string{"a", "b", "c"}))
		b.Expect(b.states()).To(Equal([]string{"Running Host", "Running Host", "Running Join", "Running Join", "Done Join", "Done Join"}), "the end is told by every start")
		b.Expect(b.journal().Done).To(BeTrue())
		b.Expect(b.journal().Facts.PodCIDR).To(Equal("10.244.1.0/24"))
	})
}

func TestAStepIsTriedAgainWithGrowingPausesUntilItSucceeds(t *testing.T) {
	inBubble(t, func(b *bench) {
		var at []time.Time
		b.phases = []engine.Phase{{Name: "Network", Steps: []engine.Step{b.step("wait", engine.Retry(time.Minute, time.Second, 0), func(context.Context, *engine.Run) error {
			at = append(at, time.Now())
			if len(at) < 8 {
				return codes.New(codes.StateNotWritable, "not yet")
			}
			return nil
		})}}}
		b.Expect(b.run()).To(Succeed())
		var pauses []time.Duration
		for i := range at[1:] {
			pauses = append(pauses, at[i+1].Sub(at[i]).Truncate(time.Second))
		}
		b.Expect(pauses[0]).To(Equal(time.Second))
		b.Expect(pauses[2]).To(BeNumerically("~", 4*time.Second, time.Second))
		b.Expect(pauses[6]).To(BeNumerically("~", 11*time.Second, 2*time.Second), "ten times the first, and jitter")
		b.Expect(b.states()).To(ContainElement("Waiting Network CAPW-0006"))
		b.Expect(b.statuses[len(b.statuses)-3].Attempt).To(BeEquivalentTo(7))
	})
}

func TestATerminalErrorEndsTheFirstBootForGood(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.phases = []engine.Phase{{Name: "Join", Steps: []engine.Step{b.step("join", engine.Retry(time.Minute, time.Second, 0), func(context.Context, *engine.Run) error {
			return codes.New(codes.AlreadyConfigured, "it is another node")
		})}}}
		err := b.run()
		failure := (*engine.Failure)(nil)
		b.Expect(errors.As(err, &failure)).To(BeTrue())
		b.Expect(failure).To(Equal(&engine.Failure{Code: codes.AlreadyConfigured, Phase: "Join", Step: "join", Message: "it is another node"}))
		b.Expect(b.run()).To(MatchError(failure), "a restart does not change it")
		b.Expect(b.did).To(HaveLen(1))
		b.Expect(b.states()).To(Equal([]string{"Running Join", "Failed Join CAPW-0008", "Failed Join CAPW-0008"}), "the end is told by every start")
	})
}

func TestABudgetThatIsOverEndsTheFirstBootWithTheLastError(t *testing.T) {
	for name, budget := range map[string]engine.Budget{
		"once":       engine.Once(time.Minute),
		"for a time": engine.Retry(time.Second, time.Second, 20*time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.phases = []engine.Phase{{Name: "Host", Steps: []engine.Step{b.step("try", budget, func(context.Context, *engine.Run) error {
					return errors.New("disk is full")
				})}}}
				b.Expect(b.run()).To(MatchError("CAPW-0001 Internal: Host, try: disk is full"))
				if name == "once" {
					b.Expect(b.did).To(HaveLen(1))
				} else {
					b.Expect(len(b.did)).To(BeNumerically(">", 3))
				}
			})
		})
	}
}

func TestTheDeadlineCountsTheTimeOfAllBootsButNotThatBetweenThem(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.doc.Boot.DeadlineSeconds = 600
		b.phases = []engine.Phase{{Name: "Network", Steps: []engine.Step{b.step("wait", engine.Retry(time.Minute, 5*time.Second, 0), func(context.Context, *engine.Run) error {
			return errors.New("no route")
		})}}}
		begin := time.Now()
		cut := time.AfterFunc(400*time.Second, b.Cut)
		defer cut.Stop()
		b.Expect(b.run()).NotTo(Succeed())
		time.Sleep(24 * time.Hour)
		b.PowerOn(b.t.Context())
		begin = begin.Add(24 * time.Hour)
		err := b.run()
		b.Expect(err).To(MatchError(ContainSubstring("CAPW-0004 DeadlineExceeded: Network, wait: not done after 10m0s; the last error was CAPW-0001 Internal: no route")))
		b.Expect(time.Since(begin)).To(BeNumerically("<", 24*time.Hour))
		b.Expect(b.journal().Boots).To(BeEquivalentTo(2))
	})
}

func TestARebootRunsThePhaseOnceMoreAndIsCounted(t *testing.T) {
	inBubble(t, func(b *bench) {
		needs := 2
		b.phases = []engine.Phase{
			{Name: "Preflight", Steps: []engine.Step{b.step("first", engine.Once(time.Minute), nil)}},
			{Name: "Host", Steps: []engine.Step{b.step("name", engine.Once(time.Minute), func(_ context.Context, r *engine.Run) error {
				if needs > 0 {
					needs--
					r.RequestReboot("computer name")
				}
				return nil
			})}},
			{Name: "Join", Steps: []engine.Step{b.step("join", engine.Once(time.Minute), nil)}},
		}
		for boot := 2; boot <= 3; boot++ {
			b.Expect(b.run()).To(MatchError(engine.ErrRebooting))
			b.Expect(b.AwaitBoot(b.t.Context(), boot)).To(Succeed())
		}
		b.Expect(b.run()).To(Succeed())
		b.Expect(b.did).To(Equal([]string{"first", "name", "name", "name", "join"}))
		b.Expect(b.journal().Reboots).To(BeEquivalentTo(2))
		b.Expect(b.states()).To(ContainElement("Rebooting Host"))
	})
}

func TestRebootsThatNeverEndAreAnError(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.doc.Boot.MaxBoots = 2
		b.phases = []engine.Phase{{Name: "Host", Steps: []engine.Step{b.step("feature", engine.Once(time.Minute), func(_ context.Context, r *engine.Run) error {
			r.RequestReboot("feature Containers")
			return nil
		})}}}
		for boot := 2; boot <= 3; boot++ {
			b.Expect(b.run()).To(MatchError(engine.ErrRebooting))
			b.Expect(b.AwaitBoot(b.t.Context(), boot)).To(Succeed())
		}
		b.Expect(b.run()).To(MatchError("CAPW-0003 TooManyReboots: Host, reboot: rebooted 2 times, and Windows still needs a reboot for: feature Containers"))
		b.Expect(b.Boots()).To(Equal(3))
	})
}

func TestARebootThatDidNotHappenIsAskedForAgainAndNotCountedAgain(t *testing.T) {
	inBubble(t, func(b *bench) {
		asked := 0
		b.phases = []engine.Phase{{Name: "Host", Steps: []engine.Step{b.step("name", engine.Once(time.Minute), func(_ context.Context, r *engine.Run) error {
			if b.Boots() == 1 {
				r.RequestReboot("computer name")
			}
			return nil
		})}}}
		b.SetInject(func(c sim.Call) sim.Fault {
			if c.Op == "System.Reboot" {
				if asked++; asked == 1 {
					return sim.Fault{Kind: sim.KillBefore}
				}
			}
			return sim.Fault{}
		})
		b.Expect(b.run()).NotTo(Succeed())
		b.Expect(b.run()).To(MatchError(engine.ErrRebooting))
		b.Expect(b.AwaitBoot(b.t.Context(), 2)).To(Succeed())
		b.Expect(b.run()).To(Succeed())
		b.Expect(asked).To(Equal(2))
		b.Expect(b.journal().Reboots).To(BeEquivalentTo(1))
	})
}

func TestARebootThatNeverHappensIsAnError(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.phases = []engine.Phase{{Name: "Host", Steps: []engine.Step{b.step("name", engine.Once(time.Minute), func(_ context.Context, r *engine.Run) error {
			r.RequestReboot("computer name")
			return nil
		})}}}
		asked := 0
		b.SetInject(func(c sim.Call) sim.Fault {
			if c.Op == "System.Reboot" {
				asked++
				return sim.Fault{Kind: sim.KillBefore}
			}
			return sim.Fault{}
		})
		var err error
		for range 20 {
			err = b.run()
		}
		b.Expect(err).To(MatchError(ContainSubstring("CAPW-0003 TooManyReboots: Preflight, enter this boot: windows was asked 11 times for one reboot and does not reboot")))
		b.Expect(asked).To(BeNumerically("~", 11, 1))
	})
}

func TestNoPhaseFromTheJoinOnReboots(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.phases = []engine.Phase{{Name: "Join"}, {Name: "Services", Steps: []engine.Step{b.step("s", engine.Once(time.Minute), func(_ context.Context, r *engine.Run) error {
			r.RequestReboot("page file")
			return nil
		})}}}
		b.Expect(b.run()).To(MatchError(ContainSubstring("a reboot after the join was asked for: page file")))
		b.Expect(b.Boots()).To(Equal(1))
	})
}

func TestACallThatNeverReturnsEndsTheProcessAndAPanicOnlyTheAttempt(t *testing.T) {
	inBubble(t, func(b *bench) {
		release := make(chan struct{})
		defer close(release)
		tries := 0
		b.phases = []engine.Phase{{Name: "Host", Steps: []engine.Step{b.step("hang", engine.Retry(time.Minute, time.Second, 0), func(context.Context, *engine.Run) error {
			switch tries++; tries {
			case 1:
				panic("oops")
			case 2:
				<-release
			}
			return nil
		})}}}
		err := b.run()
		info, message := codes.Of(err)
		b.Expect(info.Code).To(Equal(codes.StepHung))
		b.Expect(message).To(Equal(`step "hang" did not return 30s after its 1m0s were over`))
		b.Expect(b.states()).To(Equal([]string{"Running Host", "Waiting Host CAPW-0001", "Waiting Host CAPW-0007"}))
		b.Expect(b.run()).To(Succeed(), "the next process goes on")
	})
}

func TestAfterAFaultAtAnyHostCallANewStartEndsTheSame(t *testing.T) {
	scenario := func(b *bench) {
		b.phases = []engine.Phase{
			{Name: "Host", Steps: []engine.Step{b.step("trace", engine.Retry(time.Minute, time.Second, 0), func(ctx context.Context, r *engine.Run) error {
				if err := r.Trace(ctx, engine.Trace{Kind: engine.TraceFile, Name: `C:\made`}); err != nil {
					return err
				}
				return r.Host.Files.Write(ctx, `C:\made`, []byte("content"), host.ACLSystem)
			})}},
			{Name: "Join", Steps: []engine.Step{b.step("check", engine.Retry(time.Minute, time.Second, 0), func(ctx context.Context, r *engine.Run) error {
				_, err := r.Host.Files.Read(ctx, `C:\made`)
				return err
			})}},
		}
	}
	calls := 0
	inBubble(t, func(b *bench) {
		scenario(b)
		before := b.Calls()
		b.Expect(b.run()).To(Succeed())
		calls = b.Calls() - before
	})
	if calls < 10 {
		t.Fatalf("only %d host calls", calls)
	}
	for _, kind := range []sim.FaultKind{sim.Fail, sim.FailAfter, sim.PowerCutBefore, sim.PowerCutAfter, sim.KillBefore, sim.KillAfter, sim.Hang} {
		for index := range calls {
			t.Run(fmt.Sprintf("%s at call %d", kind, index), func(t *testing.T) {
				inBubble(t, func(b *bench) {
					scenario(b)
					first := b.Calls()
					b.SetInject(func(c sim.Call) sim.Fault {
						if c.Index == first+index {
							return sim.Fault{Kind: kind}
						}
						return sim.Fault{}
					})
					if err := b.run(); err != nil {
						b.PowerOn(b.t.Context())
						b.Expect(b.run()).To(Succeed())
					}
					j := b.journal()
					b.Expect(j.Done).To(BeTrue())
					b.Expect(j.Facts.Traces).To(HaveLen(1))
				})
			})
		}
	}
}

func TestADamagedJournalIsReplacedByTheOneBefore(t *testing.T) {
	inBubble(t, func(b *bench) {
		files := b.Host().Files
		for boots := range int32(3) {
			b.Expect(engine.SaveJournal(b.t.Context(), files, &engine.Journal{Boots: boots})).To(Succeed())
		}
		b.Expect(b.journal().Boots).To(BeEquivalentTo(2))
		raw, err := b.ReadFile(layout.Journal)
		b.Expect(err).NotTo(HaveOccurred())
		for name, damaged := range map[string]string{
			"cut":     string(raw[:len(raw)/2]),
			"changed": strings.Replace(string(raw), `"boots":2`, `"boots":9`, 1),
			"zeroed":  strings.Repeat("\x00", len(raw)),
		} {
			b.WriteFile(layout.Journal, damaged)
			b.Expect(b.journal().Boots).To(BeEquivalentTo(1), name)
		}

		b.Expect(engine.SaveJournal(b.t.Context(), files, &engine.Journal{Boots: 4})).To(Succeed())
		b.WriteFile(layout.Journal, "x")
		b.Expect(b.journal().Boots).To(BeEquivalentTo(1), "a damaged journal never becomes the backup")

		b.WriteFile(layout.JournalBackup, "x")
		_, err = engine.LoadJournal(b.t.Context(), files)
		info, _ := codes.Of(err)
		b.Expect(info.Code).To(Equal(codes.JournalUnreadable))
	})
}
