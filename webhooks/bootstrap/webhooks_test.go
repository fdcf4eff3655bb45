package bootstrap_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
	webhooks "github.com/capw-dev/cluster-api-provider-windows/webhooks/bootstrap"
)

var api client.Client

func TestBootstrapWebhooks(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Bootstrap webhooks")
}

// The webhooks run in a manager, behind a real API server and the manifests that are shipped.
var _ = BeforeSuite(func() {
	ctrl.SetLogger(GinkgoLogr)
	env := &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join("..", "..", "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
		WebhookInstallOptions: envtest.WebhookInstallOptions{Paths: []string{filepath.Join("..", "..", "config", "bootstrap", "webhook", "manifests.yaml")}},
	}
	config, err := env.Start()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })

	scheme := runtime.NewScheme()
	Expect(bootstrapv1.AddToScheme(scheme)).To(Succeed())
	api, err = client.New(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())

	served := env.WebhookInstallOptions
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: served.LocalServingHost, Port: served.LocalServingPort, CertDir: served.LocalServingCertDir,
		}),
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(webhooks.SetupWithManager(mgr)).To(Succeed())

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	DeferCleanup(func() {
		cancel()
		Eventually(done).WithTimeout(30 * time.Second).Should(Receive(BeNil()))
	})
	Eventually(func() error { return mgr.GetWebhookServer().StartedChecker()(nil) }).WithTimeout(30 * time.Second).Should(Succeed())
})

var refusedLabel = bootstrapv1.WindowsConfigSpec{Node: bootstrapv1.NodeSpec{Labels: map[string]string{"node-role.kubernetes.io/worker": ""}}}

func newConfig(spec bootstrapv1.WindowsConfigSpec) *bootstrapv1.WindowsConfig {
	return &bootstrapv1.WindowsConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "c-"}, Spec: spec}
}

func newTemplate(spec bootstrapv1.WindowsConfigSpec) *bootstrapv1.WindowsConfigTemplate {
	return &bootstrapv1.WindowsConfigTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "t-"},
		Spec:       bootstrapv1.WindowsConfigTemplateSpec{Template: bootstrapv1.WindowsConfigTemplateResource{Spec: &spec}},
	}
}

func expectRefused(err error, parts ...string) {
	GinkgoHelper()
	Expect(apierrors.IsInvalid(err)).To(BeTrue(), "got %v", err)
	for _, p := range parts {
		Expect(err).To(MatchError(ContainSubstring(p)))
	}
}

var _ = Describe("A WindowsConfig", func() {
	It("is accepted when it is plain", func(ctx SpecContext) {
		Expect(api.Create(ctx, newConfig(bootstrapv1.WindowsConfigSpec{}))).To(Succeed())
	})

	It("B30: is refused with a label that the kubelet may not set, with field and remedy", func(ctx SpecContext) {
		expectRefused(api.Create(ctx, newConfig(refusedLabel)),
			"spec.node.labels[node-role.kubernetes.io/worker]", "spec.template.metadata.labels of the MachineDeployment")
	})

	It("B28: is refused with the taint that Cluster API owns", func(ctx SpecContext) {
		expectRefused(api.Create(ctx, newConfig(bootstrapv1.WindowsConfigSpec{Node: bootstrapv1.NodeSpec{
			Taints: &[]bootstrapv1.Taint{{Key: clusterv1.NodeUninitializedTaint.Key, Effect: "NoSchedule"}}}})),
			"spec.node.taints[0].key", "Cluster API owns this taint")
	})

	It("B7: is refused a spec that it did not have, which CEL cannot see", func(ctx SpecContext) {
		raw := &unstructured.Unstructured{}
		raw.SetGroupVersionKind(bootstrapv1.GroupVersion.WithKind("WindowsConfig"))
		raw.SetNamespace("default")
		raw.SetGenerateName("nospec-")
		Expect(api.Create(ctx, raw)).To(Succeed())
		Expect(unstructured.SetNestedField(raw.Object, "None", "spec", "node", "providerID")).To(Succeed())
		expectRefused(api.Update(ctx, raw), "is immutable", "create a new WindowsConfigTemplate")
	})

	It("B35: may change labels, annotations and owners", func(ctx SpecContext) {
		c := newConfig(bootstrapv1.WindowsConfigSpec{Node: bootstrapv1.NodeSpec{Labels: map[string]string{"example.com/a": "b"}}})
		Expect(api.Create(ctx, c)).To(Succeed())
		c.Labels = map[string]string{"a": "b"}
		c.Annotations = map[string]string{"a": "b"}
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "m", UID: "1"}}
		Expect(api.Update(ctx, c)).To(Succeed())
	})

	It("B35: may change metadata even if today's rules would not let it in", func(ctx SpecContext) {
		before, after := newConfig(refusedLabel), newConfig(refusedLabel)
		after.Finalizers = []string{"example.com/x"}
		_, err := webhooks.WindowsConfig{}.ValidateUpdate(ctx, before, after)
		Expect(err).NotTo(HaveOccurred())
	})
})

var _ = Describe("A WindowsConfigTemplate", func() {
	It("is accepted with an empty spec, which stays there", func(ctx SpecContext) {
		t := newTemplate(bootstrapv1.WindowsConfigSpec{})
		Expect(api.Create(ctx, t)).To(Succeed())
		Expect(api.Get(ctx, client.ObjectKeyFromObject(t), t)).To(Succeed())
		Expect(t.Spec.Template.Spec).To(HaveValue(BeZero()))
	})

	It("B30: is refused with a label that the kubelet may not set, with the path in the template", func(ctx SpecContext) {
		expectRefused(api.Create(ctx, newTemplate(refusedLabel)), "spec.template.spec.node.labels[node-role.kubernetes.io/worker]")
	})

	It("B5: is refused with metadata that cannot be copied", func(ctx SpecContext) {
		t := newTemplate(bootstrapv1.WindowsConfigSpec{})
		t.Spec.Template.ObjectMeta.Labels = map[string]string{"not a key": ""}
		expectRefused(api.Create(ctx, t), "spec.template.metadata.labels")
	})

	It("B34: is refused a change of spec.template.spec, with the remedy", func(ctx SpecContext) {
		t := newTemplate(bootstrapv1.WindowsConfigSpec{})
		Expect(api.Create(ctx, t)).To(Succeed())
		t.Spec.Template.Spec.Node.ProviderID = bootstrapv1.ProviderIDNone
		expectRefused(api.Update(ctx, t), "spec.template.spec", "create a new WindowsConfigTemplate")
	})

	It("B34: may change labels and the metadata that is copied", func(ctx SpecContext) {
		t := newTemplate(bootstrapv1.WindowsConfigSpec{})
		Expect(api.Create(ctx, t)).To(Succeed())
		t.Labels = map[string]string{"a": "b"}
		t.Spec.Template.ObjectMeta.Annotations = map[string]string{"a": "b"}
		Expect(api.Update(ctx, t)).To(Succeed())
	})

	It("B34: lets a dry run of the topology controller change it, and no other dry run", func(ctx SpecContext) {
		t := newTemplate(bootstrapv1.WindowsConfigSpec{})
		Expect(api.Create(ctx, t)).To(Succeed())
		t.Spec.Template.Spec.Node.ProviderID = bootstrapv1.ProviderIDNone
		expectRefused(api.Update(ctx, t.DeepCopy(), client.DryRunAll), "spec.template.spec")

		t.Annotations = map[string]string{clusterv1.TopologyDryRunAnnotation: ""}
		expectRefused(api.Update(ctx, t.DeepCopy()), "spec.template.spec")
		Expect(api.Update(ctx, t.DeepCopy(), client.DryRunAll)).To(Succeed())
	})

	It("B34: tells the topology controller, in its server-side dry run, that nothing changed", func(ctx SpecContext) {
		t := newTemplate(bootstrapv1.WindowsConfigSpec{Node: bootstrapv1.NodeSpec{Taints: ptr.To([]bootstrapv1.Taint{})}})
		t.GenerateName, t.Name = "", "topology"
		t.TypeMeta = metav1.TypeMeta{APIVersion: bootstrapv1.GroupVersion.String(), Kind: "WindowsConfigTemplate"}
		apply := func(options ...client.ApplyOption) *unstructured.Unstructured {
			GinkgoHelper()
			data, err := json.Marshal(t)
			Expect(err).NotTo(HaveOccurred())
			raw := &unstructured.Unstructured{}
			Expect(json.Unmarshal(data, raw)).To(Succeed())
			Expect(api.Apply(ctx, client.ApplyConfigurationFromUnstructured(raw), append(options, client.FieldOwner("capi-topology"))...)).To(Succeed())
			return raw
		}
		first := apply()
		second := apply(client.DryRunAll)
		Expect(second.GetResourceVersion()).To(Equal(first.GetResourceVersion()))
		Expect(second.GetGeneration()).To(Equal(first.GetGeneration()))
	})
})
