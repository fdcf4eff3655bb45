package hosttest

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega" //nolint:staticcheck // as in tests

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// service returns a configuration of the helper as a service, named after the test, that is deleted at its end. Its report
// is a file that it writes whenever it starts.
func (e *env) service(suffix string, args ...string) (s host.Service, report string) {
	e.t.Helper()
	report = e.dir + `\report` + suffix
	s = host.Service{
		Name: e.id + suffix, DisplayName: "Test " + e.id + suffix, Start: host.StartManual,
		Argv: e.helper(append([]string{"service", report}, args...)...),
	}
	e.succeed(e.Services.Delete(e.ctx, s.Name))
	e.cleanUp(func(ctx context.Context) error { return e.Services.Delete(ctx, s.Name) })
	return s, report
}

func (e *env) state(name string) host.ServiceState {
	e.t.Helper()
	status, err := e.Services.Status(e.ctx, name)
	e.succeed(err)
	if status.State == host.ServiceStopped {
		e.Expect(status.PID).To(BeZero())
	} else {
		e.Expect(status.PID).NotTo(BeZero())
	}
	return status.State
}

func (s *suite) services(t *testing.T) {
	s.run(t, "returns a configuration as it was applied, and as it was changed", func(e *env) {
		want, _ := e.service("")
		want.Description, want.Start, want.DependsOn = "Says what it is for.", host.StartAutoDelayed, []string{e.id + "-a", e.id + "-b"}
		want.Restart, want.ResetAfter = []time.Duration{1500 * time.Millisecond, time.Minute}, time.Hour
		want.Environment, want.Argv = []string{"A=1", "B=x y"}, append(want.Argv, `a "quoted\" b`, "")
		for range 2 {
			e.succeed(e.Services.Apply(e.ctx, want))
			e.isApplied(want)
		}
		want.Description, want.Start, want.DependsOn = "", host.StartManual, nil
		want.Restart, want.ResetAfter, want.Environment, want.Argv = nil, 0, nil, want.Argv[:1]
		e.succeed(e.Services.Apply(e.ctx, want))
		e.isApplied(want)
		e.Expect(e.state(want.Name)).To(Equal(host.ServiceStopped))
	})
	s.run(t, "says what is not found, and deletes it all the same", func(e *env) {
		_, err := e.Services.Get(e.ctx, e.id)
		e.Expect(err).To(MatchError(host.ErrNotFound))
		_, err = e.Services.Status(e.ctx, e.id)
		e.Expect(err).To(MatchError(host.ErrNotFound))
		e.Expect(e.Services.Start(e.ctx, e.id)).To(MatchError(host.ErrNotFound))
		e.Expect(e.Services.Stop(e.ctx, e.id)).To(MatchError(host.ErrNotFound))
		e.succeed(e.Services.Delete(e.ctx, e.id))
	})
	s.run(t, "refuses a configuration that makes no sense", func(e *env) {
		bad, _ := e.service("")
		bad.Start = "Sometimes"
		e.Expect(e.Services.Apply(e.ctx, bad)).To(MatchError(host.ErrInvalid))
		bad.Start, bad.Argv = host.StartManual, nil
		e.Expect(e.Services.Apply(e.ctx, bad)).To(MatchError(host.ErrInvalid))
	})
	s.run(t, "starts and stops a service, and again", func(e *env) {
		config, report := e.service("")
		e.succeed(e.Services.Apply(e.ctx, config))
		for range 2 {
			e.succeed(e.Services.Start(e.ctx, config.Name))
			e.succeed(e.Services.Start(e.ctx, config.Name))
			e.Expect(e.state(config.Name)).To(Equal(host.ServiceRunning))
			e.Expect(e.read(report)).To(Equal("HOSTTEST="))
			e.succeed(e.Services.Stop(e.ctx, config.Name))
			e.succeed(e.Services.Stop(e.ctx, config.Name))
			status, err := e.Services.Status(e.ctx, config.Name)
			e.succeed(err)
			e.Expect(status).To(Equal(host.ServiceStatus{State: host.ServiceStopped}))
		}
	})
	s.run(t, "reports a service that ends before it runs, with its exit code", func(e *env) {
		config, _ := e.service("", "fail", "42")
		e.succeed(e.Services.Apply(e.ctx, config))
		e.Expect(e.Services.Start(e.ctx, config.Name)).To(MatchError(ContainSubstring("42")))
		e.Expect(e.Services.Status(e.ctx, config.Name)).To(Equal(host.ServiceStatus{State: host.ServiceStopped, ExitCode: 42}))
	})
	s.run(t, "reports a service whose program is missing or disabled", func(e *env) {
		config, _ := e.service("")
		config.Start = host.StartDisabled
		e.succeed(e.Services.Apply(e.ctx, config))
		e.Expect(e.Services.Start(e.ctx, config.Name)).NotTo(Succeed())
		config.Start, config.Argv = host.StartManual, []string{e.dir + `\missing.exe`}
		e.succeed(e.Services.Apply(e.ctx, config))
		e.Expect(e.Services.Start(e.ctx, config.Name)).NotTo(Succeed())
	})
	s.run(t, "stops a service before it deletes it", func(e *env) {
		config, _ := e.service("")
		e.succeed(e.Services.Apply(e.ctx, config))
		e.succeed(e.Services.Start(e.ctx, config.Name))
		e.succeed(e.Services.Delete(e.ctx, config.Name))
		_, err := e.Services.Get(e.ctx, config.Name)
		e.Expect(err).To(MatchError(host.ErrNotFound))
		e.succeed(e.Services.Apply(e.ctx, config))
		e.Expect(e.state(config.Name)).To(Equal(host.ServiceStopped))
	})
	s.run(t, "tells when a service starts and stops, until the context ends", s.serviceChanges)
	if !s.o.Wine {
		s.servicesOfWindows(t)
	}
}

func (s *suite) servicesOfWindows(t *testing.T) {
	t.Helper()
	s.run(t, "gives a service variables of its own", func(e *env) {
		config, report := e.service("")
		config.Environment = []string{"HOSTTEST=of the service"}
		e.succeed(e.Services.Apply(e.ctx, config))
		e.succeed(e.Services.Start(e.ctx, config.Name))
		e.Expect(e.read(report)).To(Equal("HOSTTEST=of the service"))
	})
	s.run(t, "starts what a service depends on, and stops what depends on it", func(e *env) {
		below, _ := e.service("-below")
		above, _ := e.service("-above")
		above.DependsOn = []string{below.Name}
		e.succeed(e.Services.Apply(e.ctx, above))
		e.Expect(e.Services.Start(e.ctx, above.Name)).NotTo(Succeed(), "what it depends on is missing")
		e.succeed(e.Services.Apply(e.ctx, below))
		e.succeed(e.Services.Start(e.ctx, above.Name))
		e.Expect(e.state(below.Name)).To(Equal(host.ServiceRunning))
		e.succeed(e.Services.Stop(e.ctx, below.Name))
		e.Expect(e.state(above.Name)).To(Equal(host.ServiceStopped))
		e.Expect(e.state(below.Name)).To(Equal(host.ServiceStopped))
	})
	s.run(t, "restarts a service that fails", func(e *env) {
		config, report := e.service("", "exit", "3")
		config.Restart = []time.Duration{100 * time.Millisecond}
		e.succeed(e.Services.Apply(e.ctx, config))
		e.succeed(e.Services.Start(e.ctx, config.Name))
		for range 2 {
			e.succeed(e.Files.Remove(e.ctx, report))
			e.Eventually(func() error { _, err := e.Files.Stat(e.ctx, report); return err }, 30*time.Second, 20*time.Millisecond).Should(Succeed())
		}
	})
}

func (e *env) isApplied(want host.Service) {
	e.t.Helper()
	got, err := e.Services.Get(e.ctx, want.Name)
	e.succeed(err)
	e.Expect(got.Equal(want)).To(BeTrue(), "%+v, want %+v", got, want)
}

func (s *suite) serviceChanges(e *env) {
	config, _ := e.service("")
	other, _ := e.service("-other")
	e.succeed(e.Services.Apply(e.ctx, config))
	e.succeed(e.Services.Apply(e.ctx, other))
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	changes, err := e.Services.Changes(ctx, []string{config.Name})
	e.succeed(err)
	for _, change := range []func(context.Context, string) error{e.Services.Start, e.Services.Stop} {
		e.succeed(change(e.ctx, other.Name))
		e.succeed(change(e.ctx, config.Name))
		e.Eventually(changes, 30*time.Second).Should(Receive(Equal(config.Name)))
	}
	cancel()
	e.Eventually(func() bool {
		select {
		case _, open := <-changes:
			return !open
		default:
			return false
		}
	}, 30*time.Second, 20*time.Millisecond).Should(BeTrue())
}
