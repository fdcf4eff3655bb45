package resident

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim/simkubelet"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/phasetest"
	"github.com/capw-dev/cluster-api-provider-windows/agent/runner"
	"github.com/capw-dev/cluster-api-provider-windows/agent/services"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// node is a machine with a resident.
type node struct {
	*sim.Machine
	doc   *nodev1.NodeConfiguration
	facts *engine.Facts

	mu     sync.Mutex
	drifts []Drift
	starts map[string]int
	broken map[string]bool // programs that end at once
}

// live runs a test on a node whose services run, and whose resident has looked at them.
func live(t *testing.T, change func(*nodev1.NodeConfiguration), test func(ctx context.Context, g *WithT, n *node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		n := &node{
			doc: phasetest.Document(change), starts: map[string]int{}, broken: map[string]bool{},
			facts: &engine.Facts{KubeletArgs: []string{"--windows-service"}, NodeIPs: []string{"10.0.0.10"}},
		}
		n.Machine = sim.New(n.image())
		defer n.PowerOff()
		n.PowerOn(t.Context())
		run := engine.NewRun(n.Host(), n.doc, n.facts, func(context.Context) error { return nil })
		desired, err := services.Desired(run)
		g.Expect(err).NotTo(HaveOccurred())
		for _, s := range desired {
			g.Expect(services.Register(t.Context(), run, s)).To(Succeed())
			if len(services.Only(desired, services.KubeProxy)) == 0 {
				g.Expect(services.Ensure(t.Context(), run, s)).To(Succeed())
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- Run(ctx, n.Host(), n.doc, n.facts, Options{Report: n.report}) }()
		time.Sleep(time.Minute)
		n.forget()
		test(t.Context(), g, n)
		stop()
		g.Expect(<-ended).To(Succeed())
	})
}

func (n *node) report(d Drift) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.drifts = append(n.drifts, d)
}

// forget drops what was seen so far.
func (n *node) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.drifts, n.starts = nil, map[string]int{}
}

func (n *node) seen() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []string
	for _, d := range n.drifts {
		out = append(out, fmt.Sprintf("%s %s %t", d.Service, d.Kind, d.Restored))
	}
	return out
}

func (n *node) started(name string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.starts[name]
}

func (n *node) image() sim.Options {
	program := func(name string) sim.Program {
		return func(ctx context.Context, p *sim.Process) int {
			n.mu.Lock()
			n.starts[name]++
			broken := n.broken[name]
			n.mu.Unlock()
			if broken {
				return 5
			}
			return simkubelet.Idle(ctx, p)
		}
	}
	return sim.Options{
		Services: []host.Service{{Name: layout.AgentService, Argv: []string{layout.Agent, "run"}, Start: host.StartAuto}},
		Programs: map[string]sim.Program{
			layout.Agent: func(ctx context.Context, p *sim.Process) int {
				if _, _, ok := runner.Unwrap(p.Argv); ok {
					return simkubelet.Runner(ctx, p)
				}
				return simkubelet.Idle(ctx, p)
			},
			layout.Containerd: program("containerd"), layout.Kubelet: program("kubelet"), `C:\k\kube-proxy.exe`: program("kube-proxy"),
			`C:\tool.exe`: program("tool"), `C:\k\windows_exporter.exe`: program("windows_exporter"),
		},
	}
}

func withTool(doc *nodev1.NodeConfiguration) {
	doc.Services.Additional = []nodev1.AdditionalService{{Name: "tool", ServiceOptions: nodev1.ServiceOptions{Path: `C:\tool.exe`}}}
}

func (n *node) running(name string) bool { return n.ServiceStatus(name).State == host.ServiceRunning }

func TestNothingIsTouchedWhileEverythingIsAsDeclared(t *testing.T) {
	live(t, withTool, func(_ context.Context, g *WithT, n *node) {
		changes := 0
		n.SetInject(func(c sim.Call) sim.Fault {
			if c.Program == "" && strings.HasPrefix(c.Op, "Services.") && c.Op != "Services.Get" && c.Op != "Services.Status" {
				changes++
			}
			return sim.Fault{}
		})
		time.Sleep(48 * time.Hour)
		g.Expect(changes).To(BeZero())
		g.Expect(n.seen()).To(BeEmpty())
		g.Expect(n.started("kubelet")).To(BeZero())
	})
}

func TestWhatSomebodyChangesIsRestoredSoon(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(ctx context.Context, g *WithT, h *host.Host)
		kind   DriftKind
	}{
		"stopped": {func(ctx context.Context, g *WithT, h *host.Host) {
			g.Expect(h.Services.Stop(ctx, "tool")).To(Succeed())
		}, Stopped},
		"deleted": {func(ctx context.Context, g *WithT, h *host.Host) {
			g.Expect(h.Services.Delete(ctx, "tool")).To(Succeed())
		}, Deleted},
		"disabled and stopped": {func(ctx context.Context, g *WithT, h *host.Host) {
			change(ctx, g, h, func(s *host.Service) { s.Start = host.StartDisabled })
			g.Expect(h.Services.Stop(ctx, "tool")).To(Succeed())
		}, Changed},
	} {
		t.Run(name, func(t *testing.T) {
			live(t, withTool, func(ctx context.Context, g *WithT, n *node) {
				before := n.Services()["tool"]
				tc.change(ctx, g, n.Host())
				g.Expect(n.running("tool")).To(BeFalse())
				time.Sleep(settle + time.Second)
				g.Expect(n.running("tool")).To(BeTrue())
				g.Expect(n.Services()["tool"]).To(Equal(before))
				g.Expect(n.seen()).To(Equal([]string{fmt.Sprintf("tool %s true", tc.kind)}))
				g.Expect(n.Events()).To(ContainElement(HaveField("Message", HavePrefix("Service tool was "))))
				g.Expect(n.started("kubelet")).To(BeZero())
			})
		})
	}
}

// change changes the configuration of the tool.
func change(ctx context.Context, g *WithT, h *host.Host, how func(*host.Service)) {
	s, err := h.Services.Get(ctx, "tool")
	g.Expect(err).NotTo(HaveOccurred())
	how(&s)
	g.Expect(h.Services.Apply(ctx, s)).To(Succeed())
}

func TestAChangeThatTheSCMDoesNotTellIsFoundByTheSlowLook(t *testing.T) {
	live(t, withTool, func(ctx context.Context, g *WithT, n *node) {
		change(ctx, g, n.Host(), func(s *host.Service) { s.Restart = nil })
		time.Sleep(interval + interval/5 + time.Second)
		g.Expect(n.Services()["tool"].Restart).NotTo(BeEmpty())
		g.Expect(n.started("tool")).To(BeZero(), "its program is the same, and goes on")
		g.Expect(n.seen()).To(Equal([]string{"tool Changed true"}))

		n.forget()
		change(ctx, g, n.Host(), func(s *host.Service) { s.Argv = append(s.Argv, "--secret=hunter2") })
		time.Sleep(interval + interval/5 + time.Second)
		g.Expect(n.started("tool")).To(Equal(1), "it may run with the other arguments")
		for _, e := range n.Events() {
			g.Expect(e.Message).NotTo(ContainSubstring("hunter2"))
		}
	})
}

func TestContainerdTakesTheKubeletDownAndBothComeBack(t *testing.T) {
	live(t, nil, func(ctx context.Context, g *WithT, n *node) {
		g.Expect(n.Host().Services.Stop(ctx, "containerd")).To(Succeed())
		g.Expect(n.running("kubelet")).To(BeFalse())
		time.Sleep(settle + time.Second)
		g.Expect(n.running("containerd")).To(BeTrue())
		g.Expect(n.running("kubelet")).To(BeTrue())
	})
}

func TestAProgramThatCrashesIsTheSCMsToRestart(t *testing.T) {
	live(t, withTool, func(_ context.Context, g *WithT, n *node) {
		g.Expect(n.KillService("tool")).To(BeTrue())
		time.Sleep(time.Minute)
		g.Expect(n.running("tool")).To(BeTrue())
		g.Expect(n.started("tool")).To(Equal(1))
	})
}

func TestAServiceThatTheSCMGaveUpIsStartedByTheResident(t *testing.T) {
	live(t, withTool, func(_ context.Context, g *WithT, n *node) {
		// A start that fails is no failure to the SCM, which does not repeat it.
		g.Expect(n.RemoveFile(`C:\tool.exe`)).NotTo(Succeed(), "it runs")
		n.SetInject(func(c sim.Call) sim.Fault {
			if strings.HasPrefix(c.Op, "Files.Append") && strings.Contains(c.Detail, "tool.log") {
				return sim.Fault{Kind: sim.Fail} // the runner ends before the service runs
			}
			return sim.Fault{}
		})
		n.KillService("tool")
		time.Sleep(20 * time.Second)
		g.Expect(n.running("tool")).To(BeFalse())
		n.SetInject(nil)
		time.Sleep(recoveryTime + time.Minute)
		g.Expect(n.running("tool")).To(BeTrue())
		g.Expect(n.seen()).To(ContainElement("tool Failed true"))
	})
}

func TestACrashLoopIsNeverTight(t *testing.T) {
	live(t, withTool, func(_ context.Context, g *WithT, n *node) {
		n.mu.Lock()
		n.broken["tool"] = true
		n.mu.Unlock()
		n.KillService("tool")
		time.Sleep(time.Hour)
		g.Expect(n.started("tool")).To(BeNumerically("<", 70), "the SCM does it once a minute")
		g.Expect(n.started("kubelet")).To(BeZero())
		g.Expect(n.started("containerd")).To(BeZero())
		n.mu.Lock()
		told := len(n.drifts)
		n.broken["tool"] = false
		n.mu.Unlock()
		g.Expect(told).To(BeNumerically("<", 5))
		time.Sleep(10 * time.Minute)
		g.Expect(n.running("tool")).To(BeTrue())
	})
}

func TestSomebodyWhoStopsAServiceAgainAndAgainWaitsForItLongerAndLonger(t *testing.T) {
	live(t, withTool, func(ctx context.Context, g *WithT, n *node) {
		var pauses []time.Duration
		for range 6 {
			g.Expect(n.Host().Services.Stop(ctx, "tool")).To(Succeed())
			began := time.Now()
			for !n.running("tool") {
				time.Sleep(time.Second)
			}
			pauses = append(pauses, time.Since(began))
		}
		g.Expect(pauses[0]).To(BeNumerically("<=", settle+time.Second))
		g.Expect(pauses[5]).To(And(BeNumerically(">", time.Minute), BeNumerically("<=", maxPause+recheck)))
		time.Sleep(calmTime + 2*interval)
		g.Expect(n.Host().Services.Stop(ctx, "tool")).To(Succeed())
		time.Sleep(settle + time.Second)
		g.Expect(n.running("tool")).To(BeTrue(), "it was calm in between")
	})
}

func TestTheExporterStartsWhenTheKubeletHasItsServingCertificate(t *testing.T) {
	live(t, func(doc *nodev1.NodeConfiguration) { doc.Services.WindowsExporter = &nodev1.WindowsExporter{} }, func(ctx context.Context, g *WithT, n *node) {
		g.Expect(n.Host().Services.Stop(ctx, "windows_exporter")).To(Succeed())
		time.Sleep(time.Hour)
		g.Expect(n.running("windows_exporter")).To(BeFalse())
		n.WriteFile(layout.KubeletServerCert, "certificate and key")
		time.Sleep(recheck + time.Second)
		g.Expect(n.running("windows_exporter")).To(BeTrue())
	})
}

func TestKubeProxyStartsWhenItsNetworkIsThere(t *testing.T) {
	live(t, func(doc *nodev1.NodeConfiguration) {
		doc.Services.KubeProxy = &nodev1.KubeProxy{NetworkName: "External"}
	}, func(ctx context.Context, g *WithT, n *node) {
		time.Sleep(time.Hour)
		g.Expect(n.running("kube-proxy")).To(BeFalse())
		g.Expect(n.seen()).To(BeEmpty())
		_, err := n.Host().HNS.CreateNetwork(ctx, []byte(`{"Name":"External","Type":"Overlay","SchemaVersion":{"Major":2},`+
			`"Ipams":[{"Subnets":[{"IpAddressPrefix":"10.244.3.0/24"}]}]}`))
		g.Expect(err).NotTo(HaveOccurred())
		time.Sleep(recheck + time.Second)
		g.Expect(n.running("kube-proxy")).To(BeTrue())
		g.Expect(n.facts.SourceVIP).NotTo(BeEmpty())
	})
}

func TestOldLogsOfProgramsGoAndThoseOfTheRunnerStay(t *testing.T) {
	live(t, withTool, func(_ context.Context, g *WithT, n *node) {
		dir := layout.Join(layout.LogDir, "tool") + `\`
		own := []string{"tool-20260101T000000.000.log", "tool.log"}
		for _, name := range append(own, "native.1.log") {
			n.WriteFile(dir+name, "x")
		}
		time.Sleep(24 * time.Hour)
		g.Expect(n.Files()).To(ContainElement(dir + "native.1.log"))
		time.Sleep(7 * 24 * time.Hour)
		g.Expect(n.Files()).NotTo(ContainElement(dir + "native.1.log"))
		for _, name := range own {
			g.Expect(n.Files()).To(ContainElement(dir + name))
		}
	})
}

func TestAnInterruptedResidentRestoresInTheEnd(t *testing.T) {
	for _, kind := range []sim.FaultKind{sim.Fail, sim.FailAfter, sim.Hang} {
		t.Run(string(kind), func(t *testing.T) {
			for at := range 40 {
				live(t, withTool, func(ctx context.Context, g *WithT, n *node) {
					calls := 0
					n.SetInject(func(c sim.Call) sim.Fault {
						if c.Program != "" {
							return sim.Fault{}
						}
						calls++
						if calls == at+3 { // after those of the test itself
							return sim.Fault{Kind: kind}
						}
						return sim.Fault{}
					})
					g.Expect(n.Host().Services.Stop(ctx, "containerd")).To(Succeed())
					g.Expect(n.Host().Services.Delete(ctx, "tool")).To(Succeed())
					time.Sleep(time.Hour)
					for _, name := range []string{"containerd", "kubelet", "tool"} {
						g.Expect(n.running(name)).To(BeTrue(), "%s, call %d", name, at)
					}
				})
			}
		})
	}
}

func TestAHangingCallEndsTheResidentSoThatItStartsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		n := &node{doc: phasetest.Document(nil), facts: &engine.Facts{KubeletArgs: []string{"--windows-service"}}, starts: map[string]int{}}
		n.Machine = sim.New(n.image())
		defer n.PowerOff()
		n.PowerOn(t.Context())
		n.SetInject(func(c sim.Call) sim.Fault {
			if c.Op == "Services.Get" {
				return sim.Fault{Kind: sim.HangForever}
			}
			return sim.Fault{}
		})
		g.Expect(Run(t.Context(), n.Host(), n.doc, n.facts, Options{})).To(MatchError(ContainSubstring("did not return")))
	})
}
