package e2e

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/test/guest"
)

var _ = Describe("A MachineDeployment of Windows workers", func() {
	It("becomes Ready nodes, scales, rolls over to another template, and leaves nothing when the Cluster is deleted", func(ctx context.Context) {
		startGuests(guest.Options{})
		w := newWorld(ctx)
		w.createCluster(ctx)

		By("creating 3 replicas")
		w.createMachineDeployment(ctx, "md", 3)
		w.eventuallyRunning(ctx, "md", 3)

		By("checking each node against its Machine, its VM and its WindowsConfig")
		vms := w.vms(ctx)
		machines := map[string]clusterv1.Machine{}
		for _, m := range w.machines(ctx) {
			machines[m.Status.NodeRef.Name] = m
		}
		for _, node := range w.nodes(ctx) {
			m, vm := machines[node.Name], vms[node.Name]
			Expect(len(node.Name)).To(BeNumerically("<=", 15))
			Expect(node.Spec.ProviderID).To(And(Equal("vsphere://"+vm.UUID), Equal(m.Spec.ProviderID)))
			Expect(node.Labels).To(And(
				HaveKeyWithValue("example.com/pool", "md"),
				HaveKeyWithValue("node-role.kubernetes.io/windows", ""),
				HaveKeyWithValue(corev1.LabelOSStable, "windows"),
			))
			Expect(node.Spec.Taints).To(ContainElements(
				corev1.Taint{Key: "os", Value: "windows", Effect: corev1.TaintEffectNoSchedule},
				HaveField("Key", "example.com/dedicated"),
			))
			Expect(node.Spec.Taints).NotTo(ContainElement(HaveField("Key", clusterv1.NodeUninitializedTaint.Key)), "Cluster API removes it")
			Expect(m.Status.Addresses).To(ContainElement(HaveField("Type", clusterv1.MachineInternalIP)))
			Expect(node.Status.NodeInfo.KubeletVersion).To(Equal(kubernetesVersion))
		}

		By("telling the autoscaler what a node would be")
		template := &infrav1.WindowsMachineTemplate{}
		Expect(w.Get(ctx, w.key("md"), template)).To(Succeed())
		Expect(template.Status.NodeInfo).To(Equal(infrav1.NodeInfo{Architecture: "amd64", OperatingSystem: "windows"}))

		By("scaling to 5 and down to 2")
		w.scale(ctx, "md", 5)
		w.eventuallyRunning(ctx, "md", 5)
		w.scale(ctx, "md", 2)
		w.eventuallyRunning(ctx, "md", 2)

		By("rolling over to a second template")
		before := slices.Collect(maps.Keys(w.vms(ctx)))
		w.createMachineTemplate(ctx, "md-v2", func(s *infrav1.VSphereSpec) { s.NumCPUs = 8 })
		w.rollOver(ctx, "md", "md-v2")
		Eventually(func(g Gomega) {
			for _, m := range w.windowsMachines(ctx) {
				g.Expect(m.Annotations).To(HaveKeyWithValue(clusterv1.TemplateClonedFromNameAnnotation, "md-v2"))
			}
			g.Expect(w.windowsMachines(ctx)).To(HaveLen(2))
		}).WithContext(ctx).Should(Succeed())
		w.eventuallyRunning(ctx, "md", 2)
		Expect(sets.KeySet(w.vms(ctx)).HasAny(before...)).To(BeFalse(), "every VM is a new one")

		By("describing the cluster as a user would")
		out, err := command(ctx, testEnv.Assets.Clusterctl, "describe", "cluster", w.cluster, "-n", w.namespace, "--show-conditions", "all", "--grouping=false", "--echo").CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		Expect(string(out)).To(And(ContainSubstring("WindowsMachine"), ContainSubstring("WindowsConfig"), ContainSubstring("Available")))

		By("deleting the Cluster")
		w.deleteCluster(ctx)
		w.eventuallyNothingLeft(ctx)
	}, SpecTimeout(10*time.Minute))

	It("gets a new Machine from a MachineHealthCheck when a VM is destroyed behind Cluster API's back", func(ctx context.Context) {
		startGuests(guest.Options{})
		w := newWorld(ctx)
		w.createCluster(ctx)
		w.createMachineDeployment(ctx, "md", 2)
		w.eventuallyRunning(ctx, "md", 2)
		Expect(w.Create(ctx, &clusterv1.MachineHealthCheck{
			ObjectMeta: w.named("md"),
			Spec: clusterv1.MachineHealthCheckSpec{
				ClusterName: w.cluster,
				Selector:    metav1.LabelSelector{MatchLabels: map[string]string{clusterv1.MachineDeploymentNameLabel: "md"}},
				Checks: clusterv1.MachineHealthCheckChecks{
					NodeStartupTimeoutSeconds: ptr.To[int32](2400),
					UnhealthyMachineConditions: []clusterv1.UnhealthyMachineCondition{{
						Type: clusterv1.InfrastructureReadyCondition, Status: metav1.ConditionFalse, TimeoutSeconds: ptr.To[int32](1),
					}},
				},
			},
		})).To(Succeed())

		victim := w.machines(ctx)[0]
		Expect(vcenter.DestroyVM(ctx, victim.Status.NodeRef.Name)).To(Succeed())

		Eventually(func(g Gomega) {
			for _, m := range w.machines(ctx) {
				g.Expect(m.UID).NotTo(Equal(victim.UID))
			}
		}).WithContext(ctx).Should(Succeed())
		w.eventuallyRunning(ctx, "md", 2)
	}, SpecTimeout(10*time.Minute))
})

// command runs a program of the environment against the management cluster.
func command(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, append(args, "--kubeconfig", testEnv.Management.Kubeconfig)...)
	cmd.Env = append(os.Environ(), "CLUSTERCTL_DISABLE_VERSIONCHECK=true")
	return cmd
}
