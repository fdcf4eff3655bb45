package vsphere_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/infrastructure"
	"github.com/capw-dev/cluster-api-provider-windows/test/vcsim"
)

// createAll drives the machines to running, ten at a time, as the reconciler does.
func createAll(m *manager, machines []infrastructure.InstanceSpec) {
	GinkgoHelper()
	var all sync.WaitGroup
	errs := make(chan error, len(machines))
	for i := range machines {
		all.Go(func() {
			errs <- m.tryReconcile(machines[i].Owner, func() (bool, error) {
				instance, err := m.Ensure(context.Background(), machines[i])
				if instance.State == "Running" {
					machines[i].ProviderID = instance.ProviderID
					return true, nil
				}
				return false, err
			})
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		Expect(err).NotTo(HaveOccurred())
	}
}

var _ = Describe("The number of vCenter calls", Serial, func() {
	var w *world
	ctx := context.Background()

	machines := func(n int, prefix string) []infrastructure.InstanceSpec {
		all := make([]infrastructure.InstanceSpec, n)
		for i := range all {
			all[i] = w.newMachine(fmt.Sprintf("%s-%d", prefix, i))
		}
		return all
	}

	// setup is what the first VM of a session costs once: login, watch, and the look-up of each name of the placement.
	const setup = 20

	DescribeTable("from create to running stays within the budget per VM", func(n, budget int) {
		w = newWorld()
		m := w.start()
		createAll(m, machines(1, "first"))
		first := w.vcenter.Calls()
		Expect(first.Total).To(BeNumerically("<=", setup+budget), "first VM of a session:\n%s", first.Table(1))

		w.vcenter.SetDelays(vcsim.Delays{Clone: 500 * time.Millisecond, PowerOn: 200 * time.Millisecond, RoundTrip: 5 * time.Millisecond})
		w.vcenter.ResetCalls()
		all := machines(n, "win")
		createAll(m, all)
		created := w.vcenter.Calls()
		GinkgoWriter.Printf("create, N=%d, session and inventory known:\n%s", n, created.Table(n))
		AddReportEntry(fmt.Sprintf("create, N=%d", n), created.Table(n), ReportEntryVisibilityAlways)
		if n == 1 {
			AddReportEntry("first VM of a session", first.Table(1), ReportEntryVisibilityAlways)
		}
		Expect(created.Total).To(BeNumerically("<=", n*budget), created.Table(n))

		By("asking for nothing more, however often they are observed")
		Eventually(func() int { // the watch has heard of what it caused itself
			before := w.vcenter.Calls().Total
			time.Sleep(300 * time.Millisecond) // the absence of calls has no event
			return w.vcenter.Calls().Total - before
		}).Should(BeZero())
		w.vcenter.ResetCalls()
		for range 20 {
			for _, s := range all {
				_, err := m.Observe(ctx, s.Machine)
				Expect(err).NotTo(HaveOccurred())
			}
		}
		Expect(w.vcenter.Calls().Total).To(BeZero(), w.vcenter.Calls().Table(n))

		By("finding them again after a restart of the manager")
		m.stop()
		w.vcenter.ResetCalls()
		m = w.start()
		observeAll(m, all)
		again := w.vcenter.Calls()
		AddReportEntry(fmt.Sprintf("found again by a new manager, N=%d", n), again.Table(n), ReportEntryVisibilityAlways)
		Expect(again.Total).To(BeNumerically("<=", 10+2*n), again.Table(n))

		By("deleting them")
		w.vcenter.ResetCalls()
		deleteAll(m, all)
		deleted := w.vcenter.Calls()
		AddReportEntry(fmt.Sprintf("delete, N=%d", n), deleted.Table(n), ReportEntryVisibilityAlways)
		Expect(deleted.Total).To(BeNumerically("<=", n*budget), deleted.Table(n))
		Expect(w.names()).To(Equal([]string{"first-0"}))
	},
		Entry("for 1 VM", 1, 10),
		Entry("for 10 VMs", 10, 5),
		Entry("for 50 VMs", 50, 4),
	)
})

func observeAll(m *manager, machines []infrastructure.InstanceSpec) {
	GinkgoHelper()
	var all sync.WaitGroup
	errs := make(chan error, len(machines))
	slots := make(chan struct{}, 10)
	for _, s := range machines {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			instance, err := m.Observe(context.Background(), s.Machine)
			if err == nil && instance.State != "Running" {
				err = fmt.Errorf("%s is %s", s.InstanceName, instance.State)
			}
			errs <- err
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		Expect(err).NotTo(HaveOccurred())
	}
}

func deleteAll(m *manager, machines []infrastructure.InstanceSpec) {
	GinkgoHelper()
	var all sync.WaitGroup
	errs := make(chan error, len(machines))
	for _, s := range machines {
		all.Go(func() {
			errs <- m.tryReconcile(s.Owner, func() (bool, error) {
				p, err := m.Delete(context.Background(), s.Machine)
				return p.Done, err
			})
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		Expect(err).NotTo(HaveOccurred())
	}
}
