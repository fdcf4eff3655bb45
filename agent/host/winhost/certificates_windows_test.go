//go:build windows

package winhost

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"math/big"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

func TestARootCertificateIsAddedOnceAndRemovedByItsFingerprint(t *testing.T) {
	g := NewWithT(t)
	der := selfSigned(t)
	sum := sha256.Sum256(der)
	fingerprint := hex.EncodeToString(sum[:])
	c := newCertificates()
	t.Cleanup(func() { _ = c.RemoveRoot(context.Background(), fingerprint) })

	before, err := c.Roots(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(before).NotTo(ContainElement(fingerprint))
	g.Expect(c.AddRoot(t.Context(), der)).To(Succeed())
	g.Expect(c.AddRoot(t.Context(), der)).To(Succeed())
	after, err := c.Roots(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(after).To(ConsistOf(append(before, fingerprint)))

	// Windows trusts it from now on.
	parsed, err := x509.ParseCertificate(der)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = parsed.Verify(x509.VerifyOptions{})
	g.Expect(err).NotTo(HaveOccurred())

	g.Expect(c.RemoveRoot(t.Context(), strings.ToUpper(fingerprint))).To(Succeed())
	g.Expect(c.RemoveRoot(t.Context(), fingerprint)).To(Succeed())
	g.Expect(c.Roots(t.Context())).To(ConsistOf(before))
}

func TestWhatIsNoCertificateIsRefused(t *testing.T) {
	for _, der := range [][]byte{nil, []byte("-----BEGIN CERTIFICATE-----"), {0x30, 0x03, 0x01}} {
		NewWithT(t).Expect(newCertificates().AddRoot(t.Context(), der)).To(MatchError(host.ErrInvalid))
	}
}

func selfSigned(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: unique("winhost")},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}
