package containerruntime_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim/faultloop"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim/simkubelet"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/containerruntime"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/phasetest"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// runtime is a containerd with a real gRPC server on its pipe.
type runtime struct {
	runtimev1.UnimplementedRuntimeServiceServer
	version string
	// silent until then, not ready until then, both after its start.
	answersAfter, readyAfter time.Duration
	// dies is how many starts end at once.
	dies int32

	starts, died atomic.Int32
	// configs that it has read at its starts.
	configs []string
	begin   time.Time
}

func (c *runtime) program(ctx context.Context, p *sim.Process) int {
	config, _ := p.Host.Files.Read(ctx, layout.ContainerdConfig)
	c.configs = append(c.configs, string(config))
	c.starts.Add(1)
	c.begin = time.Now()
	if c.died.Add(1) <= c.dies {
		_, _ = fmt.Fprintln(p.Stderr, strings.Repeat("noise\n", 1000)+`containerd: failed to load TOML: unknown plugin`)
		return 1
	}
	p.Running()
	select {
	case <-ctx.Done():
		return 0
	case <-time.After(c.answersAfter):
	}
	l, err := p.ListenPipe(layout.CRIPipe)
	if err != nil {
		return 1
	}
	s := grpc.NewServer()
	runtimev1.RegisterRuntimeServiceServer(s, c)
	defer context.AfterFunc(ctx, s.Stop)()
	_ = s.Serve(l)
	return 0
}

// Version implements the CRI.
func (c *runtime) Version(context.Context, *runtimev1.VersionRequest) (*runtimev1.VersionResponse, error) {
	if time.Since(c.begin) < c.readyAfter/2 {
		return nil, status.Error(grpccodes.Unavailable, "server is not initialized yet")
	}
	return &runtimev1.VersionResponse{Version: "0.1.0", RuntimeName: "containerd", RuntimeVersion: c.version}, nil
}

// Status implements the CRI.
func (c *runtime) Status(context.Context, *runtimev1.StatusRequest) (*runtimev1.StatusResponse, error) {
	return &runtimev1.StatusResponse{Status: &runtimev1.RuntimeStatus{Conditions: []*runtimev1.RuntimeCondition{
		{Type: "RuntimeReady", Status: time.Since(c.begin) >= c.readyAfter, Reason: "Starting", Message: "wait"},
		{Type: "NetworkReady", Reason: "NetworkPluginNotReady", Message: "later"},
	}}}, nil
}

// image is a machine with the agent's service and with c, after change.
func image(c *runtime, change func(*sim.Options)) sim.Options {
	o := sim.Options{
		Programs: map[string]sim.Program{layout.Agent: simkubelet.Runner, layout.Containerd: c.program, `C:\k\idle.exe`: simkubelet.Idle},
		Files:    map[string]string{layout.ContainerdConfig: "of the node"},
		Services: []host.Service{{Name: layout.AgentService, Argv: []string{`C:\k\idle.exe`}, Start: host.StartAuto}},
	}
	if change != nil {
		change(&o)
	}
	return o
}

// withImages adds the service with which an image starts its own containerd.
func withImages(o *sim.Options) {
	o.Services = append(o.Services, host.Service{Name: layout.ContainerdService, Argv: []string{layout.Containerd}, Start: host.StartAuto})
}

// known puts the version that phase Artifacts has found out in front of the phase.
func known(version string) engine.Phase {
	p := containerruntime.Phase()
	p.Steps = append([]engine.Step{{Name: "facts", Budget: engine.Retry(time.Minute, time.Second, 0), Do: func(_ context.Context, r *engine.Run) error {
		r.Facts.Versions = map[string]string{"containerd": version}
		return nil
	}}}, p.Steps...)
	return p
}

func seen(r phasetest.Result) []string {
	var out []string
	for _, s := range r.Statuses {
		if s.Code != "" {
			out = append(out, s.Code+" "+s.Message)
		}
	}
	return out
}

func TestContainerdIsStartedAndAnswers(t *testing.T) {
	g := NewWithT(t)
	c := &runtime{version: "v2.2.0", answersAfter: 3 * time.Second, readyAfter: 20 * time.Second}
	phasetest.Test(t, image(c, nil), phasetest.Document(nil), known("v2.2.0"), func(m *sim.Machine, r phasetest.Result, err error) {
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(m.ServiceStatus(layout.ContainerdService).State).To(Equal(host.ServiceRunning))
		g.Expect(c.starts.Load()).To(Equal(int32(1)))
		g.Expect(seen(r)).To(BeEmpty(), "a slow start is no failure")
	})
}

func TestAContainerdThatRunsWithAnotherConfigurationIsStartedAnew(t *testing.T) {
	g := NewWithT(t)
	c := &runtime{version: "v2.2.0"}
	synctest.Test(t, func(t *testing.T) {
		m := sim.New(image(c, withImages))
		defer m.PowerOff()
		m.PowerOn(t.Context())
		synctest.Wait()
		g.Expect(c.configs).To(Equal([]string{"of the node"}), "the image's, while the agent writes another")
		m.WriteFile(layout.ContainerdConfig, "new")

		r, err := phasetest.Run(t.Context(), m, phasetest.Document(nil), known("v2.2.0"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(c.configs).To(Equal([]string{"of the node", "new"}))

		again := engine.NewRun(m.Host(), phasetest.Document(nil), &r.Facts, func(context.Context) error { return nil })
		g.Expect(containerruntime.Phase().Steps[0].Do(t.Context(), again)).To(Succeed())
		g.Expect(c.configs).To(HaveLen(2), "one that the agent has started with it is left alone")
		m.WriteFile(layout.ContainerdConfig, "newer")
		g.Expect(containerruntime.Phase().Steps[0].Do(t.Context(), again)).To(Succeed())
		g.Expect(c.configs).To(Equal([]string{"of the node", "new", "newer"}))
	})
}

func TestAContainerdOfTheImageIsWaitedForAndAsked(t *testing.T) {
	g := NewWithT(t)
	c := &runtime{version: "v1.7.29", answersAfter: 3 * time.Minute}
	doc := phasetest.Document(func(d *nodev1.NodeConfiguration) { d.ContainerRuntime.Management = nodev1.Existing })
	o := image(c, func(o *sim.Options) {
		withImages(o)
		delete(o.Files, layout.ContainerdConfig)
	})
	phasetest.Test(t, o, doc, containerruntime.Phase(), func(m *sim.Machine, r phasetest.Result, err error) {
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(r.Facts.Versions).To(HaveKeyWithValue("containerd", "v1.7.29"))
		g.Expect(c.starts.Load()).To(Equal(int32(1)))
		g.Expect(m.Services()[layout.ContainerdService].Argv).To(Equal([]string{layout.Containerd}), "its service is not ours")
		g.Expect(seen(r)).To(HaveEach(HavePrefix(string(codes.RuntimeNotAnswering))))
		g.Expect(seen(r)).NotTo(BeEmpty())
	})
}

func TestAContainerdThatDiesSaysWhy(t *testing.T) {
	for name, tc := range map[string]struct {
		dies int32
		code codes.Code
	}{"twice": {2, ""}, "always": {1 << 30, codes.RuntimeDied}} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := &runtime{version: "v2.2.0", dies: tc.dies}
			phasetest.Test(t, image(c, nil), phasetest.Document(nil), known("v2.2.0"), func(_ *sim.Machine, r phasetest.Result, err error) {
				if tc.code == "" {
					g.Expect(err).NotTo(HaveOccurred())
					return
				}
				g.Expect(phasetest.Code(err)).To(Or(Equal(codes.RuntimeDied), Equal(codes.RuntimeNotStarted)), "%v", err)
				g.Expect(err).To(MatchError(ContainSubstring("unknown plugin")))
				g.Expect(len(err.Error())).To(BeNumerically("<", 3000))
			})
		})
	}
}

func TestAContainerdThatNeverAnswersEndsTheFirstBoot(t *testing.T) {
	for name, tc := range map[string]struct {
		runtime *runtime
		code    codes.Code
		says    string
	}{
		"silent":          {&runtime{version: "v2.2.0", answersAfter: 100 * time.Hour}, codes.RuntimeNotAnswering, layout.CRIPipe},
		"never ready":     {&runtime{version: "v2.2.0", readyAfter: 100 * time.Hour}, codes.RuntimeNotAnswering, "not initialized"},
		"another version": {&runtime{version: "v1.7.0"}, codes.RuntimeOtherVersion, "v1.7.0"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			phasetest.Test(t, image(tc.runtime, nil), phasetest.Document(nil), known("v2.2.0"), func(_ *sim.Machine, _ phasetest.Result, err error) {
				g.Expect(phasetest.Code(err)).To(Equal(tc.code), "%v", err)
				g.Expect(err).To(MatchError(ContainSubstring(tc.says)))
			})
		})
	}
}

func TestThePhaseSurvivesEveryFault(t *testing.T) {
	for name, change := range map[string]func(*sim.Options){"on a new host": nil, "with a containerd of the image": withImages} {
		t.Run(name, func(t *testing.T) {
			doc := phasetest.Document(func(d *nodev1.NodeConfiguration) { d.Boot.DeadlineSeconds = 12 * 3600 }) // longer than a hang
			scenario := func(ctx context.Context, inject func(sim.Call) sim.Fault) (sim.Snapshot, error) {
				m := sim.New(image(&runtime{version: "v2.2.0"}, change))
				defer m.PowerOff()
				m.SetInject(inject)
				_, err := phasetest.Run(ctx, m, doc, phasetest.UntilDead(known("v2.2.0")))
				time.Sleep(time.Minute) // services start some time after the power came back
				return m.Snapshot(), err
			}
			faultloop.Loop(t, scenario, faultloop.Options{
				Storms: 20,
				Only:   func(c sim.Call) bool { return c.Program == "" && (c.Op != "Files.Read" || c.Detail != layout.Journal) },
				Ignore: func(key string) bool {
					return strings.HasPrefix(key, "file "+layout.StateDir) || strings.HasPrefix(key, "file "+layout.LogDir)
				},
			})
		})
	}
}
