package hostprep_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/hostprep"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/phasetest"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

const (
	hnsState    = `HKLM\SYSTEM\CurrentControlSet\Services\hns\State`
	memory      = `HKLM\SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management`
	w32time     = `HKLM\SYSTEM\CurrentControlSet\Services\W32Time`
	foreignKey  = "ssh-ed25519 AAAAforeign image@builder"
	adminKey    = "ssh-ed25519 AAAAadmin admin@example"
	operatorKey = "ssh-ed25519 AAAAoperator operator@example"
	adminKeys   = `C:\ProgramData\ssh\administrators_authorized_keys`
	newName     = "prod-ki54itvck1"
	oldName     = "WIN-SIM"
)

// image is what image-builder makes: named by cloudbase-init, with features and settings.
func image() sim.Options {
	return sim.Options{
		ComputerName: strings.ToUpper(newName),
		Registry: []sim.RegistryValue{
			{Key: hnsState, Name: "EnableCompartmentNamespace", Value: host.DWordValue(1)},
			{Key: `HKLM\SYSTEM\CurrentControlSet\Policies\Microsoft\FeatureManagement\Overrides`, Name: "1114842764", Value: host.DWordValue(0)},
			{Key: memory, Name: "PagingFiles", Value: host.Value{Type: host.MultiString, Texts: []string{`?:\pagefile.sys`, `D:\pagefile.sys 100 200`}}},
		},
		Services: []host.Service{
			{Name: "W32Time", Argv: []string{`C:\Windows\System32\svchost.exe`}, Start: host.StartManual},
			{Name: "WinDefend", Argv: []string{`C:\Windows\System32\svchost.exe`}, Start: host.StartManual},
		},
		Programs: map[string]sim.Program{`C:\Windows\System32\svchost.exe`: func(ctx context.Context, p *sim.Process) int {
			p.Running()
			<-ctx.Done()
			return 0
		}},
	}
}

// plain is a Windows as it is installed.
func plain() sim.Options {
	o := image()
	o.ComputerName, o.Registry = oldName, o.Registry[2:]
	o.Features = map[string]sim.Feature{"Containers": {Reboot: true}, "Microsoft-Hyper-V": {Reboot: true}}
	o.Files = map[string]string{adminKeys: foreignKey}
	return o
}

func certificate(t *testing.T) (text, fingerprint string) {
	t.Helper()
	g := NewWithT(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{SerialNumber: big.NewInt(7)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	g.Expect(err).NotTo(HaveOccurred())
	sum := sha256.Sum256(der)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), hex.EncodeToString(sum[:])
}

// everything is a document that uses all that the phase does.
func everything(ca string) *nodev1.NodeConfiguration {
	return phasetest.Document(func(doc *nodev1.NodeConfiguration) {
		doc.Kubelet.Config = &runtime.RawExtension{Raw: []byte(`{"port":10260}`)}
		doc.Services.CNI = &nodev1.CNI{Type: nodev1.CNIFlannelOverlay, PodCIDR: "10.244.0.0/16", ServiceCIDR: "10.96.0.0/12"}
		doc.Services.WindowsExporter = &nodev1.WindowsExporter{}
		doc.OS = nodev1.OSInfo{
			Features: []string{"Containers", "Microsoft-Hyper-V"}, TimeZone: "W. Europe Standard Time",
			NTPServers: []string{"ntp1.example.test", "10.0.0.3"},
			Users: []nodev1.User{
				{Name: "ops", FullName: "Operations", Password: "Correct-Horse-7", Groups: []string{host.AdministratorsSID}, SSHAuthorizedKeys: []string{adminKey, foreignKey}},
				{Name: "viewer", Password: "Battery-Staple-8", Groups: []string{"Users"}, SSHAuthorizedKeys: []string{operatorKey}},
			},
			Proxy:       nodev1.ProxyInfo{HTTP: "http://proxy.example.test:3128", HTTPS: "http://proxy.example.test:3128", NoProxy: []string{".example.test"}},
			TrustedCAs:  []string{ca},
			Environment: map[string]string{"POOL": "win"},
			Registry:    []nodev1.RegistryValue{{Key: `HKLM\SOFTWARE\Example`, Name: "N", Type: "DWord", Value: "7"}, {Key: memory, Name: "PoolUsageMaximum", Type: "Binary", Value: "00ff"}},
			Firewall:    []nodev1.FirewallRule{{Name: "node ports", Protocol: "TCP", Ports: []string{"30000-32767"}, RemoteAddresses: []string{"10.0.0.0/8"}}},
			PageFile:    nodev1.PageFile{InitialMiB: 1024, MaximumMiB: 4096},
			DomainJoin:  &nodev1.DomainJoin{OfflineBlob: base64.StdEncoding.EncodeToString([]byte("corp.example.test"))},
			CCGPlugins:  []nodev1.CCGPlugin{{CLSID: "{CCC2A336-D7F3-4818-A213-272B7924213E}", Path: `C:\Windows\System32\plugin.dll`}},
		}
	})
}

func TestAMachineOfAGoodImageNeedsNoReboot(t *testing.T) {
	phasetest.Test(t, image(), phasetest.Document(nil), hostprep.Phase(), func(m *sim.Machine, r phasetest.Result, err error) {
		g := NewWithT(t)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(m.Boots()).To(Equal(1))
		s := m.Snapshot()
		g.Expect(s).To(HaveKeyWithValue("system dynamic ports", "34000+31536"))
		g.Expect(s).To(HaveKeyWithValue("system computer name", strings.ToUpper(newName)), "its case is as it was")
		g.Expect(m.FirewallRules()).To(HaveKey("CAPW kubelet"))
		g.Expect(m.FirewallRules()["CAPW kubelet"]).To(Equal(host.FirewallRule{Name: "CAPW kubelet", Protocol: "TCP", Ports: []string{"10250"}, Program: layout.Kubelet}))
		for path, acl := range map[string]host.ACL{layout.LogDir: host.ACLSystem, layout.BinDir: host.ACLUsersRead, layout.KubernetesDir: host.ACLSystem, layout.ContainerdRoot: host.ACLSystem} {
			have, err := m.EffectiveACL(path)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(have).To(Equal(acl), path)
		}
		g.Expect(r.Facts.RebootsFor).To(BeEmpty())
	})
}

func TestAPlainMachineIsAllThatTheDocumentSaysAfterTwoReboots(t *testing.T) {
	ca, fingerprint := certificate(t)
	doc := everything(ca)
	phasetest.Test(t, plain(), doc, hostprep.Phase(), func(m *sim.Machine, r phasetest.Result, err error) {
		g := NewWithT(t)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(m.Boots()).To(Equal(3), "one for the name and all else, one for the domain, which knows the machine by its name")
		s := m.Snapshot()
		for key, want := range map[string]string{
			"system computer name": newName, "system time zone": "W. Europe Standard Time", "system domain": "corp.example.test",
			"system dynamic ports": "34000+31536", "serviceState W32Time": "Running", "root " + fingerprint: "",
			"environment POOL": "win", "environment HTTP_PROXY": "http://proxy.example.test:3128", "environment HTTPS_PROXY": "http://proxy.example.test:3128",
			"environment NO_PROXY":                      ".example.test,prod.example.test,localhost,127.0.0.1,::1,.svc,.cluster.local,169.254.169.254,10.244.0.0/16,10.96.0.0/12",
			"file " + adminKeys:                         "System\n" + foreignKey + "\n" + adminKey + "\n",
			`file C:\Users\viewer\.ssh\authorized_keys`: "\n" + operatorKey + "\n",
		} {
			g.Expect(s).To(HaveKeyWithValue(key, want))
		}
		for _, v := range []sim.RegistryValue{
			{Key: w32time + `\Parameters`, Name: "NtpServer", Value: host.StringValue("ntp1.example.test,0x8 10.0.0.3,0x8")},
			{Key: w32time, Name: "Start", Value: host.DWordValue(2)},
			{Key: hnsState, Name: "EnableCompartmentNamespace", Value: host.DWordValue(1)},
			{Key: memory, Name: "PagingFiles", Value: host.Value{Type: host.MultiString, Texts: []string{`C:\pagefile.sys 1024 4096`, `D:\pagefile.sys 100 200`}}},
			{Key: memory, Name: "PoolUsageMaximum", Value: host.Value{Type: host.Binary, Bytes: []byte{0, 0xff}}},
			{Key: `HKLM\SOFTWARE\Example`, Name: "N", Value: host.DWordValue(7)},
			{Key: `HKLM\SYSTEM\CurrentControlSet\Control\CCG\COMClasses\{CCC2A336-D7F3-4818-A213-272B7924213E}`, Value: host.StringValue("")},
			{Key: `HKLM\SOFTWARE\Classes\CLSID\{CCC2A336-D7F3-4818-A213-272B7924213E}\InprocServer32`, Value: host.StringValue(`C:\Windows\System32\plugin.dll`)},
			{Key: `HKLM\SOFTWARE\Policies\Microsoft\Windows Defender\Exclusions\Processes`, Name: layout.Containerd, Value: host.StringValue("0")},
			{Key: `HKLM\SOFTWARE\Policies\Microsoft\Windows Defender\Exclusions\Paths`, Name: layout.ContainerdRoot, Value: host.StringValue("0")},
		} {
			have, ok := m.RegistryValue(v.Key, v.Name)
			g.Expect(ok).To(BeTrue(), "%s, %s", v.Key, v.Name)
			g.Expect(have).To(Equal(v.Value), "%s, %s", v.Key, v.Name)
		}
		g.Expect(m.FirewallRules()).To(HaveLen(4))
		g.Expect(m.FirewallRules()["CAPW kubelet"].Ports).To(Equal([]string{"10260"}))
		g.Expect(m.FirewallRules()["CAPW windows_exporter"].Ports).To(Equal([]string{"9182"}))
		g.Expect(m.FirewallRules()["CAPW VXLAN"].Protocol).To(Equal("UDP"))
		g.Expect(m.FirewallRules()["node ports"].RemoteAddresses).To(Equal([]string{"10.0.0.0/8"}))
		ops, _ := m.User("ops")
		g.Expect(ops.Password).To(Equal("Correct-Horse-7"))
		g.Expect(ops.Groups).To(ConsistOf(host.AdministratorsSID))

		before := func(kind engine.TraceKind, name string) string {
			i := slices.IndexFunc(r.Facts.Traces, func(t engine.Trace) bool { return t.Kind == kind && t.Name == name })
			g.Expect(i).To(BeNumerically(">=", 0), "%s %s can be undone", kind, name)
			return r.Facts.Traces[max(i, 0)].Before
		}
		g.Expect(before(engine.TraceRegistry, engine.RegistryName(memory, "PagingFiles"))).To(MatchJSON(`{"type":"MultiString","texts":["?:\\pagefile.sys","D:\\pagefile.sys 100 200"]}`))
		g.Expect(before(engine.TraceRegistry, engine.RegistryName(hnsState, "EnableCompartmentNamespace"))).To(BeEmpty())
		g.Expect(before(engine.TraceEnvironment, "POOL")).To(BeEmpty())
		g.Expect(before(engine.TraceUser, "ops")).To(BeEmpty())
		g.Expect(before(engine.TraceCertificate, fingerprint)).To(BeEmpty())
		g.Expect(before(engine.TraceFirewall, "CAPW VXLAN")).To(BeEmpty())
		g.Expect(before(engine.TraceFile, `C:\Users\viewer\.ssh\authorized_keys`)).To(BeEmpty())
		g.Expect(r.Facts.Traces).NotTo(ContainElement(HaveField("Name", adminKeys)), "it was there before")

		journal, err := m.ReadFile(layout.Journal)
		g.Expect(err).NotTo(HaveOccurred())
		for _, secret := range doc.Secrets() {
			g.Expect(string(journal)).NotTo(ContainSubstring(secret))
		}
	})
}

func TestTheHostEndsTheSameWhateverFails(t *testing.T) {
	ca, _ := certificate(t)
	phasetest.Loop(t, plain(), everything(ca), hostprep.Phase(), nil)
}

func TestWhatWindowsRefusesFailsWithItsOwnCode(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(doc *nodev1.NodeConfiguration)
		code   codes.Code
	}{
		"a computer name": {func(doc *nodev1.NodeConfiguration) { doc.Node.Name = "12345" }, codes.ComputerNameRefused},
		"a time zone":     {func(doc *nodev1.NodeConfiguration) { doc.OS.TimeZone = "Europe/Berlin" }, codes.TimeZoneUnknown},
		"a feature":       {func(doc *nodev1.NodeConfiguration) { doc.OS.Features = []string{"Container"} }, codes.FeatureUnknown},
		"an account":      {func(doc *nodev1.NodeConfiguration) { doc.OS.Users = []nodev1.User{{Name: "a/b"}} }, codes.UserRefused},
		"a group": {func(doc *nodev1.NodeConfiguration) {
			doc.OS.Users = []nodev1.User{{Name: "a", Groups: []string{"wheel"}}}
		}, codes.UserRefused},
		"a variable":    {func(doc *nodev1.NodeConfiguration) { doc.OS.Environment = map[string]string{"a=b": "c"} }, codes.EnvironmentRefused},
		"a certificate": {func(doc *nodev1.NodeConfiguration) { doc.OS.TrustedCAs = []string{"no PEM"} }, codes.CARefused},
		"a damaged certificate": {func(doc *nodev1.NodeConfiguration) {
			doc.OS.TrustedCAs = []string{"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"}
		}, codes.CARefused},
		"a number": {func(doc *nodev1.NodeConfiguration) {
			doc.OS.Registry = []nodev1.RegistryValue{{Key: `HKLM\SOFTWARE\Example`, Type: "DWord", Value: "4294967296"}}
		}, codes.RegistryRefused},
		"a type": {func(doc *nodev1.NodeConfiguration) {
			doc.OS.Registry = []nodev1.RegistryValue{{Key: `HKLM\SOFTWARE\Example`, Type: "Word", Value: "1"}}
		}, codes.RegistryRefused},
		"a firewall rule": {func(doc *nodev1.NodeConfiguration) {
			doc.OS.Firewall = []nodev1.FirewallRule{{Name: "x", Protocol: "ICMP"}}
		}, codes.FirewallRefused},
		"a range of ports":        {func(doc *nodev1.NodeConfiguration) { doc.OS.DynamicPorts = nodev1.PortRange{Start: 80, Count: 300} }, codes.DynamicPortsRefused},
		"ports beyond the last":   {func(doc *nodev1.NodeConfiguration) { doc.OS.DynamicPorts = nodev1.PortRange{Start: 70000, Count: 300} }, codes.DynamicPortsRefused},
		"an offline blob":         {func(doc *nodev1.NodeConfiguration) { doc.OS.DomainJoin = &nodev1.DomainJoin{OfflineBlob: "AAAA"} }, codes.DomainRefused},
		"a blob that is no blob":  {func(doc *nodev1.NodeConfiguration) { doc.OS.DomainJoin = &nodev1.DomainJoin{OfflineBlob: "secret!"} }, codes.DomainRefused},
		"a password for a domain": {func(doc *nodev1.NodeConfiguration) { doc.OS.DomainJoin = online("wrong") }, codes.DomainRefused},
	} {
		t.Run(name, func(t *testing.T) {
			o := image()
			o.DomainPassword = "right"
			phasetest.Test(t, o, phasetest.Document(tc.change), hostprep.Phase(), func(_ *sim.Machine, _ phasetest.Result, err error) {
				g := NewWithT(t)
				g.Expect(phasetest.Code(err)).To(Equal(tc.code), "%v", err)
				g.Expect(err.Error()).NotTo(Or(ContainSubstring("secret!"), ContainSubstring("wrong")))
			})
		})
	}
}

func online(password string) *nodev1.DomainJoin {
	return &nodev1.DomainJoin{Domain: "corp.example.test", Username: "joiner", Password: password}
}

func TestWhatFailsOnlyNowIsTriedAgainUntilItsTimeIsOver(t *testing.T) {
	for op, want := range map[string]codes.Code{
		"Files.Mkdir": codes.FolderNotMade, "System.ComputerName": codes.HostUnreadable, "Registry.Get": codes.RegistryNotSet,
		"Features.State": codes.FeatureNotEnabled, "Network.DynamicPorts": codes.HostUnreadable, "Network.SetDynamicPorts": codes.DynamicPortsNotSet,
		"Firewall.Apply": codes.FirewallNotConfigured, "System.Environment": codes.HostUnreadable, "Services.Status": codes.HostUnreadable,
		"System.RebootPending": codes.HostUnreadable,
	} {
		t.Run(op, func(t *testing.T) {
			o := image()
			o.Inject = func(c sim.Call) sim.Fault {
				if c.Op == op && c.Detail != layout.StateDir {
					return sim.Fault{Kind: sim.Fail}
				}
				return sim.Fault{}
			}
			phasetest.Test(t, o, phasetest.Document(nil), hostprep.Phase(), func(_ *sim.Machine, r phasetest.Result, err error) {
				g := NewWithT(t)
				g.Expect(phasetest.Code(err)).To(Equal(want), "%v", err)
				g.Expect(r.Statuses).To(ContainElement(And(HaveField("State", nodev1.BootWaiting), HaveField("Attempt", BeNumerically(">", 5)))))
			})
		})
	}
}

// atShutdown adds a service that does something whenever Windows goes down, and one that does something when it comes up.
func atShutdown(o *sim.Options, down, up func(p *sim.Process)) {
	o.Inject = func(sim.Call) sim.Fault {
		time.Sleep(time.Millisecond) // a call takes a while, in which services start
		return sim.Fault{}
	}
	o.Services = append(o.Services, host.Service{Name: "meddler", Argv: []string{`C:\meddler.exe`}, Start: host.StartAuto})
	o.Programs[`C:\meddler.exe`] = func(ctx context.Context, p *sim.Process) int {
		p.Running()
		if up != nil {
			up(p)
		}
		<-ctx.Done()
		if down != nil {
			down(p)
		}
		return 0
	}
}

func TestANameThatIsSetBackIsTold(t *testing.T) {
	o := plain()
	atShutdown(&o, func(p *sim.Process) { _ = p.Host.System.SetComputerName(context.Background(), oldName) }, nil)
	phasetest.Test(t, o, phasetest.Document(nil), hostprep.Phase(), func(m *sim.Machine, _ phasetest.Result, err error) {
		g := NewWithT(t)
		g.Expect(phasetest.Code(err)).To(Equal(codes.ComputerNameNotTaken), "%v", err)
		g.Expect(err).To(MatchError(And(ContainSubstring(oldName), ContainSubstring(newName))))
		g.Expect(m.Boots()).To(Equal(2))
	})
}

func TestAFeatureThatIsRolledBackIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		var m *sim.Machine
		o := plain()
		atShutdown(&o, func(*sim.Process) { m.SetFeature("Containers", sim.Feature{State: host.FeatureDisabled, Reboot: true}) }, nil)
		m = sim.New(o)
		defer m.PowerOff()
		_, err := phasetest.Run(t.Context(), m, phasetest.Document(nil), hostprep.Phase())
		g.Expect(phasetest.Code(err)).To(Equal(codes.FeatureNotTaken), "%v", err)
		g.Expect(m.Boots()).To(Equal(2))
	})
}

func TestWindowsOwnWishForARebootIsGrantedOnce(t *testing.T) {
	for name, always := range map[string]bool{"when one helps": false, "when none helps": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				var m *sim.Machine
				o := image()
				atShutdown(&o, nil, func(*sim.Process) {
					if always || m.Boots() == 1 {
						m.RequireReboot()
					}
				})
				m = sim.New(o)
				defer m.PowerOff()
				_, err := phasetest.Run(t.Context(), m, phasetest.Document(nil), hostprep.Phase())
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(m.Boots()).To(Equal(2))
			})
		})
	}
}

func TestAnAccountOfTheImageIsChangedButNeverLeftToReset(t *testing.T) {
	o := image()
	o.Users = []host.User{{Name: "capi", FullName: "Cluster API", Password: "Of-The-Image-1"}}
	doc := phasetest.Document(func(doc *nodev1.NodeConfiguration) {
		doc.OS.Users = []nodev1.User{{Name: "capi", Groups: []string{host.AdministratorsSID}}, {Name: "fresh"}}
	})
	phasetest.Test(t, o, doc, hostprep.Phase(), func(m *sim.Machine, r phasetest.Result, err error) {
		g := NewWithT(t)
		g.Expect(err).NotTo(HaveOccurred())
		capi, _ := m.User("capi")
		g.Expect(capi.Password).To(Equal("Of-The-Image-1"))
		g.Expect(capi.FullName).To(Equal("Cluster API"))
		g.Expect(capi.Groups).To(ContainElement(host.AdministratorsSID))
		fresh, _ := m.User("fresh")
		g.Expect(len(fresh.Password)).To(BeNumerically(">=", 20), "a random password")
		g.Expect(r.Facts.Traces).To(ContainElement(engine.Trace{Kind: engine.TraceUser, Name: "fresh"}))
		g.Expect(r.Facts.Traces).NotTo(ContainElement(engine.Trace{Kind: engine.TraceUser, Name: "capi"}))
	})
}

func TestFixesDependOnTheWindowsBuild(t *testing.T) {
	const overrides = `HKLM\SYSTEM\CurrentControlSet\Policies\Microsoft\FeatureManagement\Overrides`
	all := []sim.RegistryValue{
		{Key: hnsState, Name: "HNSControlFlag", Value: host.DWordValue(80)},
		{Key: `HKLM\SYSTEM\CurrentControlSet\Services\wcifs`, Name: "WcifsSOPCountDisabled", Value: host.DWordValue(0)},
		{Key: overrides, Name: "1114842764", Value: host.DWordValue(0)},
		{Key: overrides, Name: "520997518", Value: host.DWordValue(1)},
	}
	for build, want := range map[string][]sim.RegistryValue{"10.0.17763": all[:2], "10.0.20348": all[2:3], "10.0.26100": all[3:]} {
		t.Run(build, func(t *testing.T) {
			o := plain()
			o.Info.Build = build
			preflight := engine.Phase{Name: "Preflight", Steps: []engine.Step{{Name: "facts", Budget: engine.Once(1 << 40), Do: func(_ context.Context, r *engine.Run) error {
				r.Facts.WindowsBuild = build
				return nil
			}}}}
			phase := hostprep.Phase()
			phase.Steps = append(preflight.Steps, phase.Steps...)
			phasetest.Test(t, o, phasetest.Document(nil), phase, func(m *sim.Machine, _ phasetest.Result, err error) {
				g := NewWithT(t)
				g.Expect(err).NotTo(HaveOccurred())
				for _, v := range all {
					have, ok := m.RegistryValue(v.Key, v.Name)
					g.Expect(ok).To(Equal(slices.ContainsFunc(want, func(w sim.RegistryValue) bool { return w.Name == v.Name })), v.Name)
					if ok {
						g.Expect(have).To(Equal(v.Value))
					}
				}
			})
		})
	}
}

func TestDefenderIsLeftAloneWhereItIsNotOrShallBe(t *testing.T) {
	const key = `HKLM\SOFTWARE\Policies\Microsoft\Windows Defender\Exclusions`
	for name, tc := range map[string]struct {
		change  func(doc *nodev1.NodeConfiguration)
		missing bool
		want    bool
	}{
		"by default":               {want: true},
		"when the document says":   {change: func(doc *nodev1.NodeConfiguration) { doc.OS.Defender = "None" }},
		"when it is not installed": {missing: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := image()
			if tc.missing {
				o.Services = o.Services[:1]
			}
			phasetest.Test(t, o, phasetest.Document(tc.change), hostprep.Phase(), func(m *sim.Machine, _ phasetest.Result, err error) {
				g := NewWithT(t)
				g.Expect(err).NotTo(HaveOccurred())
				_, ok := m.RegistryValue(key, "Exclusions_Processes")
				g.Expect(ok).To(Equal(tc.want))
			})
		})
	}
}

func TestAnOnlineJoinComesAfterTheAdaptersAndTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		var calls []string
		o := plain()
		o.Inject = func(c sim.Call) sim.Fault {
			if slices.Contains([]string{"Network.Configure", "Domain.Join", "System.Reboot"}, c.Op) {
				calls = append(calls, c.Op)
			}
			return sim.Fault{}
		}
		m := sim.New(o)
		defer m.PowerOff()
		doc := phasetest.Document(func(doc *nodev1.NodeConfiguration) {
			doc.OS.DomainJoin = online("right")
			doc.Network.Adapters = []nodev1.AdapterInfo{{MAC: "00:50:56:00:00:01", Addresses: []string{"10.0.0.77/24"}, Gateways: []string{"10.0.0.1"}}}
		})
		_, err := phasetest.Run(t.Context(), m, doc, hostprep.Phase())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(calls).To(Equal([]string{"Network.Configure", "System.Reboot", "Domain.Join", "System.Reboot"}))
		g.Expect(m.Snapshot()).To(HaveKeyWithValue("system domain", "corp.example.test"))
	})
}

func TestAMemberOfAnotherDomainIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		m := sim.New(image())
		defer m.PowerOff()
		m.PowerOn(t.Context())
		g.Expect(m.Host().Domain.Join(t.Context(), "other.example.test", "", "u", "p")).To(Succeed())
		m.Reboot()
		doc := phasetest.Document(func(doc *nodev1.NodeConfiguration) { doc.OS.DomainJoin = online("right") })
		_, err := phasetest.Run(t.Context(), m, doc, hostprep.Phase())
		g.Expect(phasetest.Code(err)).To(Equal(codes.DomainIsAnother), "%v", err)
	})
}
