package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/keyutil"

	"github.com/capw-dev/cluster-api-provider-windows/test/env/pki"
)

func TestAKubeconfigAuthenticatesServerAndUser(t *testing.T) {
	g := NewWithT(t)
	ca, err := pki.NewCA("test")
	g.Expect(err).NotTo(HaveOccurred())
	serving, err := ca.Server("server", "127.0.0.1", "server.example.com")
	g.Expect(err).NotTo(HaveOccurred())
	certificate, err := tls.X509KeyPair(serving.Cert, serving.Key)
	g.Expect(err).NotTo(HaveOccurred())
	clientCAs := x509.NewCertPool()
	g.Expect(clientCAs.AppendCertsFromPEM(ca.CertPEM())).To(BeTrue())

	users := make(chan *x509.Certificate, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		users <- r.TLS.PeerCertificates[0]
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clientCAs}
	server.StartTLS()
	defer server.Close()

	pair, err := ca.Client("alice", "group-a", "group-b")
	g.Expect(err).NotTo(HaveOccurred())
	kubeconfig, err := ca.Kubeconfig("cluster", server.URL, "alice", pair)
	g.Expect(err).NotTo(HaveOccurred())
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	g.Expect(err).NotTo(HaveOccurred())
	client, err := rest.HTTPClientFor(config)
	g.Expect(err).NotTo(HaveOccurred())
	resp, err := client.Get(server.URL)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(resp.Body.Close()).To(Succeed())
	user := <-users
	g.Expect(user.Subject.CommonName).To(Equal("alice"))
	g.Expect(user.Subject.Organization).To(ConsistOf("group-a", "group-b"))

	leaf, err := x509.ParseCertificate(certificate.Certificate[0])
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(leaf.DNSNames).To(ConsistOf("server.example.com"))
	g.Expect(leaf.IPAddresses).To(HaveLen(1))
	g.Expect(leaf.IPAddresses[0].Equal(net.IPv4(127, 0, 0, 1))).To(BeTrue())
}

func TestAServingCertificateIsNoClientCertificate(t *testing.T) {
	g := NewWithT(t)
	ca, err := pki.NewCA("test")
	g.Expect(err).NotTo(HaveOccurred())
	pair, err := ca.Server("system:masters", "127.0.0.1")
	g.Expect(err).NotTo(HaveOccurred())
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	g.Expect(err).NotTo(HaveOccurred())
	leaf, err := x509.ParseCertificate(certificate.Certificate[0])
	g.Expect(err).NotTo(HaveOccurred())
	roots := x509.NewCertPool()
	g.Expect(roots.AppendCertsFromPEM(ca.CertPEM())).To(BeTrue())
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	g.Expect(err).To(MatchError(ContainSubstring("incompatible key usage")))
}

func TestAKeyPairIsWrittenReadableForItsOwnerOnly(t *testing.T) {
	g := NewWithT(t)
	ca, err := pki.NewCA("test")
	g.Expect(err).NotTo(HaveOccurred())
	pair, err := ca.KeyPair()
	g.Expect(err).NotTo(HaveOccurred())
	certPath, keyPath, err := pair.Write(t.TempDir(), "ca")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = tls.LoadX509KeyPair(certPath, keyPath)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = keyutil.PrivateKeyFromFile(keyPath)
	g.Expect(err).NotTo(HaveOccurred())
	info, err := os.Stat(keyPath)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o600)))
}
