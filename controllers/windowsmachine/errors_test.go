package windowsmachine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/bootstrap"
	"github.com/capw-dev/cluster-api-provider-windows/infrastructure"
)

// withoutRetries makes the controller retry nothing by itself, so that only an event can wake it.
func withoutRetries(w *world) {
	w.rateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Hour, time.Hour)
}

// failing makes every call of the platform fail with err.
func failing(err error) func(*cloud) {
	return func(c *cloud) { c.fail = func(string, infrastructure.Machine) error { return err } }
}

func working(c *cloud) { c.fail = nil }

var _ = Describe("What goes wrong", func() {
	DescribeTable("is told by the platform's own message in the condition and in one Event, is retried, and heals",
		func(ctx context.Context, failure error, reason string) {
			w := newWorld(ctx)
			w.cloud.set(failing(failure))
			w.createMachine("m1")
			Eventually(w.get("m1")).Should(And(
				haveCondition("InstanceProvisioned", metav1.ConditionFalse, reason, failure.Error()),
				haveCondition("Ready", metav1.ConditionFalse, reason, failure.Error()),
				HaveField("Status.ObservedGeneration", BeZero())))
			Eventually(func() []call { return w.cloud.callsOf("Ensure", "m1") }).Should(HaveLen(3), "it is retried")
			Eventually(w.events("m1")).Should(ContainElement("Warning " + reason + ": " + failure.Error()))
			Consistently(w.events("m1")).Should(HaveLen(1))
			Expect(eventCount(w, reason)).To(BeEquivalentTo(1), "a retry sends no Event")
			w.cloud.set(working)
			w.eventuallyProvisioned("m1")
		},
		Entry("ForeignInstance", &infrastructure.ForeignInstanceError{Name: "w-1", ID: "vm-3", Detail: "it has no owner mark"}, infrav1.ForeignInstanceReason),
		Entry("InstanceCreateFailed", &infrastructure.CreateError{Message: "Insufficient disk space on datastore 'LocalDS_0'"}, infrav1.InstanceCreateFailedReason),
		Entry("InvalidConfiguration", &infrastructure.ConfigError{Field: "spec.vsphere.template", Value: "w2022", Problem: "there is no such template"}, infrav1.InvalidConfigurationReason),
		Entry("FailureDomainNotFound", &infrastructure.FailureDomainError{Name: "a", Known: []string{"b"}}, infrav1.FailureDomainNotFoundReason),
		Entry("BootstrapDataTooLarge", &infrastructure.TooLargeError{What: "user data", Size: 70000, Limit: 65535}, infrav1.BootstrapDataTooLargeReason),
		Entry("IdentityUnavailable", fmt.Errorf("%w: Secret vcenter does not exist", infrastructure.ErrIdentity), infrav1.IdentityUnavailableReason),
		Entry("PlatformUnavailable", fmt.Errorf("%w: dial tcp: no route to host", infrastructure.ErrUnavailable), infrav1.PlatformUnavailableReason),
		Entry("InternalError", errors.New("unexpected end of everything"), infrav1.InternalErrorReason),
	)

	It("retries a failure that only a person can cure at growing intervals", func(ctx context.Context) {
		w := newWorld(ctx)
		w.cloud.set(failing(&infrastructure.ConfigError{Field: "f", Value: "v", Problem: "p"}))
		w.createMachine("m1")
		calls := func() int { return len(w.cloud.callsOf("Ensure", "m1")) }
		Eventually(calls).Should(Equal(1))
		Consistently(calls, time.Second).Should(BeNumerically("<=", 4)) // after 0.2, 0.6 and 1.4 seconds
	})

	It("tries a failed creation again when the platform says so", func(ctx context.Context) {
		w := newWorld(ctx, withoutRetries)
		w.cloud.set(failing(&infrastructure.CreateError{Message: "host is in maintenance mode", RetryAfter: 100 * time.Millisecond}))
		w.createMachine("m1")
		Eventually(w.get("m1")).Should(haveCondition("Ready", metav1.ConditionFalse, infrav1.InstanceCreateFailedReason, "host is in maintenance mode"))
		w.cloud.set(working)
		w.eventuallyProvisioned("m1")
	})

	It("sends a second Event for a second failure of the same reason", func(ctx context.Context) {
		w := newWorld(ctx)
		w.cloud.set(failing(&infrastructure.CreateError{Message: "first"}))
		w.createMachine("m1")
		Eventually(w.events("m1")).Should(ConsistOf("Warning InstanceCreateFailed: first"))
		w.cloud.set(failing(&infrastructure.CreateError{Message: strings.Repeat("long ", 1000)}))
		Eventually(w.events("m1")).Should(ConsistOf("Warning InstanceCreateFailed: first", And(HaveSuffix("long l…"), HaveLen(len("Warning InstanceCreateFailed: ")+1024))))
		Eventually(w.get("m1")).Should(haveCondition("Ready", metav1.ConditionFalse, infrav1.InstanceCreateFailedReason, strings.Repeat("long ", 1000)))
	})

	It("does not call an instance bad because its platform is away: Ready is Unknown then", func(ctx context.Context) {
		w := newWorld(ctx)
		w.createMachine("m1")
		before := w.eventuallyProvisioned("m1")
		w.cloud.set(failing(fmt.Errorf("%w: 503 Service Unavailable", infrastructure.ErrUnavailable)))
		w.cloud.change("m1", func(*vm) {})
		Eventually(w.get("m1")).Should(And(
			haveCondition("Ready", metav1.ConditionUnknown, infrav1.PlatformUnavailableReason, "503"),
			haveCondition("InstanceProvisioned", metav1.ConditionUnknown, infrav1.PlatformUnavailableReason, "503")))
		Expect(w.now("m1").Status.Instance).To(Equal(before.Status.Instance))
		Expect(w.now("m1").Status.Addresses).To(Equal(before.Status.Addresses))
		w.cloud.set(working)
		w.eventuallyProvisioned("m1")
	})

	It("leaves a foreign instance of the same name alone, also when the WindowsMachine is deleted", func(ctx context.Context) {
		w := newWorld(ctx)
		w.cloud.addVM(bootstrap.ComputerName(w.ns, "c1", "taken"), "another-uid")
		w.createMachine("taken")
		Eventually(w.get("taken")).Should(haveCondition("Ready", metav1.ConditionFalse, infrav1.ForeignInstanceReason, "somebody-else"))
		w.delete("taken")
		w.eventuallyGone("taken")
		Expect(w.cloud.vmsOf("somebody-else")).To(HaveLen(1))
	})

	DescribeTable("a WindowsMachine that was refused before anything was created is deleted without the platform",
		func(ctx context.Context, failure error) {
			w := newWorld(ctx)
			w.cloud.set(failing(failure))
			w.createMachine("m1")
			Eventually(w.get("m1")).Should(And(HaveField("Status.Instance.State", BeEmpty()), HaveField("Status.Instance.Name", Not(BeEmpty())),
				haveCondition("Ready", metav1.ConditionFalse, reasonOf(failure), "")))
			Eventually(func() []call { return w.cloud.callsOf("Ensure", "m1") }).Should(HaveLen(2))
			w.delete("m1")
			w.eventuallyGone("m1")
			Expect(w.cloud.callsOf("Delete", "m1")).To(BeEmpty())
			Consistently(w.events("m1")).ShouldNot(ContainElement(ContainSubstring("InstanceDeleted")), "there never was an instance")
		},
		Entry("no such Secret", fmt.Errorf("%w: Secret typo does not exist", infrastructure.ErrIdentity)),
		Entry("no such template", &infrastructure.ConfigError{Field: "spec.vsphere.template", Value: "typo", Problem: "there is no such template"}),
		Entry("no such failure domain", &infrastructure.FailureDomainError{Name: "typo"}),
		Entry("no such vCenter", fmt.Errorf("%w: no such host (%w)", infrastructure.ErrUnavailable, infrastructure.ErrNotAsked)),
		Entry("too much data", &infrastructure.TooLargeError{What: "user data", Size: 2, Limit: 1}),
	)

	It("a WindowsMachine that is deleted while it is refused does not need the platform either", func(ctx context.Context) {
		w := newWorld(ctx)
		w.cloud.set(func(c *cloud) {
			c.fail = func(op string, m infrastructure.Machine) error {
				if op == "Ensure" { // between claim and withdrawal
					_ = api.Client.Delete(ctx, &infrav1.WindowsMachine{ObjectMeta: metav1.ObjectMeta{Namespace: m.Owner.Namespace, Name: m.Owner.Name}})
				}
				return fmt.Errorf("%w: no such host (%w)", infrastructure.ErrUnavailable, infrastructure.ErrNotAsked)
			}
		})
		w.createMachine("m1")
		w.eventuallyGone("m1") // although every call of the platform fails
	})

	It("asks the platform to delete when nobody knows what became of the creation, whatever it answers later", func(ctx context.Context) {
		w := newWorld(ctx)
		w.cloud.set(failing(fmt.Errorf("%w: connection lost", infrastructure.ErrUnavailable)))
		w.createMachine("m1")
		Eventually(w.get("m1")).Should(haveCondition("Ready", metav1.ConditionFalse, infrav1.PlatformUnavailableReason, ""))
		w.cloud.set(failing(fmt.Errorf("%w: password expired", infrastructure.ErrIdentity)))
		Eventually(w.get("m1")).Should(haveCondition("Ready", metav1.ConditionFalse, infrav1.IdentityUnavailableReason, ""))
		w.delete("m1")
		Eventually(w.get("m1")).Should(haveCondition("Deleting", metav1.ConditionTrue, infrav1.IdentityUnavailableReason, "password expired"))
		Expect(w.cloud.callsOf("Delete", "m1")).NotTo(BeEmpty())
		w.cloud.set(working)
		w.eventuallyGone("m1")
	})

	It("refuses a control plane Machine, and lets it go", func(ctx context.Context) {
		w := newWorld(ctx)
		w.createMachine("m1", func(m *clusterv1.Machine, _ *infrav1.WindowsMachine) {
			m.Labels[clusterv1.MachineControlPlaneLabel] = ""
		})
		Eventually(w.get("m1")).Should(haveCondition("Ready", metav1.ConditionFalse, infrav1.ControlPlaneNotSupportedReason, "Windows nodes can only be workers"))
		Eventually(w.events("m1")).Should(ConsistOf(HavePrefix("Warning ControlPlaneNotSupported: ")))
		w.delete("m1")
		w.eventuallyGone("m1")
		Expect(w.cloud.calls).To(BeEmpty())
	})
})

var _ = Describe("Bootstrap data", func() {
	DescribeTable("of every form that cloudbase-init consumes is delivered as it is",
		func(ctx context.Context, data map[string]string) {
			w := newWorld(ctx)
			w.createBootstrapSecret("m1", data)
			w.createMachine("m1")
			w.eventuallyProvisioned("m1")
			Expect(w.cloud.vmsOf("m1")[0].userData).To(Equal(data["value"]))
		},
		Entry("our script", map[string]string{"value": "rem cmd\r\nexit /b\r\n", "format": "cloud-config"}),
		Entry("a plain KubeadmConfig", map[string]string{"value": "## template: jinja\n#cloud-config\n\nruncmd: []\n", "format": "cloud-config"}),
		Entry("a Secret of a provider that writes no format", map[string]string{"value": "#ps1_sysnative\n"}),
	)

	DescribeTable("that no Windows guest can consume is refused with the remedy",
		func(ctx context.Context, data map[string]string, message string) {
			w := newWorld(ctx)
			w.createBootstrapSecret("m1", data)
			w.createMachine("m1")
			Eventually(w.get("m1")).Should(haveCondition("Ready", metav1.ConditionFalse, infrav1.InvalidBootstrapDataReason, message))
			Eventually(w.events("m1")).Should(ConsistOf(ContainSubstring(message)))
			Expect(w.cloud.callsOf("Ensure", "m1")).To(BeEmpty())
		},
		Entry("Ignition", map[string]string{"value": "{}", "format": "ignition"}, `has format "ignition", which cloudbase-init cannot consume: use a WindowsConfigTemplate`),
		Entry("a format of the future", map[string]string{"value": "x", "format": "unattend"}, `has format "unattend"`),
		Entry("no key value", map[string]string{"data": "x"}, `has no key "value", or nothing under it`),
		Entry("nothing under the key value", map[string]string{"value": ""}, `has no key "value", or nothing under it`),
	)

	It("whose Secret is missing is named, and used as soon as it is there", func(ctx context.Context) {
		w := newWorld(ctx)
		w.createMachine("m1", withoutBootstrapData)
		w.editMachine("m1", func(m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName = new("late") })
		Eventually(w.get("m1")).Should(haveCondition("Ready", metav1.ConditionFalse, infrav1.InvalidBootstrapDataReason, "Secret "+w.ns+"/late does not exist"))
		w.createBootstrapSecret("late", map[string]string{"value": userData})
		w.eventuallyProvisioned("m1")
	})
})

var _ = Describe("Tenants", func() {
	It("I17: uses the credentials of each WindowsMachine, and wakes the ones that wait when their Secret appears", func(ctx context.Context) {
		w := newWorld(ctx, withoutRetries)
		w.cloud.fail = func(_ string, m infrastructure.Machine) error {
			name := m.Spec.VSphere.IdentityRef.Name
			if err := api.Client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: name}, &corev1.Secret{}); apierrors.IsNotFound(err) {
				return fmt.Errorf("%w: Secret %s does not exist", infrastructure.ErrIdentity, name)
			}
			return nil
		}
		w.createMachine("m1", withIdentity("tenant-a"))
		w.createMachine("m2", withIdentity("tenant-b"))
		for _, m := range []string{"m1", "m2"} {
			Eventually(w.get(m)).Should(haveCondition("Ready", metav1.ConditionFalse, infrav1.IdentityUnavailableReason, "does not exist"))
		}
		asked := w.settled("m2")
		w.createBootstrapSecret("tenant-a", map[string]string{"username": "a", "password": "a"})
		w.eventuallyProvisioned("m1")
		Consistently(w.cloud.count).WithArguments("m2").Should(Equal(asked), "the other tenant is left alone")
		w.createBootstrapSecret("tenant-b", map[string]string{"username": "b", "password": "b"})
		w.eventuallyProvisioned("m2")
		for _, c := range w.cloud.callsOf("Ensure", "m2") {
			Expect(c.m.Spec.VSphere.IdentityRef.Name).To(Equal("tenant-b"))
		}
	})

	It("I17: tells every WindowsMachine of changed credentials: a deletion that waits for them, and once one that is well", func(ctx context.Context) {
		w := newWorld(ctx, withoutRetries)
		w.createBootstrapSecret("vcenter", map[string]string{"username": "a", "password": "old"})
		w.createMachine("m1")
		w.createMachine("m2")
		w.eventuallyProvisioned("m1")
		w.eventuallyProvisioned("m2")
		w.cloud.set(func(c *cloud) {
			c.fail = func(op string, m infrastructure.Machine) error {
				if op == "Delete" {
					return fmt.Errorf("%w: incorrect user name or password", infrastructure.ErrIdentity)
				}
				return nil
			}
		})
		w.delete("m1")
		Eventually(w.get("m1")).Should(haveCondition("Deleting", metav1.ConditionTrue, infrav1.IdentityUnavailableReason, "incorrect user name"))
		looks := w.settled("m2")
		w.cloud.set(working)
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "vcenter"}}
		Expect(api.Client.Patch(ctx, secret, client.RawPatch("application/merge-patch+json", []byte(`{"stringData":{"password":"new"}}`)))).To(Succeed())
		w.eventuallyGone("m1")
		Eventually(w.cloud.count).WithArguments("m2").Should(BeNumerically(">", looks))
		Consistently(w.cloud.count).WithArguments("m2").Should(BeNumerically("<=", looks+1))
	})

	It("I17: with --watch-filter touches only what has the label, also when the platform calls", func(ctx context.Context) {
		w := newWorld(ctx, func(w *world) { w.watchFilter = "mine" })
		w.createMachine("m1", func(_ *clusterv1.Machine, wm *infrav1.WindowsMachine) { wm.Labels[clusterv1.WatchLabel] = "mine" })
		w.createMachine("m2", func(_ *clusterv1.Machine, wm *infrav1.WindowsMachine) { wm.Labels[clusterv1.WatchLabel] = "yours" })
		w.eventuallyProvisioned("m1")
		w.cloud.wake(infrastructure.Owner{Namespace: w.ns, Name: "m2"})
		Consistently(w.get("m2")).Should(And(HaveField("Finalizers", BeEmpty()), HaveField("Status.Conditions", BeEmpty())))
	})
})

// eventCount returns how often the Event of a reason was sent.
func eventCount(w *world, reason string) (count int32) {
	list := &corev1.EventList{}
	Expect(api.Client.List(w.ctx, list, client.InNamespace(w.ns))).To(Succeed())
	for _, e := range list.Items {
		if e.Reason == reason {
			count += e.Count
		}
	}
	return count
}
