package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/sets"
)

const (
	crashMachines = 20
	crashMoments  = 20
)

var _ = Describe("The manager, killed with SIGKILL", func() {
	It(fmt.Sprintf("at %d moments of the creation and deletion of %d machines, still ends with exactly the wanted VMs", crashMoments, crashMachines), func(ctx context.Context) {
		w := newWorld(ctx)
		w.createCluster(ctx)
		w.createMachineDeployment(ctx, "md", 0)
		// Clones that outlast the manager are what makes orphans and twins.
		Expect(vcenter.SetCloneDelay(ctx, 700*time.Millisecond)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(vcenter.SetCloneDelay(ctx, 0)).To(Succeed()) })
		foreign := "foreign"
		Expect(vcenter.CreateForeignVM(ctx, foreign)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(vcenter.DestroyVM(ctx, foreign)).To(Succeed()) })

		random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 0))
		kills := 0
		kill := func(times int, span time.Duration) {
			GinkgoHelper()
			for range times {
				kills++
				after := time.Duration(random.Int64N(int64(span)))
				<-time.After(after)
				vms := len(w.vms(ctx)) - 1
				Expect(testEnv.Manager.Kill()).To(Succeed())
				GinkgoWriter.Printf("kill %2d: %6s after it was ready, %2d VMs\n", kills, after.Round(time.Millisecond), vms)
				Expect(testEnv.Manager.Start(ctx)).To(Succeed())
			}
		}
		exactly := func(n int) {
			Eventually(func(g Gomega) {
				machines := w.windowsMachines(ctx)
				g.Expect(machines).To(HaveLen(n))
				wanted := sets.New(foreign)
				for _, m := range machines {
					g.Expect(m.Status.Initialization.Provisioned).To(HaveValue(BeTrue()), "%s: %v", m.Name, m.Status.Conditions)
					wanted.Insert(m.Status.Instance.Name)
				}
				g.Expect(sets.KeySet(w.vms(ctx))).To(Equal(wanted))
			}).WithContext(ctx).Should(Succeed())
		}

		By("killing it while it creates")
		w.scale(ctx, "md", crashMachines)
		kill(8, time.Second)
		exactly(crashMachines)

		By("killing it while it deletes some and creates others")
		w.scale(ctx, "md", crashMachines/3)
		kill(3, 700*time.Millisecond)
		w.scale(ctx, "md", crashMachines)
		kill(3, 700*time.Millisecond)
		exactly(crashMachines)

		By("killing it while it deletes")
		w.scale(ctx, "md", 0)
		kill(6, 700*time.Millisecond)
		exactly(0)
		Expect(kills).To(Equal(crashMoments))
	}, SpecTimeout(15*time.Minute))
})
