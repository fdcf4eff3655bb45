package windowsmachine

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/bootstrap"
	"github.com/capw-dev/cluster-api-provider-windows/infrastructure"
)

var _ = Describe("The life of a WindowsMachine", func() {
	It("I1, I2: writes the provider ID before provisioned, and never takes provisioned back", func(ctx context.Context) {
		w := newWorld(ctx) // which watches both in every version of every object
		w.createMachine("m1")
		m := w.eventuallyProvisioned("m1")
		Expect(m.Spec.ProviderID).To(HavePrefix("vsphere://"))
		Expect(w.cloud.vmsOf("m1")).To(HaveLen(1))
		Expect(w.cloud.vmsOf("m1")[0].userData).To(Equal(userData))
		Expect(m.Status.ObservedGeneration).To(BeNumerically(">=", 1))

		w.cloud.change("m1", func(v *vm) { v.instance.State = infrav1.InstancePoweredOff })
		Eventually(w.get("m1")).Should(haveCondition("Ready", metav1.ConditionFalse, infrav1.InstancePoweredOffReason, "is powered off"))
		w.cloud.change("m1", func(v *vm) { v.instance.State = infrav1.InstanceRunning })
		w.eventuallyProvisioned("m1")
		w.cloud.destroy("m1")
		Eventually(w.get("m1")).Should(haveCondition("Ready", metav1.ConditionFalse, infrav1.InstanceMissingReason, ""))
		Expect(w.now("m1").Status.Initialization.Provisioned).To(HaveValue(BeTrue()))
	})

	It("I1, I2: is provisioned only when the instance runs and its provider ID is known", func(ctx context.Context) {
		w := newWorld(ctx)
		w.cloud.holding = true
		w.createMachine("m1")
		Eventually(w.get("m1")).Should(And(
			haveCondition("Ready", metav1.ConditionFalse, infrav1.InstanceCreatingReason, "Cloning"),
			HaveField("Status.Instance.State", infrav1.InstanceCreating),
			HaveField("Status.Initialization.Provisioned", BeNil())))

		w.cloud.change("m1", func(v *vm) { v.instance = infrastructure.Instance{ID: "vm-7", State: infrav1.InstanceRunning} })
		Eventually(w.get("m1")).Should(haveCondition("Ready", metav1.ConditionFalse, infrav1.InstanceCreatingReason, "waiting for its provider ID"))
		Expect(w.now("m1").Status.Initialization.Provisioned).To(BeNil())

		w.cloud.change("m1", func(v *vm) { v.instance.ProviderID, v.instance.State = "vsphere://x", infrav1.InstancePoweredOff })
		Eventually(w.get("m1")).Should(And(HaveField("Spec.ProviderID", "vsphere://x"), HaveField("Status.Initialization.Provisioned", BeNil())))

		w.cloud.change("m1", func(v *vm) { v.instance.State = infrav1.InstanceRunning })
		w.eventuallyProvisioned("m1")
	})

	It("I3: reports the host name, the addresses of the guest and the failure domain, and places the VM where the Machine says", func(ctx context.Context) {
		w := newWorld(ctx)
		w.createMachine("m1", func(m *clusterv1.Machine, _ *infrav1.WindowsMachine) { m.Spec.FailureDomain = "rack-7" })
		m := w.eventuallyProvisioned("m1")
		Expect(w.cloud.vmsOf("m1")[0].failureDomain).To(Equal("rack-7"))
		Expect(m.Status.FailureDomain).To(Equal("rack-7"))
		host := clusterv1.MachineAddress{Type: clusterv1.MachineHostName, Address: m.Status.Instance.Name}
		Expect(m.Status.Addresses).To(ConsistOf(host))

		w.cloud.change("m1", func(v *vm) { v.instance.Addresses = reports("10.0.0.7", "fd00::7", "10.0.0.7") })
		Eventually(w.get("m1")).Should(HaveField("Status.Addresses", Equal(append([]clusterv1.MachineAddress{host}, reports("10.0.0.7", "fd00::7")...))))

		// Core would overwrite Machine.spec.failureDomain with a spec.failureDomain of ours.
		crd := &apiextensionsv1.CustomResourceDefinition{}
		Expect(api.Client.Get(ctx, client.ObjectKey{Name: "windowsmachines.infrastructure.cluster.x-k8s.io"}, crd)).To(Succeed())
		Expect(crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties).NotTo(HaveKey("failureDomain"))
	})

	It("I4: reports an instance that may be taken away as a boolean, and others not at all", func(ctx context.Context) {
		w := newWorld(ctx)
		w.createMachine("m1")
		w.eventuallyProvisioned("m1")
		read := func(g Gomega) (bool, bool) {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(infrav1.GroupVersion.WithKind("WindowsMachine"))
			g.Expect(api.Client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: "m1"}, u)).To(Succeed())
			value, found, err := unstructured.NestedBool(u.Object, "status", "interruptible") // as core reads it
			g.Expect(err).NotTo(HaveOccurred())
			return value, found
		}
		_, found := read(NewWithT(GinkgoT()))
		Expect(found).To(BeFalse())
		w.cloud.change("m1", func(v *vm) { v.instance.Interruptible = true })
		Eventually(func(g Gomega) {
			value, found := read(g)
			g.Expect(found && value).To(BeTrue())
		}).Should(Succeed())
	})

	It("I5: says in Ready what happens, from the first wait to the deletion", func(ctx context.Context) {
		w := emptyWorld(ctx)
		w.cloud.holding = true
		w.createCluster("c1")
		w.start()
		w.createMachine("m1", withoutBootstrapData)
		Eventually(w.get("m1")).Should(haveCondition("Ready", metav1.ConditionFalse, infrav1.WaitingForClusterInfrastructureReason, "Cluster c1"))
		w.provisionCluster()
		Eventually(w.get("m1")).Should(haveCondition("Ready", metav1.ConditionFalse, infrav1.WaitingForBootstrapDataReason, "Machine m1"))
		w.createBootstrapSecret("m1", map[string]string{"value": userData})
		w.editMachine("m1", func(m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName = ptr.To("m1") })
		Eventually(w.get("m1")).Should(haveCondition("Ready", metav1.ConditionFalse, infrav1.InstanceCreatingReason, "Cloning"))
		w.cloud.change("m1", func(v *vm) {
			v.instance = infrastructure.Instance{ID: "vm-1", ProviderID: "vsphere://1", State: infrav1.InstanceRunning}
		})
		m := w.eventuallyProvisioned("m1")
		Expect(m).To(haveCondition("Deleting", metav1.ConditionFalse, clusterv1.NotDeletingReason, ""))
		Expect(m).To(haveCondition("Paused", metav1.ConditionFalse, clusterv1.NotPausedReason, ""))
		w.delete("m1")
		Eventually(w.get("m1")).Should(And(
			haveCondition("Deleting", metav1.ConditionTrue, infrav1.InstanceDeletingReason, "Powering off"),
			haveCondition("Ready", metav1.ConditionFalse, infrav1.InstanceDeletingReason, "Powering off"),
			haveCondition("InstanceProvisioned", metav1.ConditionFalse, infrav1.InstanceDeletingReason, ""),
			HaveField("Status.Instance.State", infrav1.InstanceDeleting)))
		w.cloud.destroy("m1")
		w.eventuallyGone("m1")
		Eventually(w.events("m1")).Should(ContainElements(ContainSubstring("Normal Provisioned"), ContainSubstring("Normal InstanceDeleted")))
	})

	It("I6: touches nothing before the Machine owns it, then sets the finalizer first", func(ctx context.Context) {
		w := newWorld(ctx)
		var orphan *infrav1.WindowsMachine
		w.createMachine("m0", func(_ *clusterv1.Machine, wm *infrav1.WindowsMachine) { orphan = wm.DeepCopy() })
		w.eventuallyProvisioned("m0")

		orphan.Name = "m1"
		Expect(api.Client.Create(ctx, orphan)).To(Succeed())
		Consistently(w.get("m1")).Should(And(HaveField("Finalizers", BeEmpty()), HaveField("Status.Conditions", BeEmpty()), HaveField("ResourceVersion", orphan.ResourceVersion)))

		w.cloud.fail = func(string, infrastructure.Machine) error { return infrastructure.ErrUnavailable }
		w.editMachine("m0", func(m *clusterv1.Machine) {
			Expect(w.edit("m1", func(wm *infrav1.WindowsMachine) { wm.OwnerReferences = []metav1.OwnerReference{ownedBy(m)} })).To(Succeed())
		})
		Eventually(w.get("m1")).Should(HaveField("Finalizers", ConsistOf(infrav1.MachineFinalizer)))
	})

	It("I6: adds its finalizer to those that somebody else adds at the same time", func(ctx context.Context) {
		var once sync.Once
		w := newWorld(ctx, func(w *world) {
			w.faults.Patch = func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				once.Do(func() {
					Expect(w.edit("m1", func(m *infrav1.WindowsMachine) { m.Finalizers = []string{"example.com/theirs"} })).To(Succeed())
				})
				return c.Patch(ctx, o, p, opts...)
			}
		})
		w.createMachine("m1")
		Expect(w.eventuallyProvisioned("m1").Finalizers).To(ConsistOf("example.com/theirs", infrav1.MachineFinalizer))
	})

	It("I5, I7: says which Cluster is missing, goes on when it is there, and is deleted without it", func(ctx context.Context) {
		w := newWorld(ctx, withoutRetries)
		of := func(cluster string) machineOption {
			return func(m *clusterv1.Machine, wm *infrav1.WindowsMachine) {
				m.Spec.ClusterName = cluster
				m.Labels[clusterv1.ClusterNameLabel], wm.Labels[clusterv1.ClusterNameLabel] = cluster, cluster
			}
		}
		w.createMachine("m1", of("later"))
		w.createMachine("m2", of("never"))
		Eventually(w.get("m1")).Should(haveCondition("Ready", metav1.ConditionFalse, infrav1.WaitingForClusterInfrastructureReason, "Cluster later, which Machine m1 names, to be created"))
		Eventually(w.get("m2")).Should(haveCondition("Ready", metav1.ConditionFalse, infrav1.WaitingForClusterInfrastructureReason, "Cluster never"))
		w.createCluster("later")
		Eventually(w.get("m1")).Should(haveCondition("Ready", metav1.ConditionFalse, infrav1.WaitingForClusterInfrastructureReason, "infrastructure of Cluster later"))
		w.provisionCluster()
		w.eventuallyProvisioned("m1")
		w.delete("m2")
		w.eventuallyGone("m2")
	})

	It("I5: says that this manager does not run its platform, and lets it go when it never had an instance", func(ctx context.Context) {
		w := newWorld(ctx, func(w *world) { w.noPlatform = true })
		w.createMachine("m1")
		Eventually(w.get("m1")).Should(haveCondition("Ready", metav1.ConditionFalse, infrav1.PlatformUnavailableReason, "does not run the platform"))
		w.delete("m1")
		w.eventuallyGone("m1")
	})

	It("I7: creates nothing before the Cluster's infrastructure and the bootstrap data are there", func(ctx context.Context) {
		w := emptyWorld(ctx)
		w.createCluster("c1")
		w.start()
		w.createMachine("m1", withoutBootstrapData)
		Eventually(w.get("m1")).Should(haveCondition("Ready", metav1.ConditionFalse, infrav1.WaitingForClusterInfrastructureReason, ""))
		w.provisionCluster()
		Eventually(w.get("m1")).Should(haveCondition("Ready", metav1.ConditionFalse, infrav1.WaitingForBootstrapDataReason, ""))
		Expect(w.cloud.callsOf("Ensure", "m1")).To(BeEmpty())
		w.createBootstrapSecret("data-of-m1", map[string]string{"value": userData, "format": "cloud-config"})
		w.editMachine("m1", func(m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName = ptr.To("data-of-m1") })
		w.eventuallyProvisioned("m1")
	})

	It("I8: deletes the VM, and lets the WindowsMachine go when nothing is left of it", func(ctx context.Context) {
		w := newWorld(ctx)
		w.createMachine("m1")
		w.eventuallyProvisioned("m1")
		w.cloud.set(func(c *cloud) { c.holding = true })
		w.delete("m1")
		Eventually(w.get("m1")).Should(haveCondition("Deleting", metav1.ConditionTrue, infrav1.InstanceDeletingReason, ""))
		for range 5 { // each of these calls Delete again
			w.cloud.change("m1", func(*vm) {})
		}
		Consistently(w.get("m1")).Should(HaveField("Finalizers", ConsistOf(infrav1.MachineFinalizer)))
		w.cloud.destroy("m1")
		w.eventuallyGone("m1")
	})

	It("I8: deletes without Cluster, Machine and bootstrap Secret", func(ctx context.Context) {
		w := newWorld(ctx)
		w.createMachine("m1")
		w.eventuallyProvisioned("m1")
		name := w.cloud.vmsOf("m1")[0].name
		Expect(api.Client.Delete(ctx, w.cluster)).To(Succeed())
		Expect(api.Client.Delete(ctx, &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "m1"}})).To(Succeed())
		Expect(api.Client.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "m1"}})).To(Succeed())
		w.delete("m1")
		w.eventuallyGone("m1")
		deletion := w.cloud.callsOf("Delete", "m1")[0].m
		Expect(deletion.InstanceName).To(Equal(name))
		Expect(deletion.Owner.Cluster).To(Equal("c1"))
	})

	It("I8: deletes a VM that is only being created, in a Cluster that is not provisioned any more", func(ctx context.Context) {
		w := newWorld(ctx)
		w.cloud.holding = true
		w.createMachine("m1")
		Eventually(w.get("m1")).Should(haveCondition("Ready", metav1.ConditionFalse, infrav1.InstanceCreatingReason, ""))
		base := w.cluster.DeepCopy()
		w.cluster.Status.Initialization.InfrastructureProvisioned = nil
		Expect(api.Client.Status().Patch(ctx, w.cluster, client.MergeFrom(base))).To(Succeed())
		w.delete("m1")
		Eventually(func() []call { return w.cloud.callsOf("Delete", "m1") }).ShouldNot(BeEmpty())
		w.cloud.destroy("m1")
		w.eventuallyGone("m1")
	})

	It("I8: deletes without the platform when it was never asked for an instance", func(ctx context.Context) {
		w := newWorld(ctx)
		w.cloud.fail = func(string, infrastructure.Machine) error { return infrastructure.ErrUnavailable }
		w.createMachine("m1", withoutBootstrapData)
		Eventually(w.get("m1")).Should(haveCondition("Ready", metav1.ConditionFalse, infrav1.WaitingForBootstrapDataReason, ""))
		w.delete("m1")
		w.eventuallyGone("m1")
		Expect(w.cloud.callsOf("Delete", "m1")).To(BeEmpty())
	})

	It("I8: makes the platform forget a WindowsMachine that does not exist any more, however it went", func(ctx context.Context) {
		w := newWorld(ctx)
		w.createMachine("m1")
		w.createMachine("moved", func(_ *clusterv1.Machine, wm *infrav1.WindowsMachine) {
			wm.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		})
		w.eventuallyProvisioned("m1")
		Eventually(w.get("moved")).Should(haveCondition("Paused", metav1.ConditionTrue, clusterv1.PausedReason, ""))
		Expect(w.cloud.forgets("m1")).To(BeZero())
		w.delete("m1")
		w.eventuallyGone("m1")
		Eventually(w.cloud.forgets).WithArguments("m1").ShouldNot(BeZero())
		Expect(w.cloud.forgets("moved")).To(BeZero())
		w.delete("moved")
		Expect(w.edit("moved", func(m *infrav1.WindowsMachine) { m.Finalizers = nil })).To(Succeed())
		Eventually(w.cloud.forgets).WithArguments("moved").ShouldNot(BeZero())
	})

	It("I8: tries a failed deletion again when the platform says so", func(ctx context.Context) {
		w := newWorld(ctx, withoutRetries)
		w.createMachine("m1")
		w.eventuallyProvisioned("m1")
		w.cloud.set(failing(&infrastructure.DeleteError{Message: "host is in maintenance mode", RetryAfter: 100 * time.Millisecond}))
		w.delete("m1")
		Eventually(w.get("m1")).Should(haveCondition("Deleting", metav1.ConditionTrue, infrav1.InstanceDeleteFailedReason, "host is in maintenance mode"))
		w.cloud.set(working)
		w.eventuallyGone("m1")
	})

	It("I8: reports a deletion that fails, retries it, and keeps the finalizer", func(ctx context.Context) {
		w := newWorld(ctx)
		w.createMachine("m1")
		w.eventuallyProvisioned("m1")
		w.cloud.set(func(c *cloud) {
			c.fail = func(string, infrastructure.Machine) error {
				return &infrastructure.DeleteError{Message: "The attempted operation cannot be performed in the current state"}
			}
		})
		w.delete("m1")
		Eventually(w.get("m1")).Should(And(
			haveCondition("Deleting", metav1.ConditionTrue, infrav1.InstanceDeleteFailedReason, "cannot be performed"),
			haveCondition("Ready", metav1.ConditionFalse, infrav1.InstanceDeleteFailedReason, "cannot be performed"),
			HaveField("Finalizers", ConsistOf(infrav1.MachineFinalizer))))
		Eventually(w.events("m1")).Should(ContainElement(ContainSubstring("Warning InstanceDeleteFailed: The attempted operation")))
		w.cloud.set(func(c *cloud) { c.fail = nil })
		w.eventuallyGone("m1")
	})

	It("I9: reports a VM that is gone as not Ready, and never creates it again", func(ctx context.Context) {
		w := newWorld(ctx)
		w.createMachine("m1")
		w.eventuallyProvisioned("m1")
		asked := len(w.cloud.callsOf("Ensure", "m1"))
		w.cloud.destroy("m1")
		Eventually(w.get("m1")).Should(And(
			haveCondition("Ready", metav1.ConditionFalse, infrav1.InstanceMissingReason, "MachineHealthCheck"),
			HaveField("Status.Instance.State", infrav1.InstanceMissing),
			HaveField("Status.Addresses", BeEmpty())))
		w.restart() // also not by a manager that starts
		Eventually(func() int { return len(w.cloud.callsOf("Observe", "m1")) }).Should(BeNumerically(">=", 2))
		Consistently(w.cloud.created).Should(Equal(1))
		Expect(w.cloud.callsOf("Ensure", "m1")).To(HaveLen(asked))
		Eventually(w.events("m1")).Should(ContainElement(ContainSubstring("Warning InstanceMissing")))
		w.delete("m1")
		w.eventuallyGone("m1")
	})

	It("I10: shortens a long Machine name to what Windows takes, exactly as the bootstrap controller does", func(ctx context.Context) {
		w := newWorld(ctx)
		for _, name := range []string{"w-hpkk8", "production-cluster-windows-md-0-x7k2p-abcde"} {
			w.createMachine(name)
			m := w.eventuallyProvisioned(name)
			Expect(m.Status.Instance.Name).To(Equal(bootstrap.ComputerName(w.ns, "c1", name)))
			Expect(len(m.Status.Instance.Name)).To(BeNumerically("<=", 15))
			Expect(w.cloud.vmsOf(name)[0].name).To(Equal(m.Status.Instance.Name))
		}
	})

	It("I10: names the instance after the Machine when the WindowsMachine has another name", func(ctx context.Context) {
		w := newWorld(ctx)
		w.createMachine("m1", func(m *clusterv1.Machine, wm *infrav1.WindowsMachine) {
			wm.Name, m.Spec.InfrastructureRef.Name = "other", "other"
		})
		Expect(w.eventuallyProvisioned("other").Status.Instance.Name).To(Equal(bootstrap.ComputerName(w.ns, "c1", "m1")))
	})

	It("takes over the instance of a WindowsMachine that clusterctl moved, without asking for anything but its provider ID", func(ctx context.Context) {
		w := newWorld(ctx)
		w.createMachine("m1")
		before := w.eventuallyProvisioned("m1")
		Expect(w.manager.Stop()).To(Succeed())
		// What arrives in the other management cluster: spec and metadata with new UIDs, no status; here also no bootstrap data.
		Expect(w.edit("m1", func(m *infrav1.WindowsMachine) { m.Finalizers = nil })).To(Succeed())
		w.delete("m1")
		Expect(api.Client.Delete(ctx, &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "m1"}})).To(Succeed())
		w.start()
		w.createMachine("m1", withoutBootstrapData, func(_ *clusterv1.Machine, wm *infrav1.WindowsMachine) { wm.Spec.ProviderID = before.Spec.ProviderID })
		after := w.eventuallyProvisioned("m1")
		Expect(after.UID).NotTo(Equal(before.UID))
		Expect(after.Status.Instance).To(Equal(before.Status.Instance))
		Expect(w.cloud.created()).To(Equal(1))
		w.delete("m1")
		w.eventuallyGone("m1")
	})

	It("stands still while it or its Cluster is paused, and goes on afterwards", func(ctx context.Context) {
		w := newWorld(ctx)
		pause := func(p bool) {
			base := w.cluster.DeepCopy()
			w.cluster.Spec.Paused = ptr.To(p)
			Expect(api.Client.Patch(ctx, w.cluster, client.MergeFrom(base))).To(Succeed())
		}
		pause(true)
		w.createMachine("m1")
		Eventually(w.get("m1")).Should(haveCondition("Paused", metav1.ConditionTrue, clusterv1.PausedReason, "Cluster spec.paused"))
		Expect(w.edit("m1", func(m *infrav1.WindowsMachine) { m.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })).To(Succeed())
		pause(false)
		Eventually(w.get("m1")).Should(haveCondition("Paused", metav1.ConditionTrue, clusterv1.PausedReason, "annotation"))
		Consistently(w.cloud.created).Should(BeZero())
		Expect(w.edit("m1", func(m *infrav1.WindowsMachine) { m.Annotations = nil })).To(Succeed())
		w.eventuallyProvisioned("m1")
		pause(true)
		Eventually(w.get("m1")).Should(haveCondition("Paused", metav1.ConditionTrue, clusterv1.PausedReason, ""))
		w.delete("m1")
		Consistently(func() []call { return w.cloud.callsOf("Delete", "m1") }).Should(BeEmpty())
		pause(false)
		w.eventuallyGone("m1")
	})

	It("does not wake itself: what it writes into a status leads to no further look at the platform", func(ctx context.Context) {
		w := newWorld(ctx)
		w.createMachine("m1")
		w.eventuallyProvisioned("m1")
		// Ensure, Ensure when the clone ended, Observe for the provider ID that this wrote into the spec; once more if a cache was
		// behind.
		before := w.settled("m1")
		Expect(before).To(BeNumerically("<=", 4))
		w.cloud.change("m1", func(v *vm) { v.instance.Addresses = reports("10.0.0.9") })
		Eventually(w.get("m1")).Should(HaveField("Status.Addresses", ContainElement(HaveField("Address", "10.0.0.9"))))
		Expect(w.settled("m1")).To(Equal(before + 1))
	})

	It("I25: works in a Cluster whose infrastructure is another provider's, and reads no WindowsCluster", func(ctx context.Context) {
		var mu sync.Mutex
		kinds := map[string]bool{}
		w := newWorld(ctx, func(w *world) {
			w.faults.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				mu.Lock()
				kinds[fmt.Sprintf("%T", o)] = true
				mu.Unlock()
				return c.Get(ctx, key, o, opts...)
			}
		})
		Expect(w.cluster.Spec.InfrastructureRef.Kind).To(Equal("VSphereCluster"))
		w.createMachine("m1")
		w.eventuallyProvisioned("m1")
		w.delete("m1")
		w.eventuallyGone("m1")
		mu.Lock()
		defer mu.Unlock()
		Expect(kinds).To(HaveLen(5), "reads only WindowsMachine, Machine, Cluster, Secret and the metadata of a Secret: %v", kinds)
		Expect(kinds).NotTo(HaveKey("*v1alpha1.WindowsCluster"))
	})
})
