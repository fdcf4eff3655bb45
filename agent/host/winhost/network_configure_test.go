package winhost

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// fakeAdapter does what the documentation of netsh says that it does, to one adapter. What it makes of a real one, only
// Windows can tell.
type fakeAdapter struct {
	adapterState

	lease adapterState
	// stage of addresses that are added, until then.
	stage    stage
	until    time.Time
	commands []change
	// deaf: it says yes and does nothing, as netsh under Wine.
	deaf bool
	// leftBehind by "set address".
	leftBehind []addressState
}

func (f *fakeAdapter) configurator() configurator {
	return configurator{
		state: func(context.Context) (adapterState, error) {
			s := f.adapterState
			s.addresses = slices.Clone(s.addresses)
			for i := range s.addresses {
				if s.addresses[i].stage == "" {
					s.addresses[i].stage = stageUsable
					if f.stage != "" && time.Now().Before(f.until) {
						s.addresses[i].stage = f.stage
					}
				}
			}
			return s, nil
		},
		apply: func(_ context.Context, c change) error {
			f.commands = append(f.commands, c)
			if f.deaf {
				return nil
			}
			if c.search != nil {
				f.search = c.search
				return nil
			}
			if err := f.netsh(c.netsh); err != nil && !c.mayFail {
				return err
			}
			return nil
		},
	}
}

// netsh does one command.
func (f *fakeAdapter) netsh(args []string) error {
	if len(args) < 5 || args[0] != "interface" || !strings.HasSuffix(args[4], "=7") && !strings.Contains(strings.Join(args, " "), "interface=7") {
		return fmt.Errorf("not for adapter 7: %v", args)
	}
	family, verb, what := args[1], args[2], args[3]
	options := map[string]string{}
	for _, a := range args[4:] {
		name, value, _ := strings.Cut(a, "=")
		options[name] = value
	}
	switch what {
	case "address":
		return f.changeAddress(family, verb, options)
	case "route":
		via := options["nexthop"]
		if via == "" {
			via = map[string]string{"ipv4": "0.0.0.0", "ipv6": "::"}[family]
		}
		metric, _ := strconv.ParseUint(options["metric"], 10, 32)
		return f.changeRoute(verb, routeState{to: netip.MustParsePrefix(options["prefix"]), via: netip.MustParseAddr(via), metric: uint32(metric), manual: true})
	case "dnsservers":
		return f.changeDNS(family, verb, options)
	case "subinterface":
		mtu, err := strconv.ParseUint(options["mtu"], 10, 32)
		if family == "ipv4" {
			f.mtu4 = uint32(mtu)
		} else {
			f.mtu6 = uint32(mtu)
		}
		return err
	}
	return fmt.Errorf("unknown command %v", args)
}

func (f *fakeAdapter) changeAddress(family, verb string, o map[string]string) error {
	if o["source"] == "dhcp" {
		f.setFamily(true, f.lease.addresses, f.lease.routes)
		return nil
	}
	if gateway := o["gateway"]; gateway != "" && gateway != "none" && verb != "set" {
		return f.changeRoute(verb, routeState{to: netip.MustParsePrefix("0.0.0.0/0"), via: netip.MustParseAddr(gateway), manual: true})
	}
	text := o["address"]
	switch {
	case family == "ipv4" && verb != "delete":
		ones, _ := net.IPMask(net.ParseIP(o["mask"]).To4()).Size()
		text = fmt.Sprintf("%s/%d", text, ones)
	case verb == "delete":
		a := netip.MustParseAddr(text)
		text = netip.PrefixFrom(a, a.BitLen()).String()
	}
	p := netip.MustParsePrefix(text)
	i := slices.IndexFunc(f.addresses, func(a addressState) bool { return a.Addr() == p.Addr() })
	switch verb {
	case "set":
		routes := []routeState{}
		if o["gateway"] != "none" {
			routes = append(routes, routeState{to: netip.MustParsePrefix("0.0.0.0/0"), via: netip.MustParseAddr(o["gateway"]), manual: true})
		}
		f.setFamily(false, append([]addressState{{Prefix: p, manual: true}}, f.leftBehind...), routes)
		if len(f.lease.dns) > 0 && slices.Equal(f.dns, f.lease.dns) {
			f.dns = nil
		}
	case "add":
		if i >= 0 {
			return errors.New("the object already exists")
		}
		f.addresses = append(f.addresses, addressState{Prefix: p, manual: true})
	case "delete":
		if i < 0 {
			return errors.New("element not found")
		}
		f.addresses = slices.Delete(f.addresses, i, i+1)
	}
	return nil
}

// setFamily replaces what there is of IPv4.
func (f *fakeAdapter) setFamily(dhcp bool, addresses []addressState, routes []routeState) {
	f.dhcp = dhcp
	f.addresses = append(slices.DeleteFunc(f.addresses, func(a addressState) bool { return a.Addr().Is4() }), addresses...)
	f.routes = append(slices.DeleteFunc(f.routes, func(r routeState) bool { return r.to.Addr().Is4() }), routes...)
}

func (f *fakeAdapter) changeRoute(verb string, r routeState) error {
	i := slices.IndexFunc(f.routes, func(have routeState) bool { return have.to == r.to && have.via == r.via })
	switch {
	case verb == "add" && i < 0:
		f.routes = append(f.routes, r)
	case verb == "delete" && i >= 0:
		f.routes = slices.Delete(f.routes, i, i+1)
	case verb == "set" && i >= 0:
		f.routes[i].metric = r.metric
	default:
		return fmt.Errorf("%s route: it is there, or not", verb)
	}
	return nil
}

func (f *fakeAdapter) changeDNS(family, verb string, o map[string]string) error {
	other := func(a netip.Addr) bool { return a.Is4() == (family == "ipv4") }
	if verb == "set" {
		f.dns = slices.DeleteFunc(slices.Clone(f.dns), other)
		if o["source"] == "dhcp" || o["address"] == "none" && f.dhcp && family == "ipv4" {
			f.dns = append(f.dns, f.lease.dns...)
			return nil
		}
		if o["address"] == "none" {
			return nil
		}
	}
	f.dns = append(f.dns, netip.MustParseAddr(o["address"]))
	return nil
}

func TestAnAdapterBecomesWhatItShallBeFromWhateverItWas(t *testing.T) {
	yes, no := true, false
	starts := map[string]func() adapterState{
		"leased": leased, "static": static,
		"empty": func() adapterState { return adapterState{index: 7, mtu4: 1500, mtu6: 1500} },
		"double": func() adapterState {
			s := static()
			s.addresses = append(s.addresses, manual("10.0.0.8/24"), manual("2001:db8::8/64"))
			s.routes = append(s.routes, routeTo("0.0.0.0/0", "10.0.0.3", true), routeTo("::/0", "fe80::3", true))
			s.dns = addrs("10.0.0.4", "2001:db8::4")
			return s
		},
	}
	wants := map[string]host.AdapterConfig{
		"all": {DHCP: &no, Addresses: prefixes("10.0.0.5/24", "10.0.0.7/24", "2001:db8::5/64"), Gateways: addrs("10.0.0.1", "fe80::1"),
			DNSServers: addrs("10.0.0.53", "10.0.0.54", "2001:db8::53"), SearchDomains: []string{"x.example"}, MTU: 1400,
			Routes: []host.Route{{To: netip.MustParsePrefix("192.168.0.0/16"), Via: netip.MustParseAddr("10.0.0.9"), Metric: 20}}},
		"other length": {Addresses: prefixes("10.0.0.5/16"), Gateways: addrs("10.0.0.2")},
		"DHCP":         {DHCP: &yes, DNSServers: addrs("10.0.0.53"), MTU: 1280},
		"IPv6 only":    {Addresses: prefixes("2001:db8::5/64"), Gateways: addrs("fe80::1"), DNSServers: addrs("2001:db8::53")},
	}
	for startName, start := range starts {
		for wantName, want := range wants {
			t.Run(startName+" to "+wantName, func(t *testing.T) {
				g := NewWithT(t) // no virtual time: nothing waits
				f := &fakeAdapter{adapterState: start(), lease: leased()}
				f.lease.addresses = f.lease.addresses[:1]
				g.Expect(checkAdapterConfig(want)).To(Succeed())
				g.Expect(f.configurator().configure(t.Context(), want)).To(Succeed())

				if len(want.Addresses) > 0 {
					have := []netip.Prefix{}
					for _, a := range f.addresses {
						if a.manual {
							have = append(have, a.Prefix)
						}
					}
					g.Expect(have).To(ConsistOf(want.Addresses))
				}
				if want.DHCP != nil {
					g.Expect(f.dhcp).To(Equal(*want.DHCP))
				}
				vias := []netip.Addr{}
				for _, r := range f.routes {
					if r.to.Bits() == 0 {
						vias = append(vias, r.via)
					}
				}
				for _, gateway := range want.Gateways {
					g.Expect(vias).To(ContainElement(gateway))
				}
				if len(want.Gateways) > 0 && !f.dhcp {
					g.Expect(vias).To(ConsistOf(want.Gateways))
				}
				for _, server := range want.DNSServers {
					g.Expect(f.dns).To(ContainElement(server))
				}
				if want.MTU != 0 {
					g.Expect([]uint32{f.mtu4, f.mtu6}).To(HaveEach(want.MTU))
				}

				// The same again changes nothing, but for what Windows does not let go.
				f.commands = nil
				g.Expect(f.configurator().configure(t.Context(), want)).To(Succeed())
				for _, c := range f.commands {
					g.Expect(c.optional).To(BeTrue(), c.String())
				}
			})
		}
	}
}

func TestWhatACommandLeavesBehindIsRemovedInTheNextRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		f := &fakeAdapter{adapterState: leased(), lease: leased(), leftBehind: []addressState{manual("10.0.0.99/24")}}
		g.Expect(f.configurator().configure(t.Context(), host.AdapterConfig{Addresses: prefixes("10.0.0.5/24")})).To(Succeed())
		g.Expect(f.addresses).NotTo(ContainElement(HaveField("Prefix", netip.MustParsePrefix("10.0.0.99/24"))))
	})
}

func TestACommandThatHasNoEffectIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		f := &fakeAdapter{adapterState: static(), deaf: true}
		err := f.configurator().configure(t.Context(), host.AdapterConfig{MTU: 1400})
		g.Expect(err).To(MatchError(ContainSubstring("had no effect: netsh interface ipv4 set subinterface")))
		g.Expect(f.commands).To(HaveLen(2 * configureRounds))
	})
}

func TestAChangeMayTakeAMomentToShow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		f := &fakeAdapter{adapterState: static()}
		by := f.configurator()
		now, shown := by.state, f.adapterState
		by.state = func(ctx context.Context) (adapterState, error) {
			if len(f.commands) == 0 || time.Since(f.until) > time.Second {
				return now(ctx)
			}
			return shown, nil
		}
		f.until = time.Now()
		g.Expect(by.configure(t.Context(), host.AdapterConfig{Addresses: prefixes("10.0.0.9/24")})).To(Succeed())
		g.Expect(f.commands).To(HaveLen(2), "nothing was done twice")
	})
}

func TestAnAddressIsConfiguredWhenItMayBeUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		begin := time.Now()
		f := &fakeAdapter{adapterState: static(), stage: stageTentative, until: begin.Add(3 * time.Second)}
		g.Expect(f.configurator().configure(t.Context(), host.AdapterConfig{Addresses: prefixes("10.0.0.9/24")})).To(Succeed())
		g.Expect(time.Since(begin)).To(Equal(3 * time.Second))
	})
}

func TestAnAddressThatStaysTentativeIsAnErrorInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		f := &fakeAdapter{adapterState: static(), stage: stageTentative, until: time.Now().Add(time.Hour)}
		err := f.configurator().configure(t.Context(), host.AdapterConfig{Addresses: prefixes("10.0.0.9/24")})
		g.Expect(err).To(MatchError(ContainSubstring("10.0.0.9/24 is still tentative")))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		g.Expect(f.configurator().configure(ctx, host.AdapterConfig{Addresses: prefixes("10.0.0.9/24")})).To(MatchError(context.DeadlineExceeded))
	})
}

func TestAnAddressOfAnotherMachineIsBusyUntilItIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		want := host.AdapterConfig{Addresses: prefixes("10.0.0.9/24")}
		f := &fakeAdapter{adapterState: static(), stage: stageDuplicate, until: time.Now().Add(time.Minute)}
		g.Expect(f.configurator().configure(t.Context(), want)).To(MatchError(host.ErrBusy))
		g.Expect(f.commands).To(HaveLen(2), "one try, no endless repetition")
		time.Sleep(time.Minute)
		f.addresses[len(f.addresses)-1].stage = stageDuplicate // Windows does not look again by itself
		g.Expect(f.configurator().configure(t.Context(), want)).To(Succeed())
	})
}
