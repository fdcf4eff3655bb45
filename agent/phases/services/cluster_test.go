package services

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capw-dev/cluster-api-provider-windows/agent/apiclient/apitest"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
)

// cluster is one that a node has joined.
type cluster struct{ *apitest.Server }

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{apitest.New(apitest.Options{})}
	t.Cleanup(c.Close)
	return c
}

// identity returns the files of the node's identity, issued as the kubelet has it issued.
func (c *cluster) identity(g *WithT) map[string]string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:prod-ki54itvck1", Organization: []string{"system:nodes"}},
	}, key)
	g.Expect(err).NotTo(HaveOccurred())
	csr := certificatesv1.CertificateSigningRequest{}
	csr.Name = "node-csr"
	csr.Spec.SignerName = certificatesv1.KubeAPIServerClientKubeletSignerName
	csr.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	csr.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request})
	const path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	c.ask(g, http.MethodPost, path, &csr)
	c.ask(g, http.MethodGet, path+"/node-csr", &csr)
	g.Expect(csr.Status.Certificate).NotTo(BeEmpty())
	der, err := x509.MarshalECPrivateKey(key)
	g.Expect(err).NotTo(HaveOccurred())
	config := clientcmdapi.Config{
		CurrentContext: "node",
		Contexts:       map[string]*clientcmdapi.Context{"node": {Cluster: "c", AuthInfo: "n"}},
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: "https://" + c.Endpoint(), CertificateAuthorityData: c.CA()}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"n": {ClientCertificate: layout.KubeletClientCert, ClientKey: layout.KubeletClientCert}},
	}
	raw, err := clientcmd.Write(config)
	g.Expect(err).NotTo(HaveOccurred())
	return map[string]string{
		layout.Kubeconfig:        string(raw),
		layout.KubeletClientCert: string(csr.Status.Certificate) + string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})),
	}
}

// ask makes a request with the bootstrap token.
func (c *cluster) ask(g *WithT, method, path string, object any) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.CA())
	transport := &http.Transport{DialContext: c.DialContext, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}}
	defer transport.CloseIdleConnections()
	body, err := json.Marshal(object)
	g.Expect(err).NotTo(HaveOccurred())
	r, err := http.NewRequest(method, "https://"+c.Endpoint()+path, bytes.NewReader(body))
	g.Expect(err).NotTo(HaveOccurred())
	r.Header.Set("Authorization", "Bearer "+c.Join().Token)
	answer, err := (&http.Client{Transport: transport}).Do(r)
	g.Expect(err).NotTo(HaveOccurred())
	defer answer.Body.Close() //nolint:errcheck // it is read
	g.Expect(answer.StatusCode).To(BeNumerically("<", 300))
	g.Expect(json.NewDecoder(answer.Body).Decode(object)).To(Succeed())
}
