package vsphere_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	vim "github.com/vmware/govmomi/vim25/types"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/infrastructure"
	"github.com/capw-dev/cluster-api-provider-windows/infrastructure/vsphere"
	"github.com/capw-dev/cluster-api-provider-windows/test/vcsim"
)

// flow are the methods of a VM's life, with the session's.
func flow() []string {
	return []string{
		"RetrieveServiceContent", "Login", "CreatePropertyCollector", "CreateListView", "CreateFilter", "ModifyListView", "WaitForUpdatesEx",
		"FindByUuid", "FindByInventoryPath", "RetrievePropertiesEx", "CloneVM_Task", "PowerOffVM_Task", "Destroy_Task",
	}
}

var _ = Describe("A fault", func() {
	var (
		w   *world
		ctx = context.Background()
	)
	BeforeEach(func() { w = newWorld() })

	It("of a clone task arrives within seconds, with the vCenter's messages along the whole chain of faults, and heals", func() {
		m, s := w.start(), w.newMachine("win-1")
		w.vcenter.OnClone(vcsim.FailClones(1, vcsim.Fault("The host does not have sufficient memory resources")))
		start := time.Now()
		var failed *infrastructure.CreateError
		m.reconcile(s.Owner, func() (bool, error) {
			_, err := m.Ensure(ctx, s)
			return errors.As(err, &failed), err
		})
		Expect(time.Since(start)).To(BeNumerically("<", 3*time.Second))
		Expect(failed.Message).To(And(
			ContainSubstring("clone of VM win-1 failed"),
			ContainSubstring("InsufficientResourcesFault"),
			ContainSubstring("caused by The host does not have sufficient memory resources (InsufficientMemoryResourcesFault)"),
		))
		Expect(failed.RetryAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", 200*time.Millisecond)))

		By("remembering it without any call until the next attempt")
		calls := w.vcenter.Calls().Methods["CloneVM_Task"]
		_, err := m.Ensure(ctx, s)
		Expect(errorAs[*infrastructure.CreateError](err).Message).To(Equal(failed.Message))
		Expect(w.vcenter.Calls().Methods["CloneVM_Task"]).To(Equal(calls))
		m.untilRunning(s)
	})

	It("of creation after creation makes the attempts rarer", func() {
		m, s := w.start(), w.newMachine("win-1")
		w.vcenter.OnClone(vcsim.FailClones(3, vcsim.Fault("full")))
		var delays []time.Duration
		m.reconcile(s.Owner, func() (bool, error) {
			i, err := m.Ensure(ctx, s)
			var failed *infrastructure.CreateError
			if errors.As(err, &failed) && (len(delays) == 0 || failed.RetryAfter > delays[len(delays)-1]) {
				delays = append(delays, failed.RetryAfter)
			}
			return i.State == infrav1.InstanceRunning, err
		})
		Expect(delays).To(HaveLen(3))
		Expect(w.names()).To(Equal([]string{"win-1"}))
	})

	It("of the power-on inside the clone leads to one VM that is powered on later", func() {
		m, s := w.start(), w.newMachine("win-1")
		w.vcenter.OnClone(func(stage vcsim.CloneStage, _ string) vim.BaseMethodFault {
			if stage == vcsim.ClonePoweredOn {
				return vcsim.Fault("no host is compatible")
			}
			return nil
		})
		var failed *infrastructure.CreateError
		m.reconcile(s.Owner, func() (bool, error) {
			_, err := m.Ensure(ctx, s)
			return errors.As(err, &failed), err
		})
		m.untilRunning(s)
		Expect(w.vcenter.Calls().Methods).To(And(HaveKeyWithValue("CloneVM_Task", 1), HaveKeyWithValue("PowerOnVM_Task", 1)))
	})

	It("for a missing privilege names it", func() {
		m, s := w.start(), w.newMachine("win-1")
		w.vcenter.OnRequest(vcsim.Times(1, "CloneVM_Task", vcsim.Action{Fault: &vim.NoPermission{
			Object: &vim.ManagedObjectReference{Type: "Folder", Value: "group-v3"}, PrivilegeId: "VirtualMachine.Inventory.CreateFromExisting",
		}}))
		_, err := m.Ensure(ctx, s)
		Expect(errorAs[*infrastructure.CreateError](err).Message).To(ContainSubstring("grant the privilege VirtualMachine.Inventory.CreateFromExisting on group-v3"))
	})

	It("of a deletion is reported and tried again", func() {
		m, s := w.start(), w.newMachine("win-1")
		s.ProviderID = m.untilRunning(s).ProviderID
		w.vcenter.OnRequest(vcsim.Times(1, "PowerOffVM_Task", vcsim.Action{Fault: &vim.InvalidState{}}))
		_, err := m.Delete(ctx, s.Machine)
		failed := errorAs[*infrastructure.DeleteError](err)
		Expect(failed.Message).To(ContainSubstring("refuses power-off of VM win-1: InvalidState"))
		Expect(failed.RetryAfter).To(BeNumerically(">", 0))
		m.untilDeleted(s.Machine)
		Expect(w.names()).To(BeEmpty())
	})

	for name, action := range map[string]vcsim.Action{
		"is answered with a fault":                              {Fault: &vim.HostCommunication{}},
		"loses its connection before it is carried out":         {Drop: true},
		"loses its answer after it was carried out":             {DropAnswer: true},
		"is answered with NotAuthenticated, as after a timeout": {Fault: &vim.NotAuthenticated{}},
		"hangs": {Wait: make(chan struct{})},
	} {
		It("does no harm, whichever method "+name, func() {
			var all sync.WaitGroup
			for _, method := range flow() {
				if method == "WaitForUpdatesEx" && action.Wait != nil {
					continue // it may take a minute
				}
				w := newWorld()
				w.vcenter.OnRequest(vcsim.Times(1, method, action))
				m, s := w.start(func(o *vsphere.Options) { o.CallTimeout = 2 * time.Second }), w.newMachine("win-1")
				all.Go(func() {
					defer GinkgoRecover()
					s.ProviderID = m.untilRunning(s).ProviderID
					Expect(w.names()).To(Equal([]string{"win-1"}), method)
					m.untilDeleted(s.Machine)
					Consistently(w.names, 100*time.Millisecond).Should(BeEmpty(), method)
				})
			}
			all.Wait()
		})
	}

	It("in a twentieth of all requests leads to the exact set of VMs, and no foreign one is touched", func() {
		Expect(w.vcenter.CreateForeignVM(ctx, "foreign")).To(Succeed())
		w.vcenter.SetDelays(vcsim.Delays{Clone: 100 * time.Millisecond})
		seeded := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 0))
		var mu sync.Mutex
		dice := func(n int) int {
			mu.Lock()
			defer mu.Unlock()
			return seeded.IntN(n)
		}
		actions := []vcsim.Action{{Drop: true}, {DropAnswer: true}, {Fault: &vim.NotAuthenticated{}}, {Fault: &vim.InvalidState{}}}
		w.vcenter.OnRequest(func(method string) vcsim.Action {
			if method != "WaitForUpdatesEx" && method != "Login" && dice(20) == 0 {
				return actions[dice(len(actions))]
			}
			return vcsim.Action{}
		})
		m := w.start()
		machines := make([]infrastructure.InstanceSpec, 20)
		for i := range machines {
			machines[i] = w.newMachine("win-" + string(rune('a'+i)))
		}
		createAll(m, machines)
		Expect(w.vcenter.VMs()).To(HaveLen(21))
		deleteAll(m, machines)
		w.vcenter.OnRequest(nil)
		Consistently(w.names).Should(Equal([]string{"foreign"}))
	})
})

var _ = Describe("A session", Serial, func() {
	var (
		w   *world
		ctx = context.Background()
	)
	BeforeEach(func() { w = newWorld() })

	It("is one for all machines of one vCenter and credentials", func() {
		m := w.start()
		a, b := w.newMachine("win-1"), w.newMachine("win-2")
		m.untilRunning(a)
		m.untilRunning(b)
		Expect(w.vcenter.Sessions()).To(HaveLen(1))
		Expect(w.vcenter.Calls().Methods).To(HaveKeyWithValue("Login", 1))
	})

	It("is replaced when somebody ends it, and nothing is missed meanwhile", func() {
		m, s := w.start(), w.newMachine("win-1")
		s.ProviderID = m.untilRunning(s).ProviderID
		w.vcenter.TerminateSessions()
		Expect(w.vcenter.PowerOffVM(ctx, "win-1")).To(Succeed())
		m.reconcile(s.Owner, func() (bool, error) {
			i, err := m.Observe(ctx, s.Machine)
			return i.State == infrav1.InstancePoweredOff, err
		})
		Expect(w.vcenter.Sessions()).To(HaveLen(1))
	})

	It("is replaced after a restart of the vCenter in the middle of a creation", func() {
		m, s := w.start(), w.newMachine("win-1")
		reached, release := hold(w, vcsim.CloneStarted)
		_, err := m.Ensure(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		Eventually(reached).Should(BeClosed())
		w.vcenter.Stop()
		Eventually(func() bool {
			_, err = m.Ensure(ctx, s)
			return errors.Is(err, infrastructure.ErrUnavailable)
		}).Should(BeTrue())
		Expect(err.Error()).To(ContainSubstring("cannot be reached"))
		release()
		seen := m.wakes(s.Owner)
		Expect(w.vcenter.Resume()).To(Succeed())
		Eventually(func() int { return m.wakes(s.Owner) }).Should(BeNumerically(">", seen))
		m.untilRunning(s)
		Expect(w.vcenter.VMs()).To(HaveLen(1))
	})

	It("that cannot be replaced wakes its machines once, so that they say so or come with new credentials", func() {
		m, s := w.start(), w.newMachine("win-1")
		s.ProviderID = m.untilRunning(s).ProviderID
		seen := m.wakes(s.Owner)
		w.vcenter.Stop()
		Eventually(func() int { return m.wakes(s.Owner) }).Should(Equal(seen + 1))
		_, err := m.Observe(ctx, s.Machine)
		Expect(errors.Is(err, infrastructure.ErrUnavailable)).To(BeTrue(), "got %v", err)
		Consistently(func() int { return m.wakes(s.Owner) }, 2*time.Second).Should(Equal(seen+1), "the next attempts fail too")
		Expect(w.vcenter.Resume()).To(Succeed())
		Eventually(func() int { return m.wakes(s.Owner) }).Should(Equal(seen + 2))

		By("logging in with the new credentials when the old ones are refused")
		w.vcenter.ResetCalls()
		w.vcenter.OnRequest(vcsim.Times(1, "Login", vcsim.Action{Fault: &vim.InvalidLogin{}}))
		w.vcenter.TerminateSessions()
		Eventually(func() int { return m.wakes(s.Owner) }).Should(Equal(seen + 3))
		w.setSecret("vcenter", map[string]string{"username": w.vcenter.Username, "password": w.vcenter.Password, "ca.crt": string(w.vcenter.CertificatePEM())})
		_, err = m.Observe(ctx, s.Machine)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.vcenter.Calls().Methods["Login"]).To(Equal(2))
		Expect(m.Memory().Endpoints).To(Equal(1))
	})

	It("is not lost for all when one object is not reported", func() {
		m := w.start(func(o *vsphere.Options) { o.CallTimeout = time.Second })
		a, b := w.newMachine("win-1"), w.newMachine("win-2")
		a.ProviderID = m.untilRunning(a).ProviderID
		held, release := make(chan struct{}), make(chan struct{})
		hold := sync.OnceFunc(func() { close(held) })
		w.vcenter.OnRequest(func(method string) vcsim.Action {
			if method == "WaitForUpdatesEx" {
				hold()
				return vcsim.Action{Wait: release}
			}
			return vcsim.Action{}
		})
		Expect(w.vcenter.PowerOffVM(ctx, "win-1")).To(Succeed()) // ends the poll that may run already
		Eventually(held).Should(BeClosed())

		_, err := m.Ensure(ctx, b)
		Expect(err).NotTo(HaveOccurred())
		_, err = m.Ensure(ctx, b)
		Expect(errors.Is(err, infrastructure.ErrUnavailable)).To(BeTrue(), "got %v", err)
		Expect(err.Error()).To(ContainSubstring("vCenter did not report Task:"))
		_, err = m.Observe(ctx, a.Machine)
		Expect(err).NotTo(HaveOccurred())

		w.vcenter.OnRequest(nil)
		close(release)
		m.untilRunning(b)
		Expect(w.vcenter.Calls().Methods).To(And(HaveKeyWithValue("Login", 1), HaveKeyWithValue("CloneVM_Task", 2)))
	})

	It("is replaced, and the old one logged out, when the credentials change", func() {
		m, s := w.start(), w.newMachine("win-1")
		s.ProviderID = m.untilRunning(s).ProviderID
		before := w.vcenter.Sessions()[0].Key
		w.setSecret("vcenter", map[string]string{"username": w.vcenter.Username, "password": w.vcenter.Password, "ca.crt": string(w.vcenter.CertificatePEM())})
		_, err := m.Observe(ctx, s.Machine)
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() int { return len(w.vcenter.Sessions()) }).Should(Equal(1))
		Expect(w.vcenter.Sessions()[0].Key).NotTo(Equal(before))

		By("wakes that come over the new session")
		Expect(w.vcenter.PowerOffVM(ctx, "win-1")).To(Succeed())
		m.reconcile(s.Owner, func() (bool, error) {
			i, err := m.Observe(ctx, s.Machine)
			return i.State == infrav1.InstancePoweredOff, err
		})
	})

	It("ends when the last machine that needs it is deleted", func() {
		m, s := w.start(), w.newMachine("win-1")
		m.untilRunning(s)
		m.untilDeleted(s.Machine)
		Eventually(w.vcenter.Sessions).Should(BeEmpty())
		m.untilRunning(w.newMachine("win-2"))
	})

	It("and all goroutines end with the manager", func() {
		before := runtime.NumGoroutine()
		var reported []vsphere.Call
		calls := make(chan vsphere.Call, 1000)
		m, s := w.start(func(o *vsphere.Options) { o.OnCall = func(c vsphere.Call) { calls <- c } }), w.newMachine("win-1")
		m.untilRunning(s)
		m.stop()
		Eventually(w.vcenter.Sessions).Should(BeEmpty())
		Eventually(runtime.NumGoroutine).Should(BeNumerically("<=", before), func() string {
			stacks := make([]byte, 1<<20)
			return string(stacks[:runtime.Stack(stacks, true)])
		})
		close(calls)
		for c := range calls {
			reported = append(reported, c)
		}
		methods := map[string]int{}
		for _, c := range reported {
			Expect(c.Server).To(Equal(w.vcenter.Host()))
			methods[c.Method]++
		}
		Expect(methods).To(Equal(w.vcenter.Calls().Methods), "each call is reported, once")
	})

	It("is verified by the CA of the credentials when there is no thumbprint", func() {
		w.setSecret("vcenter", map[string]string{"username": w.vcenter.Username, "password": w.vcenter.Password, "ca.crt": string(w.vcenter.CertificatePEM())})
		m, s := w.start(), w.newMachine("win-1", func(v *infrav1.VSphereSpec) { v.Thumbprint = "" })
		m.untilRunning(s)
	})

	It("is never opened with a certificate that nothing vouches for, and the error says what to do", func() {
		m, s := w.start(), w.newMachine("win-1", func(v *infrav1.VSphereSpec) { v.Thumbprint = "" })
		_, err := m.Ensure(ctx, s)
		Expect(errors.Is(err, infrastructure.ErrUnavailable)).To(BeTrue(), "got %v", err)
		Expect(err.Error()).To(And(ContainSubstring("ca.crt of Secret team-a/vcenter"), ContainSubstring("spec.vsphere.thumbprint to "+w.vcenter.Thumbprint())))
		Expect(w.vcenter.Calls().Total).To(BeZero())
	})

	It("does not exist at a name that nobody knows, which is an error like any other", func() {
		m, s := w.start(), w.newMachine("win-1", func(v *infrav1.VSphereSpec) { v.Server = "no-such-vcenter.invalid" })
		_, err := m.Ensure(ctx, s)
		Expect(errors.Is(err, infrastructure.ErrUnavailable)).To(BeTrue(), "got %v", err)
		Expect(errors.Is(err, infrastructure.ErrNotAsked)).To(BeTrue(), "so the machine can be deleted without this vCenter")
		Expect(err.Error()).To(ContainSubstring("check spec.vsphere.server"))
	})

	It("is never opened with another thumbprint, and the error names both", func() {
		wrong := strings.Repeat("AB:", 31) + "AB"
		m, s := w.start(), w.newMachine("win-1", func(v *infrav1.VSphereSpec) { v.Thumbprint = wrong })
		_, err := m.Ensure(ctx, s)
		Expect(errors.Is(err, infrastructure.ErrUnavailable)).To(BeTrue(), "got %v", err)
		Expect(err.Error()).To(And(ContainSubstring(wrong), ContainSubstring(w.vcenter.Thumbprint())))
		Expect(errors.Is(err, infrastructure.ErrNotAsked)).To(BeTrue(), "so the machine can be deleted without this vCenter")
		Expect(w.vcenter.Calls().Total).To(BeZero())
	})

	It("is refused for a wrong password, with few attempts, and opened as soon as the Secret is corrected", func() {
		w.setSecret("vcenter", map[string]string{"username": w.vcenter.Username, "password": "wrong"})
		m, s := w.start(), w.newMachine("win-1")
		for range 10 {
			_, err := m.Ensure(ctx, s)
			Expect(errors.Is(err, infrastructure.ErrIdentity)).To(BeTrue(), "got %v", err)
			Expect(err.Error()).To(And(ContainSubstring("username and password of Secret team-a/vcenter"), ContainSubstring("Login failure")))
			_, err = m.Delete(ctx, s.Machine)
			Expect(errors.Is(err, infrastructure.ErrIdentity)).To(BeTrue(), "a deletion without credentials is never done: %v", err)
		}
		Expect(w.vcenter.Calls().Methods["Login"]).To(Equal(1))
		w.setSecret("vcenter", map[string]string{"username": w.vcenter.Username, "password": w.vcenter.Password})
		m.untilRunning(s)
	})
})
