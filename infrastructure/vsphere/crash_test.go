package vsphere_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	vim "github.com/vmware/govmomi/vim25/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/infrastructure"
	"github.com/capw-dev/cluster-api-provider-windows/test/vcsim"
)

// hold makes clone tasks wait at a stage until release is called; reached is closed when one waits there.
func hold(w *world, at vcsim.CloneStage) (reached <-chan struct{}, release func()) {
	arrived, open := make(chan struct{}), make(chan struct{})
	arrive := sync.OnceFunc(func() { close(arrived) })
	w.vcenter.OnClone(func(stage vcsim.CloneStage, _ string) vim.BaseMethodFault {
		if stage == at {
			arrive()
			<-open
		}
		return nil
	})
	release = sync.OnceFunc(func() {
		w.vcenter.OnClone(nil)
		close(open)
	})
	DeferCleanup(release)
	return arrived, release
}

var _ = Describe("A manager that dies", func() {
	var (
		w   *world
		ctx = context.Background()
	)
	BeforeEach(func() { w = newWorld() })

	for _, stage := range []vcsim.CloneStage{vcsim.CloneStarted, vcsim.CloneCreated, vcsim.ClonePoweredOn} {
		It("leaves exactly one VM when the clone task is at "+string(stage)+", and the next manager takes it", func() {
			reached, release := hold(w, stage)
			first, s := w.start(), w.newMachine("win-1")
			_, err := first.Ensure(ctx, s)
			Expect(err).NotTo(HaveOccurred())
			Eventually(reached).Should(BeClosed())
			first.stop()

			second := w.start()
			_, err = second.Ensure(ctx, s)
			Expect(err).NotTo(HaveOccurred())
			release()
			instance := second.untilRunning(s)
			Expect(w.vcenter.VMs()).To(HaveLen(1))
			Expect(instance.ID).To(Equal(w.vcenter.VMs()[0].ID))
			Expect(w.vcenter.VMs()[0].PowerState).To(Equal("poweredOn"))
		})

		It("leaves nothing when the machine is deleted while its clone task is at "+string(stage)+", although the next manager does not know the task", func() {
			reached, release := hold(w, stage)
			first, s := w.start(), w.newMachine("win-1")
			_, err := first.Ensure(ctx, s)
			Expect(err).NotTo(HaveOccurred())
			Eventually(reached).Should(BeClosed())
			first.stop()

			second := w.start()
			if stage == vcsim.CloneStarted {
				for range 3 {
					progress, err := second.Delete(ctx, s.Machine)
					Expect(err).NotTo(HaveOccurred())
					Expect(progress.Done).To(BeFalse(), "the clone task can still create the VM")
					Expect(progress.Message).To(ContainSubstring("waiting for the end of clone tasks that could still create VM win-1"))
				}
			}
			release()
			second.untilDeleted(s.Machine)
			Consistently(w.names).Should(BeEmpty())
		})
	}

	It("leaves exactly one VM when it was created and nobody wrote its provider ID", func() {
		first, s := w.start(), w.newMachine("win-1")
		before := first.untilRunning(s)
		first.stop()
		second := w.start()
		Expect(second.untilRunning(s)).To(Equal(before))
		Expect(w.vcenter.VMs()).To(HaveLen(1))
	})

	It("leaves exactly one VM when it was created and not powered on", func() {
		first, s := w.start(), w.newMachine("win-1")
		before := first.untilRunning(s)
		first.stop()
		Expect(w.vcenter.PowerOffVM(ctx, "win-1")).To(Succeed())
		second := w.start()
		Expect(second.untilRunning(s).ID).To(Equal(before.ID))
		Expect(w.vcenter.VMs()).To(HaveLen(1))
	})

	It("finishes a deletion that another one began", func() {
		first, s := w.start(), w.newMachine("win-1")
		s.ProviderID = first.untilRunning(s).ProviderID
		_, err := first.Delete(ctx, s.Machine)
		Expect(err).NotTo(HaveOccurred())
		first.stop()
		w.start().untilDeleted(s.Machine)
		Expect(w.names()).To(BeEmpty())
	})
})

var _ = Describe("The owner of a VM", func() {
	var (
		w   *world
		m   *manager
		ctx = context.Background()
	)
	BeforeEach(func() {
		w = newWorld()
		m = w.start()
	})

	It("never takes, changes or removes a foreign VM of its name, and goes on when that is gone", func() {
		Expect(w.vcenter.CreateForeignVM(ctx, "win-1")).To(Succeed())
		before := w.vcenter.VMs()
		s := w.newMachine("win-1")
		var err error
		Eventually(func() bool {
			_, err = m.Ensure(ctx, s)
			return err != nil
		}).Should(BeTrue())
		foreign := errorAs[*infrastructure.ForeignInstanceError](err)
		Expect(foreign.Name).To(Equal("win-1"))
		Expect(foreign.ID).To(Equal(before[0].ID))
		Expect(foreign.Detail).To(Equal("it has no owner mark"))
		m.untilDeleted(s.Machine)
		Expect(w.vcenter.VMs()).To(Equal(before))

		Eventually(func() bool {
			_, err = m.Ensure(ctx, s)
			return err != nil
		}).Should(BeTrue())
		seen := m.wakes(s.Owner)
		Expect(w.vcenter.DestroyVM(ctx, "win-1")).To(Succeed())
		Eventually(func() int { return m.wakes(s.Owner) }).Should(BeNumerically(">", seen))
		m.untilRunning(s)
	})

	It("goes on when a foreign VM of its name is renamed", func() {
		Expect(w.vcenter.CreateForeignVM(ctx, "win-1")).To(Succeed())
		s := w.newMachine("win-1")
		var err error
		Eventually(func() bool {
			_, err = m.Ensure(ctx, s)
			return err != nil
		}).Should(BeTrue())
		Expect(errorAs[*infrastructure.ForeignInstanceError](err).Name).To(Equal("win-1"))
		Expect(w.vcenter.RenameVM(ctx, "win-1", "other")).To(Succeed())
		m.untilRunning(s)
		Expect(w.names()).To(Equal([]string{"other", "win-1"}))
	})

	It("says that a folder has its name, without losing the session, and goes on when that is gone", func() {
		Expect(w.vcenter.CreateFolder(ctx, "/DC0/vm", "win-1")).To(Succeed())
		s := w.newMachine("win-1")
		for range 2 {
			var foreign *infrastructure.ForeignInstanceError
			m.reconcile(s.Owner, func() (bool, error) {
				_, err := m.Ensure(ctx, s)
				return errors.As(err, &foreign), err
			})
			Expect(foreign.Detail).To(Equal("it is not a VM, but a Folder"))
			Expect(foreign.ID).To(HavePrefix("group-"))
		}
		Expect(w.vcenter.RemoveFolder(ctx, "/DC0/vm/win-1")).To(Succeed())
		m.untilRunning(s)
		Expect(w.vcenter.Calls().Methods).To(HaveKeyWithValue("Login", 1))
	})

	It("never takes the VM of another WindowsMachine of the same name", func() {
		mine := w.newMachine("win-1")
		m.untilRunning(mine)
		other := w.newMachine("win-1")
		other.Owner.Namespace = "team-b"
		w.secretIn("team-b")
		var err error
		Eventually(func() bool {
			_, err = m.Ensure(ctx, other)
			return err != nil
		}).Should(BeTrue())
		Expect(errorAs[*infrastructure.ForeignInstanceError](err).Detail).To(ContainSubstring("WindowsMachine team-a/win-1"))
		m.untilDeleted(other.Machine)
		Expect(w.names()).To(Equal([]string{"win-1"}))
	})

	It("T18: finds its VM after clusterctl move gave it another UID, and can delete it", func() {
		s := w.newMachine("win-1")
		before := m.untilRunning(s)
		m.stop()
		m = w.start()
		s.Owner.UID, s.ProviderID = uuid.NewUUID(), before.ProviderID
		observed, err := m.Observe(ctx, s.Machine)
		Expect(err).NotTo(HaveOccurred())
		Expect(observed).To(Equal(before))
		ensured, err := m.Ensure(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		Expect(ensured).To(Equal(before))
		m.untilDeleted(s.Machine)
		Expect(w.names()).To(BeEmpty())
	})

	It("is not who only knows the provider ID", func() {
		s := w.newMachine("win-1")
		stranger := w.newMachine("win-2")
		stranger.ProviderID = m.untilRunning(s).ProviderID
		_, err := m.Observe(ctx, stranger.Machine)
		Expect(errorAs[*infrastructure.ForeignInstanceError](err).Detail).To(ContainSubstring("WindowsMachine team-a/win-1"))
		m.untilDeleted(stranger.Machine)
		Expect(w.names()).To(Equal([]string{"win-1"}))
	})

	It("is told when somebody changed the BIOS UUID of its VM, with both IDs, and can delete it", func() {
		s := w.newMachine("win-1")
		s.ProviderID = m.untilRunning(s).ProviderID
		Expect(w.vcenter.SetExtraConfig(ctx, "win-1", map[string]any{"SET.config.uuid": "4214e0a5-0000-4000-8000-000000000001"})).To(Succeed())
		for range 2 {
			var config *infrastructure.ConfigError
			m.reconcile(s.Owner, func() (bool, error) {
				_, err := m.Observe(ctx, s.Machine)
				return errors.As(err, &config), err
			})
			Expect(config.Field).To(Equal("spec.providerID"))
			Expect(config.Value).To(Equal(s.ProviderID))
			Expect(config.Problem).To(And(ContainSubstring("vsphere://4214e0a5-0000-4000-8000-000000000001"), ContainSubstring(s.ProviderID), ContainSubstring("delete the Machine")))
			m.stop()
			m = w.start() // also one that has never seen it before
		}
		m.untilDeleted(s.Machine)
		Expect(w.names()).To(BeEmpty())
	})

	It("finds its VM by its name alone, when the template is gone and the vCenter chose another instance UUID", func() {
		s := w.newMachine("win-1")
		m.untilRunning(s)
		m.stop()
		Expect(w.vcenter.SetExtraConfig(ctx, "win-1", map[string]any{"SET.config.instanceUuid": "5014e0a5-0000-4000-8000-000000000001"})).To(Succeed())
		Expect(w.vcenter.DestroyVM(ctx, "windows-2022")).To(Succeed())
		m = w.start()
		m.untilDeleted(s.Machine)
		Expect(w.names()).To(BeEmpty())
	})

	It("waits for a VM that has no configuration yet, whoever began to create it", func() {
		s := w.newMachine("win-1")
		provider := m.untilRunning(s).ProviderID
		m.stop()
		Expect(w.vcenter.SetExtraConfig(ctx, "win-1", map[string]any{"SET.config.uuid": ""})).To(Succeed())
		m = w.start()
		instance, err := m.Ensure(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		Expect(instance.State).To(Equal(infrav1.InstanceCreating))
		Expect(instance.Message).To(ContainSubstring("it has no configuration: it is being created, or its host or datastore cannot be reached"))
		Expect(w.vcenter.SetExtraConfig(ctx, "win-1", map[string]any{"SET.config.uuid": strings.TrimPrefix(provider, "vsphere://")})).To(Succeed())
		Expect(m.untilRunning(s).ProviderID).To(Equal(provider))
	})

	It("does not know how a VM is that it has seen, while its configuration cannot be read", func() {
		s := w.newMachine("win-1")
		s.ProviderID = m.untilRunning(s).ProviderID
		Expect(w.vcenter.SetExtraConfig(ctx, "win-1", map[string]any{"SET.config.uuid": ""})).To(Succeed())
		var unavailable error
		m.reconcile(s.Owner, func() (bool, error) {
			instance, err := m.Observe(ctx, s.Machine)
			Expect(instance.State).NotTo(Equal(infrav1.InstanceCreating))
			unavailable = err
			return errors.Is(err, infrastructure.ErrUnavailable), err
		})
		Expect(unavailable.Error()).To(ContainSubstring("is not ready: it has no configuration"))
		seen := m.wakes(s.Owner)
		Expect(w.vcenter.SetExtraConfig(ctx, "win-1", map[string]any{"SET.config.uuid": strings.TrimPrefix(s.ProviderID, "vsphere://")})).To(Succeed())
		Eventually(func() int { return m.wakes(s.Owner) }).Should(BeNumerically(">", seen))
		instance, err := m.Observe(ctx, s.Machine)
		Expect(err).NotTo(HaveOccurred())
		Expect(instance.State).To(Equal(infrav1.InstanceRunning))
	})

	It("is not decided by searches alone, which hide what the user may not see", func() {
		s := w.newMachine("win-1")
		seen := m.untilRunning(s)
		s.ProviderID, s.ID = seen.ProviderID, seen.ID
		m.stop()
		// vcsim enforces no privilege: a VM that is gone and a read that is refused look the same from here.
		Expect(w.vcenter.DestroyVM(ctx, "win-1")).To(Succeed())
		w.vcenter.OnRequest(func(method string) vcsim.Action {
			if method == "RetrievePropertiesEx" {
				return vcsim.Action{Fault: &vim.NoPermission{PrivilegeId: "System.View"}}
			}
			return vcsim.Action{}
		})
		m = w.start()
		_, err := m.Observe(ctx, s.Machine)
		Expect(errors.Is(err, infrastructure.ErrUnavailable)).To(BeTrue(), "got %v", err)
		Expect(err.Error()).To(And(ContainSubstring("System.View"), ContainSubstring("check that the user may still see it")))
		_, err = m.Delete(ctx, s.Machine)
		Expect(errors.Is(err, infrastructure.ErrUnavailable)).To(BeTrue(), "got %v", err)

		By("a read that is answered")
		w.vcenter.OnRequest(nil)
		Expect(m.Observe(ctx, s.Machine)).To(HaveField("State", infrav1.InstanceMissing))
		Expect(m.Delete(ctx, s.Machine)).To(HaveField("Done", true))
	})

	It("is not decided by an owner mark that somebody removed, which makes no running node bad either", func() {
		s := w.newMachine("win-1")
		s.ProviderID = m.untilRunning(s).ProviderID
		m.stop()
		Expect(w.vcenter.SetExtraConfig(ctx, "win-1", map[string]any{"capw.owner": ""})).To(Succeed())
		m = w.start()
		Expect(m.Observe(ctx, s.Machine)).To(HaveField("State", infrav1.InstanceRunning))
		progress, err := m.Delete(ctx, s.Machine)
		Expect(err).NotTo(HaveOccurred())
		Expect(progress.Done).To(BeFalse())
		Expect(progress.Message).To(ContainSubstring("no owner mark"))
		Expect(w.names()).To(Equal([]string{"win-1"}))
	})
})

var _ = Describe("A machine that is deleted while its VM is being created", func() {
	It("leaves nothing, also with the manager that started the clone", func() {
		w := newWorld()
		m := w.start()
		reached, release := hold(w, vcsim.CloneStarted)
		s := w.newMachine("win-1")
		_, err := m.Ensure(context.Background(), s)
		Expect(err).NotTo(HaveOccurred())
		Eventually(reached).Should(BeClosed())
		progress, err := m.Delete(context.Background(), s.Machine)
		Expect(err).NotTo(HaveOccurred())
		Expect(progress.Done).To(BeFalse())
		release()
		m.untilDeleted(s.Machine)
		Consistently(w.names).Should(BeEmpty())
	})

	It("does not wait for clones of other machines that are known", func() {
		w := newWorld()
		m := w.start()
		reached, _ := hold(w, vcsim.CloneStarted)
		busy, never := w.newMachine("win-1"), w.newMachine("win-2")
		_, err := m.Ensure(context.Background(), busy)
		Expect(err).NotTo(HaveOccurred())
		Eventually(reached).Should(BeClosed())
		progress, err := m.Delete(context.Background(), never.Machine)
		Expect(err).NotTo(HaveOccurred())
		Expect(progress.Done).To(BeTrue())
	})

	It("leaves nothing when the answer to the clone request was lost", func() {
		w := newWorld()
		m := w.start()
		w.vcenter.SetDelays(vcsim.Delays{Clone: 500 * time.Millisecond})
		w.vcenter.OnRequest(vcsim.Times(1, "CloneVM_Task", vcsim.Action{DropAnswer: true}))
		s := w.newMachine("win-1")
		_, err := m.Ensure(context.Background(), s)
		Expect(errors.Is(err, infrastructure.ErrUnavailable)).To(BeTrue(), "got %v", err)
		m.untilDeleted(s.Machine)
		Consistently(w.names, time.Second).Should(BeEmpty())
	})
})

var _ = Describe("Fifty machines at once", func() {
	It("become fifty VMs, also when every one is asked for twice at the same time", func() {
		w := newWorld()
		m := w.start()
		machines := make([]infrastructure.InstanceSpec, 50)
		for i := range machines {
			machines[i] = w.newMachine("win-" + string(rune('a'+i/10)) + string(rune('0'+i%10)))
		}
		var all sync.WaitGroup
		for _, s := range machines {
			all.Go(func() { _, _ = m.Ensure(context.Background(), s) })
			all.Go(func() { _, _ = m.Ensure(context.Background(), s) })
		}
		all.Wait()
		createAll(m, machines)
		Expect(w.vcenter.VMs()).To(HaveLen(50))
		for _, vm := range w.vcenter.VMs() {
			Expect(vm.PowerState).To(Equal("poweredOn"))
		}
		Expect(w.vcenter.Calls().Methods["CloneVM_Task"]).To(Equal(50))
		deleteAll(m, machines)
		Expect(w.names()).To(BeEmpty())
	})
})
