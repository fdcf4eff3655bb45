// Package pki makes the keys, certificates and kubeconfig files of a throw-away cluster.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// CA is a certificate authority.
type CA struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// KeyPair is a private key with its certificate, both PEM.
type KeyPair struct {
	Cert, Key []byte
}

// NewCA returns a new self-signed authority that is valid for ten years.
func NewCA(commonName string) (*CA, error) {
	key, err := newKey()
	if err != nil {
		return nil, fmt.Errorf("generating key of CA %s: %w", commonName, err)
	}
	c, err := cert.NewSelfSignedCACert(cert.Config{CommonName: commonName}, key)
	if err != nil {
		return nil, fmt.Errorf("signing CA %s: %w", commonName, err)
	}
	return &CA{cert: c, key: key}, nil
}

// CertPEM returns the authority's certificate.
func (ca *CA) CertPEM() []byte { return encodeCert(ca.cert) }

// KeyPair returns the authority's certificate and private key.
func (ca *CA) KeyPair() (KeyPair, error) {
	key, err := keyutil.MarshalPrivateKeyToPEM(ca.key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("encoding key of CA %s: %w", ca.cert.Subject.CommonName, err)
	}
	return KeyPair{Cert: ca.CertPEM(), Key: key}, nil
}

// Server issues a serving certificate for hosts, which are DNS names and IP addresses.
func (ca *CA) Server(commonName string, hosts ...string) (KeyPair, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: commonName},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	return ca.issue(template)
}

// Client issues a client certificate. The API server takes the common name as user and the organizations as groups.
func (ca *CA) Client(user string, groups ...string) (KeyPair, error) {
	return ca.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (ca *CA) issue(template *x509.Certificate) (KeyPair, error) {
	name := template.Subject.CommonName
	key, err := newKey()
	if err != nil {
		return KeyPair{}, fmt.Errorf("generating key of %s: %w", name, err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(math.MaxInt64-1))
	if err != nil {
		return KeyPair{}, fmt.Errorf("generating serial number of %s: %w", name, err)
	}
	template.SerialNumber = serial.Add(serial, big.NewInt(1))
	template.KeyUsage = x509.KeyUsageDigitalSignature
	// Machines that run several environments may disagree a little about the time.
	template.NotBefore = time.Now().Add(-5 * time.Minute)
	template.NotAfter = ca.cert.NotAfter
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("signing certificate of %s: %w", name, err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return KeyPair{}, fmt.Errorf("parsing certificate of %s: %w", name, err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("encoding key of %s: %w", name, err)
	}
	return KeyPair{Cert: encodeCert(c), Key: keyPEM}, nil
}

// Write stores the pair as <dir>/<name>.crt and <dir>/<name>.key and returns the two paths.
func (k KeyPair) Write(dir, name string) (certPath, keyPath string, err error) {
	certPath, keyPath = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", fmt.Errorf("writing key pair %s: %w", name, err)
	}
	if err := os.WriteFile(certPath, k.Cert, 0o600); err != nil {
		return "", "", fmt.Errorf("writing certificate %s: %w", name, err)
	}
	if err := os.WriteFile(keyPath, k.Key, 0o600); err != nil {
		return "", "", fmt.Errorf("writing key %s: %w", name, err)
	}
	return certPath, keyPath, nil
}

// Kubeconfig returns a self-contained kubeconfig for the API server at url that has a certificate of this authority.
func (ca *CA) Kubeconfig(cluster, url, user string, pair KeyPair) ([]byte, error) {
	context := user + "@" + cluster
	out, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{cluster: {Server: url, CertificateAuthorityData: ca.CertPEM()}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {ClientCertificateData: pair.Cert, ClientKeyData: pair.Key}},
		Contexts:       map[string]*clientcmdapi.Context{context: {Cluster: cluster, AuthInfo: user}},
		CurrentContext: context,
	})
	if err != nil {
		return nil, fmt.Errorf("encoding kubeconfig of %s: %w", context, err)
	}
	return out, nil
}

// newKey makes an ECDSA key: an RSA key takes longer to make than an API server to answer.
func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func encodeCert(c *x509.Certificate) []byte {
	b, err := cert.EncodeCertificates(c)
	if err != nil {
		panic(err) // encoding to memory cannot fail
	}
	return b
}
