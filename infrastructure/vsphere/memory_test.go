package vsphere_test

import (
	"context"
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	vim "github.com/vmware/govmomi/vim25/types"

	"github.com/capw-dev/cluster-api-provider-windows/infrastructure"
	"github.com/capw-dev/cluster-api-provider-windows/infrastructure/vsphere"
	"github.com/capw-dev/cluster-api-provider-windows/test/vcsim"
)

var _ = Describe("What is remembered", func() {
	var (
		w   *world
		m   *manager
		ctx = context.Background()
	)
	BeforeEach(func() {
		w = newWorld()
		m = w.start()
	})

	It("does not grow with the number of VMs that were created and deleted", func() {
		m.untilRunning(w.newMachine("win-1"))
		last := w.newMachine("win-2")
		m.untilRunning(last)
		Eventually(w.vcenter.Watched).Should(Equal(m.Memory().Tracked))
		before := m.Memory()
		for range 6 {
			m.untilDeleted(last.Machine)
			last = w.newMachine("win-2")
			m.untilRunning(last)
		}
		Expect(m.Memory()).To(Equal(before))
		Eventually(w.vcenter.Watched).Should(Equal(before.Tracked))
	})

	It("of a machine that was refused ends with the machine, and so do the attempts to log in", func() {
		w.setSecret("vcenter", map[string]string{"username": w.vcenter.Username, "password": "wrong"})
		s := w.newMachine("win-1")
		_, err := m.Ensure(ctx, s)
		Expect(errors.Is(err, infrastructure.ErrIdentity)).To(BeTrue(), "got %v", err)
		Expect(m.Memory()).To(Equal(vsphere.Memory{Records: 1, Endpoints: 1}))
		m.Forget(s.Owner.Key())
		Expect(m.Memory()).To(BeZero())
		m.Forget(s.Owner.Key())
	})

	It("of a machine that moved away ends with it, and its VM stays", func() {
		gone, stays := w.newMachine("win-1"), w.newMachine("win-2")
		m.untilRunning(gone)
		stays.ProviderID = m.untilRunning(stays).ProviderID
		m.Forget(gone.Owner.Key())
		Expect(m.Memory().Records).To(Equal(1))
		seen := m.wakes(gone.Owner)
		Expect(w.vcenter.PowerOffVM(ctx, "win-1")).To(Succeed())
		Expect(w.vcenter.PowerOffVM(ctx, "win-2")).To(Succeed())
		m.reconcile(stays.Owner, func() (bool, error) {
			i, err := m.Observe(ctx, stays.Machine)
			return i.State == "PoweredOff", err
		})
		Expect(m.wakes(gone.Owner)).To(Equal(seen))

		m.Forget(stays.Owner.Key())
		Expect(m.Memory()).To(BeZero())
		Eventually(w.vcenter.Sessions).Should(BeEmpty())
		Expect(w.names()).To(Equal([]string{"win-1", "win-2"}))
	})

	It("of a machine whose finalizer was removed during its clone ends with it", func() {
		reached, _ := hold(w, vcsim.CloneStarted)
		s := w.newMachine("win-1")
		_, err := m.Ensure(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		Eventually(reached).Should(BeClosed())
		Expect(m.Memory().Clones).To(Equal(1))
		m.Forget(s.Owner.Key())
		Expect(m.Memory()).To(BeZero())
	})

	It("of a namesake that is gone is not taken for what is known of the new machine", func() {
		before := w.newMachine("win-1")
		m.untilRunning(before)
		after := w.newMachine("win-1")
		_, err := m.Observe(ctx, after.Machine)
		Expect(err).NotTo(HaveOccurred())
		Expect(m.Memory().Records).To(Equal(1))
		var foreign *infrastructure.ForeignInstanceError
		m.reconcile(after.Owner, func() (bool, error) {
			_, err := m.Ensure(ctx, after)
			return errors.As(err, &foreign), err
		})
		Expect(foreign.Detail).To(ContainSubstring(string(before.Owner.UID)))
	})

	It("of a foreign VM ends when its name is free", func() {
		Expect(w.vcenter.CreateForeignVM(ctx, "win-1")).To(Succeed())
		s := w.newMachine("win-1")
		var foreign *infrastructure.ForeignInstanceError
		m.reconcile(s.Owner, func() (bool, error) {
			_, err := m.Ensure(ctx, s)
			return errors.As(err, &foreign), err
		})
		Expect(w.vcenter.RenameVM(ctx, "win-1", "other")).To(Succeed())
		m.untilRunning(s)
		seen := m.wakes(s.Owner)
		Expect(w.vcenter.PowerOffVM(ctx, "other")).To(Succeed())
		Consistently(func() int { return m.wakes(s.Owner) }).Should(Equal(seen))
	})

	It("of credentials that two Secrets share ends with the last machine that uses them", func() {
		same := map[string]string{"username": w.vcenter.Username, "password": w.vcenter.Password}
		w.setSecret("other", same)
		a, b := w.newMachine("win-1"), w.newMachine("win-2")
		b.Spec.VSphere.IdentityRef.Name = "other"
		m.untilRunning(a)
		m.untilRunning(b)
		Expect(m.Memory().Endpoints).To(Equal(1))
		same["ca.crt"] = string(w.vcenter.CertificatePEM())
		w.setSecret("other", same)
		m.untilRunning(b)
		Expect(m.Memory().Endpoints).To(Equal(2))
		m.Forget(a.Owner.Key())
		Expect(m.Memory().Endpoints).To(Equal(1))
		Eventually(w.vcenter.Sessions).Should(HaveLen(1))
	})

	It("has one alarm per machine, however often it is asked while others hold the VM", func() {
		s := w.newMachine("win-1")
		s.ProviderID = m.untilRunning(s).ProviderID
		w.vcenter.OnRequest(vcsim.Times(10, "PowerOffVM_Task", vcsim.Action{Fault: &vim.TaskInProgress{}}))
		for range 10 {
			progress, err := m.Delete(ctx, s.Machine)
			Expect(err).NotTo(HaveOccurred())
			Expect(progress.Message).To(ContainSubstring("TaskInProgress"))
			Expect(m.Memory().Alarms).To(Equal(1))
		}
		m.untilDeleted(s.Machine)
		Expect(m.Memory()).To(BeZero())
	})
})
