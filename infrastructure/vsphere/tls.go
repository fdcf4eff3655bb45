package vsphere

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/soap"
)

// maxIdleConnections to one vCenter, so that concurrent reconciles do not each shake hands.
const maxIdleConnections = 32

// thumbprintError says that the vCenter has another certificate than the one that is trusted.
type thumbprintError struct{ got, want string }

// Error implements error.
func (e *thumbprintError) Error() string {
	return fmt.Sprintf("the certificate has the SHA-256 thumbprint %s, and spec.vsphere.thumbprint is %s", e.got, e.want)
}

// newSOAPClient returns a client that always verifies the vCenter: by its thumbprint if there is one, else by the CAs that
// the system and the bundle know.
func newSOAPClient(server, thumbprint string, caBundle []byte) (*soap.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if thumbprint != "" {
		// The thumbprint names exactly one certificate, and VerifyConnection refuses every other: no CA is needed.
		config.InsecureSkipVerify = true
		config.VerifyConnection = func(state tls.ConnectionState) error {
			if got := thumbprintOf(state.PeerCertificates[0]); !strings.EqualFold(got, thumbprint) {
				return &thumbprintError{got: got, want: thumbprint}
			}
			return nil
		}
	} else if len(caBundle) > 0 {
		pool, err := x509.SystemCertPool()
		if err != nil {
			return nil, fmt.Errorf("reading the system's CAs: %w", err)
		}
		pool.AppendCertsFromPEM(caBundle)
		config.RootCAs = pool
	}
	client := soap.NewClient(&url.URL{Scheme: "https", Host: server, Path: vim25.Path}, false)
	client.Namespace, client.Version = "urn:"+vim25.Namespace, vim25.Version
	transport := client.DefaultTransport()
	transport.TLSClientConfig = config
	transport.DialTLSContext = nil // govmomi's own ignores the context and trusts a CA when the thumbprint differs
	transport.MaxIdleConnsPerHost = maxIdleConnections
	return client, nil
}

// thumbprintOf returns the SHA-256 thumbprint as spec.vsphere.thumbprint has it.
func thumbprintOf(certificate *x509.Certificate) string {
	sum := sha256.Sum256(certificate.Raw)
	pairs := make([]string, len(sum))
	for i := range sum {
		pairs[i] = strings.ToUpper(hex.EncodeToString(sum[i : i+1]))
	}
	return strings.Join(pairs, ":")
}

// tlsRemedy says what to do about a certificate that is not trusted; empty for other errors.
func tlsRemedy(err error, secret string) string {
	var mismatch *thumbprintError
	if errors.As(err, &mismatch) {
		return "if the certificate was replaced on purpose, set the new thumbprint in this WindowsMachine, and in a new WindowsMachineTemplate for later ones; if not, somebody may stand between the manager and the vCenter"
	}
	var untrusted *tls.CertificateVerificationError
	if !errors.As(err, &untrusted) {
		return ""
	}
	if len(untrusted.UnverifiedCertificates) == 0 {
		return fmt.Sprintf("put the CA's certificate under the key %s of %s", caBundleKey, secret)
	}
	return fmt.Sprintf("put the CA's certificate under the key %s of %s, or, when you have checked that it is the vCenter's, set spec.vsphere.thumbprint to %s",
		caBundleKey, secret, thumbprintOf(untrusted.UnverifiedCertificates[0]))
}
