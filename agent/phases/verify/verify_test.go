package verify_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/capw-dev/cluster-api-provider-windows/agent/apiclient/apitest"
	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim/simkubelet"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/join"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/jointest"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/verify"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// afterJoin runs a test with a machine that has joined.
func afterJoin(t *testing.T, o jointest.Options, test func(ctx context.Context, g Gomega, w *jointest.World)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
		defer cancel()
		g := NewWithT(t)
		w := jointest.New(o)
		defer w.Close()
		g.Expect(w.Boot(ctx, join.Phase())).To(Succeed())
		w.Statuses = nil
		test(ctx, g, w)
	})
}

// run runs phase Verify alone.
func run(ctx context.Context, w *jointest.World) error {
	for _, path := range []string{layout.Journal, layout.JournalBackup} {
		if err := w.Machine.RemoveFile(path); err != nil {
			return err
		}
	}
	return w.Boot(ctx, verify.Phase())
}

func TestANodeThatIsAsDeclaredIsVerified(t *testing.T) {
	afterJoin(t, jointest.Options{}, func(ctx context.Context, g Gomega, w *jointest.World) {
		g.Expect(run(ctx, w)).To(Succeed())
		g.Expect(w.Codes()).To(BeEmpty())
		g.Expect(w.Machine.Events()).To(BeEmpty())
	})
}

func TestTheReadyConditionIsSaidWhileTheNodeIsNotReady(t *testing.T) {
	var ready atomic.Bool
	const why = "container runtime network not ready: cni plugin not initialized"
	afterJoin(t, jointest.Options{Kubelet: simkubelet.Options{NotReady: func(context.Context, *sim.Process) string {
		if ready.Load() {
			return ""
		}
		return why
	}}}, func(ctx context.Context, g Gomega, w *jointest.World) {
		began := time.Now()
		time.AfterFunc(5*time.Minute, func() { ready.Store(true) })
		g.Expect(run(ctx, w)).To(Succeed())
		g.Expect(w.Codes()).To(Equal([]codes.Code{codes.NodeNotReady}))
		g.Expect(w.Statuses).To(ContainElement(HaveField("Message", ContainSubstring(why))))
		g.Expect(time.Since(began)).To(BeNumerically("<", 6*time.Minute))
	})
}

func TestARegisteredNodeIsEnoughWhereTheDocumentSaysSo(t *testing.T) {
	afterJoin(t, jointest.Options{
		Kubelet: simkubelet.Options{NotReady: func(context.Context, *sim.Process) string { return "no network" }},
		Doc:     func(d *nodev1.NodeConfiguration) { d.Boot.WaitFor = "Registered" },
	}, func(ctx context.Context, g Gomega, w *jointest.World) {
		g.Expect(run(ctx, w)).To(Succeed())
		g.Expect(w.Codes()).To(BeEmpty())
	})
}

func TestTheNodeIsWatchedAndNotPolled(t *testing.T) {
	var ready atomic.Bool
	afterJoin(t, jointest.Options{Kubelet: simkubelet.Options{Heartbeat: time.Second, NotReady: func(context.Context, *sim.Process) string {
		if ready.Load() {
			return ""
		}
		return "starting"
	}}}, func(ctx context.Context, g Gomega, w *jointest.World) {
		before := len(w.API.Requests())
		time.AfterFunc(15*time.Second, func() { ready.Store(true) })
		g.Expect(run(ctx, w)).To(Succeed())
		reads, watches := 0, 0
		for _, r := range w.API.Requests()[before:] {
			switch {
			case r.Method == http.MethodGet && r.Path == "/api/v1/nodes":
				watches++
			case r.Method == http.MethodGet && r.Path == "/api/v1/nodes/"+jointest.Name:
				reads++ // by the kubelet: one each second
			}
		}
		g.Expect(watches).To(Equal(1))
		g.Expect(reads).To(BeNumerically("<=", 18))
	})
}

func TestANodeThatCannotBeWatchedIsPolled(t *testing.T) {
	var ready atomic.Bool
	afterJoin(t, jointest.Options{Kubelet: simkubelet.Options{NotReady: func(context.Context, *sim.Process) string {
		if ready.Load() {
			return ""
		}
		return "starting"
	}}}, func(ctx context.Context, g Gomega, w *jointest.World) {
		w.API.Intercept(func(r apitest.Request) *apitest.Answer {
			if r.Path == "/api/v1/nodes" {
				return &apitest.Answer{Code: http.StatusForbidden, Message: "no watch"}
			}
			return nil
		})
		time.AfterFunc(15*time.Second, func() { ready.Store(true) })
		g.Expect(run(ctx, w)).To(Succeed())
	})
}

func TestWhatIsWrongIsSaidUntilItIsCured(t *testing.T) {
	for name, c := range map[string]struct {
		doc         func(*nodev1.NodeConfiguration)
		wrong, cure func(ctx context.Context, w *jointest.World)
		want        codes.Code
		part        string
	}{
		"a service does not run": {
			wrong: func(ctx context.Context, w *jointest.World) {
				Expect(w.Machine.Host().Services.Stop(ctx, layout.KubeletService)).To(Succeed())
			},
			cure: func(ctx context.Context, w *jointest.World) {
				Expect(w.Machine.Host().Services.Start(ctx, layout.KubeletService)).To(Succeed())
			},
			want: codes.ServiceNotRunning, part: "service kubelet is Stopped",
		},
		"a service does not exist": {
			doc: func(d *nodev1.NodeConfiguration) { d.Services.CSIProxy = &nodev1.ServiceOptions{} },
			cure: func(ctx context.Context, w *jointest.World) {
				s := w.Machine.Host().Services
				Expect(s.Apply(ctx, host.Service{Name: "csi-proxy", Argv: []string{`C:\k\idle.exe`}, Start: host.StartManual})).To(Succeed())
				Expect(s.Start(ctx, "csi-proxy")).To(Succeed())
			},
			want: codes.ServiceNotRunning, part: "service csi-proxy does not exist",
		},
		"the Node was deleted": {
			wrong: func(_ context.Context, w *jointest.World) { w.API.DeleteNode(jointest.Name) },
			cure: func(ctx context.Context, w *jointest.World) {
				h := w.Machine.Host()
				Expect(h.Services.Stop(ctx, layout.KubeletService)).To(Succeed())
				Expect(h.Services.Start(ctx, layout.KubeletService)).To(Succeed())
			},
			want: codes.NodeMissing, part: "not found",
		},
		"the API server is away": {
			wrong: func(_ context.Context, w *jointest.World) { w.API.SetDown(true) },
			cure:  func(_ context.Context, w *jointest.World) { w.API.SetDown(false) },
			want:  codes.NodeUnreadable, part: "refused",
		},
	} {
		t.Run(name, func(t *testing.T) {
			afterJoin(t, jointest.Options{Doc: c.doc}, func(ctx context.Context, g Gomega, w *jointest.World) {
				RegisterTestingT(t)
				if c.wrong != nil {
					c.wrong(ctx, w)
				}
				time.AfterFunc(2*time.Minute, func() { c.cure(ctx, w) })
				g.Expect(run(ctx, w)).To(Succeed())
				g.Expect(w.Codes()).To(ContainElement(c.want))
				g.Expect(w.Statuses).To(ContainElement(HaveField("Message", ContainSubstring(c.part))))
			})
		})
	}
}

func TestWhatOthersChangedOnTheNodeIsReportedAndNoFailure(t *testing.T) {
	afterJoin(t, jointest.Options{}, func(ctx context.Context, g Gomega, w *jointest.World) {
		node := w.API.Node(jointest.Name)
		node.Spec.Taints = []corev1.Taint{{Key: "os", Value: "windows", Effect: corev1.TaintEffectNoSchedule}}
		w.API.SetNode(node)
		g.Expect(run(ctx, w)).To(Succeed())
		g.Expect(w.Machine.Events()).To(ContainElement(HaveField("Message", ContainSubstring("taint node.cluster.x-k8s.io/uninitialized:NoSchedule is missing"))))
	})
}
