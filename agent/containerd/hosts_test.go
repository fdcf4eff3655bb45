package containerd

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

func TestHostsFolderIsWhereContainerdLooksOnWindows(t *testing.T) {
	for host, want := range map[string]string{
		"registry.example.com":      "registry.example.com",
		"registry.example.com:5000": "registry.example.com_5000_",
		"10.0.0.1:443":              "10.0.0.1_443_",
		"docker.io":                 "docker.io",
		"_default":                  "_default",
	} {
		g := NewWithT(t)
		folder, files, err := Hosts(nodev1.Registry{Host: host, Mirrors: []nodev1.RegistryMirror{{URL: "https://m.example.com"}}})
		g.Expect(err).NotTo(HaveOccurred(), host)
		g.Expect(folder).To(Equal(want))
		g.Expect(files).To(HaveLen(1))
	}
}

// What containerd makes of these, test/conformance lets containerd itself say.
func TestMirrorURLSaysWhereTheAPIIs(t *testing.T) {
	for url, want := range map[string]string{
		"https://m.example.com":                "https://m.example.com",
		"https://m.example.com/":               "https://m.example.com",
		"https://m.example.com/v2":             "https://m.example.com",
		"https://m.example.com/v2/":            "https://m.example.com",
		"https://m.example.com/org":            "https://m.example.com/v2/org override",
		"https://m.example.com/org/sub/":       "https://m.example.com/v2/org/sub override",
		"https://m.example.com/v2/proxy":       "https://m.example.com/v2/proxy override",
		"https://m.example.com/a/../org//sub":  "https://m.example.com/v2/org/sub override",
		"http://10.0.0.1:5000/org":             "http://10.0.0.1:5000/v2/org override",
		"=https://m.example.com/artifactory/x": "https://m.example.com/artifactory/x override",
		"=https://m.example.com":               "https://m.example.com override",
	} {
		location, override, err := mirrorURL(nodev1.RegistryMirror{URL: strings.TrimPrefix(url, "="), OverridePath: url[0] == '='})
		if override {
			location += " override"
		}
		if err != nil || location != want {
			t.Errorf("%s: %q, %v; want %q", url, location, err, want)
		}
	}
}

func TestCertificatesStandBesideHosts(t *testing.T) {
	g := NewWithT(t)
	ca := certificate(t)
	_, files, err := Hosts(nodev1.Registry{
		Host: "r.example.com", CA: ca,
		Mirrors: []nodev1.RegistryMirror{{URL: "https://a.example.com"}, {URL: "https://b.example.com", CA: ca + ca}},
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(files).To(HaveLen(3))
	g.Expect(files).To(HaveKeyWithValue("server.crt", []byte(ca)))
	g.Expect(files).To(HaveKeyWithValue("mirror-1.crt", []byte(ca+ca)))
}

func TestHostsNamesTheFieldThatIsWrongAndNoSecret(t *testing.T) {
	for field, r := range map[string]nodev1.Registry{
		"host: ":           {Host: `..\..\Windows`},
		"host: \"a/b":      {Host: "a/b"},
		"host: \"\"":       {},
		"server: ":         {Host: "r", Server: "r.example.com"},
		"ca: ":             {Host: "r", CA: "none"},
		"ca: certificate ": {Host: "r", CA: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"},
		"username: ":       {Host: "r", Username: "a:b", Password: "hunter2"},
		"username: _defau": {Host: "_default", Username: "a", Password: "hunter2"},
		"mirrors[0].url: must be http": {Host: "r", Mirrors: []nodev1.RegistryMirror{
			{URL: "ftp://m"}}},
		"mirrors[0].url: must hold no": {Host: "r", Mirrors: []nodev1.RegistryMirror{
			{URL: "https://me:hunter2@m.example.com"}}},
		"mirrors[0].url: must be http:// ": {Host: "r", Mirrors: []nodev1.RegistryMirror{
			{URL: "https://m.example.com?token=hunter2"}}},
		"mirrors[1].url: https://m.example.com is listed twice": {Host: "r", Mirrors: []nodev1.RegistryMirror{
			{URL: "https://m.example.com"}, {URL: "https://m.example.com/v2/"}}},
		"mirrors[0].ca: ": {Host: "r", Mirrors: []nodev1.RegistryMirror{
			{URL: "https://m.example.com", CA: "x"}}},
	} {
		_, _, err := Hosts(r)
		if err == nil || !strings.HasPrefix(err.Error(), field) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func certificate(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)}, &x509.Certificate{SerialNumber: big.NewInt(1)}, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
