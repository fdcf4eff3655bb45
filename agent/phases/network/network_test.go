package network_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/network"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/phasetest"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

const mac = "00:50:56:00:00:01"

// apiServer answers each connection with one HTTP answer over TLS.
type apiServer struct {
	certificate tls.Certificate
	// skew is how far its clock is ahead, silent: it says no HTTP.
	mu     sync.Mutex
	skew   time.Duration
	silent bool
	plain  bool
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	g := NewWithT(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	g.Expect(err).NotTo(HaveOccurred())
	return &apiServer{certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}}
}

func (s *apiServer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *apiServer) dial(_ context.Context, _, address string) (net.Conn, error) {
	if address != "prod.example.test:6443" && address != "10.0.0.100:6443" {
		return nil, syscall.EHOSTUNREACH
	}
	here, there := net.Pipe()
	go s.serve(there)
	return here, nil
}

func (s *apiServer) serve(c net.Conn) {
	defer c.Close() //nolint:errcheck // in memory
	s.mu.Lock()
	skew, silent, plain := s.skew, s.silent, s.plain
	s.mu.Unlock()
	if plain {
		_, _ = c.Read(make([]byte, 512))
		_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
		return
	}
	conn := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{s.certificate}, MinVersion: tls.VersionTLS12})
	if err := conn.Handshake(); err != nil || silent {
		return
	}
	if _, err := conn.Read(make([]byte, 4096)); err != nil {
		return
	}
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 401 Unauthorized\r\nDate: %s\r\nContent-Length: 0\r\n\r\n", time.Now().Add(skew).UTC().Format(http.TimeFormat))
	_ = conn.Close()
}

// options are a machine with one adapter and a DNS server that knows the API server.
func options(s *apiServer) sim.Options {
	return sim.Options{
		Dial:  s.dial,
		Hosts: map[string][]netip.Addr{"prod.example.test": {netip.MustParseAddr("10.0.0.100")}},
		Programs: map[string]sim.Program{
			`C:\Windows\System32\svchost.exe`: func(ctx context.Context, p *sim.Process) int {
				p.Running()
				<-ctx.Done()
				return 0
			},
			`C:\Windows\System32\w32tm.exe`: func(_ context.Context, p *sim.Process) int {
				if len(p.Argv) == 2 && p.Argv[1] == "/resync" {
					s.set(func() { s.skew = 0 })
				}
				return 0
			},
		},
		Services: []host.Service{{Name: "W32Time", Argv: []string{`C:\Windows\System32\svchost.exe`}, Start: host.StartManual}},
	}
}

func noDHCP(a sim.Adapter) sim.Adapter {
	a.DHCP = true
	a.Lease = nil
	a.Addresses = []netip.Prefix{netip.MustParsePrefix("169.254.10.10/16")}
	return a
}

func TestAMachineWithDHCPIsReadyAtOnce(t *testing.T) {
	phasetest.Test(t, options(newAPIServer(t)), phasetest.Document(nil), network.Phase(), func(m *sim.Machine, r phasetest.Result, err error) {
		g := NewWithT(t)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(r.Facts.NodeIPs).To(Equal([]string{"10.0.0.10"}))
		g.Expect(r.Facts.NodeMAC).To(Equal(mac))
		g.Expect(r.Facts.CleanedBootID).NotTo(BeEmpty())
		g.Expect(r.Statuses).NotTo(ContainElement(HaveField("State", nodev1.BootWaiting)))
		g.Expect(m.Boots()).To(Equal(1))
	})
}

func TestAStaticAdapterIsConfiguredByTheAgent(t *testing.T) {
	o := options(newAPIServer(t))
	o.Adapters = []sim.Adapter{noDHCP(sim.Adapter{})}
	doc := phasetest.Document(func(doc *nodev1.NodeConfiguration) {
		doc.Join.APIServerEndpoint = "10.0.0.100:6443"
		doc.Network.Adapters = []nodev1.AdapterInfo{{
			MAC: strings.ToUpper(mac), Addresses: []string{"10.0.0.77/24", "2001:db8::77/64"}, Gateways: []string{"10.0.0.1", "2001:db8::1"},
			Routes: []nodev1.Route{{To: "10.9.0.0/16", Via: "10.0.0.9", Metric: 5}}, DNSServers: []string{"10.0.0.2"}, SearchDomains: []string{"example.test"}, MTU: 9000,
		}}
		doc.Node.IP.CIDRs = []string{"10.0.0.0/8", "2001:db8::/32"}
	})
	phasetest.Test(t, o, doc, network.Phase(), func(m *sim.Machine, r phasetest.Result, err error) {
		g := NewWithT(t)
		g.Expect(err).NotTo(HaveOccurred())
		a := m.Adapters()[0]
		g.Expect(a.DHCP).To(BeFalse())
		g.Expect(a.Addresses).To(Equal([]netip.Prefix{netip.MustParsePrefix("10.0.0.77/24"), netip.MustParsePrefix("2001:db8::77/64")}))
		g.Expect(a.DNSServers).To(Equal([]netip.Addr{netip.MustParseAddr("10.0.0.2")}))
		g.Expect(a.SearchDomains).To(Equal([]string{"example.test"}))
		g.Expect(a.MTU).To(BeEquivalentTo(9000))
		s := m.Snapshot()
		g.Expect(s).To(HaveKey("route 4 0.0.0.0/0 10.0.0.1"))
		g.Expect(s).To(HaveKey("route 4 ::/0 2001:db8::1"))
		g.Expect(s).To(HaveKey("route 4 10.9.0.0/16 10.0.0.9"))
		g.Expect(r.Facts.NodeIPs).To(Equal([]string{"10.0.0.77", "2001:db8::77"}))
	})
}

func TestAnAdapterThatIsRightIsNotTouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		configured := 0
		o := options(newAPIServer(t))
		o.Inject = func(c sim.Call) sim.Fault {
			if c.Op == "Network.Configure" {
				configured++
			}
			return sim.Fault{}
		}
		m := sim.New(o)
		defer m.PowerOff()
		doc := phasetest.Document(func(doc *nodev1.NodeConfiguration) {
			doc.Network.Adapters = []nodev1.AdapterInfo{{MAC: mac, DHCP: "Enabled", DNSServers: []string{"10.0.0.2"}, MTU: 1500}}
		})
		_, err := phasetest.Run(t.Context(), m, doc, network.Phase())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(configured).To(BeZero())
	})
}

func TestALeaseIsNoticedWhenItComesAndNotAtTheNextPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		o := options(newAPIServer(t))
		o.Adapters = []sim.Adapter{{Adapter: host.Adapter{DHCP: true}, Lease: &sim.Lease{Gateways: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}, Down: true}}
		m := sim.New(o)
		defer m.PowerOff()
		began := time.Now()
		time.AfterFunc(12345*time.Millisecond, func() {
			m.SetAddresses(4, netip.MustParsePrefix("10.0.0.42/24"))
			m.SetLink(4, true)
		})
		r, err := phasetest.Run(t.Context(), m, phasetest.Document(nil), network.Phase())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(r.Facts.NodeIPs).To(Equal([]string{"10.0.0.42"}))
		g.Expect(time.Since(began)).To(Equal(12345 * time.Millisecond))
	})
}

func TestWithoutWordOfChangesItIsLookedAtNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		o := options(newAPIServer(t))
		o.Adapters = []sim.Adapter{{Adapter: host.Adapter{DHCP: true, Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.10/24")}}, Gateways: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Down: true}}
		o.Inject = func(c sim.Call) sim.Fault {
			if c.Op == "Network.Changes" {
				return sim.Fault{Kind: sim.Fail}
			}
			return sim.Fault{}
		}
		m := sim.New(o)
		defer m.PowerOff()
		began := time.Now()
		time.AfterFunc(12*time.Second, func() { m.SetLink(4, true) })
		_, err := phasetest.Run(t.Context(), m, phasetest.Document(nil), network.Phase())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(time.Since(began)).To(Equal(15 * time.Second))
	})
}

func TestWhatIsWrongWithTheNetworkIsTold(t *testing.T) {
	static := func(change func(a *nodev1.AdapterInfo)) func(doc *nodev1.NodeConfiguration) {
		return func(doc *nodev1.NodeConfiguration) {
			a := nodev1.AdapterInfo{MAC: mac, Addresses: []string{"10.0.0.77/24"}}
			change(&a)
			doc.Network.Adapters = []nodev1.AdapterInfo{a}
		}
	}
	for name, tc := range map[string]struct {
		change  func(doc *nodev1.NodeConfiguration)
		machine func(o *sim.Options, s *apiServer)
		code    codes.Code
		message string
	}{
		"no DHCP server":    {machine: func(o *sim.Options, _ *apiServer) { o.Adapters = []sim.Adapter{noDHCP(sim.Adapter{})} }, code: codes.DefaultRouteMissing, message: "169.254.10.10"},
		"no cable":          {machine: func(o *sim.Options, _ *apiServer) { o.Adapters = []sim.Adapter{{Down: true}} }, code: codes.DefaultRouteMissing, message: "without link"},
		"no adapter":        {machine: func(o *sim.Options, _ *apiServer) { o.Adapters = []sim.Adapter{} }, code: codes.DefaultRouteMissing, message: "no adapters"},
		"no such adapter":   {change: static(func(a *nodev1.AdapterInfo) { a.MAC = "00:50:56:00:00:99" }), code: codes.AdapterMissing, message: mac},
		"a broadcast":       {change: static(func(a *nodev1.AdapterInfo) { a.Addresses = []string{"224.0.0.1/24"} }), code: codes.AdapterRefused, message: "224.0.0.1"},
		"a bad address":     {change: static(func(a *nodev1.AdapterInfo) { a.Addresses = []string{"10.0.0.1"} }), code: codes.NetworkConfigRejected, message: "10.0.0.1"},
		"a bad MAC address": {change: static(func(a *nodev1.AdapterInfo) { a.MAC = "x" }), code: codes.NetworkConfigRejected, message: "x"},
		"a bad gateway":     {change: static(func(a *nodev1.AdapterInfo) { a.Gateways = []string{"gw"} }), code: codes.NetworkConfigRejected, message: "gw"},
		"a bad DNS server":  {change: static(func(a *nodev1.AdapterInfo) { a.DNSServers = []string{"dns"} }), code: codes.NetworkConfigRejected, message: "dns"},
		"a bad route":       {change: static(func(a *nodev1.AdapterInfo) { a.Routes = []nodev1.Route{{To: "there", Via: "10.0.0.1"}} }), code: codes.NetworkConfigRejected, message: "there"},
		"a bad way":         {change: static(func(a *nodev1.AdapterInfo) { a.Routes = []nodev1.Route{{To: "10.0.0.0/8", Via: "here"}} }), code: codes.NetworkConfigRejected, message: "here"},
		"a range without address": {
			change: func(doc *nodev1.NodeConfiguration) { doc.Node.IP.CIDRs = []string{"192.168.0.0/16"} }, code: codes.NodeAddressMissing, message: "192.168.0.0/16",
		},
		"an adapter without address": {
			change: func(doc *nodev1.NodeConfiguration) { doc.Node.IP.MAC = "00:50:56:00:00:99" }, code: codes.NodeAddressMissing, message: "00:50:56:00:00:99",
		},
		"a bad range":     {change: func(doc *nodev1.NodeConfiguration) { doc.Node.IP.CIDRs = []string{"all"} }, code: codes.NetworkConfigRejected, message: "all"},
		"a bad endpoint":  {change: func(doc *nodev1.NodeConfiguration) { doc.Join.APIServerEndpoint = "prod" }, code: codes.NetworkConfigRejected, message: "prod"},
		"an unknown name": {machine: func(o *sim.Options, _ *apiServer) { o.Hosts = nil }, code: codes.NameNotResolved, message: "10.0.0.2"},
		"no addresses":    {machine: func(o *sim.Options, _ *apiServer) { o.Hosts["prod.example.test"] = nil }, code: codes.NameNotResolved, message: "has no address"},
		"no way":          {change: func(doc *nodev1.NodeConfiguration) { doc.Join.APIServerEndpoint = "10.0.0.101:6443" }, code: codes.APIServerUnreachable, message: "10.0.0.101:6443"},
		"no TLS":          {machine: func(_ *sim.Options, s *apiServer) { s.plain = true }, code: codes.APIServerNotTLS, message: "TLS"},
		"a clock that stays wrong": {
			machine: func(o *sim.Options, s *apiServer) { s.skew = 3 * time.Hour; o.Services = nil }, code: codes.ClockDiffers, message: "behind the API server",
		},
		"a certificate of the future": {
			machine: func(_ *sim.Options, s *apiServer) { s.silent, s.certificate = true, future(t) }, code: codes.ClockDiffers, message: "at least",
		},
		"no adapters can be read": {machine: func(o *sim.Options, _ *apiServer) { o.Inject = failing("Network.Adapters") }, code: codes.NetworkUnreadable, message: "adapters"},
		"no routes can be read":   {machine: func(o *sim.Options, _ *apiServer) { o.Inject = failing("Network.Routes") }, code: codes.NetworkUnreadable, message: "routes"},
		"HNS does not answer":     {machine: func(o *sim.Options, _ *apiServer) { o.Inject = failing("HNS.Networks") }, code: codes.HNSNotCleaned, message: "listing"},
		"an adapter that refuses for now": {
			change: static(func(*nodev1.AdapterInfo) {}), machine: func(o *sim.Options, _ *apiServer) { o.Inject = failing("Network.Configure") }, code: codes.AdapterNotConfigured, message: mac,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer(t)
			o := options(s)
			if tc.machine != nil {
				tc.machine(&o, s)
			}
			phasetest.Test(t, o, phasetest.Document(tc.change), network.Phase(), func(_ *sim.Machine, _ phasetest.Result, err error) {
				g := NewWithT(t)
				g.Expect(phasetest.Code(err)).To(Equal(tc.code), "%v", err)
				g.Expect(err).To(MatchError(ContainSubstring(tc.message)))
			})
		})
	}
}

func failing(op string) func(sim.Call) sim.Fault {
	return func(c sim.Call) sim.Fault {
		if c.Op == op {
			return sim.Fault{Kind: sim.Fail}
		}
		return sim.Fault{}
	}
}

func future(t *testing.T) tls.Certificate {
	t.Helper()
	g := NewWithT(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Date(2090, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	g.Expect(err).NotTo(HaveOccurred())
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestAWrongClockIsSetByTheTimeService(t *testing.T) {
	s := newAPIServer(t)
	s.skew = -30 * time.Minute
	phasetest.Test(t, options(s), phasetest.Document(nil), network.Phase(), func(m *sim.Machine, r phasetest.Result, err error) {
		g := NewWithT(t)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(r.Statuses).To(ContainElement(And(HaveField("Code", string(codes.ClockDiffers)), HaveField("Message", ContainSubstring("30m0s ahead")))))
		g.Expect(m.ServiceStatus("W32Time").State).To(Equal(host.ServiceRunning))
	})
}

// settings of an HNS network.
func settings(name, kind string) []byte {
	return fmt.Appendf(nil, `{"Name":%q,"Type":%q,"SchemaVersion":{"Major":2,"Minor":0},"Ipams":[{"Subnets":[{"IpAddressPrefix":"172.20.0.0/20"}]}]}`, name, kind)
}

func TestContainerNetworksAreRemovedOncePerBootAndOthersStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		m := sim.New(options(newAPIServer(t)))
		defer m.PowerOff()
		m.PowerOn(t.Context())
		facts, saved := &engine.Facts{}, 0
		clean := func() {
			h := m.Host()
			r := engine.NewRun(h, phasetest.Document(nil), facts, func(context.Context) error { saved++; return nil })
			g.Expect(network.CleanHNS(t.Context(), r)).To(Succeed())
		}
		names := func() (out []string) {
			networks, err := m.Host().HNS.Networks(t.Context())
			g.Expect(err).NotTo(HaveOccurred())
			for _, n := range networks {
				out = append(out, n.Name)
			}
			return out
		}
		create := func(name, kind string) {
			_, err := m.Host().HNS.CreateNetwork(t.Context(), settings(name, kind))
			g.Expect(err).NotTo(HaveOccurred())
		}
		create("nat", "NAT")
		create("External", "L2Bridge")
		create("flannel.4096", "Overlay")
		g.Expect(m.Adapters()).To(ContainElement(And(HaveField("Virtual", true), HaveField("MAC", mac))), "the network has the address of the adapter")
		clean()
		g.Expect(names()).To(ConsistOf("nat"))
		g.Expect(saved).To(Equal(1))

		create("flannel.4096", "Overlay")
		clean()
		g.Expect(names()).To(ConsistOf("nat", "flannel.4096"), "it was made in this boot")
		g.Expect(saved).To(Equal(1))

		m.Reboot()
		clean()
		g.Expect(names()).To(ConsistOf("nat"))
		g.Expect(saved).To(Equal(2))
	})
}

func TestABootIsNotCleanBeforeThatIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		m := sim.New(options(newAPIServer(t)))
		defer m.PowerOff()
		m.PowerOn(t.Context())
		facts := &engine.Facts{}
		r := engine.NewRun(m.Host(), phasetest.Document(nil), facts, func(context.Context) error { return errors.New("disk full") })
		g.Expect(network.CleanHNS(t.Context(), r)).To(MatchError(ContainSubstring("disk full")))
		g.Expect(facts.CleanedBootID).To(BeEmpty())
	})
}

func TestAMachineWithoutContainersHasNoStaleNetworks(t *testing.T) {
	o := options(newAPIServer(t))
	o.Features = map[string]sim.Feature{"Containers": {}}
	phasetest.Test(t, o, phasetest.Document(nil), network.Phase(), func(_ *sim.Machine, r phasetest.Result, err error) {
		g := NewWithT(t)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(r.Facts.CleanedBootID).NotTo(BeEmpty())
	})
}

func TestTheNetworkEndsTheSameWhateverFails(t *testing.T) {
	s := newAPIServer(t)
	o := options(s)
	o.Adapters = []sim.Adapter{noDHCP(sim.Adapter{})}
	doc := phasetest.Document(func(doc *nodev1.NodeConfiguration) {
		doc.Network.Adapters = []nodev1.AdapterInfo{{MAC: mac, Addresses: []string{"10.0.0.77/24"}, Gateways: []string{"10.0.0.1"}, DNSServers: []string{"10.0.0.2"}}}
	})
	phasetest.LoopAll(t, o, doc, network.Phase(), func(ctx context.Context, m *sim.Machine) {
		m.PowerOn(ctx)
		for _, name := range []string{"External", "cbr0"} {
			if _, err := m.Host().HNS.CreateNetwork(ctx, settings(name, "L2Bridge")); err != nil {
				panic(err) // not in a goroutine of a test
			}
		}
	})
}
