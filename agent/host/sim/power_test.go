package sim_test

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
)

func TestAHandleIsDeadAfterItsBootAndHasNoEffect(t *testing.T) {
	inBubble(t, sim.Options{}, func(g *WithT, ctx context.Context, m *sim.Machine) {
		old := m.Host()
		before, err := old.System.Info(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		m.PowerOff()
		g.Expect(old.Files.Write(ctx, `C:\a`, nil, host.ACLInherited)).To(MatchError(sim.ErrPowerLost))
		g.Expect(m.Host().Files.Write(ctx, `C:\a`, nil, host.ACLInherited)).To(MatchError(sim.ErrPowerLost))
		m.PowerOn(ctx)
		g.Expect(old.Files.Write(ctx, `C:\a`, nil, host.ACLInherited)).To(MatchError(sim.ErrPowerLost))
		g.Expect(m.Files()).NotTo(ContainElement(`C:\a`))
		after, err := m.Host().System.Info(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(after.BootID).NotTo(Equal(before.BootID))
		g.Expect(after.UUID).To(Equal(before.UUID))
	})
}

func TestAPowerCutLosesTheEndOfAFileThatIsStillOpenAndNothingElse(t *testing.T) {
	inBubble(t, sim.Options{}, func(g *WithT, ctx context.Context, m *sim.Machine) {
		h := m.Host()
		g.Expect(h.Files.Write(ctx, `C:\whole`, []byte("whole"), host.ACLSystem)).To(Succeed())
		closed, err := h.Files.Append(ctx, `C:\closed`, host.ACLInherited)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(closed.Write([]byte("closed"))).To(Equal(6))
		g.Expect(closed.Close()).To(Succeed())
		open, err := h.Files.Append(ctx, `C:\closed`, host.ACLInherited)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(open.Write([]byte("-open"))).To(Equal(5))
		g.Expect(h.Files.Read(ctx, `C:\closed`)).To(BeEquivalentTo("closed-open"))
		m.PowerOff()
		g.Expect(m.ReadFile(`C:\whole`)).To(BeEquivalentTo("whole"))
		g.Expect(m.ReadFile(`C:\closed`)).To(BeEquivalentTo("closed-o"))
		_, err = open.Write([]byte("more"))
		g.Expect(err).To(MatchError(sim.ErrPowerLost))
	})
}

func TestNameFeaturesAndDomainTakeEffectAtTheNextBoot(t *testing.T) {
	o := sim.Options{ComputerName: "OLD"}
	inBubble(t, o, func(g *WithT, ctx context.Context, m *sim.Machine) {
		h := m.Host()
		g.Expect(h.System.RebootPending(ctx)).To(BeFalse())
		g.Expect(h.System.SetComputerName(ctx, "node-1")).To(Succeed())
		g.Expect(h.Features.Enable(ctx, "microsoft-hyper-v")).To(BeTrue())
		g.Expect(h.Domain.Join(ctx, "corp.example", "", "admin", "secret")).To(Succeed())
		now, next, err := h.System.ComputerName(ctx)
		g.Expect([]any{now, next, err}).To(Equal([]any{"OLD", "node-1", nil}))
		g.Expect(h.Features.State(ctx, "Microsoft-Hyper-V")).To(Equal(host.FeaturePending))
		g.Expect(h.Domain.Joined(ctx)).To(BeEmpty())
		g.Expect(h.System.RebootPending(ctx)).To(BeTrue())
		g.Expect(h.System.Reboot(ctx, "test")).To(Succeed())
		g.Expect(m.AwaitBoot(ctx, 2)).To(Succeed())
		_, err = h.System.Info(ctx)
		g.Expect(err).To(MatchError(sim.ErrPowerLost))
		h = m.Host()
		now, next, err = h.System.ComputerName(ctx)
		g.Expect([]any{now, next, err}).To(Equal([]any{"node-1", "node-1", nil}))
		g.Expect(h.Features.State(ctx, "Microsoft-Hyper-V")).To(Equal(host.FeatureEnabled))
		g.Expect(h.Domain.Joined(ctx)).To(Equal("corp.example"))
		g.Expect(h.System.RebootPending(ctx)).To(BeFalse())
		for _, bad := range []string{"", "-a", "a_b", "123"} {
			g.Expect(h.System.SetComputerName(ctx, bad)).To(MatchError(host.ErrInvalid), bad)
		}
	})
}

func TestAProgramMayRebootTheMachineAndItsServicesEndInOrder(t *testing.T) {
	var told story
	o := sim.Options{
		Services: []host.Service{demo("a", automatic)},
		Programs: programs(func(ctx context.Context, p *sim.Process) int {
			p.Running()
			if info, err := p.Host.System.Info(ctx); err == nil && info.BootID == "boot-1" {
				if err := p.Host.System.Reboot(ctx, "again"); err != nil {
					return 1
				}
			}
			<-ctx.Done()
			told.add(context.Cause(ctx).Error())
			_, err := p.Host.System.Info(context.WithoutCancel(ctx))
			told.add(boolText(err == nil))
			return 0
		}),
	}
	inBubble(t, o, func(g *WithT, ctx context.Context, m *sim.Machine) {
		g.Expect(m.AwaitBoot(ctx, 2)).To(Succeed())
		synctest.Wait()
		g.Expect(told.told()).To(Equal([]string{sim.ErrShutdown.Error(), "true"}))
		g.Expect(m.ServiceStatus("a").State).To(Equal(host.ServiceRunning))
	})
}

func boolText(b bool) string {
	if b {
		return "true"
	}
	return "false"
}

func TestAPowerCutDuringAShutdownLeavesTheMachineOff(t *testing.T) {
	o := sim.Options{Services: []host.Service{demo("slow", automatic)}, Programs: programs(func(ctx context.Context, p *sim.Process) int {
		serve(ctx, p)
		time.Sleep(time.Second)
		return 0
	})}
	inBubble(t, o, func(g *WithT, ctx context.Context, m *sim.Machine) {
		g.Expect(m.Host().System.Reboot(ctx, "test")).To(Succeed())
		g.Expect(m.On()).To(BeTrue())
		m.PowerOff()
		time.Sleep(time.Minute)
		g.Expect(m.On()).To(BeFalse())
		g.Expect(m.Boots()).To(Equal(1))
		m.PowerOn(ctx)
		g.Expect(m.Boots()).To(Equal(2))
	})
}

func TestTheEndOfItsContextCutsThePower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		m := sim.New(sim.Options{Services: []host.Service{demo("a", automatic)}, Programs: programs(serve)})
		ctx, cancel := context.WithCancel(t.Context())
		m.PowerOn(ctx)
		off := m.Off()
		cancel()
		<-off
		g.Expect(m.On()).To(BeFalse())
	})
}

func TestFaultsHitTheCallThatTheyAreMeantFor(t *testing.T) {
	broken := errors.New("broken")
	cases := map[string]struct {
		fault  sim.Fault
		err    error
		effect bool
		on     bool
	}{
		"fails without an effect":         {sim.Fault{Kind: sim.Fail, Err: broken}, broken, false, true},
		"fails with the effect":           {sim.Fault{Kind: sim.FailAfter, Err: broken}, broken, true, true},
		"loses power before the effect":   {sim.Fault{Kind: sim.PowerCutBefore}, sim.ErrPowerLost, false, false},
		"loses power after the effect":    {sim.Fault{Kind: sim.PowerCutAfter}, sim.ErrPowerLost, true, false},
		"is killed before the effect":     {sim.Fault{Kind: sim.KillBefore}, sim.ErrKilled, false, true},
		"is killed after the effect":      {sim.Fault{Kind: sim.KillAfter}, sim.ErrKilled, true, true},
		"hangs until the context ends":    {sim.Fault{Kind: sim.Hang}, context.DeadlineExceeded, false, true},
		"hangs until the power is lost":   {sim.Fault{Kind: sim.HangForever}, sim.ErrPowerLost, false, false},
		"does what it shall without one":  {sim.Fault{}, nil, true, true},
		"takes an error of its own if it": {sim.Fault{Kind: sim.Fail}, nil, false, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, sim.Options{}, func(g *WithT, ctx context.Context, m *sim.Machine) {
				var seen []sim.Call
				m.SetInject(func(call sim.Call) sim.Fault {
					seen = append(seen, call)
					if call.Index == 1 {
						return c.fault
					}
					return sim.Fault{}
				})
				h := m.Host()
				g.Expect(h.Files.Mkdir(ctx, `C:\d`, host.ACLSystem)).To(Succeed())
				limited, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				if c.fault.Kind == sim.HangForever {
					time.AfterFunc(time.Minute, m.Cut)
				}
				err := h.Files.Write(limited, `C:\d\f`, []byte("x"), host.ACLSystem)
				switch {
				case c.err != nil:
					g.Expect(err).To(MatchError(c.err))
				case c.effect:
					g.Expect(err).NotTo(HaveOccurred())
				default:
					g.Expect(err).To(MatchError(ContainSubstring("injected")))
				}
				g.Expect(seen[1]).To(Equal(sim.Call{Index: 1, Boot: 1, Op: "Files.Write", Detail: `C:\d\f`}))
				g.Expect(m.Calls()).To(Equal(2))
				g.Expect(m.On()).To(Equal(c.on))
				_, err = m.ReadFile(`C:\d\f`)
				g.Expect(errors.Is(err, fs.ErrNotExist)).To(Equal(!c.effect))
				if c.on {
					_, err := m.Host().System.Info(ctx)
					g.Expect(err).NotTo(HaveOccurred(), "a new handle lives")
				}
			})
		})
	}
}

func TestAServiceThatAFaultKillsIsRestartedByTheSCM(t *testing.T) {
	var told story
	o := sim.Options{
		Services: []host.Service{demo("a", automatic, restarting(time.Second))},
		Programs: programs(func(ctx context.Context, p *sim.Process) int {
			p.Running()
			err := p.Host.Registry.Set(ctx, `HKLM\SOFTWARE\Demo`, "x", host.DWordValue(1))
			told.add(boolText(err == nil))
			if errors.Is(err, sim.ErrKilled) {
				err = p.Host.Registry.Set(context.WithoutCancel(ctx), `HKLM\SOFTWARE\Demo`, "y", host.DWordValue(1))
				told.add(boolText(errors.Is(err, sim.ErrKilled)))
			}
			<-ctx.Done()
			return 0
		}),
		Inject: func(c sim.Call) sim.Fault {
			if c.Index == 0 && c.Program == demoExe {
				return sim.Fault{Kind: sim.KillAfter}
			}
			return sim.Fault{}
		},
	}
	inBubble(t, o, func(g *WithT, _ context.Context, m *sim.Machine) {
		time.Sleep(time.Second)
		synctest.Wait()
		g.Expect(told.told()).To(Equal([]string{"false", "true", "true"}))
		_, ok := m.RegistryValue(`HKLM\software\demo`, "X")
		g.Expect(ok).To(BeTrue())
		_, ok = m.RegistryValue(`HKLM\software\demo`, "y")
		g.Expect(ok).To(BeFalse(), "a dead process has no effect")
		g.Expect(m.On()).To(BeTrue())
	})
}
