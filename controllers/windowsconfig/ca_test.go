package windowsconfig_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/bootstrap"
)

// manyCAs returns a PEM bundle of n different CAs.
func manyCAs(n int) []byte {
	GinkgoHelper()
	var bundle bytes.Buffer
	for i := range n {
		public, private, err := ed25519.GenerateKey(rand.Reader)
		Expect(err).NotTo(HaveOccurred())
		template := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i)), Subject: pkix.Name{CommonName: "ca"},
			NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour),
			IsCA: true, BasicConstraintsValid: true,
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
		Expect(err).NotTo(HaveOccurred())
		Expect(pem.Encode(&bundle, &pem.Block{Type: "CERTIFICATE", Bytes: der})).To(Succeed())
	}
	return bundle.Bytes()
}

func hashesOf(bundle []byte) []string {
	GinkgoHelper()
	hashes, err := bootstrap.CACertHashes(bundle)
	Expect(err).NotTo(HaveOccurred())
	return hashes
}
