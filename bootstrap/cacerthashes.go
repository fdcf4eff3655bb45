package bootstrap

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
)

// CACertHashes returns a pin for each CA certificate of a PEM bundle, sorted and without repetition: "sha256:" and the
// lower-case hex of the SHA-256 of the certificate's Subject Public Key Info, as kubeadm's --discovery-token-ca-cert-hash
// wants it (k8s.io/kubernetes/cmd/kubeadm/app/util/pubkeypin). A bundle with several CAs, as during a CA rotation, pins
// each of them; a node accepts any.
func CACertHashes(bundle []byte) ([]string, error) {
	var hashes []string
	for n := 1; ; n++ {
		block, rest := pem.Decode(bundle)
		if block == nil {
			if len(bytes.TrimSpace(rest)) > 0 && len(hashes) == 0 {
				return nil, errors.New("not a PEM bundle")
			}
			break
		}
		bundle = rest
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parsing PEM block %d: %w", n, err)
		}
		// An intermediate or serving certificate in the bundle is no anchor of trust.
		if cert.BasicConstraintsValid && !cert.IsCA {
			continue
		}
		sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
		hashes = append(hashes, "sha256:"+hex.EncodeToString(sum[:]))
	}
	if len(hashes) == 0 {
		return nil, errors.New("no CA certificate in the PEM bundle")
	}
	slices.Sort(hashes)
	return slices.Compact(hashes), nil
}
