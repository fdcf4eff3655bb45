package sim_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
)

// story collects what programs do, in order.
type story struct {
	mu    sync.Mutex
	lines []string
}

func (s *story) add(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line)
}

func (s *story) told() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.lines...)
}

func TestAStartedServiceRunsUntilItIsStopped(t *testing.T) {
	var causes story
	o := sim.Options{Programs: programs(func(ctx context.Context, p *sim.Process) int {
		p.Running()
		<-ctx.Done()
		causes.add(context.Cause(ctx).Error())
		return 0
	})}
	inBubble(t, o, func(g *WithT, ctx context.Context, m *sim.Machine) {
		s := m.Host().Services
		g.Expect(s.Apply(ctx, demo("a"))).To(Succeed())
		g.Expect(s.Status(ctx, "A")).To(Equal(host.ServiceStatus{State: host.ServiceStopped}))
		g.Expect(s.Start(ctx, "a")).To(Succeed())
		g.Expect(s.Start(ctx, "a")).To(Succeed(), "a running one is success")
		status, err := s.Status(ctx, "a")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(status.State).To(Equal(host.ServiceRunning))
		g.Expect(status.PID).NotTo(BeZero())
		g.Expect(s.Stop(ctx, "a")).To(Succeed())
		g.Expect(s.Stop(ctx, "a")).To(Succeed(), "a stopped one is success")
		g.Expect(s.Status(ctx, "a")).To(Equal(host.ServiceStatus{State: host.ServiceStopped}))
		g.Expect(causes.told()).To(Equal([]string{sim.ErrStop.Error()}))
		g.Expect(s.Start(ctx, "b")).To(MatchError(host.ErrNotFound))
		g.Expect(s.Stop(ctx, "b")).To(MatchError(host.ErrNotFound))
		_, err = s.Get(ctx, "b")
		g.Expect(err).To(MatchError(host.ErrNotFound))
	})
}

func TestTheConfigurationOfAServiceComesBackAsTheSCMKeepsIt(t *testing.T) {
	inBubble(t, sim.Options{}, func(g *WithT, ctx context.Context, m *sim.Machine) {
		s := m.Host().Services
		want := demo("Demo", automatic, restarting(time.Second, 1500*time.Microsecond))
		want.Environment = []string{"B=2", "A=1"}
		g.Expect(s.Apply(ctx, want)).To(Succeed())
		got, err := s.Get(ctx, "demo")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(got.Name).To(Equal("Demo"))
		g.Expect(got.DisplayName).To(Equal("Demo"))
		g.Expect(got.ResetAfter).To(Equal(time.Hour))
		g.Expect(got.Environment).To(Equal([]string{"A=1", "B=2"}))
		g.Expect(got.Restart).To(Equal([]time.Duration{time.Second, time.Millisecond}))
		g.Expect(s.Apply(ctx, demo("x", dependingOn("x")))).To(MatchError(host.ErrInvalid))
		g.Expect(s.Apply(ctx, host.Service{Name: "x", Argv: []string{demoExe}})).To(MatchError(host.ErrInvalid), "no start type")
		g.Expect(s.Delete(ctx, "demo")).To(Succeed())
		g.Expect(s.Delete(ctx, "demo")).To(Succeed())
		_, err = s.Get(ctx, "demo")
		g.Expect(err).To(MatchError(host.ErrNotFound))
	})
}

func TestAProgramThatIsNoServiceFailsToStart(t *testing.T) {
	o := sim.Options{Programs: programs(func(ctx context.Context, p *sim.Process) int {
		if p.Argv[1] == "ends" {
			return 7
		}
		<-ctx.Done() // never says that it runs
		return 0
	})}
	inBubble(t, o, func(g *WithT, ctx context.Context, m *sim.Machine) {
		s := m.Host().Services
		for _, name := range []string{"ends", "idles"} {
			g.Expect(s.Apply(ctx, demo(name, restarting(0)))).To(Succeed())
		}
		g.Expect(s.Start(ctx, "ends")).To(MatchError(ContainSubstring("exit code 7")))
		g.Expect(s.Status(ctx, "ends")).To(Equal(host.ServiceStatus{State: host.ServiceStopped, ExitCode: 7}))
		began := time.Now()
		g.Expect(s.Start(ctx, "idles")).To(MatchError(ContainSubstring("1053")))
		g.Expect(time.Since(began)).To(Equal(30 * time.Second))
		missing := demo("missing")
		missing.Argv = []string{`C:\k\missing.exe`}
		g.Expect(s.Apply(ctx, missing)).To(Succeed())
		g.Expect(s.Start(ctx, "missing")).To(MatchError(ContainSubstring("not exist")))
		g.Expect(s.Apply(ctx, demo("off", func(s *host.Service) { s.Start = host.StartDisabled }))).To(Succeed())
		g.Expect(s.Start(ctx, "off")).To(MatchError(ContainSubstring("disabled")))
	})
}

func TestServicesStartAfterThoseThatTheyDependOnAndStopBeforeThem(t *testing.T) {
	var told story
	o := sim.Options{
		Programs: programs(func(ctx context.Context, p *sim.Process) int {
			time.Sleep(time.Second)
			told.add("+" + p.Argv[1])
			p.Running()
			<-ctx.Done()
			told.add("-" + p.Argv[1])
			return 0
		}),
		Services: []host.Service{
			demo("a", automatic, dependingOn("b", "c")), demo("b", dependingOn("c")), demo("c"), demo("late", func(s *host.Service) {
				s.Start = host.StartAutoDelayed
			}),
		},
	}
	inBubble(t, o, func(g *WithT, ctx context.Context, m *sim.Machine) {
		time.Sleep(4 * time.Second)
		g.Expect(told.told()).To(Equal([]string{"+c", "+b", "+a"}))
		g.Expect(m.Host().Services.Stop(ctx, "c")).To(Succeed())
		g.Expect(told.told()[3:]).To(Equal([]string{"-a", "-b", "-c"}))
		time.Sleep(2 * time.Minute)
		g.Expect(told.told()[6:]).To(Equal([]string{"+late"}))
	})
}

func TestAFailedServiceIsRestartedAfterThePausesOfItsConfiguration(t *testing.T) {
	var starts story
	began := time.Time{}
	o := sim.Options{Programs: programs(func(_ context.Context, p *sim.Process) int {
		starts.add(time.Since(began).String())
		p.Running()
		return 3
	})}
	inBubble(t, o, func(g *WithT, ctx context.Context, m *sim.Machine) {
		began = time.Now()
		g.Expect(m.Host().Services.Apply(ctx, demo("a", restarting(time.Second, time.Minute)))).To(Succeed())
		g.Expect(m.Host().Services.Start(ctx, "a")).To(Succeed())
		time.Sleep(3 * time.Minute)
		g.Expect(starts.told()).To(Equal([]string{"0s", "1s", "1m1s", "2m1s"}))
		g.Expect(m.ServiceStatus("a")).To(Equal(host.ServiceStatus{State: host.ServiceStopped, ExitCode: 3}))
		g.Expect(m.Host().Services.Delete(ctx, "a")).To(Succeed())
		time.Sleep(3 * time.Minute)
		g.Expect(starts.told()).To(HaveLen(4), "a deleted service is not restarted")
	})
}

func TestAServiceThatEndsCleanlyIsNotRestarted(t *testing.T) {
	starts := 0
	o := sim.Options{Programs: programs(func(_ context.Context, p *sim.Process) int {
		starts++
		p.Running()
		return 0
	})}
	inBubble(t, o, func(g *WithT, ctx context.Context, m *sim.Machine) {
		g.Expect(m.Host().Services.Apply(ctx, demo("a", restarting(time.Second)))).To(Succeed())
		g.Expect(m.Host().Services.Start(ctx, "a")).To(Succeed())
		time.Sleep(time.Hour)
		g.Expect(starts).To(Equal(1))
	})
}

func TestAKilledServiceIsStoppedAtOnceAndRestarted(t *testing.T) {
	inBubble(t, sim.Options{Programs: programs(serve)}, func(g *WithT, ctx context.Context, m *sim.Machine) {
		s := m.Host().Services
		g.Expect(s.Apply(ctx, demo("a", restarting(time.Second)))).To(Succeed())
		g.Expect(s.Start(ctx, "a")).To(Succeed())
		g.Expect(m.KillService("a")).To(BeTrue())
		g.Expect(s.Status(ctx, "a")).To(Equal(host.ServiceStatus{State: host.ServiceStopped, ExitCode: sim.ExitKilled}))
		g.Expect(m.KillService("a")).To(BeFalse())
		time.Sleep(time.Second)
		synctest.Wait()
		g.Expect(m.ServiceStatus("a").State).To(Equal(host.ServiceRunning))
	})
}

func TestAutomaticServicesRunAgainAfterAPowerCutAndOthersDoNot(t *testing.T) {
	inBubble(t, sim.Options{Programs: programs(serve)}, func(g *WithT, ctx context.Context, m *sim.Machine) {
		for _, s := range []host.Service{demo("auto", automatic), demo("manual")} {
			g.Expect(m.Host().Services.Apply(ctx, s)).To(Succeed())
			g.Expect(m.Host().Services.Start(ctx, s.Name)).To(Succeed())
		}
		m.PowerOff()
		m.PowerOn(ctx)
		synctest.Wait()
		g.Expect(m.ServiceStatus("auto").State).To(Equal(host.ServiceRunning))
		g.Expect(m.ServiceStatus("manual").State).To(Equal(host.ServiceStopped))
	})
}

func TestChangesTellsEveryServiceWhoseStateChanged(t *testing.T) {
	inBubble(t, sim.Options{Programs: programs(serve)}, func(g *WithT, ctx context.Context, m *sim.Machine) {
		s := m.Host().Services
		for _, name := range []string{"a", "b", "c"} {
			g.Expect(s.Apply(ctx, demo(name))).To(Succeed())
		}
		watching, cancel := context.WithCancel(ctx)
		changes, err := s.Changes(watching, []string{"A", "b"})
		g.Expect(err).NotTo(HaveOccurred())
		for _, name := range []string{"a", "c", "b"} {
			g.Expect(s.Start(ctx, name)).To(Succeed())
		}
		told := ""
		for synctest.Wait(); ; synctest.Wait() {
			select {
			case name := <-changes:
				told += name
				continue
			default:
			}
			break
		}
		g.Expect(told).To(ContainSubstring("A"))
		g.Expect(told).To(ContainSubstring("b"))
		g.Expect(told).NotTo(ContainSubstring("c"))
		cancel()
		_, open := <-changes
		g.Expect(open).To(BeFalse())
	})
}

func TestAServiceSeesTheEnvironmentOfTheBootAndItsOwn(t *testing.T) {
	var seen story
	o := sim.Options{Programs: programs(func(ctx context.Context, p *sim.Process) int {
		seen.add(p.Getenv("machine") + "," + p.Getenv("OWN"))
		return serve(ctx, p)
	})}
	inBubble(t, o, func(g *WithT, ctx context.Context, m *sim.Machine) {
		value := "set"
		g.Expect(m.Host().System.SetEnvironment(ctx, "Machine", &value)).To(Succeed())
		g.Expect(m.Host().Services.Apply(ctx, demo("a", automatic, func(s *host.Service) { s.Environment = []string{"own=1"} }))).To(Succeed())
		g.Expect(m.Host().Services.Start(ctx, "a")).To(Succeed())
		m.Reboot()
		synctest.Wait()
		g.Expect(seen.told()).To(Equal([]string{",1", "set,1"}))
	})
}

func TestAChildThatInheritsTheConnectionToTheSCMCanSayThatTheServiceRuns(t *testing.T) {
	o := sim.Options{Programs: map[string]sim.Program{
		`C:\k\runner.exe`: func(ctx context.Context, p *sim.Process) int {
			at := strings.Index(strings.Join(p.Argv, " "), "-- ")
			if at < 0 {
				return 90
			}
			code, err := p.Exec(ctx, strings.Fields(strings.Join(p.Argv, " ")[at+3:])...)
			if err != nil {
				return 91
			}
			return code
		},
		demoExe: func(ctx context.Context, p *sim.Process) int {
			code, _ := strconv.Atoi(p.Argv[1])
			serve(ctx, p)
			return code
		},
	}}
	inBubble(t, o, func(g *WithT, ctx context.Context, m *sim.Machine) {
		s := m.Host().Services
		wrapped := demo("a")
		wrapped.Argv = []string{`C:\k\runner.exe`, "exec", "--", demoExe, "5"}
		g.Expect(s.Apply(ctx, wrapped)).To(Succeed())
		g.Expect(s.Start(ctx, "a")).To(Succeed())
		g.Expect(m.Host().Files.Remove(ctx, demoExe)).NotTo(Succeed(), "the child runs")
		g.Expect(s.Stop(ctx, "a")).To(Succeed())
		g.Expect(s.Status(ctx, "a")).To(Equal(host.ServiceStatus{State: host.ServiceStopped, ExitCode: 5}))
		g.Expect(m.Host().Files.Remove(ctx, demoExe)).To(Succeed())
		g.Expect(s.Start(ctx, "a")).To(MatchError(ContainSubstring("exit code 91")))
	})
}
