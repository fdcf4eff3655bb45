//go:build windows

package winhost

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/Microsoft/go-winio"
	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// fakeProcesses answers instead of programs, and remembers them.
type fakeProcesses struct {
	exitCode int
	commands []host.Command
}

func (f *fakeProcesses) Run(_ context.Context, c host.Command) (host.Result, error) {
	f.commands = append(f.commands, c)
	return host.Result{ExitCode: f.exitCode, Stdout: []byte("as said")}, nil
}

func testNetwork() (*network, *fakeProcesses) {
	processes := &fakeProcesses{}
	return newNetwork(processes, newRegistry()), processes
}

func TestAdaptersAreWhatGoSeesToo(t *testing.T) {
	g := NewWithT(t)
	n, _ := testNetwork()
	adapters, err := n.Adapters(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(adapters).NotTo(BeEmpty())
	interfaces, err := net.Interfaces()
	g.Expect(err).NotTo(HaveOccurred())
	compared := 0
	for _, i := range interfaces {
		at := slices.IndexFunc(adapters, func(a host.Adapter) bool { return a.Index == uint32(i.Index) })
		if i.Flags&net.FlagLoopback != 0 {
			g.Expect(at).To(Equal(-1), "loopback")
			continue
		}
		g.Expect(at).NotTo(Equal(-1), i.Name)
		a := adapters[at]
		compared++
		g.Expect(a.Name).To(Equal(i.Name))
		g.Expect(a.MAC).To(Equal(i.HardwareAddr.String()))
		g.Expect(a.Up).To(Equal(i.Flags&net.FlagUp != 0))
		g.Expect(a.MTU).To(BeNumerically(">=", 576))
		addresses, err := i.Addrs()
		g.Expect(err).NotTo(HaveOccurred())
		for _, p := range a.Addresses {
			g.Expect(addresses).To(ContainElement(HaveField("String()", p.String())))
		}
	}
	g.Expect(compared).To(Equal(len(adapters)))
}

func TestEveryIPv4NetworkOfAnAdapterHasARoute(t *testing.T) {
	g := NewWithT(t)
	n, _ := testNetwork()
	adapters, err := n.Adapters(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	routes, err := n.Routes(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	checked := 0
	for _, a := range adapters {
		for _, p := range a.Addresses {
			if a.Up && p.Addr().Is4() {
				checked++
				g.Expect(routes).To(ContainElement(And(HaveField("To", p.Masked()), HaveField("Via", netip.IPv4Unspecified()), HaveField("Index", a.Index))))
			}
		}
	}
	g.Expect(checked).NotTo(BeZero(), "no adapter to check with")
}

func TestConfigureRunsNothingWhenAllIsAsItShallBe(t *testing.T) {
	g := NewWithT(t)
	n, processes := testNetwork()
	a := firstAdapter(t, n)
	g.Expect(n.Configure(t.Context(), a.Index, host.AdapterConfig{DHCP: &a.DHCP, MTU: a.MTU})).To(Succeed())
	g.Expect(processes.commands).To(BeEmpty())
}

func TestConfigureEndsWhenNetshSaysNo(t *testing.T) {
	g := NewWithT(t)
	n, processes := testNetwork()
	processes.exitCode = 1
	a := firstAdapter(t, n)
	err := n.Configure(t.Context(), a.Index, host.AdapterConfig{MTU: a.MTU - 1})
	g.Expect(err).To(MatchError(ContainSubstring("exit code 1: as said")))
	g.Expect(processes.commands).To(HaveLen(1))
	program := processes.commands[0].Argv[0]
	g.Expect(filepath.IsAbs(program)).To(BeTrue())
	g.Expect(program).To(BeAnExistingFile())
}

func TestAnAdapterThatIsNotThereCannotBeConfigured(t *testing.T) {
	n, _ := testNetwork()
	NewWithT(t).Expect(n.Configure(t.Context(), 4242, host.AdapterConfig{MTU: 1400})).To(MatchError(host.ErrNotFound))
}

func firstAdapter(t *testing.T, n *network) host.Adapter {
	t.Helper()
	adapters, err := n.Adapters(t.Context())
	if err != nil || len(adapters) == 0 {
		t.Fatal(adapters, err)
	}
	i := slices.IndexFunc(adapters, func(a host.Adapter) bool { return a.Up && len(a.Addresses) > 0 })
	return adapters[max(i, 0)]
}

func TestDynamicPortsAreReadWhereThereIsWMI(t *testing.T) {
	g := NewWithT(t)
	n, processes := testNetwork()
	start, count, err := n.DynamicPorts(t.Context())
	if lenient() {
		g.Expect(err).To(MatchError(host.ErrNotSupported))
		// The exit code of netsh is all there is then.
		g.Expect(n.SetDynamicPorts(t.Context(), 34000, 31536)).To(Succeed())
		g.Expect(processes.commands).To(HaveLen(2))
		processes.exitCode = 1
		g.Expect(n.SetDynamicPorts(t.Context(), 34000, 31536)).NotTo(Succeed())
		return
	}
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(int(start) + int(count)).To(BeNumerically(">", 1024+255))
	g.Expect(n.SetDynamicPorts(t.Context(), start-1, count)).To(MatchError(ContainSubstring("it is")), "netsh did nothing here")
}

func TestNamesAreResolvedByTheMachine(t *testing.T) {
	g := NewWithT(t)
	n, _ := testNetwork()
	addresses, err := n.Resolve(t.Context(), "localhost")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(addresses).NotTo(BeEmpty())
	for _, a := range addresses {
		g.Expect(a.IsLoopback()).To(BeTrue())
		g.Expect(a.Is4In6()).To(BeFalse())
	}
	_, err = n.Resolve(t.Context(), "")
	g.Expect(err).To(MatchError(host.ErrNotFound))
}

func TestDialContextReachesTCPAndPipes(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	path := `\\.\pipe\` + unique("winhost")
	pipe, err := winio.ListenPipe(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if lenient() { // Wine lets the first client connect to an instance that nobody accepts
		timeout := 5 * time.Second
		if c, err := winio.DialPipe(path, &timeout); err == nil {
			_ = c.Close()
		}
	}
	for network, l := range map[string]net.Listener{"tcp": tcp, "pipe": pipe} {
		t.Run(network, func(t *testing.T) {
			g := NewWithT(t)
			go echo(l)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			address := path
			if network == "tcp" {
				address = l.Addr().String()
			}
			n, _ := testNetwork()
			c, err := n.DialContext(ctx, network, address)
			g.Expect(err).NotTo(HaveOccurred())
			defer func() { _ = c.Close() }()
			_, err = io.WriteString(c, "hello")
			g.Expect(err).NotTo(HaveOccurred())
			back := make([]byte, 5)
			_, err = io.ReadFull(c, back)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(back)).To(Equal("hello"))
		})
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	n, _ := testNetwork()
	_, err = n.DialContext(t.Context(), "pipe", `\\.\pipe\`+unique("nobody"))
	NewWithT(t).Expect(err).To(HaveOccurred())
}

func echo(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() { _, _ = io.Copy(c, c) }()
	}
}

func TestChangesTellWhatIphlpapiTellsUntilTheContextEnds(t *testing.T) {
	g := NewWithT(t)
	n, _ := testNetwork()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changes, err := n.Changes(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	// As iphlpapi does it, with the context that was registered. That it does so, only Windows can tell.
	n.notify.mu.Lock()
	callers := []uintptr{}
	for caller := range n.notify.watchers {
		callers = append(callers, caller)
	}
	n.notify.mu.Unlock()
	g.Expect(callers).To(HaveLen(1))
	_, _, _ = syscall.SyscallN(n.notify.callback(), callers[0], 0, 0)
	g.Eventually(changes, 10*time.Second).Should(Receive())
	cancel()
	g.Eventually(changes, 10*time.Second).Should(BeClosed())
	g.Eventually(func() int {
		n.notify.mu.Lock()
		defer n.notify.mu.Unlock()
		return len(n.notify.watchers)
	}).Should(BeZero())
	_, _, _ = syscall.SyscallN(n.notify.callback(), callers[0], 0, 0) // a late one is harmless
}

func TestTheFingerprintOfTheNetworkIsStable(t *testing.T) {
	g := NewWithT(t)
	first, err := fingerprint()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(first).NotTo(BeZero())
	g.Eventually(func() string {
		a, _ := fingerprint()
		b, _ := fingerprint()
		return fmt.Sprint(a == b)
	}).Should(Equal("true"))
}
