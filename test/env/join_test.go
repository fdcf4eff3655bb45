package env_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509/pkix"
	"encoding/json"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/token/jws"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"

	"github.com/capw-dev/cluster-api-provider-windows/test/env"
)

var _ = Describe("A bootstrap token of the workload cluster", func() {
	var token, id, secret string

	BeforeEach(func(ctx context.Context) {
		var err error
		token, err = bootstraputil.GenerateBootstrapToken()
		Expect(err).NotTo(HaveOccurred())
		parts := bootstraputil.BootstrapTokenRegexp.FindStringSubmatch(token)
		id, secret = parts[1], parts[2]
		Expect(testEnv.Workload.Client.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: bootstraputil.BootstrapTokenSecretName(id)},
			Type:       bootstrapapi.SecretTypeBootstrapToken,
			StringData: map[string]string{
				bootstrapapi.BootstrapTokenIDKey:               id,
				bootstrapapi.BootstrapTokenSecretKey:           secret,
				bootstrapapi.BootstrapTokenExpirationKey:       time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
				bootstrapapi.BootstrapTokenUsageSigningKey:     "true",
				bootstrapapi.BootstrapTokenUsageAuthentication: "true",
				bootstrapapi.BootstrapTokenExtraGroupsKey:      "system:bootstrappers:kubeadm:default-node-token",
			},
		})).To(Succeed())
	})

	It("lets an anonymous reader verify cluster-info, and only the right token does", func(ctx context.Context) {
		var info *corev1.ConfigMap
		Eventually(func(g Gomega) {
			var status int
			status, info = anonymousClusterInfo(g, testEnv.Workload)
			g.Expect(status).To(Equal(http.StatusOK))
			g.Expect(info.Data).To(HaveKey(bootstrapapi.JWSSignatureKeyPrefix + id))
		}).Should(Succeed())
		signature, content := info.Data[bootstrapapi.JWSSignatureKeyPrefix+id], info.Data[bootstrapapi.KubeConfigKey]
		Expect(jws.DetachedTokenIsValid(signature, content, id, secret)).To(BeTrue())
		Expect(jws.DetachedTokenIsValid(signature, content, id, "0123456789abcdef")).To(BeFalse())
		Expect(content).To(ContainSubstring(testEnv.Workload.URL()))

		By("not being there in the management cluster")
		status, _ := anonymousClusterInfo(Default, testEnv.Management)
		Expect(status).To(Equal(http.StatusForbidden))
	})

	It("gets a kubelet its client certificate, and nothing else", func(ctx context.Context) {
		config := rest.AnonymousClientConfig(testEnv.Workload.Config)
		config.BearerToken = token
		bootstrapper, err := kubernetes.NewForConfig(config)
		Expect(err).NotTo(HaveOccurred())
		_, err = bootstrapper.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)

		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		Expect(err).NotTo(HaveOccurred())
		request, err := cert.MakeCSR(key, &pkix.Name{CommonName: "system:node:win-1", Organization: []string{"system:nodes"}}, nil, nil)
		Expect(err).NotTo(HaveOccurred())
		name, uid, err := csr.RequestCertificateWithContext(ctx, bootstrapper, request, "", certificatesv1.KubeAPIServerClientKubeletSignerName, nil,
			[]certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}, key)
		Expect(err).NotTo(HaveOccurred())
		certificate, err := csr.WaitForCertificate(ctx, bootstrapper, name, uid)
		Expect(err).NotTo(HaveOccurred())

		By("being that node, and no other")
		config = rest.AnonymousClientConfig(testEnv.Workload.Config)
		config.CertData = certificate
		config.KeyData, err = keyutil.MarshalPrivateKeyToPEM(key)
		Expect(err).NotTo(HaveOccurred())
		node, err := kubernetes.NewForConfig(config)
		Expect(err).NotTo(HaveOccurred())
		_, err = node.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "win-1"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = node.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "win-2"}}, metav1.CreateOptions{})
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
	}, SpecTimeout(2*time.Minute))
})

// anonymousClusterInfo reads cluster-info as a node does that knows nothing but the address and trusts the CA.
func anonymousClusterInfo(g Gomega, cluster *env.Cluster) (status int, info *corev1.ConfigMap) {
	client, err := rest.HTTPClientFor(rest.AnonymousClientConfig(cluster.Config))
	g.Expect(err).NotTo(HaveOccurred())
	resp, err := client.Get(cluster.URL() + "/api/v1/namespaces/kube-public/configmaps/cluster-info")
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = resp.Body.Close() }()
	info = &corev1.ConfigMap{}
	g.Expect(json.NewDecoder(resp.Body).Decode(info)).To(Succeed())
	return resp.StatusCode, info
}
