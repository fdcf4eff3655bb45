package services

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim/simkubelet"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/runner"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// world is a machine, and how often the program of its service x has started.
type world struct {
	*sim.Machine
	run    *engine.Run
	starts int
	args   []string // of the last start
}

func onMachine(t *testing.T, test func(ctx context.Context, g *WithT, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		w.Machine = sim.New(sim.Options{
			Programs: map[string]sim.Program{`C:\x.exe`: func(ctx context.Context, p *sim.Process) int {
				w.starts++
				w.args = p.Argv[1:]
				return simkubelet.Idle(ctx, p)
			}},
			Services: []host.Service{{Name: "image", Argv: []string{`C:\x.exe`, "--image"}, Start: host.StartManual}},
		})
		defer w.PowerOff()
		w.PowerOn(t.Context())
		w.run = given(everything(nodev1.CNIFlannelOverlay))
		w.run.Host = w.Host()
		test(t.Context(), NewWithT(t), w)
	})
}

// x is a service that starts its program without the runner.
func x(args ...string) host.Service {
	s := program{name: "x", mode: runner.Service}.service(given(nil))
	s.Argv = append([]string{`C:\x.exe`}, args...)
	return s
}

func TestAServiceIsMadeOnceAndThenLeftAlone(t *testing.T) {
	onMachine(t, func(ctx context.Context, g *WithT, w *world) {
		g.Expect(Ensure(ctx, w.run, x("--a=1"))).To(Succeed())
		g.Expect(w.ServiceStatus("x").State).To(Equal(host.ServiceRunning))
		g.Expect(w.run.Facts.Traces).To(Equal([]engine.Trace{{Kind: engine.TraceService, Name: "x"}}))
		acts := 0
		w.SetInject(func(c sim.Call) sim.Fault {
			if c.Op == "Services.Apply" || c.Op == "Services.Stop" {
				acts++
			}
			return sim.Fault{}
		})
		g.Expect(Ensure(ctx, w.run, x("--a=1"))).To(Succeed())
		g.Expect(acts).To(BeZero())
		g.Expect(w.starts).To(Equal(1))
	})
}

func TestAProgramIsRestartedOnlyForWhatItSees(t *testing.T) {
	onMachine(t, func(ctx context.Context, g *WithT, w *world) {
		g.Expect(Ensure(ctx, w.run, x("--a=1"))).To(Succeed())
		s := x("--a=1")
		s.Restart, s.Description = nil, "another"
		g.Expect(Ensure(ctx, w.run, s)).To(Succeed())
		g.Expect(w.starts).To(Equal(1))
		g.Expect(w.Services()["x"].Description).To(Equal("another"))
		g.Expect(Ensure(ctx, w.run, x("--a=2"))).To(Succeed())
		g.Expect(w.starts).To(Equal(2))
		s = x("--a=2")
		s.Environment = []string{"A=1"}
		g.Expect(Ensure(ctx, w.run, s)).To(Succeed())
		g.Expect(w.starts).To(Equal(3))
	})
}

func TestAServiceThatRunsAlwaysHasTheConfigurationThatIsStored(t *testing.T) {
	for _, kind := range []sim.FaultKind{sim.PowerCutBefore, sim.PowerCutAfter, sim.KillBefore, sim.KillAfter} {
		for at := range 8 {
			onMachine(t, func(ctx context.Context, g *WithT, w *world) {
				g.Expect(Ensure(ctx, w.run, x("--a=1"))).To(Succeed())
				calls := 0
				w.SetInject(func(c sim.Call) sim.Fault {
					calls++
					if calls == at+1 {
						return sim.Fault{Kind: kind}
					}
					return sim.Fault{}
				})
				_ = Ensure(ctx, w.run, x("--a=2"))
				w.SetInject(nil)
				w.PowerOn(ctx)
				w.run.Host = w.Host()
				synctest.Wait()
				if w.ServiceStatus("x").State == host.ServiceRunning {
					g.Expect(w.Services()["x"].Argv[1:]).To(Equal(w.args))
				}
				g.Expect(Ensure(ctx, w.run, x("--a=2"))).To(Succeed())
				g.Expect(w.args).To(Equal([]string{"--a=2"}), "%s at call %d", kind, at)
			})
		}
	}
}

func TestWhatTheImageHadIsRemembered(t *testing.T) {
	onMachine(t, func(ctx context.Context, g *WithT, w *world) {
		before := w.Services()["image"]
		s := x()
		s.Name = "image"
		g.Expect(Register(ctx, w.run, s)).To(Succeed())
		g.Expect(w.run.Facts.Traces).To(HaveLen(1))
		var remembered host.Service
		g.Expect(json.Unmarshal([]byte(w.run.Facts.Traces[0].Before), &remembered)).To(Succeed())
		g.Expect(remembered).To(Equal(before))
	})
}

func TestEveryAnswerOfTheSCMHasItsCode(t *testing.T) {
	for op, want := range map[string]codes.Code{
		"Services.Get": codes.ServiceNotRegistered, "Services.Apply": codes.ServiceNotRegistered,
		"Services.Stop": codes.ServiceNotStopped, "Services.Start": codes.ServiceNotStarted,
	} {
		t.Run(op, func(t *testing.T) {
			onMachine(t, func(ctx context.Context, g *WithT, w *world) {
				g.Expect(Ensure(ctx, w.run, x("--a=1"))).To(Succeed())
				w.SetInject(func(c sim.Call) sim.Fault {
					if c.Op == op {
						return sim.Fault{Kind: sim.Fail, Err: host.ErrBusy}
					}
					return sim.Fault{}
				})
				err := Ensure(ctx, w.run, x("--a=2"))
				g.Expect(code(err)).To(Equal(want))
				g.Expect(err).To(MatchError(host.ErrBusy))
				g.Expect(codes.Lookup(want).Class).To(Equal(codes.Retryable))
			})
		})
	}
}

func TestTheExporterWaitsForTheKubeletsServingCertificateOnly(t *testing.T) {
	onMachine(t, func(ctx context.Context, g *WithT, w *world) {
		all := desired(g, w.run)
		why, err := Blocked(ctx, w.run, all[WindowsExporter])
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(why).To(ContainSubstring("certificate"))
		g.Expect(Blocked(ctx, w.run, all[CSIProxy])).To(BeEmpty())
		w.WriteFile(layout.KubeletServerCert, "x")
		g.Expect(Blocked(ctx, w.run, all[WindowsExporter])).To(BeEmpty())
	})
}

func TestAFileIsWrittenOnlyWhenItDiffersAndItsFoldersAreRemembered(t *testing.T) {
	onMachine(t, func(ctx context.Context, g *WithT, w *world) {
		const path = `C:\new\folder\file`
		g.Expect(WriteFile(ctx, w.run, path, []byte("a"))).To(BeTrue())
		g.Expect(WriteFile(ctx, w.run, path, []byte("a"))).To(BeFalse())
		g.Expect(WriteFile(ctx, w.run, path, []byte("b"))).To(BeTrue())
		g.Expect(w.ReadFile(path)).To(Equal([]byte("b")))
		g.Expect(w.EffectiveACL(path)).To(Equal(host.ACLSystem))
		g.Expect(w.run.Facts.Traces).To(Equal([]engine.Trace{{Kind: engine.TraceFile, Name: `C:\new`}}))
		w.WriteFile(`C:\image\file`, "of the image")
		g.Expect(WriteFile(ctx, w.run, `C:\image\file`, []byte("a"))).To(BeTrue())
		g.Expect(w.run.Facts.Traces).To(HaveLen(1), "it was there before")
	})
}

func TestKubeProxyIsStoppedBeforeItsFileChanges(t *testing.T) {
	onMachine(t, func(ctx context.Context, g *WithT, w *world) {
		s := x()
		s.Name = KubeProxy
		w.run.Facts.SourceVIP = "10.244.3.2"
		g.Expect(ConfigureKubeProxy(ctx, w.run)).To(Succeed())
		g.Expect(Ensure(ctx, w.run, s)).To(Succeed())
		g.Expect(ConfigureKubeProxy(ctx, w.run)).To(Succeed())
		g.Expect(w.ServiceStatus(KubeProxy).State).To(Equal(host.ServiceRunning), "nothing has changed")
		w.run.Facts.SourceVIP = "10.244.3.3"
		g.Expect(ConfigureKubeProxy(ctx, w.run)).To(Succeed())
		g.Expect(w.ServiceStatus(KubeProxy).State).To(Equal(host.ServiceStopped))
	})
}
