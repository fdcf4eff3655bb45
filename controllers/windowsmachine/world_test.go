package windowsmachine

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gcustom"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/test/apitest"
)

// userData is the bootstrap data of every Machine.
const userData = "rem cmd\r\nexit /b 0\r\n"

// world is a namespace with a Cluster, a manager that watches it, and a cloud. The test plays Cluster API.
type world struct {
	ctx         context.Context //nolint:containedctx // a world is one test and lives as long as its context
	ns          string
	cluster     *clusterv1.Cluster
	cloud       *cloud
	manager     *apitest.Manager
	faults      interceptor.Funcs
	watchFilter string
	// noPlatform makes the manager run none.
	noPlatform bool
	// rateLimiter of the controller; nil for its own.
	rateLimiter workqueue.TypedRateLimiter[reconcile.Request]
}

// newWorld starts a world. Its Cluster's infrastructure is provisioned, and of another provider's kind.
func newWorld(ctx context.Context, options ...func(*world)) *world {
	w := emptyWorld(ctx)
	for _, option := range options {
		option(w)
	}
	w.createCredentials("vcenter")
	w.createCluster("c1")
	w.provisionCluster()
	w.start()
	return w
}

// emptyWorld is a world without Cluster and manager.
func emptyWorld(ctx context.Context) *world {
	ns, err := api.CreateNamespace(ctx)
	Expect(err).NotTo(HaveOccurred())
	w := &world{ctx: ctx, ns: ns, cloud: &cloud{}}
	w.watchInvariants()
	return w
}

// start starts a manager, as a Deployment does again and again.
func (w *world) start() {
	var err error
	w.manager, err = api.StartManager(apitest.ManagerOptions{Namespace: w.ns, Faults: w.faults, Setup: func(ctx context.Context, mgr ctrl.Manager) error {
		var platforms Platforms
		if !w.noPlatform {
			platforms.VSphere = w.cloud.platform()
		}
		r := &Reconciler{
			Client:           mgr.GetClient(),
			Platforms:        platforms,
			Namespace:        w.ns,
			WatchFilterValue: w.watchFilter,
			Recorder:         mgr.GetEventRecorderFor("windowsmachine"), //nolint:staticcheck // see Reconciler.Recorder
		}
		return r.SetupWithManager(ctx, mgr, controller.Options{MaxConcurrentReconciles: 4, SkipNameValidation: ptr.To(true), RateLimiter: w.rateLimiter})
	}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(w.manager.Stop)
}

// restart waits for the end of the manager and starts another.
func (w *world) restart() {
	Expect(w.manager.Stop()).To(Succeed())
	w.start()
}

// watchInvariants fails the test when any version of any WindowsMachine breaks what Cluster API relies on.
func (w *world) watchInvariants() {
	watch, err := api.Client.Watch(w.ctx, &infrav1.WindowsMachineList{}, client.InNamespace(w.ns))
	Expect(err).NotTo(HaveOccurred())
	var mu sync.Mutex
	var broken []string
	provisioned, done := map[string]bool{}, make(chan struct{})
	go func() {
		defer close(done)
		for e := range watch.ResultChan() {
			m, ok := e.Object.(*infrav1.WindowsMachine)
			if !ok {
				continue
			}
			is := ptr.Deref(m.Status.Initialization.Provisioned, false)
			mu.Lock()
			if is && m.Spec.ProviderID == "" {
				broken = append(broken, m.Name+" is provisioned and has no provider ID")
			}
			if provisioned[string(m.UID)] && !is {
				broken = append(broken, m.Name+" was provisioned and is not any more")
			}
			provisioned[string(m.UID)] = is
			mu.Unlock()
		}
	}()
	DeferCleanup(func() {
		watch.Stop()
		<-done
		Expect(broken).To(BeEmpty())
	})
}

func (w *world) createCluster(name string) {
	w.cluster = &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name},
		Spec: clusterv1.ClusterSpec{
			// A kind that is not even installed: a WindowsMachine never looks at it.
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "VSphereCluster", Name: name},
		},
	}
	Expect(api.Client.Create(w.ctx, w.cluster)).To(Succeed())
}

func (w *world) provisionCluster() {
	base := w.cluster.DeepCopy()
	w.cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	Expect(api.Client.Status().Patch(w.ctx, w.cluster, client.MergeFrom(base))).To(Succeed())
}

// machineOption changes Machine and WindowsMachine before they are created.
type machineOption func(*clusterv1.Machine, *infrav1.WindowsMachine)

// withoutBootstrapData leaves Machine.spec.bootstrap.dataSecretName empty.
func withoutBootstrapData(m *clusterv1.Machine, _ *infrav1.WindowsMachine) {
	m.Spec.Bootstrap.DataSecretName = nil
	m.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "WindowsConfig", Name: m.Name}
}

func withIdentity(name string) machineOption {
	return func(_ *clusterv1.Machine, wm *infrav1.WindowsMachine) { wm.Spec.VSphere.IdentityRef.Name = name }
}

// createMachine creates Machine, bootstrap Secret and WindowsMachine, as a MachineSet and its providers do.
func (w *world) createMachine(name string, options ...machineOption) {
	m := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: w.cluster.Name}},
		Spec: clusterv1.MachineSpec{
			ClusterName:       w.cluster.Name,
			Bootstrap:         clusterv1.Bootstrap{DataSecretName: ptr.To(name)},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "WindowsMachine", Name: name},
		},
	}
	wm := &infrav1.WindowsMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: w.cluster.Name}},
		Spec:       infrav1.WindowsMachineSpec{VSphere: vsphere()},
	}
	for _, option := range options {
		option(m, wm)
	}
	Expect(api.Client.Create(w.ctx, m)).To(Succeed())
	if m.Spec.Bootstrap.DataSecretName != nil {
		w.createBootstrapSecret(*m.Spec.Bootstrap.DataSecretName, map[string]string{"value": userData, "format": "cloud-config"})
	}
	wm.OwnerReferences = append(wm.OwnerReferences, ownedBy(m))
	Expect(api.Client.Create(w.ctx, wm)).To(Succeed())
}

func ownedBy(m *clusterv1.Machine) metav1.OwnerReference {
	return *metav1.NewControllerRef(m, clusterv1.GroupVersion.WithKind("Machine"))
}

// vsphere is a valid specification.
func vsphere() *infrav1.VSphereSpec {
	return &infrav1.VSphereSpec{
		Server:           "vcenter.example.com",
		IdentityRef:      infrav1.VSphereIdentityReference{Name: "vcenter"},
		VSpherePlacement: infrav1.VSpherePlacement{Template: "windows-2022"},
	}
}

func (w *world) createBootstrapSecret(name string, data map[string]string) {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}, Type: clusterv1.ClusterSecretType, StringData: data}
	if err := api.Client.Create(w.ctx, s); !apierrors.IsAlreadyExists(err) {
		Expect(err).NotTo(HaveOccurred())
	}
}

// createCredentials creates a Secret as a person does: without a label.
func (w *world) createCredentials(name string) {
	GinkgoHelper()
	Expect(api.Client.Create(w.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name},
		StringData: map[string]string{"username": "capw", "password": "secret"},
	})).To(Succeed())
}

// get returns the WindowsMachine, for Eventually.
func (w *world) get(name string) func(Gomega) *infrav1.WindowsMachine {
	return func(g Gomega) *infrav1.WindowsMachine {
		m := &infrav1.WindowsMachine{}
		g.Expect(api.Client.Get(w.ctx, client.ObjectKey{Namespace: w.ns, Name: name}, m)).To(Succeed())
		return m
	}
}

// now returns the WindowsMachine as it is.
func (w *world) now(name string) *infrav1.WindowsMachine { return w.get(name)(NewWithT(GinkgoT())) }

func (w *world) eventuallyProvisioned(name string) *infrav1.WindowsMachine {
	GinkgoHelper()
	Eventually(w.get(name)).Should(And(
		haveCondition("Ready", metav1.ConditionTrue, "Ready", ""),
		haveCondition("InstanceProvisioned", metav1.ConditionTrue, "Provisioned", ""),
		HaveField("Status.Initialization.Provisioned", HaveValue(BeTrue())),
	))
	return w.now(name)
}

func (w *world) eventuallyGone(name string) {
	GinkgoHelper()
	Eventually(func() bool { return w.gone(name) }).Should(BeTrue(), "the WindowsMachine is gone")
	Expect(w.cloud.vmsOf(name)).To(BeEmpty())
}

// gone is true when the WindowsMachine does not exist.
func (w *world) gone(name string) bool {
	return apierrors.IsNotFound(api.Client.Get(w.ctx, client.ObjectKey{Namespace: w.ns, Name: name}, &infrav1.WindowsMachine{}))
}

// settled waits until the platform was not called for a WindowsMachine for a while, and returns how often it was.
func (w *world) settled(name string) (calls int) {
	GinkgoHelper()
	Eventually(func() bool {
		before := calls
		calls = w.cloud.count(name)
		return calls == before
	}).WithPolling(500 * time.Millisecond).Should(BeTrue())
	return calls
}

// edit changes the WindowsMachine as a user would.
func (w *world) edit(name string, change func(*infrav1.WindowsMachine)) error {
	m := w.now(name)
	base := m.DeepCopy()
	change(m)
	return api.Client.Patch(w.ctx, m, client.MergeFrom(base))
}

func (w *world) editMachine(name string, change func(*clusterv1.Machine)) {
	m := &clusterv1.Machine{}
	Expect(api.Client.Get(w.ctx, client.ObjectKey{Namespace: w.ns, Name: name}, m)).To(Succeed())
	base := m.DeepCopy()
	change(m)
	Expect(api.Client.Patch(w.ctx, m, client.MergeFrom(base))).To(Succeed())
}

func (w *world) delete(name string) {
	Expect(api.Client.Delete(w.ctx, w.now(name))).To(Succeed())
}

// events returns the Events of a WindowsMachine as "type reason: message".
func (w *world) events(name string) func() []string {
	return func() []string {
		list := &corev1.EventList{}
		Expect(api.Client.List(w.ctx, list, client.InNamespace(w.ns))).To(Succeed())
		var all []string
		for _, e := range list.Items {
			if e.InvolvedObject.Kind == "WindowsMachine" && e.InvolvedObject.Name == name {
				all = append(all, fmt.Sprintf("%s %s: %s", e.Type, e.Reason, e.Message))
			}
		}
		return all
	}
}

// haveCondition matches an object with this condition, whose message contains message.
func haveCondition(conditionType string, status metav1.ConditionStatus, reason, message string) gomegatypes.GomegaMatcher {
	return gcustom.MakeMatcher(func(o conditions.Getter) (bool, error) {
		c := conditions.Get(o, conditionType)
		if c == nil {
			return false, nil
		}
		contains, err := ContainSubstring(message).Match(c.Message)
		return c.Status == status && c.Reason == reason && contains, err
	}).WithTemplate("Expected the condition {{.Data}}, has\n{{range .Actual.Status.Conditions}}  {{.Type}} {{.Status}} {{.Reason}}: {{.Message}}\n{{end}}",
		fmt.Sprintf("%s %s %s: …%s…", conditionType, status, reason, message))
}
