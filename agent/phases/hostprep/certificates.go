package hostprep

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
)

// trustCAs adds the document's CAs to the machine's trusted roots. Those that are there already belong to somebody else: reset
// leaves them.
func trustCAs(ctx context.Context, r *engine.Run) error {
	roots, err := r.Host.Certificates.Roots(ctx)
	if err != nil {
		return codes.New(codes.CANotTrusted, "reading the trusted roots: %w", err)
	}
	for i, text := range r.Doc.OS.TrustedCAs {
		certs, err := parseCAs(text)
		if err != nil {
			return codes.New(codes.CARefused, "os.trustedCAs[%d]: %w", i, err)
		}
		for _, cert := range certs {
			sum := sha256.Sum256(cert.Raw)
			fingerprint := hex.EncodeToString(sum[:])
			if slices.Contains(roots, fingerprint) {
				continue
			}
			if err := r.Trace(ctx, engine.Trace{Kind: engine.TraceCertificate, Name: fingerprint}); err != nil {
				return fmt.Errorf("remembering the certificate of %s: %w", cert.Subject, err)
			}
			if err := r.Host.Certificates.AddRoot(ctx, cert.Raw); err != nil {
				return refused(err, codes.CARefused, codes.CANotTrusted, "trusting the certificate of %s (SHA-256 %s)", cert.Subject, fingerprint)
			}
			roots = append(roots, fingerprint)
		}
	}
	return nil
}

// parseCAs reads one or more certificates in PEM.
func parseCAs(text string) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for rest := []byte(text); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			if len(out) == 0 || strings.TrimSpace(string(rest)) != "" {
				return nil, errors.New("not certificates in PEM")
			}
			return out, nil
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(out), err)
		}
		out = append(out, cert)
	}
}
