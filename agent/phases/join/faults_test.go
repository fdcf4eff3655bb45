package join_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim/faultloop"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim/simkubelet"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/done"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/join"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/jointest"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/verify"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// life is a first boot from phase Join to its end, over whatever happens to the machine.
func life(method nodev1.JoinMethod) faultloop.Scenario {
	return func(ctx context.Context, inject func(sim.Call) sim.Fault) (sim.Snapshot, error) {
		heartbeat := simkubelet.Options{Heartbeat: 10 * time.Minute} // a machine may hang for hours
		w := jointest.New(jointest.Options{Inject: inject, Kubelet: heartbeat, Doc: func(d *nodev1.NodeConfiguration) {
			d.Join.Method = method
			d.Boot.DeadlineSeconds = 12 * 3600 // longer than a hang
		}})
		defer w.Close()
		err := faultloop.Drive(ctx, w.Machine, func(ctx context.Context, h *host.Host) error {
			for {
				err := w.Run(ctx, h, join.Phase(), verify.Phase(), done.Phase())
				if coded := (*codes.Error)(nil); !errors.As(err, &coded) || !w.Machine.Lives(h) || ctx.Err() != nil {
					return err
				}
				time.Sleep(time.Second) // the SCM starts the agent again
			}
		})
		time.Sleep(time.Minute) // until the services of a boot that has just begun have started
		node := w.API.Node(jointest.Name)
		if err == nil && node == nil {
			err = errors.New("there is no Node")
		}
		return w.Machine.Snapshot(), err
	}
}

// byAgent says whether the agent makes a call: here, a handle without a program.
func byAgent(c sim.Call) bool { return c.Program == "" }

// volatile says what differs in every life: keys, times, and what is logged.
func volatile(key string) bool {
	path, isFile := strings.CutPrefix(key, "file ")
	path = strings.ToLower(path)
	under := func(folder string) bool { return strings.HasPrefix(path, strings.ToLower(folder)) }
	return isFile && (under(layout.KubeletPKIDir+`\`) || under(layout.LogDir+`\`) || under(layout.Journal) || under(layout.JournalBackup) || under(layout.CACertificate) ||
		under(layout.Kubeconfig) || under(layout.StateDir+`\cluster-ca.crt`) || under(layout.Document))
}

// outcome is without what differs in every life.
func outcome(err error) string {
	failure := (*engine.Failure)(nil)
	switch {
	case err == nil:
		return "success"
	case errors.As(err, &failure):
		return string(failure.Code) + " in " + failure.Step + ": " + failure.Message
	default:
		return err.Error()
	}
}

func TestAFirstBootSurvivesEveryFault(t *testing.T) {
	for method, kinds := range map[nodev1.JoinMethod][]sim.FaultKind{
		nodev1.JoinKubelet: faultloop.AllKinds(),
		nodev1.JoinKubeadm: {sim.FailAfter, sim.PowerCutAfter, sim.KillBefore, sim.HangForever},
	} {
		t.Run(string(method), func(t *testing.T) {
			faultloop.Loop(t, life(method), faultloop.Options{
				Kinds: kinds, Only: byAgent, Ignore: volatile, Outcome: outcome, Same: 1, Storms: 5,
			})
		})
	}
}
