package e2e

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// callBudget is how many requests a VM may cost from create to provisioned, every request of the manager counted.
const callBudget = 10

var _ = Describe("The vCenter", func() {
	It(fmt.Sprintf("is called at most %d times per VM from create to provisioned, and not at all for VMs at rest", callBudget), func(ctx context.Context) {
		const machines = 10
		w := newWorld(ctx)
		w.createCluster(ctx)
		Expect(vcenter.ResetCalls(ctx)).To(Succeed())
		w.createMachineDeployment(ctx, "md", machines)
		Eventually(func(g Gomega) {
			all := w.windowsMachines(ctx)
			g.Expect(all).To(HaveLen(machines))
			for _, m := range all {
				g.Expect(m.Status.Initialization.Provisioned).To(HaveValue(BeTrue()))
			}
		}).WithContext(ctx).Should(Succeed())
		calls, err := vcenter.Calls(ctx)
		Expect(err).NotTo(HaveOccurred())
		AddReportEntry(fmt.Sprintf("vCenter calls, %d VMs from create to provisioned", machines), calls.Table(machines), ReportEntryVisibilityAlways)
		Expect(calls.Total).To(BeNumerically("<=", callBudget*machines))

		// At rest only the one long poll of the session is open; it may be renewed once in this time.
		Expect(vcenter.ResetCalls(ctx)).To(Succeed())
		Consistently(func(g Gomega) {
			calls, err := vcenter.Calls(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(calls.Total).To(BeNumerically("<=", 1), calls.Table(machines))
		}).WithContext(ctx).WithTimeout(5 * time.Second).WithPolling(time.Second).Should(Succeed())
	}, SpecTimeout(5*time.Minute))
})
