package windowsconfig_test

import (
	"context"
	"errors"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/record"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/controllers/windowsconfig"
)

// process is a manager process that dies at its n-th write, to whichever cluster that goes: before the write is sent, or
// after it was done and before anyone hears of it. A dead process does nothing any more.
type process struct {
	diesAt    int // 0 for never
	afterward bool

	writes int
	dead   bool
}

var errDead = errors.New("the process is dead")

// write counts one write and does it, unless the process dies before.
func (p *process) write(do func() error) error {
	if p.dead {
		return errDead
	}
	p.writes++
	if p.writes != p.diesAt {
		return do()
	}
	p.dead = true
	if p.afterward {
		Expect(do()).To(Succeed())
	}
	return errDead
}

func (p *process) read(do func() error) error {
	if p.dead {
		return errDead
	}
	return do()
}

// client returns a client that the process uses.
func (p *process) client(c client.Client) client.Client {
	return interceptor.NewClient(withWatch{c}, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			return p.read(func() error { return c.Get(ctx, key, obj, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return p.write(func() error { return c.Create(ctx, obj, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			return p.write(func() error { return c.Update(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return p.write(func() error { return c.Patch(ctx, obj, patch, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return p.write(func() error { return c.SubResource(sub).Patch(ctx, obj, patch, opts...) })
		},
	})
}

// withWatch makes a client fit for the interceptor; the reconciler itself watches nothing.
type withWatch struct{ client.Client }

func (withWatch) Watch(context.Context, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
	return nil, errors.New("not used")
}

// reconciler returns a reconciler in that process, with nothing in its memory.
func (p *process) reconciler(cluster *clusterv1.Cluster) *windowsconfig.Reconciler {
	return &windowsconfig.Reconciler{
		Client:       p.client(mgmt),
		ClusterCache: clustercache.NewFakeClusterCache(p.client(work), client.ObjectKeyFromObject(cluster)),
		TokenTTL:     windowsconfig.DefaultTokenTTL,
		Recorder:     &record.FakeRecorder{},
	}
}

// settle reconciles until nothing is written any more, or the process dies.
func (p *process) settle(ctx context.Context, m *worker) {
	GinkgoHelper()
	r := p.reconciler(m.cluster)
	for range 10 {
		before := p.writes
		_, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(m.config)})
		if p.dead {
			return
		}
		Expect(err).NotTo(HaveOccurred())
		if p.writes == before {
			return
		}
	}
	Fail("it does not settle")
}

var _ = Describe("A crash", func() {
	for _, afterward := range []bool{false, true} {
		moment := map[bool]string{false: "before", true: "after"}[afterward]

		It("B13, B23: "+moment+" any write leads, after restart, to one data Secret with one token that the workload cluster knows", func(ctx SpecContext) {
			crashes := 0
			for n := 1; ; n++ {
				w := newReadyWorld(ctx)
				m := w.newWorker(ctx)
				first := &process{diesAt: n, afterward: afterward}
				first.settle(ctx, m)
				if m.now(ctx).Status.DataSecretName != "" {
					Expect(m.tokens(ctx)).To(HaveLen(1), "handed out before the workload cluster knows the token")
				}
				if !first.dead {
					break
				}
				crashes++

				(&process{}).settle(ctx, m)
				at := fmt.Sprintf("after a crash %s write %d", moment, n)
				Expect(m.now(ctx).Status.DataSecretName).To(Equal(m.config.Name), at)
				Expect(m.dataSecret(ctx).OwnerReferences).To(HaveLen(1), at)
				_, token := m.theToken(ctx)
				Expect(m.document(ctx).Join.Token).To(Equal(token), at)
			}
			// Paused condition, data Secret, token, conditions, status.
			Expect(crashes).To(BeNumerically(">=", 5))
		})
	}

	It("B6, B23: hands nothing out while the workload cluster refuses the token", func(ctx SpecContext) {
		w := newReadyWorld(ctx)
		m := w.newWorker(ctx)
		p := &process{}
		p.settle(ctx, m)
		Expect(work.Delete(ctx, m.rawToken(ctx))).To(Succeed())
		change(ctx, m.config, func(c *bootstrapv1.WindowsConfig) { c.Status = bootstrapv1.WindowsConfigStatus{} })

		refused := errors.New("no more Secrets")
		r := p.reconciler(w.cluster)
		r.ClusterCache = clustercache.NewFakeClusterCache(interceptor.NewClient(withWatch{work}, interceptor.Funcs{
			Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return refused },
		}), client.ObjectKeyFromObject(w.cluster))
		request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(m.config)}
		_, err := r.Reconcile(ctx, request) // sets the Paused condition
		Expect(err).NotTo(HaveOccurred())
		_, err = r.Reconcile(ctx, request)
		Expect(err).To(MatchError(refused))
		Expect(m.now(ctx).Status.Initialization).To(BeZero())
		Expect(m.now(ctx).Status.DataSecretName).To(BeEmpty())
		Expect(m.condition(ctx, bootstrapv1.DataSecretAvailableCondition)()).To(Equal("Unknown InternalError"))

		p.settle(ctx, m)
		Expect(m.now(ctx).Status.DataSecretName).To(Equal(m.config.Name))
		Expect(m.tokens(ctx)).To(HaveLen(1))
	})

	It("B9: leaves no observed generation, and the error in the condition, when a write fails", func(ctx SpecContext) {
		w := newReadyWorld(ctx)
		m := w.newWorker(ctx)
		p := &process{}
		r := p.reconciler(w.cluster)
		request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(m.config)}
		_, err := r.Reconcile(ctx, request) // sets the Paused condition
		Expect(err).NotTo(HaveOccurred())

		refused := errors.New("quota exceeded")
		r.Client = interceptor.NewClient(withWatch{mgmt}, interceptor.Funcs{
			Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return refused },
		})
		_, err = r.Reconcile(ctx, request)
		Expect(err).To(MatchError(refused))
		Expect(m.now(ctx).Status.ObservedGeneration).To(BeZero())
		Expect(m.condition(ctx, bootstrapv1.DataSecretAvailableCondition)()).To(Equal("Unknown InternalError"))
		Expect(m.message(ctx)).To(ContainSubstring("quota exceeded"))

		r.Client = mgmt
		_, err = r.Reconcile(ctx, request)
		Expect(err).NotTo(HaveOccurred())
		Expect(m.now(ctx).Status.ObservedGeneration).To(BeEquivalentTo(1))
	})
})
