package hosttest_test

import (
	"context"
	"testing"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim/hosttest"
)

func TestTheSimulationBehavesAsEveryHost(t *testing.T) {
	const helper = `C:\helper\helper.exe`
	hosttest.Run(t, func(t *testing.T) *host.Host {
		t.Helper()
		m := sim.New(sim.Options{Programs: map[string]sim.Program{helper: hosttest.Helper(2), "helper.exe": hosttest.Helper(2)}})
		m.PowerOn(context.WithoutCancel(t.Context())) // the tests clean up when it has ended
		t.Cleanup(m.PowerOff)
		return m.Host()
	}, hosttest.Options{Helper: []string{helper, "hosttest"}})
}
