package e2e

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/test/env"
	"github.com/capw-dev/cluster-api-provider-windows/test/vcsim"
)

const (
	kubernetesVersion = "v1.36.3"
	credentials       = "vsphere-credentials"
)

// world is one user's namespace with one cluster in it. Its methods are the verbs of that user.
type world struct {
	client.Client
	namespace string
	cluster   string
}

// newWorld creates a namespace with credentials. Whatever a spec leaves there is deleted after it, and gone before the
// next spec begins, so that VMs can be counted.
func newWorld(ctx context.Context) *world {
	GinkgoHelper()
	w := &world{Client: testEnv.Management.Client, cluster: "prod"}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}
	Expect(w.Create(ctx, ns)).To(Succeed())
	w.namespace = ns.Name
	Expect(w.Create(ctx, &corev1.Secret{
		ObjectMeta: w.named(credentials),
		StringData: map[string]string{"username": testEnv.VCSim.Username, "password": testEnv.VCSim.Password},
	})).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		w.deleteCluster(ctx)
		w.eventuallyNothingLeft(ctx)
	})
	return w
}

func (w *world) named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.namespace, Name: name}
}

func (w *world) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: w.namespace, Name: name}
}

// createCluster creates a Cluster with a WindowsCluster and a hosted control plane that is up.
func (w *world) createCluster(ctx context.Context) {
	GinkgoHelper()
	Expect(w.Create(ctx, &infrav1.WindowsCluster{ObjectMeta: w.named(w.cluster)})).To(Succeed())
	w.createClusterWithInfrastructure(ctx, clusterv1.ContractVersionedObjectReference{
		APIGroup: infrav1.GroupVersion.Group, Kind: "WindowsCluster", Name: w.cluster,
	})
}

// createClusterWithInfrastructure creates a Cluster with a hosted control plane that is up, and any infrastructure.
func (w *world) createClusterWithInfrastructure(ctx context.Context, infrastructure clusterv1.ContractVersionedObjectReference) {
	GinkgoHelper()
	kind := env.HostedControlPlaneKind()
	hosted := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"version": kubernetesVersion}}}
	hosted.SetGroupVersionKind(kind)
	hosted.SetNamespace(w.namespace)
	hosted.SetName(w.cluster)
	Expect(w.Create(ctx, hosted)).To(Succeed())
	Expect(w.Create(ctx, &clusterv1.Cluster{
		ObjectMeta: w.named(w.cluster),
		Spec: clusterv1.ClusterSpec{
			InfrastructureRef: infrastructure,
			ControlPlaneRef:   clusterv1.ContractVersionedObjectReference{APIGroup: kind.Group, Kind: kind.Kind, Name: w.cluster},
		},
	})).To(Succeed())
	Expect(testEnv.ConnectCluster(ctx, w.key(w.cluster))).To(Succeed())
}

// vsphere is the placement that the simulated vCenter has.
func vsphere() *infrav1.VSphereSpec {
	return &infrav1.VSphereSpec{
		Server:      testEnv.VCSim.Host,
		Thumbprint:  testEnv.VCSim.Thumbprint,
		IdentityRef: infrav1.VSphereIdentityReference{Name: credentials},
		VSpherePlacement: infrav1.VSpherePlacement{
			Datacenter:   "DC0",
			Template:     "windows-2022",
			ResourcePool: "/DC0/host/DC0_C0/Resources",
			Datastore:    "LocalDS_0",
			Network:      "DC0_DVPG0",
		},
		NumCPUs:   4,
		MemoryMiB: 8192,
	}
}

// createMachineTemplate creates a WindowsMachineTemplate.
func (w *world) createMachineTemplate(ctx context.Context, name string, change func(*infrav1.VSphereSpec)) {
	GinkgoHelper()
	spec := vsphere()
	if change != nil {
		change(spec)
	}
	Expect(w.Create(ctx, &infrav1.WindowsMachineTemplate{
		ObjectMeta: w.named(name),
		Spec:       infrav1.WindowsMachineTemplateSpec{Template: infrav1.WindowsMachineTemplateResource{Spec: infrav1.WindowsMachineSpec{VSphere: spec}}},
	})).To(Succeed())
}

// createMachineDeployment creates a MachineDeployment with its two templates.
func (w *world) createMachineDeployment(ctx context.Context, name string, replicas int32) {
	GinkgoHelper()
	w.createMachineTemplate(ctx, name, nil)
	Expect(w.Create(ctx, &bootstrapv1.WindowsConfigTemplate{
		ObjectMeta: w.named(name),
		Spec: bootstrapv1.WindowsConfigTemplateSpec{Template: bootstrapv1.WindowsConfigTemplateResource{Spec: &bootstrapv1.WindowsConfigSpec{
			Node: bootstrapv1.NodeSpec{
				Labels: map[string]string{"example.com/pool": name},
				Taints: &[]bootstrapv1.Taint{{Key: "os", Value: ptr.To("windows"), Effect: corev1.TaintEffectNoSchedule}, {Key: "example.com/dedicated", Effect: corev1.TaintEffectNoExecute}},
			},
		}}},
	})).To(Succeed())
	Expect(w.Create(ctx, &clusterv1.MachineDeployment{
		ObjectMeta: w.named(name),
		Spec: clusterv1.MachineDeploymentSpec{
			ClusterName: w.cluster,
			Replicas:    ptr.To(replicas),
			Template: clusterv1.MachineTemplateSpec{
				ObjectMeta: clusterv1.ObjectMeta{Labels: map[string]string{"node-role.kubernetes.io/windows": ""}},
				Spec: clusterv1.MachineSpec{
					ClusterName:       w.cluster,
					Version:           kubernetesVersion,
					Bootstrap:         clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{APIGroup: bootstrapv1.GroupVersion.Group, Kind: "WindowsConfigTemplate", Name: name}},
					InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "WindowsMachineTemplate", Name: name},
				},
			},
		},
	})).To(Succeed())
}

func (w *world) machineDeployment(ctx context.Context, name string) *clusterv1.MachineDeployment {
	GinkgoHelper()
	md := &clusterv1.MachineDeployment{}
	Expect(w.Get(ctx, w.key(name), md)).To(Succeed())
	return md
}

// scale sets the replicas of a MachineDeployment.
func (w *world) scale(ctx context.Context, name string, replicas int32) {
	GinkgoHelper()
	md := w.machineDeployment(ctx, name)
	before := md.DeepCopy()
	md.Spec.Replicas = ptr.To(replicas)
	Expect(w.Patch(ctx, md, client.MergeFrom(before))).To(Succeed())
}

// rollOver makes a MachineDeployment use another WindowsMachineTemplate.
func (w *world) rollOver(ctx context.Context, name, template string) {
	GinkgoHelper()
	md := w.machineDeployment(ctx, name)
	before := md.DeepCopy()
	md.Spec.Template.Spec.InfrastructureRef.Name = template
	Expect(w.Patch(ctx, md, client.MergeFrom(before))).To(Succeed())
}

func (w *world) machines(ctx context.Context) []clusterv1.Machine {
	GinkgoHelper()
	list := &clusterv1.MachineList{}
	Expect(w.List(ctx, list, client.InNamespace(w.namespace))).To(Succeed())
	return list.Items
}

func (w *world) windowsMachines(ctx context.Context) []infrav1.WindowsMachine {
	GinkgoHelper()
	list := &infrav1.WindowsMachineList{}
	Expect(w.List(ctx, list, client.InNamespace(w.namespace))).To(Succeed())
	return list.Items
}

// nodes are the Nodes of the workload cluster that belong to Machines of this world.
func (w *world) nodes(ctx context.Context) []corev1.Node {
	GinkgoHelper()
	all := &corev1.NodeList{}
	Expect(testEnv.Workload.Client.List(ctx, all)).To(Succeed())
	var ours []corev1.Node
	for _, n := range all.Items {
		if n.Annotations[clusterv1.ClusterNamespaceAnnotation] == w.namespace {
			ours = append(ours, n)
		}
	}
	return ours
}

// eventuallyRunning waits until n Machines run, with as many Ready nodes and VMs, and the MachineDeployment is available.
func (w *world) eventuallyRunning(ctx context.Context, deployment string, n int) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		md := w.machineDeployment(ctx, deployment)
		g.Expect(conditions.IsTrue(md, clusterv1.MachineDeploymentAvailableCondition)).To(BeTrue(), "MachineDeployment %s Available: %v", deployment, md.Status.Conditions)
		g.Expect(md.Status.AvailableReplicas).To(HaveValue(BeEquivalentTo(n)))
		machines := w.machines(ctx)
		g.Expect(machines).To(HaveLen(n))
		for _, m := range machines {
			g.Expect(m.Status.Phase).To(BeEquivalentTo(clusterv1.MachinePhaseRunning), "%s: %s", m.Name, summary(&m))
		}
		g.Expect(w.nodes(ctx)).To(HaveLen(n))
	}).WithContext(ctx).Should(Succeed())
	vms, err := vcenter.VMs(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(vms).To(HaveLen(n))
}

// summary is what a person would read of a Machine.
func summary(m *clusterv1.Machine) string {
	ready := conditions.Get(m, clusterv1.MachineReadyCondition)
	if ready == nil {
		return "no Ready condition"
	}
	return fmt.Sprintf("%s: %s", ready.Reason, ready.Message)
}

func (w *world) deleteCluster(ctx context.Context) {
	GinkgoHelper()
	err := w.Delete(ctx, &clusterv1.Cluster{ObjectMeta: w.named(w.cluster)})
	Expect(client.IgnoreNotFound(err)).To(Succeed())
}

// eventuallyNothingLeft waits until no object of Cluster API or ours, no Secret but the credentials, and no VM is left.
func (w *world) eventuallyNothingLeft(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, list := range []client.ObjectList{
			&clusterv1.ClusterList{}, &clusterv1.MachineDeploymentList{}, &clusterv1.MachineSetList{}, &clusterv1.MachineList{},
			&infrav1.WindowsClusterList{}, &infrav1.WindowsMachineList{}, &infrav1.WindowsMachineTemplateList{},
			&bootstrapv1.WindowsConfigList{}, &bootstrapv1.WindowsConfigTemplateList{},
		} {
			g.Expect(w.List(ctx, list, client.InNamespace(w.namespace))).To(Succeed())
			g.Expect(list).To(HaveField("Items", BeEmpty()), "%T", list)
		}
		secrets := &corev1.SecretList{}
		g.Expect(w.List(ctx, secrets, client.InNamespace(w.namespace))).To(Succeed())
		for _, s := range secrets.Items {
			g.Expect(s.Name).To(Equal(credentials))
		}
	}).WithContext(ctx).Should(Succeed())
	Expect(w.vms(ctx)).To(BeEmpty())
}

// vms are all VMs of the vCenter, by name, which must be unique.
func (w *world) vms(ctx context.Context) map[string]vcsim.VM {
	GinkgoHelper()
	vms, err := vcenter.VMs(ctx)
	Expect(err).NotTo(HaveOccurred())
	byName := map[string]vcsim.VM{}
	for _, vm := range vms {
		Expect(byName).NotTo(HaveKey(vm.Name), "two VMs of one name")
		byName[vm.Name] = vm
	}
	return byName
}
