package bootstrap

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The pins were computed by openssl, as kubeadm's documentation says:
// openssl x509 -pubkey -noout -in ca.pem | openssl pkey -pubin -outform der | sha256sum.
const (
	caPin        = "sha256:c86f36267a890b6cf42661052945c3e94ce850c22a72f55d3d148e0e852b7bec"
	rotatedCAPin = "sha256:f600a0a6007542cff7f82d114ff4733b51f31f4996303729cc7e857689c6a0fc"
)

func TestCACertHashes(t *testing.T) {
	ca, rotated, leaf := readPEM(t, "ca.pem"), readPEM(t, "ca-rotated.pem"), readPEM(t, "leaf.pem")
	key := []byte("-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n")
	broken := []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")

	for _, tc := range []struct {
		name   string
		bundle [][]byte
		want   []string
		err    string
	}{
		{"pins a CA as openssl and kubeadm do", [][]byte{ca}, []string{caPin}, ""},
		{"pins every CA of a bundle, sorted", [][]byte{rotated, ca}, []string{caPin, rotatedCAPin}, ""},
		{"pins a repeated CA once", [][]byte{ca, ca}, []string{caPin}, ""},
		{"passes over keys, comments and certificates that are no CA", [][]byte{[]byte("# the CA\n"), key, leaf, ca, []byte("\n# end\n")}, []string{caPin}, ""},
		{"accepts Windows line ends", [][]byte{bytes.ReplaceAll(ca, []byte("\n"), []byte("\r\n"))}, []string{caPin}, ""},
		{"refuses a bundle without a CA", [][]byte{leaf}, nil, "no CA certificate"},
		{"refuses what is no PEM", [][]byte{[]byte("hello")}, nil, "not a PEM bundle"},
		{"refuses nothing", nil, nil, "no CA certificate"},
		{"refuses a bundle with a damaged certificate and says which", [][]byte{ca, broken}, nil, "parsing PEM block 2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := CACertHashes(bytes.Join(tc.bundle, nil))
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			switch {
			case tc.err == "" && err != nil:
				t.Errorf("unexpected error: %v", err)
			case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
				t.Errorf("got error %v, want one with %q", err, tc.err)
			}
		})
	}
}

func readPEM(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}
