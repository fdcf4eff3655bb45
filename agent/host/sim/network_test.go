package sim_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
)

// serveHTTP is a service that answers "ok" on an address and on a pipe.
func serveHTTP(address, pipe string) sim.Program {
	return func(ctx context.Context, p *sim.Process) int {
		tcp, err := p.Listen(address)
		if err != nil {
			return 2
		}
		named, err := p.ListenPipe(pipe)
		if err != nil {
			return 3
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			_, _ = io.WriteString(w, "ok"+string(body))
		}), ReadHeaderTimeout: time.Minute}
		stop := context.AfterFunc(ctx, func() { _ = server.Close() })
		defer stop()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = server.Serve(named)
		}()
		p.Running()
		_ = server.Serve(tcp)
		<-ended
		return 0
	}
}

// get fetches what an address answers, over a connection of its own.
func get(ctx context.Context, d host.Dialer, network, address, body string) (string, error) {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return d.DialContext(ctx, network, address)
	}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://node/", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	return string(answer), err
}

func TestProgramsAreReachedOverLoopbackAndPipesWhileTheyRun(t *testing.T) {
	const pipe = `\\.\pipe\demo`
	o := sim.Options{Programs: programs(serveHTTP("127.0.0.1:10248", pipe)), Services: []host.Service{demo("a", automatic)}}
	inBubble(t, o, func(g *WithT, ctx context.Context, m *sim.Machine) {
		h := m.Host()
		large := strings.Repeat("x", 1<<20)
		g.Expect(get(ctx, h.Network, "tcp", "127.0.0.1:10248", large)).To(Equal("ok" + large))
		g.Expect(get(ctx, h.Network, "tcp", "localhost:10248", "")).To(Equal("ok"))
		g.Expect(get(ctx, h.Network, "pipe", `\\.\PIPE\Demo`, "1")).To(Equal("ok1"))
		_, err := h.Network.DialContext(ctx, "tcp", "10.0.0.10:10248")
		g.Expect(err).To(MatchError(syscall.ECONNREFUSED), "it listens on loopback only")
		g.Expect(h.Services.Stop(ctx, "a")).To(Succeed())
		_, err = h.Network.DialContext(ctx, "tcp", "127.0.0.1:10248")
		g.Expect(err).To(MatchError(syscall.ECONNREFUSED))
		_, err = h.Network.DialContext(ctx, "pipe", pipe)
		g.Expect(err).To(MatchError(fs.ErrNotExist))
	})
}

func TestConnectionsEndWithThePowerAndWithTheProcessAtTheirOtherEnd(t *testing.T) {
	o := sim.Options{Services: []host.Service{demo("a", automatic)}, Programs: programs(func(ctx context.Context, p *sim.Process) int {
		l, err := p.Listen("127.0.0.1:0")
		if err != nil {
			return 1
		}
		if err := p.Host.Files.Write(ctx, `C:\address`, []byte(l.Addr().String()), host.ACLInherited); err != nil {
			return 2
		}
		p.Running()
		for {
			if _, err := l.Accept(); err != nil {
				return 0
			}
		}
	})}
	for name, end := range map[string]func(m *sim.Machine){"power": (*sim.Machine).Cut, "process": func(m *sim.Machine) { m.KillService("a") }} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, o, func(g *WithT, ctx context.Context, m *sim.Machine) {
				address, err := m.ReadFile(`C:\address`)
				g.Expect(err).NotTo(HaveOccurred())
				c, err := m.Host().Network.DialContext(ctx, "tcp", string(address))
				g.Expect(err).NotTo(HaveOccurred())
				time.AfterFunc(time.Second, func() { end(m) })
				_, err = c.Read(make([]byte, 1))
				g.Expect(err).To(HaveOccurred())
				_, err = c.Write([]byte("x"))
				g.Expect(err).To(HaveOccurred())
			})
		})
	}
}

func TestAConnectionKeepsItsDeadlines(t *testing.T) {
	o := sim.Options{Services: []host.Service{demo("a", automatic)}, Programs: programs(func(ctx context.Context, p *sim.Process) int {
		l, err := p.Listen(":80")
		if err != nil {
			return 1
		}
		p.Running()
		c, err := l.Accept()
		if err != nil {
			return 2
		}
		<-ctx.Done()
		return boolCode(c.Close())
	})}
	inBubble(t, o, func(g *WithT, ctx context.Context, m *sim.Machine) {
		c, err := m.Host().Network.DialContext(ctx, "tcp", "10.0.0.10:80")
		g.Expect(err).NotTo(HaveOccurred())
		began := time.Now()
		g.Expect(c.SetReadDeadline(began.Add(time.Minute))).To(Succeed())
		_, err = c.Read(make([]byte, 1))
		g.Expect(err).To(MatchError(os.ErrDeadlineExceeded))
		g.Expect(time.Since(began)).To(Equal(time.Minute))
		g.Expect(c.SetWriteDeadline(time.Now().Add(time.Minute))).To(Succeed())
		n, err := c.Write(make([]byte, 1<<20))
		g.Expect(err).To(MatchError(os.ErrDeadlineExceeded))
		g.Expect(n).To(BeNumerically(">", 0), "what fits is buffered")
		g.Expect(n).To(BeNumerically("<", 1<<20))
		g.Expect(c.SetDeadline(time.Time{})).To(Succeed())
		time.AfterFunc(time.Minute, func() { _ = c.Close() })
		_, err = c.Read(make([]byte, 1))
		g.Expect(err).To(MatchError(net.ErrClosed))
	})
}

func boolCode(err error) int {
	if err != nil {
		return 1
	}
	return 0
}

func TestTheOutsideIsReachedThroughTheOptionsAndTheMachineThroughItsFirewall(t *testing.T) {
	var dialed story
	o := sim.Options{
		Programs: programs(serveHTTP(":10250", `\\.\pipe\x`)), Services: []host.Service{demo("a", automatic)},
		Dial: func(_ context.Context, network, address string) (net.Conn, error) {
			dialed.add(network + " " + address)
			return nil, errors.New("nobody is there")
		},
	}
	inBubble(t, o, func(g *WithT, ctx context.Context, m *sim.Machine) {
		h := m.Host()
		_, err := h.Network.DialContext(ctx, "tcp", "api.example.test:6443")
		g.Expect(err).To(MatchError(ContainSubstring("nobody is there")))
		g.Expect(dialed.told()).To(Equal([]string{"tcp api.example.test:6443"}))
		from := netip.MustParseAddr("10.0.0.99")
		in := dialerFunc(func(ctx context.Context, _, address string) (net.Conn, error) {
			limited, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			return m.DialIn(limited, from, address)
		})
		_, err = get(ctx, in, "tcp", "10.0.0.10:10250", "")
		g.Expect(err).To(MatchError(context.DeadlineExceeded), "no rule lets it in")
		rule := host.FirewallRule{Name: "kubelet", Protocol: "TCP", Ports: []string{"10000-10300"}, RemoteAddresses: []string{"10.0.0.0/24"}}
		g.Expect(h.Firewall.Apply(ctx, rule)).To(Succeed())
		g.Expect(get(ctx, in, "tcp", "10.0.0.10:10250", "")).To(Equal("ok"))
		rule.RemoteAddresses = []string{"192.168.0.0/16"}
		g.Expect(h.Firewall.Apply(ctx, rule)).To(Succeed())
		_, err = get(ctx, in, "tcp", "10.0.0.10:10250", "")
		g.Expect(err).To(MatchError(context.DeadlineExceeded))
		g.Expect(h.Firewall.Rules(ctx)).To(Equal([]string{"kubelet"}))
		g.Expect(h.Firewall.Delete(ctx, "Kubelet")).To(Succeed())
		g.Expect(h.Firewall.Rules(ctx)).To(BeEmpty())
		g.Expect(h.Firewall.Apply(ctx, host.FirewallRule{Name: "x", Protocol: "TCP", Ports: []string{"9-1"}})).To(MatchError(host.ErrInvalid))
	})
}

type dialerFunc func(ctx context.Context, network, address string) (net.Conn, error)

func (f dialerFunc) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return f(ctx, network, address)
}

func TestAnAdapterIsConfiguredForGood(t *testing.T) {
	inBubble(t, sim.Options{}, func(g *WithT, ctx context.Context, m *sim.Machine) {
		h := m.Host()
		watching, cancel := context.WithCancel(ctx)
		defer cancel()
		changes, err := h.Network.Changes(watching)
		g.Expect(err).NotTo(HaveOccurred())
		adapters, err := h.Network.Adapters(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(adapters).To(HaveLen(1))
		g.Expect(adapters[0].DHCP).To(BeTrue())
		g.Expect(adapters[0].Addresses).To(Equal([]netip.Prefix{netip.MustParsePrefix("10.0.0.10/24")}))
		off, gateway := false, netip.MustParseAddr("192.168.1.1")
		want := host.AdapterConfig{
			DHCP: &off, Addresses: []netip.Prefix{netip.MustParsePrefix("192.168.1.5/24"), netip.MustParsePrefix("fd00::5/64")},
			Gateways: []netip.Addr{gateway}, DNSServers: []netip.Addr{netip.MustParseAddr("192.168.1.2")},
			SearchDomains: []string{"corp.example"}, MTU: 1400,
			Routes: []host.Route{{To: netip.MustParsePrefix("10.96.0.0/12"), Via: netip.MustParseAddr("192.168.1.9"), Metric: 5}},
		}
		for range 2 {
			g.Expect(h.Network.Configure(ctx, adapters[0].Index, want)).To(Succeed())
		}
		<-changes
		m.PowerOff()
		m.PowerOn(ctx)
		h = m.Host()
		adapters, err = h.Network.Adapters(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		a := adapters[0]
		g.Expect(a.DHCP).To(BeFalse())
		g.Expect(a.Addresses).To(Equal(want.Addresses))
		g.Expect(a.DNSServers).To(Equal(want.DNSServers))
		g.Expect(a.SearchDomains).To(Equal(want.SearchDomains))
		g.Expect(a.MTU).To(BeEquivalentTo(1400))
		g.Expect(h.Network.Routes(ctx)).To(ConsistOf(
			host.Route{To: netip.MustParsePrefix("192.168.1.0/24"), Via: netip.IPv4Unspecified(), Index: a.Index, Metric: 271},
			host.Route{To: netip.MustParsePrefix("fd00::/64"), Via: netip.IPv6Unspecified(), Index: a.Index, Metric: 271},
			host.Route{To: netip.MustParsePrefix("0.0.0.0/0"), Via: gateway, Index: a.Index, Metric: 15},
			host.Route{To: want.Routes[0].To, Via: want.Routes[0].Via, Index: a.Index, Metric: 20},
		))
		m.SetLink(a.Index, false)
		g.Expect(h.Network.Routes(ctx)).To(BeEmpty())
		on := true
		g.Expect(h.Network.Configure(ctx, a.Index, host.AdapterConfig{DHCP: &on})).To(Succeed())
		m.SetLink(a.Index, true)
		m.SetAddresses(a.Index, netip.MustParsePrefix("10.0.0.77/24"))
		g.Expect(m.Adapters()[0].Addresses).To(Equal([]netip.Prefix{netip.MustParsePrefix("10.0.0.77/24")}))
		g.Expect(h.Network.Configure(ctx, 99, want)).To(MatchError(host.ErrNotFound))
	})
}

func TestNamesAreResolvedFromTheTableAndTheMachine(t *testing.T) {
	api := netip.MustParseAddr("10.0.0.100")
	inBubble(t, sim.Options{Hosts: map[string][]netip.Addr{"api.example.test": {api}}}, func(g *WithT, ctx context.Context, m *sim.Machine) {
		n := m.Host().Network
		g.Expect(n.Resolve(ctx, "API.example.test.")).To(Equal([]netip.Addr{api}))
		g.Expect(n.Resolve(ctx, "win-sim")).To(Equal([]netip.Addr{netip.MustParseAddr("10.0.0.10")}))
		g.Expect(n.Resolve(ctx, "10.1.2.3")).To(Equal([]netip.Addr{netip.MustParseAddr("10.1.2.3")}))
		_, err := n.Resolve(ctx, "other.example.test")
		var dns *net.DNSError
		g.Expect(errors.As(err, &dns) && dns.IsNotFound).To(BeTrue())
		g.Expect(n.SetDynamicPorts(ctx, 34000, 31536)).To(Succeed())
		start, count, err := n.DynamicPorts(ctx)
		g.Expect([]any{start, count, err}).To(Equal([]any{uint16(34000), uint16(31536), nil}))
		g.Expect(n.SetDynamicPorts(ctx, 60000, 10000)).To(MatchError(host.ErrInvalid))
	})
}

func TestAnHNSNetworkTakesOverTheAddressesOfItsAdapter(t *testing.T) {
	inBubble(t, sim.Options{}, func(g *WithT, ctx context.Context, m *sim.Machine) {
		h := m.Host().HNS
		const settings = `{"Name":"flannel","Type":"L2Bridge","SchemaVersion":{"Major":2,"Minor":0},
			"Ipams":[{"Subnets":[{"IpAddressPrefix":"10.244.3.0/24"}]}]}`
		n, err := h.CreateNetwork(ctx, []byte(settings))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(n.ManagementIP).To(Equal("10.0.0.10"))
		g.Expect(n.Subnets).To(Equal([]string{"10.244.3.0/24"}))
		_, err = h.CreateNetwork(ctx, []byte(settings))
		g.Expect(err).To(MatchError(host.ErrInvalid), "there is one already")
		adapters := m.Adapters()
		g.Expect(adapters).To(HaveLen(2))
		g.Expect(adapters[0].Addresses).To(BeEmpty())
		g.Expect(adapters[1].Virtual).To(BeTrue())
		g.Expect(adapters[1].Name).To(Equal("vEthernet (Ethernet)"))
		g.Expect(adapters[1].MAC).To(Equal(adapters[0].MAC))
		g.Expect(adapters[1].Addresses).To(Equal([]netip.Prefix{netip.MustParsePrefix("10.0.0.10/24")}))

		e, err := h.CreateEndpoint(ctx, n.ID, []byte(`{"Name":"vip","SchemaVersion":{"Major":2}}`))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(e.IP).To(Equal("10.244.3.2"))
		m.PowerOff()
		m.PowerOn(ctx)
		h = m.Host().HNS
		g.Expect(h.Networks(ctx)).To(Equal([]host.HNSNetwork{n}), "networks outlive a boot")
		g.Expect(h.Endpoints(ctx, n.ID)).To(Equal([]host.HNSEndpoint{e}))
		g.Expect(h.DeleteEndpoint(ctx, e.ID)).To(Succeed())
		g.Expect(h.Endpoints(ctx, n.ID)).To(BeEmpty())
		g.Expect(h.DeleteNetwork(ctx, n.ID)).To(Succeed())
		g.Expect(h.DeleteNetwork(ctx, n.ID)).To(Succeed())
		_, err = h.Endpoints(ctx, n.ID)
		g.Expect(err).To(MatchError(host.ErrNotFound))
		g.Expect(m.Adapters()).To(HaveLen(1))
		m.SetFeature("Containers", sim.Feature{State: host.FeatureDisabled})
		_, err = h.Networks(ctx)
		g.Expect(err).To(MatchError(host.ErrNotSupported))
	})
}

func TestAHungDialEndsWithItsContext(t *testing.T) {
	o := sim.Options{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	inBubble(t, o, func(g *WithT, ctx context.Context, m *sim.Machine) {
		limited, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		_, err := m.Host().Network.DialContext(limited, "tcp", "10.9.9.9:443")
		g.Expect(err).To(MatchError(context.DeadlineExceeded))
		go func() {
			time.Sleep(time.Minute)
			m.Cut()
		}()
		_, err = m.Host().Network.DialContext(ctx, "tcp", "10.9.9.9:443")
		g.Expect(err).To(MatchError(sim.ErrPowerLost), "the power ends it, too")
		synctest.Wait()
	})
}
