package windowsmachine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// The places at which a reconcile has an effect; each has a "before " and an "after ".
const (
	ensure       = "Ensure"
	observe      = "Observe"
	deletion     = "Delete"
	patchObject  = "patch of metadata or spec"
	patchStatus  = "patch of status"
	before       = "before "
	after        = "after "
	maxEncounter = 50
)

// chaos fails at the n-th encounter with one place.
type chaos struct {
	mu    sync.Mutex
	place string
	n     int
	// fire is called there.
	fire func() error
	// fired is true once it was.
	fired bool
}

func (c *chaos) step(place string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fired || c.place != place {
		return nil
	}
	if c.n--; c.n > 0 {
		return nil
	}
	c.fired = true
	return c.fire()
}

// arm makes the n-th encounter from now fail.
func (c *chaos) arm(place string, n int, fire func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.place, c.n, c.fire, c.fired = place, n, fire, false
}

func (c *chaos) hasFired() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fired
}

// funcs lets the chaos at every write of the manager.
func (c *chaos) funcs() interceptor.Funcs {
	around := func(what string, effect func() error) error {
		if err := c.step(before + what); err != nil {
			return err
		}
		if err := effect(); err != nil {
			return err
		}
		return c.step(after + what)
	}
	return interceptor.Funcs{
		Patch: func(ctx context.Context, cl client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return around(patchObject, func() error { return cl.Patch(ctx, o, p, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, cl client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return around(patchStatus, func() error { return cl.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	}
}

// fault is what happens at a place, and what then.
type fault struct {
	fire    func(*world) error
	recover func(*world)
}

var (
	managerDies = fault{
		fire:    func(w *world) error { w.manager.Kill(); return context.Canceled },
		recover: func(w *world) { w.restart() },
	}
	callFails = fault{
		fire:    func(*world) error { return errors.New("connection reset by peer") },
		recover: func(*world) {},
	}
)

// everywhere runs a test once for each encounter with each of the places, until a run does not meet the place so often.
// begin brings a world to where the faults shall start, act starts what they shall hit, and done is true at its end; check
// says what must be true after recovery.
func everywhere(ctx context.Context, f fault, places []string, begin, act func(*world), done func(*world) bool, check func(*world)) {
	for _, place := range places {
		for n := 1; ; n++ {
			Expect(n).To(BeNumerically("<", maxEncounter), "%s is met again and again", place)
			By(fmt.Sprintf("encounter %d: %s", n, place))
			c := &chaos{}
			w := newWorld(ctx, func(w *world) { w.faults, w.cloud.step = c.funcs(), c.step })
			begin(w)
			c.arm(place, n, func() error { return f.fire(w) })
			act(w)
			Eventually(func() bool { return c.hasFired() || done(w) }).Should(BeTrue())
			if !c.hasFired() {
				// Only when no worker runs any more it is certain that the place was not met.
				Expect(w.manager.Stop()).To(Succeed())
				w.start()
			}
			met := c.hasFired()
			if met {
				f.recover(w)
			}
			check(w)
			Expect(w.manager.Stop()).To(Succeed())
			if !met {
				Expect(n).To(BeNumerically(">", 1), "%s is never met", place)
				break
			}
		}
	}
}

var _ = Describe("Faults at every place", func() {
	creation := func(ctx context.Context, f fault) {
		places := []string{before + ensure, after + ensure, before + observe, after + observe,
			before + patchObject, after + patchObject, before + patchStatus, after + patchStatus}
		everywhere(ctx, f, places,
			func(*world) {},
			func(w *world) { w.createMachine("m1") },
			// The first look at the running instance ends the creation.
			func(w *world) bool {
				return w.now("m1").Status.Initialization.Provisioned != nil && len(w.cloud.callsOf(observe, "m1")) > 0
			},
			func(w *world) {
				w.eventuallyProvisioned("m1")
				Expect(w.cloud.vmsOf("m1")).To(HaveLen(1))
				Expect(w.cloud.created()).To(Equal(1))
			})
	}
	It("keep exactly one VM when the manager dies while it creates", func(ctx context.Context) { creation(ctx, managerDies) })
	It("keep exactly one VM when a call fails during the creation", func(ctx context.Context) { creation(ctx, callFails) })

	removal := func(ctx context.Context, f fault) {
		places := []string{before + deletion, after + deletion, before + patchObject, after + patchObject, before + patchStatus, after + patchStatus}
		everywhere(ctx, f, places,
			func(w *world) { w.createMachine("m1"); w.eventuallyProvisioned("m1") },
			func(w *world) { w.delete("m1") },
			// The reconcile that finds nothing comes after the one that removed the finalizer has ended.
			func(w *world) bool { return w.gone("m1") && w.cloud.forgets("m1") > 0 },
			func(w *world) { w.eventuallyGone("m1") })
	}
	It("leave no VM when the manager dies while it deletes", func(ctx context.Context) { removal(ctx, managerDies) })
	It("leave no VM when a call fails during the deletion", func(ctx context.Context) { removal(ctx, callFails) })
})
