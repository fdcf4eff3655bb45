package windowsconfig_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/contract"

	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
)

// What the API server serves, looked up as Cluster API core and clusterctl look it up.
var _ = Describe("The CRDs", func() {
	crd := func(ctx SpecContext, kind string) *apiextensionsv1.CustomResourceDefinition {
		GinkgoHelper()
		name := contract.CalculateCRDName("bootstrap.cluster.x-k8s.io", kind)
		return get(ctx, mgmt, "", name, &apiextensionsv1.CustomResourceDefinition{})
	}
	schema := func(c *apiextensionsv1.CustomResourceDefinition, path ...string) apiextensionsv1.JSONSchemaProps {
		GinkgoHelper()
		at := *c.Spec.Versions[0].Schema.OpenAPIV3Schema
		for _, p := range path {
			Expect(at.Properties).To(HaveKey(p))
			at = at.Properties[p]
		}
		return at
	}

	for _, kind := range []string{"WindowsConfig", "WindowsConfigTemplate"} {
		It("B1: "+kind+" is namespaced and has metadata and a list kind", func(ctx SpecContext) {
			c := crd(ctx, kind)
			Expect(c.Spec.Scope).To(Equal(apiextensionsv1.NamespaceScoped))
			Expect(c.Spec.Names.Kind).To(Equal(kind))
			Expect(c.Spec.Names.ListKind).To(Equal(kind + "List"))
			Expect(schema(c).Properties).To(And(HaveKey("apiVersion"), HaveKey("kind"), HaveKey("metadata"), HaveKey("spec")))
		})
		It("B2: "+kind+" has the CRD name that Cluster API calculates", func(ctx SpecContext) {
			Expect(crd(ctx, kind).Spec.Names.Plural).NotTo(BeEmpty())
		})
		It("B3: "+kind+" names its version in the label of contract v1beta2 and in no older one", func(ctx SpecContext) {
			c := crd(ctx, kind)
			Expect(c.Labels).To(HaveKeyWithValue("cluster.x-k8s.io/v1beta2", "v1alpha1"))
			Expect(c.Labels).NotTo(HaveKey("cluster.x-k8s.io/v1beta1"))
			Expect(c.Spec.Versions).To(HaveLen(1))
			Expect(c.Spec.Versions[0].Name).To(Equal("v1alpha1"))
			Expect(c.Spec.Versions[0].Storage).To(BeTrue())
		})
		It("B4: "+kind+" is in the group to which core has access", func(ctx SpecContext) {
			Expect(crd(ctx, kind).Spec.Group).To(Equal("bootstrap.cluster.x-k8s.io"))
		})
		It("B5: "+kind+" is in category cluster-api and prints columns", func(ctx SpecContext) {
			c := crd(ctx, kind)
			Expect(c.Spec.Names.Categories).To(ConsistOf("cluster-api"))
			Expect(c.Spec.Versions[0].AdditionalPrinterColumns).NotTo(BeEmpty())
		})
	}

	It("B5: WindowsConfig has the status subresource, the template has metadata and spec", func(ctx SpecContext) {
		Expect(crd(ctx, "WindowsConfig").Spec.Versions[0].Subresources.Status).NotTo(BeNil())
		t := schema(crd(ctx, "WindowsConfigTemplate"), "spec", "template")
		Expect(t.Properties).To(And(HaveKey("metadata"), HaveKey("spec")))
		Expect(t.Properties["metadata"].Properties).To(And(HaveKey("labels"), HaveKey("annotations"), HaveLen(2)))
	})

	It("B6: the status has dataSecretName of 1 to 253 characters and initialization.dataSecretCreated, and no ready", func(ctx SpecContext) {
		status := schema(crd(ctx, "WindowsConfig"), "status")
		Expect(status.Properties["dataSecretName"].MinLength).To(HaveValue(BeEquivalentTo(1)))
		Expect(status.Properties["dataSecretName"].MaxLength).To(HaveValue(BeEquivalentTo(253)))
		Expect(status.Properties["initialization"].Properties["dataSecretCreated"].Type).To(Equal("boolean"))
		Expect(status.Properties).NotTo(HaveKey("ready"))
	})

	It("B8: conditions are a list map of metav1.Condition, without the older failure fields", func(ctx SpecContext) {
		status := schema(crd(ctx, "WindowsConfig"), "status")
		Expect(status.Properties["conditions"].XListType).To(HaveValue(Equal("map")))
		Expect(status.Properties["conditions"].XListMapKeys).To(ConsistOf("type"))
		Expect(status.Properties).NotTo(Or(HaveKey("failureReason"), HaveKey("failureMessage"), HaveKey("deprecated"), HaveKey("v1beta2")))
		var _ conditions.Setter = &bootstrapv1.WindowsConfig{}
	})

	Describe("with CEL", func() {
		create := func(ctx SpecContext, spec bootstrapv1.WindowsConfigSpec) (*bootstrapv1.WindowsConfig, error) {
			c := &bootstrapv1.WindowsConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "cel-"}, Spec: spec}
			err := mgmt.Create(ctx, c)
			if err == nil {
				DeferCleanup(func(ctx SpecContext) { Expect(mgmt.Delete(ctx, c)).To(Succeed()) })
			}
			return c, err
		}

		It("B35: a spec never changes, labels and annotations may", func(ctx SpecContext) {
			c, err := create(ctx, bootstrapv1.WindowsConfigSpec{Node: bootstrapv1.NodeSpec{ProviderID: bootstrapv1.ProviderIDNone}})
			Expect(err).NotTo(HaveOccurred())
			c.Labels = map[string]string{"a": "b"}
			c.Annotations = map[string]string{"a": "b"}
			Expect(mgmt.Update(ctx, c)).To(Succeed())
			c.Spec.Node.ProviderID = bootstrapv1.ProviderIDAuto
			err = mgmt.Update(ctx, c)
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(ContainSubstring("spec is immutable")))
		})

		It("refuses agent settings that contradict each other", func(ctx SpecContext) {
			sum := "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
			for _, agent := range []bootstrapv1.AgentSpec{
				{Source: bootstrapv1.AgentURL},
				{URL: "https://example.com/capw-node.exe"},
				{SHA256: sum},
				{Source: bootstrapv1.AgentImage, URL: "https://example.com/capw-node.exe", SHA256: sum},
				{URL: "https://example.com/%PATH%", SHA256: sum},
			} {
				_, err := create(ctx, bootstrapv1.WindowsConfigSpec{Agent: agent})
				Expect(err).To(WithTransform(apierrors.IsInvalid, BeTrue()), "agent %+v: %v", agent, err)
			}
			_, err := create(ctx, bootstrapv1.WindowsConfigSpec{Agent: bootstrapv1.AgentSpec{Source: bootstrapv1.AgentURL, URL: "https://example.com/capw-node.exe", SHA256: sum}})
			Expect(err).NotTo(HaveOccurred())
		})

		It("takes the longest taint key that Kubernetes takes, and none that is longer", func(ctx SpecContext) {
			label := strings.Repeat("a", 63)
			prefix := strings.Join([]string{label, label, label, label[:61]}, ".")
			Expect(prefix).To(HaveLen(253))
			_, err := create(ctx, bootstrapv1.WindowsConfigSpec{Node: bootstrapv1.NodeSpec{Taints: &[]bootstrapv1.Taint{{Key: prefix + "/" + label, Effect: "NoSchedule"}}}})
			Expect(err).NotTo(HaveOccurred())
			_, err = create(ctx, bootstrapv1.WindowsConfigSpec{Node: bootstrapv1.NodeSpec{Taints: &[]bootstrapv1.Taint{{Key: prefix + "a/" + label, Effect: "NoSchedule"}}}})
			Expect(err).To(WithTransform(apierrors.IsInvalid, BeTrue()), "%v", err)
		})

		It("tells an empty list of taints from none", func(ctx SpecContext) {
			c, err := create(ctx, bootstrapv1.WindowsConfigSpec{Node: bootstrapv1.NodeSpec{Taints: ptr.To([]bootstrapv1.Taint{})}})
			Expect(err).NotTo(HaveOccurred())
			Expect(get(ctx, mgmt, c.Namespace, c.Name, &bootstrapv1.WindowsConfig{}).Spec.Node.Taints).To(HaveValue(BeEmpty()))
		})
	})
})
