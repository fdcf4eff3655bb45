package artifact_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/artifact"
	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

func TestTheClientTrustsPrivateCAsAndNobodyElse(t *testing.T) {
	certificate, ca := selfSigned(t, "files.example.com")
	content := random(100)
	for name, tc := range map[string]struct {
		cas     []string
		trusted bool
	}{"with its CA": {[]string{ca}, true}, "without": {nil, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				m := sim.New(sim.Options{})
				m.PowerOn(t.Context())
				defer m.PowerOff()
				w := newWire()
				server := &http.Server{Handler: file(content), TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}}, ErrorLog: nil} //nolint:gosec // of a test
				go func() { _ = server.ServeTLS(w, "", "") }()
				defer func() { _ = server.Close() }()
				client, err := artifact.NewClient(w, nodev1.ProxyInfo{}, tc.cas)
				g.Expect(err).NotTo(HaveOccurred())
				defer client.CloseIdleConnections()
				d := &artifact.Downloader{Client: client, Files: m.Host().Files, MaxBytes: 1 << 20, Stall: time.Minute}
				err = d.Get(t.Context(), "https://files.example.com/x", path, sum(content))
				if tc.trusted {
					g.Expect(err).NotTo(HaveOccurred())
				} else {
					g.Expect(code(err)).To(Equal(codes.ArtifactUnreachable))
					g.Expect(err).To(MatchError(ContainSubstring("unknown authority")))
				}
			})
		})
	}
	_, err := artifact.NewClient(newWire(), nodev1.ProxyInfo{}, []string{"none"})
	NewWithT(t).Expect(err).To(HaveOccurred())
}

func TestTheClientAsksTheProxyExceptWhereTheDocumentSaysNot(t *testing.T) {
	proxy := nodev1.ProxyInfo{HTTP: "http://proxy.example.com:3128", HTTPS: "http://secure.example.com:3129", NoProxy: []string{".svc", "10.0.0.0/8", "direct.example.com"}}
	for url, want := range map[string]string{
		"http://files.example.com/x":  "proxy.example.com:3128",
		"https://files.example.com/x": "secure.example.com:3129",
		"http://direct.example.com/x": "direct.example.com:80",
		"http://10.1.2.3:8080/x":      "10.1.2.3:8080",
		"http://a.b.svc/x":            "a.b.svc:80",
	} {
		t.Run(url, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				w := newWire()
				_ = w.Close()
				client, err := artifact.NewClient(w, proxy, nil)
				g.Expect(err).NotTo(HaveOccurred())
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
				g.Expect(err).NotTo(HaveOccurred())
				_, err = client.Do(request) //nolint:bodyclose // there is none
				g.Expect(err).To(HaveOccurred())
				g.Expect(w.dialed).To(Equal([]string{want}))
			})
		})
	}
}

func TestRedactLeavesNoSecretInAURL(t *testing.T) {
	for raw, want := range map[string]string{
		url:                       "http://files.example.com/kubelet.exe",
		"https://x/a?":            "https://x/a",
		"https://x:8443/a%20b":    "https://x:8443/a%20b",
		"https://u@x/":            "https://x/",
		"http://[::1/?p=hunter2":  "<unreadable URL>",
		"https://x/\x7f?hunter2":  "<unreadable URL>",
		"https://user:pa ss@x/ y": "<unreadable URL>",
	} {
		if got := artifact.Redact(raw); got != want {
			t.Errorf("%s: %s", raw, got)
		}
	}
}

func selfSigned(t *testing.T, name string) (certificate tls.Certificate, ca string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Unix(0, 0), NotAfter: time.Now().AddDate(10, 0, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
