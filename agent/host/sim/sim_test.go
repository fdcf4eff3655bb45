package sim_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
)

const demoExe = `C:\k\demo.exe`

// inBubble runs a test against a machine that has power, with virtual time. No goroutine may be left when it ends.
func inBubble(t *testing.T, o sim.Options, test func(g *WithT, ctx context.Context, m *sim.Machine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := sim.New(o)
		m.PowerOn(t.Context())
		synctest.Wait()
		test(NewWithT(t), t.Context(), m)
		m.PowerOff()
	})
}

// serve is a service that runs until it is stopped.
func serve(ctx context.Context, p *sim.Process) int {
	p.Running()
	<-ctx.Done()
	return 0
}

// demo is a service of demoExe.
func demo(name string, change ...func(*host.Service)) host.Service {
	s := host.Service{Name: name, Argv: []string{demoExe, name}, Start: host.StartManual}
	for _, c := range change {
		c(&s)
	}
	return s
}

func automatic(s *host.Service) { s.Start = host.StartAuto }

func restarting(pauses ...time.Duration) func(*host.Service) {
	return func(s *host.Service) { s.Restart = pauses }
}

func dependingOn(names ...string) func(*host.Service) {
	return func(s *host.Service) { s.DependsOn = names }
}

func programs(p sim.Program) map[string]sim.Program { return map[string]sim.Program{demoExe: p} }
