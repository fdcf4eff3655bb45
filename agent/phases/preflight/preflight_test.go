package preflight_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/phasetest"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/preflight"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

func TestAUsualMachinePassesAndItsFactsAreKnown(t *testing.T) {
	phasetest.Test(t, sim.Options{}, phasetest.Document(nil), preflight.Phase(), func(_ *sim.Machine, r phasetest.Result, err error) {
		g := NewWithT(t)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(r.Facts.WindowsBuild).To(Equal("10.0.20348"))
		g.Expect(r.Facts.ProviderID).To(Equal("vsphere://421d3c5a-1122-3344-5566-778899aabbcc"))
		g.Expect(r.Facts.RebootReasons).To(BeEmpty())
	})
}

func TestNoProviderIDIsLookedForWhenACloudControllerSetsIt(t *testing.T) {
	o := sim.Options{Info: host.Info{Manufacturer: "Amazon EC2", Product: "m5.large"}}
	doc := phasetest.Document(func(doc *nodev1.NodeConfiguration) { doc.Node.ProviderID = "None" })
	phasetest.Test(t, o, doc, preflight.Phase(), func(_ *sim.Machine, r phasetest.Result, err error) {
		g := NewWithT(t)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(r.Facts.ProviderID).To(BeEmpty())
	})
}

func TestAMachineThatCannotBecomeTheNodeIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		info    host.Info
		change  func(doc *nodev1.NodeConfiguration)
		disk    uint64
		code    codes.Code
		message string
	}{
		"Windows Server 2016": {info: host.Info{Build: "10.0.14393"}, code: codes.WindowsUnsupported, message: "10.0.14393"},
		"an unreadable build": {info: host.Info{Build: "garbage"}, code: codes.WindowsUnsupported, message: "garbage"},
		"a client edition":    {info: host.Info{InstallationType: "Client", ProductName: "Windows 11 Pro"}, code: codes.WindowsUnsupported, message: "Windows 11 Pro"},
		"a 32-bit machine":    {info: host.Info{Arch: "386"}, code: codes.ArchitectureUnsupported, message: "386"},
		"another architecture": {info: host.Info{Arch: "arm64"}, change: func(doc *nodev1.NodeConfiguration) {
			doc.Node.Labels = map[string]string{"kubernetes.io/arch": "amd64"}
		}, code: codes.ArchitectureUnsupported, message: "arm64"},
		"another build":          {change: func(doc *nodev1.NodeConfiguration) { doc.OS.Build = "10.0.26100" }, code: codes.WindowsBuildDiffers, message: "10.0.20348"},
		"one processor":          {info: host.Info{CPUs: 1}, code: codes.MachineTooSmall, message: "1 processors"},
		"one GiB of memory":      {info: host.Info{MemoryBytes: 1 << 30}, code: codes.MachineTooSmall, message: "1.0 GiB"},
		"a disk that is full":    {disk: 3 << 30, code: codes.DiskSpaceLow, message: "3.0 GiB"},
		"another hypervisor":     {info: host.Info{Manufacturer: "QEMU"}, code: codes.ProviderIDUnknown, message: "QEMU"},
		"a UUID in no order":     {info: host.Info{Serial: "none", UUID: [16]byte{1}}, code: codes.ProviderIDUnknown, message: "none"},
		"a damaged kubelet.conf": {code: codes.MemberAlready, message: "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			o := sim.Options{Info: tc.info, DiskBytes: tc.disk}
			if name == "a damaged kubelet.conf" {
				o.Files = map[string]string{layout.Kubeconfig: "\x00"}
			}
			phasetest.Test(t, o, phasetest.Document(tc.change), preflight.Phase(), func(_ *sim.Machine, _ phasetest.Result, err error) {
				g := NewWithT(t)
				g.Expect(phasetest.Code(err)).To(Equal(tc.code), "%v", err)
				g.Expect(err).To(MatchError(ContainSubstring(tc.message)))
			})
		})
	}
}

func TestSpaceThatComesLaterIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		const big = `C:\hiberfil.sys`
		m := sim.New(sim.Options{DiskBytes: 4<<30 + 1<<20, Files: map[string]string{big: strings.Repeat("x", 1<<20)}})
		defer m.PowerOff()
		time.AfterFunc(5*time.Minute, func() { g.Expect(m.RemoveFile(big)).To(Succeed()) })
		r, err := phasetest.Run(t.Context(), m, phasetest.Document(nil), preflight.Phase())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(r.Statuses).To(ContainElement(And(HaveField("State", nodev1.BootWaiting), HaveField("Code", string(codes.DiskSpaceLow)))))
	})
}

func TestOldWindowsIsOnlyWarnedAboutWhereKubernetesNoLongerDocumentsIt(t *testing.T) {
	for _, tc := range []struct {
		build, kubernetes string
		want              bool
	}{
		{"10.0.17763", "v1.35.9", false}, {"10.0.17763", "v1.36.0", true}, {"10.0.17763", "v1.36.0-rc.0", true},
		{"10.0.20348", "v1.36.0", false}, {"10.0.26100", "v1.40.1", false},
	} {
		NewWithT(t).Expect(preflight.Undocumented(tc.build, tc.kubernetes)).To(Equal(tc.want), "%s with %s", tc.build, tc.kubernetes)
	}
	o := sim.Options{Info: host.Info{Build: "10.0.17763"}}
	phasetest.Test(t, o, phasetest.Document(nil), preflight.Phase(), func(_ *sim.Machine, _ phasetest.Result, err error) {
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
	})
}

// authority makes certificates.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.key, a.cert = certify(t, nil, "kubernetes")
	return a
}

func certify(t *testing.T, by *authority, name string) (*ecdsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	g := NewWithT(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: by == nil, BasicConstraintsValid: true}
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	g.Expect(err).NotTo(HaveOccurred())
	cert, err := x509.ParseCertificate(der)
	g.Expect(err).NotTo(HaveOccurred())
	return key, cert
}

func encode(c *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
}

func (a *authority) hash() string {
	sum := sha256.Sum256(a.cert.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// kubeconfig as kubeadm writes it: with the CA in it, and the certificate in a file whose path has no drive.
func (a *authority) kubeconfig() string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: default
clusters: [{name: c, cluster: {server: "https://old.example.test:6443", certificate-authority-data: %s}}]
users: [{name: u, user: {client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem}}]
contexts: [{name: default, context: {cluster: c, user: u}}]
`, base64.StdEncoding.EncodeToString([]byte(encode(a.cert))))
}

func TestAFormerNodeIsTakenOnlyIfItIsThisOne(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	const leftover = `C:\var\lib\cni\networks\cbr0\10.244.1.2`
	for name, tc := range map[string]struct {
		ca    *authority // nil: no kubelet.conf
		user  string     // empty: no certificate
		code  codes.Code
		clean bool
	}{
		"a new machine, with leftovers of pods": {clean: true},
		"this node":                             {ca: ours, user: "system:node:prod-ki54itvck1"},
		"another node of this cluster":          {ca: ours, user: "system:node:golden", code: codes.MemberAlready},
		"a node of another cluster":             {ca: theirs, user: "system:node:prod-ki54itvck1", code: codes.MemberAlready},
		"a node without identity":               {ca: ours, code: codes.MemberAlready},
	} {
		t.Run(name, func(t *testing.T) {
			o := sim.Options{Files: map[string]string{leftover: ""}, Services: []host.Service{{Name: "kubelet", Argv: []string{layout.Kubelet}, Start: host.StartManual}}}
			if tc.ca != nil {
				o.Files[layout.Kubeconfig] = tc.ca.kubeconfig()
			}
			if tc.user != "" {
				_, cert := certify(t, ours, tc.user)
				o.Files[layout.KubeletClientCert] = encode(cert) + "-----BEGIN EC PRIVATE KEY-----\nMAA=\n-----END EC PRIVATE KEY-----\n"
			}
			doc := phasetest.Document(func(doc *nodev1.NodeConfiguration) { doc.Join.CACertHashes = []string{ours.hash()} })
			phasetest.Test(t, o, doc, preflight.Phase(), func(m *sim.Machine, _ phasetest.Result, err error) {
				g := NewWithT(t)
				g.Expect(phasetest.Code(err)).To(Equal(tc.code), "%v", err)
				if tc.code == "" {
					g.Expect(err).NotTo(HaveOccurred())
				}
				g.Expect(m.Files()).To(Satisfy(func(files []string) bool { return tc.clean != contains(files, leftover) }))
			})
		})
	}
}

func contains(files []string, path string) bool {
	for _, f := range files {
		if strings.EqualFold(f, path) {
			return true
		}
	}
	return false
}

func TestPreflightEndsTheSameWhateverFails(t *testing.T) {
	ca := newAuthority(t)
	_, cert := certify(t, ca, "system:node:prod-ki54itvck1")
	doc := phasetest.Document(func(doc *nodev1.NodeConfiguration) { doc.Join.CACertHashes = []string{ca.hash()} })
	t.Run("on a new machine", func(t *testing.T) {
		phasetest.LoopAll(t, sim.Options{Files: map[string]string{`C:\var\lib\cni\x`: ""}}, doc, preflight.Phase(), nil)
	})
	t.Run("on the node itself", func(t *testing.T) {
		files := map[string]string{layout.Kubeconfig: ca.kubeconfig(), layout.KubeletClientCert: encode(cert)}
		phasetest.LoopAll(t, sim.Options{Files: files}, doc, preflight.Phase(), nil)
	})
}
