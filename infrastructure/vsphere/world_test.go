package vsphere_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/infrastructure"
	"github.com/capw-dev/cluster-api-provider-windows/infrastructure/vsphere"
	"github.com/capw-dev/cluster-api-provider-windows/test/vcsim"
)

const namespace = "team-a"

// world is a vCenter, a management cluster's Secrets, and the platforms of managers that come and go.
type world struct {
	vcenter *vcsim.Server
	secrets client.Client
}

func newWorld() *world {
	vcenter, err := vcsim.Start(vcsim.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(vcenter.Close)
	w := &world{vcenter: vcenter, secrets: fake.NewClientBuilder().Build()}
	w.setSecret("vcenter", map[string]string{"username": vcenter.Username, "password": vcenter.Password})
	return w
}

func (w *world) setSecret(name string, data map[string]string) {
	GinkgoHelper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	_ = w.secrets.Delete(context.Background(), secret)
	secret.Data = map[string][]byte{}
	for k, v := range data {
		secret.Data[k] = []byte(v)
	}
	Expect(w.secrets.Create(context.Background(), secret)).To(Succeed())
}

// secretIn copies the credentials to another namespace.
func (w *world) secretIn(ns string) {
	GinkgoHelper()
	Expect(w.secrets.Create(context.Background(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "vcenter"},
		Data:       map[string][]byte{"username": []byte(w.vcenter.Username), "password": []byte(w.vcenter.Password)},
	})).To(Succeed())
}

// manager is one run of a platform, with a reconciler that calls a platform when it is woken, and soon after an error.
type manager struct {
	*vsphere.Platform
	stop func()

	mu    sync.Mutex
	woken map[types.NamespacedName]int
}

func (w *world) start(change ...func(*vsphere.Options)) *manager {
	GinkgoHelper()
	o := vsphere.Options{Identities: vsphere.SecretIdentities(w.secrets), RetryDelay: 200 * time.Millisecond, RetryDelayMax: time.Second}
	for _, f := range change {
		f(&o)
	}
	platform, err := vsphere.New(o)
	Expect(err).NotTo(HaveOccurred())
	m := &manager{Platform: platform, woken: map[types.NamespacedName]int{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer GinkgoRecover()
		defer close(done)
		Expect(platform.Start(ctx)).To(Succeed())
	}()
	go func() {
		for {
			select {
			case e := <-platform.Changes():
				m.mu.Lock()
				m.woken[client.ObjectKeyFromObject(e.Object)]++
				m.mu.Unlock()
			case <-ctx.Done():
				return
			}
		}
	}()
	m.stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	DeferCleanup(m.stop)
	return m
}

// wakes returns how often the reconciler was woken for o.
func (m *manager) wakes(o infrastructure.Owner) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.woken[o.Key()]
}

// reconcile calls f now and whenever Changes wakes it, until done; then it fails the test if that takes too long. A wake-up
// that never comes is a failure: nothing is polled. Only an error is tried again after a moment, as a reconciler does.
func (m *manager) reconcile(o infrastructure.Owner, f func() (done bool, err error)) {
	GinkgoHelper()
	Expect(m.tryReconcile(o, f)).To(Succeed())
}

func (m *manager) tryReconcile(o infrastructure.Owner, f func() (done bool, err error)) error {
	deadline := time.Now().Add(30 * time.Second)
	for {
		seen := m.wakes(o)
		done, err := f()
		if done {
			return nil
		}
		failed := time.Now()
		for m.wakes(o) == seen && (err == nil || time.Since(failed) < 100*time.Millisecond) {
			if time.Now().After(deadline) {
				return fmt.Errorf("%s was not woken in time; last error: %w", o.Name, err)
			}
			time.Sleep(5 * time.Millisecond) // the loop is the reconciler's queue
		}
	}
}

func (m *manager) untilRunning(s infrastructure.InstanceSpec) infrastructure.Instance {
	GinkgoHelper()
	var instance infrastructure.Instance
	m.reconcile(s.Owner, func() (bool, error) {
		var err error
		instance, err = m.Ensure(context.Background(), s)
		return instance.State == infrav1.InstanceRunning, err
	})
	return instance
}

func (m *manager) untilDeleted(machine infrastructure.Machine) {
	GinkgoHelper()
	m.reconcile(machine.Owner, func() (bool, error) {
		p, err := m.Delete(context.Background(), machine)
		return p.Done, err
	})
}

// newMachine returns a WindowsMachine as the reconciler hands it over.
func (w *world) newMachine(name string, change ...func(*infrav1.VSphereSpec)) infrastructure.InstanceSpec {
	spec := &infrav1.VSphereSpec{
		Server:      w.vcenter.Host(),
		Thumbprint:  w.vcenter.Thumbprint(),
		IdentityRef: infrav1.VSphereIdentityReference{Name: "vcenter"},
		VSpherePlacement: infrav1.VSpherePlacement{
			Datacenter: "DC0", Template: "windows-2022", ResourcePool: "DC0_C0/Resources", Datastore: "LocalDS_1", Network: "DC0_DVPG0",
		},
		NumCPUs: 4, NumCoresPerSocket: 2, MemoryMiB: 8192,
	}
	for _, f := range change {
		f(spec)
	}
	return infrastructure.InstanceSpec{
		Machine: infrastructure.Machine{
			Owner:        infrastructure.Owner{UID: uuid.NewUUID(), Namespace: namespace, Name: name, Cluster: "c1"},
			InstanceName: name,
			Spec:         infrav1.WindowsMachineSpec{VSphere: spec},
		},
		UserData: []byte("rem cmd\r\necho hello\r\n"),
	}
}

// names returns the names of the VMs in the vCenter.
func (w *world) names() []string {
	names := []string{}
	for _, vm := range w.vcenter.VMs() {
		names = append(names, vm.Name)
	}
	return names
}

func errorAs[E error](err error) E {
	GinkgoHelper()
	var target E
	Expect(errors.As(err, &target)).To(BeTrue(), "got %v", err)
	return target
}
