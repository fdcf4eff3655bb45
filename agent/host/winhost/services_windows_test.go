//go:build windows

package winhost

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// testServices returns the services of this process.
var testServices = sync.OnceValue(func() *services { return newServices(newRegistry(), lenient()) })

// declare returns a service of a name that nobody else has, and deletes it in the end.
func declare(t *testing.T, s *services, behaviour string) host.Service {
	t.Helper()
	name := unique("capw-test")
	cleanUp(t, func(ctx context.Context) error { return s.Delete(ctx, name) })
	return host.Service{Name: name, DisplayName: "CAPW test " + name, Description: "Service of a test", Argv: []string{self(t), asService, name, behaviour},
		Start: host.StartManual, ResetAfter: time.Hour, Restart: []time.Duration{time.Second, 1500 * time.Millisecond}}
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestServiceIsWhatWasApplied(t *testing.T) {
	g, s := NewWithT(t), testServices()
	service := declare(t, s, "run")
	_, err := s.Get(t.Context(), service.Name)
	g.Expect(err).To(MatchError(host.ErrNotFound))
	_, err = s.Status(t.Context(), service.Name)
	g.Expect(err).To(MatchError(host.ErrNotFound))
	for _, step := range []struct {
		name   string
		change func()
	}{
		{"as it is", func() {}},
		{"automatic", func() { service.Start = host.StartAuto }},
		{"delayed", func() { service.Start = host.StartAutoDelayed }},
		{"automatic again", func() { service.Start = host.StartAuto }},
		{"disabled", func() { service.Start = host.StartDisabled }},
		{"arguments", func() { service.Argv = append(service.Argv, `--a=b c`, `C:\x\`, `q"uote`) }},
		{"dependencies", func() { service.DependsOn = []string{"RpcSs", "Dnscache"} }},
		{"no dependencies", func() { service.DependsOn = nil }},
		{"environment", func() { service.Environment = []string{"A=1", "B=two words"} }},
		{"no environment", func() { service.Environment = nil }},
		{"restarts", func() { service.Restart = []time.Duration{0, 5 * time.Second, 1500 * time.Millisecond, time.Minute} }},
		{"reset", func() { service.ResetAfter = 10 * time.Minute }},
		{"no restarts", func() { service.Restart, service.ResetAfter = nil, 0 }},
		{"description", func() { service.Description = "Ein anderer Dienst" }},
		{"no description", func() { service.Description = "" }},
		{"name for people", func() { service.DisplayName = "CAPW test, renamed" }},
		{"everything at once", func() { service = everything(service) }},
	} {
		t.Run(step.name, func(t *testing.T) {
			g := NewWithT(t)
			step.change()
			for range 2 {
				g.Expect(s.Apply(t.Context(), service)).To(Succeed())
				got, err := s.Get(t.Context(), service.Name)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(got.Equal(service)).To(BeTrue(), "got %+v\nwant %+v", got, service)
			}
		})
	}
}

func everything(s host.Service) host.Service {
	s.Argv = append(slices.Clone(s.Argv[:4]), "other")
	s.Start, s.DisplayName, s.Description = host.StartAutoDelayed, "CAPW test, all", "all"
	s.DependsOn, s.Environment = []string{"RpcSs"}, []string{"C=3"}
	s.Restart, s.ResetAfter = []time.Duration{time.Second}, 24*time.Hour
	return s
}

func TestWhatDeclaresNoDefaultsGetsThem(t *testing.T) {
	g, s := NewWithT(t), testServices()
	service := declare(t, s, "run")
	service.DisplayName, service.ResetAfter = "", 0
	g.Expect(s.Apply(t.Context(), service)).To(Succeed())
	got, err := s.Get(t.Context(), service.Name)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got.DisplayName).To(Equal(service.Name))
	g.Expect(got.ResetAfter).To(Equal(time.Hour))
}

func TestApplyRefusesWhatNoServiceCanBe(t *testing.T) {
	g, s := NewWithT(t), testServices()
	for _, change := range []func(*host.Service){
		func(s *host.Service) { s.Argv = nil },
		func(s *host.Service) { s.Start = "Sometimes" },
		func(s *host.Service) { s.Description = "a\x00b" },
		func(s *host.Service) { s.Name = `back\slash` },
		func(s *host.Service) { s.Restart = []time.Duration{-time.Second} },
	} {
		service := declare(t, s, "run")
		change(&service)
		g.Expect(s.Apply(t.Context(), service)).To(MatchError(host.ErrInvalid))
	}
}

func TestServiceStartsAndStops(t *testing.T) {
	for _, behaviour := range []string{"run", "slow"} {
		t.Run(behaviour, func(t *testing.T) {
			g, s, ctx := NewWithT(t), testServices(), deadline(t)
			service := declare(t, s, behaviour)
			g.Expect(s.Start(ctx, service.Name)).To(MatchError(host.ErrNotFound))
			g.Expect(s.Stop(ctx, service.Name)).To(MatchError(host.ErrNotFound))
			g.Expect(s.Apply(ctx, service)).To(Succeed())
			g.Expect(s.Status(ctx, service.Name)).To(Equal(host.ServiceStatus{State: host.ServiceStopped}))
			for range 2 {
				for range 2 {
					g.Expect(s.Start(ctx, service.Name)).To(Succeed())
				}
				status, err := s.Status(ctx, service.Name)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(status.State).To(Equal(host.ServiceRunning))
				g.Expect(alive(status.PID)).To(BeTrue())
				for range 2 {
					g.Expect(s.Stop(ctx, service.Name)).To(Succeed())
				}
				g.Expect(alive(status.PID)).To(BeFalse())
				g.Expect(s.Status(ctx, service.Name)).To(Equal(host.ServiceStatus{State: host.ServiceStopped}))
			}
			g.Expect(s.Start(ctx, service.Name)).To(Succeed())
			for range 2 {
				g.Expect(s.Delete(ctx, service.Name)).To(Succeed())
			}
			_, err := s.Get(ctx, service.Name)
			g.Expect(err).To(MatchError(host.ErrNotFound))
		})
	}
}

func TestStartTellsTheExitCodeOfAProgramThatEndsBeforeItRuns(t *testing.T) {
	g, s, ctx := NewWithT(t), testServices(), deadline(t)
	service := declare(t, s, "fail")
	g.Expect(s.Apply(ctx, service)).To(Succeed())
	g.Expect(s.Start(ctx, service.Name)).To(MatchError(ContainSubstring("exit code 42")))
	g.Expect(s.Status(ctx, service.Name)).To(Equal(host.ServiceStatus{State: host.ServiceStopped, ExitCode: 42}))
}

func TestADisabledServiceDoesNotStart(t *testing.T) {
	g, s, ctx := NewWithT(t), testServices(), deadline(t)
	service := declare(t, s, "run")
	service.Start = host.StartDisabled
	g.Expect(s.Apply(ctx, service)).To(Succeed())
	g.Expect(s.Start(ctx, service.Name)).To(MatchError(host.ErrInvalid))
}

func TestAServiceWhoseProcessIsGoneIsStopped(t *testing.T) {
	g, s, ctx := NewWithT(t), testServices(), deadline(t)
	service := declare(t, s, "crash")
	service.Restart, service.ResetAfter = nil, 0
	g.Expect(s.Apply(ctx, service)).To(Succeed())
	_ = s.Start(ctx, service.Name) // whether it was seen running is a matter of luck
	g.Eventually(func() (host.ServiceState, error) {
		status, err := s.Status(ctx, service.Name)
		return status.State, err
	}, 5*time.Second, 20*time.Millisecond).Should(Equal(host.ServiceStopped))
	status, err := s.Status(ctx, service.Name)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(status.ExitCode).NotTo(BeZero())
	g.Expect(status.PID).To(BeZero())
	g.Expect(s.Stop(ctx, service.Name)).To(Succeed())
}

func TestStopStopsWhatDependsOnIt(t *testing.T) {
	g, s, ctx := NewWithT(t), testServices(), deadline(t)
	first, second, third := declare(t, s, "run"), declare(t, s, "run"), declare(t, s, "slow")
	second.DependsOn, third.DependsOn = []string{first.Name}, []string{second.Name}
	for _, service := range []host.Service{first, second, third} {
		g.Expect(s.Apply(ctx, service)).To(Succeed())
		g.Expect(s.Start(ctx, service.Name)).To(Succeed())
	}
	g.Expect(s.Stop(ctx, first.Name)).To(Succeed())
	for _, service := range []host.Service{first, second, third} {
		status, err := s.Status(ctx, service.Name)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(status.State).To(Equal(host.ServiceStopped), service.Name)
	}
}

func TestStartStartsWhatItDependsOn(t *testing.T) {
	g, s, ctx := NewWithT(t), testServices(), deadline(t)
	first, second := declare(t, s, "slow"), declare(t, s, "run")
	second.DependsOn = []string{first.Name}
	g.Expect(s.Apply(ctx, first)).To(Succeed())
	g.Expect(s.Apply(ctx, second)).To(Succeed())
	g.Expect(s.Start(ctx, second.Name)).To(Succeed())
	status, err := s.Status(ctx, first.Name)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(status.State).To(Equal(host.ServiceRunning))
}

// Under Wine it fails unless lenient mode lets one in after the other.
func TestManyAskForOneServiceAtTheSameTime(t *testing.T) {
	g, s, ctx := NewWithT(t), testServices(), deadline(t)
	service := declare(t, s, "run")
	g.Expect(s.Apply(ctx, service)).To(Succeed())
	var askers sync.WaitGroup
	for range 8 {
		askers.Go(func() {
			for range 50 {
				if _, err := s.Status(ctx, service.Name); err != nil {
					t.Error(err)
				}
				if _, err := s.Get(ctx, service.Name); err != nil {
					t.Error(err)
				}
			}
		})
	}
	g.Expect(s.Start(ctx, service.Name)).To(Succeed())
	g.Expect(s.Stop(ctx, service.Name)).To(Succeed())
	askers.Wait()
}

func TestStartEndsWithItsContext(t *testing.T) {
	g, s := NewWithT(t), testServices()
	service := declare(t, s, "run")
	g.Expect(s.Apply(t.Context(), service)).To(Succeed())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g.Expect(s.Start(ctx, service.Name)).To(MatchError(context.Canceled))
	g.Expect(s.Stop(ctx, service.Name)).To(MatchError(context.Canceled))
	g.Expect(s.Apply(ctx, service)).To(MatchError(context.Canceled))
}

// On Windows the service control manager tells of changes, under Wine they are polled: only there it is proven that the first works.
func TestChangesTellOfStartsStopsAndDeletions(t *testing.T) {
	g, s := NewWithT(t), testServices()
	quiet, busy, later := declare(t, s, "run"), declare(t, s, "run"), declare(t, s, "run")
	ctx, cancel := context.WithCancel(deadline(t))
	defer cancel()
	g.Expect(s.Apply(ctx, quiet)).To(Succeed())
	g.Expect(s.Apply(ctx, busy)).To(Succeed())
	changes, err := s.Changes(ctx, []string{quiet.Name, busy.Name, later.Name})
	g.Expect(err).NotTo(HaveOccurred())
	told := func(service host.Service) {
		t.Helper()
		g.Eventually(changes, 10*time.Second).Should(Receive(Equal(service.Name)))
	}
	g.Expect(s.Start(ctx, busy.Name)).To(Succeed())
	told(busy)
	g.Expect(s.Stop(ctx, busy.Name)).To(Succeed())
	told(busy)
	g.Expect(s.Delete(ctx, busy.Name)).To(Succeed())
	told(busy)
	g.Expect(s.Apply(ctx, later)).To(Succeed())
	told(later)
	cancel()
	g.Eventually(changes, 5*time.Second).Should(BeClosed())
}
