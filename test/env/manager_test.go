package env_test

import (
	"context"
	"os/exec"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/test/env"
)

var _ = Describe("Our manager", Ordered, func() {
	var template *bootstrapv1.WindowsConfigTemplate

	// change tries what a webhook of ours forbids, without doing it.
	change := func(ctx context.Context) error {
		changed := template.DeepCopy()
		changed.Spec.Template.Spec.Agent.Source = bootstrapv1.AgentImage
		return testEnv.Management.Client.Update(ctx, changed, client.DryRunAll)
	}

	BeforeAll(func(ctx context.Context) {
		template = &bootstrapv1.WindowsConfigTemplate{
			ObjectMeta: metav1.ObjectMeta{Namespace: createNamespace(ctx), Name: "template"},
			Spec:       bootstrapv1.WindowsConfigTemplateSpec{Template: bootstrapv1.WindowsConfigTemplateResource{Spec: &bootstrapv1.WindowsConfigSpec{}}},
		}
		Expect(testEnv.Management.Client.Create(ctx, template)).To(Succeed())
	})

	It("serves its webhooks", func(ctx context.Context) {
		Expect(change(ctx)).To(MatchError(SatisfyAll(ContainSubstring("admission webhook"), ContainSubstring("immutable"))))
	})

	It("has the rights that the project ships, no more", func(ctx context.Context) {
		for resource, want := range map[string]string{"windowsmachines.infrastructure.cluster.x-k8s.io": "yes\n", "deployments.apps": "no\n"} {
			// kubectl ends with status 1 after "no".
			out, _ := exec.CommandContext(ctx, testEnv.Assets.Kubectl, "--kubeconfig", testEnv.Dir+"/capw-manager.kubeconfig",
				"auth", "can-i", "list", resource, "--all-namespaces").Output()
			Expect(string(out)).To(Equal(want), resource)
		}
	})

	It("can be killed as by a crash, and comes back at the same place", func(ctx context.Context) {
		before := testEnv.Manager.Process()
		Expect(testEnv.Manager.Kill()).To(Succeed())
		Expect(before.Exited()).To(BeClosed())
		Expect(testEnv.Manager.Process()).To(BeNil())
		Expect(testEnv.Manager.Kill()).To(MatchError(ContainSubstring("does not run")))
		Expect(change(ctx)).To(MatchError(ContainSubstring("connection refused")))

		Expect(testEnv.Manager.Start(ctx)).To(Succeed())
		Expect(testEnv.Manager.Process().PID()).NotTo(Equal(before.PID()))
		Expect(testEnv.Manager.Process().Log()).To(Equal(testEnv.Manager.Log), "all runs append to one log")
		Expect(change(ctx)).To(MatchError(ContainSubstring("immutable")))
	})

	It("can be restarted as by a rollout, and ends with status 0", func(ctx context.Context) {
		before := testEnv.Manager.Process()
		Expect(testEnv.Manager.Restart(ctx)).To(Succeed())
		Expect(before.Exited()).To(BeClosed())
		Expect(change(ctx)).To(MatchError(ContainSubstring("immutable")))
		Expect(testEnv.Manager.Start(ctx)).To(MatchError(ContainSubstring("is running")))
	})

	It("reconciles as a leader with --leader-elect, and hands leadership over when it ends", func(ctx context.Context) {
		Expect(testEnv.Manager.Restart(ctx, "--leader-elect", "--leader-election-namespace="+env.ManagerNamespace)).To(Succeed())
		machines := &infrav1.WindowsMachineTemplate{
			ObjectMeta: metav1.ObjectMeta{Namespace: template.Namespace, Name: "machines"},
			Spec: infrav1.WindowsMachineTemplateSpec{Template: infrav1.WindowsMachineTemplateResource{Spec: infrav1.WindowsMachineSpec{VSphere: &infrav1.VSphereSpec{
				Server:           "vcenter.example.com",
				IdentityRef:      infrav1.VSphereIdentityReference{Name: "vcenter"},
				VSpherePlacement: infrav1.VSpherePlacement{Template: "windows-2022"},
			}}}},
		}
		Expect(testEnv.Management.Client.Create(ctx, machines)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(testEnv.Management.Client.Get(ctx, client.ObjectKeyFromObject(machines), machines)).To(Succeed())
			g.Expect(machines.Status.NodeInfo.OperatingSystem).To(Equal("windows"))
		}).Should(Succeed())
		lease := &coordinationv1.Lease{}
		key := client.ObjectKey{Namespace: env.ManagerNamespace, Name: "capw-manager-leader-election"}
		Expect(testEnv.Management.Client.Get(ctx, key, lease)).To(Succeed())
		Expect(lease.Spec.HolderIdentity).To(HaveValue(Not(BeEmpty())))

		Expect(testEnv.Manager.Restart(ctx)).To(Succeed())
		Expect(testEnv.Management.Client.Get(ctx, key, lease)).To(Succeed())
		Expect(lease.Spec.HolderIdentity).To(HaveValue(BeEmpty()))
	})
})
