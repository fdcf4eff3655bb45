//go:build windows

package winhost

import (
	"errors"
	"testing"

	"github.com/go-ole/go-ole"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/windows"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// The firewall, features, HNS and domains are missing from Wine. There the tests show that this is told as it is; on
// Windows the same tests show that they are there. What their functions do, only Windows can tell.

func TestFirewallRulesComeAndGoWhereThereIsAFirewall(t *testing.T) {
	g := NewWithT(t)
	f := newFirewall()
	rule := host.FirewallRule{Name: unique("winhost"), Protocol: "TCP", Ports: []string{"54321"}, RemoteAddresses: []string{"192.0.2.0/24"}}
	if lenient() {
		_, err := f.Rules(t.Context())
		g.Expect(err).To(MatchError(host.ErrNotSupported))
		g.Expect(f.Apply(t.Context(), rule)).To(MatchError(host.ErrNotSupported))
		g.Expect(f.Delete(t.Context(), rule.Name)).To(MatchError(host.ErrNotSupported))
		return
	}
	t.Cleanup(func() { _ = f.Delete(t.Context(), rule.Name) })
	for _, ports := range []string{"54321", "54321", "54322"} {
		rule.Ports = []string{ports}
		g.Expect(f.Apply(t.Context(), rule)).To(Succeed())
		g.Expect(f.Rules(t.Context())).To(ContainElement(rule.Name))
	}
	g.Expect(f.Delete(t.Context(), rule.Name)).To(Succeed())
	g.Expect(f.Delete(t.Context(), rule.Name)).To(Succeed())
	g.Expect(f.Rules(t.Context())).NotTo(ContainElement(rule.Name))
}

func TestAnUnknownFeatureIsNotFoundWhereThereIsServicing(t *testing.T) {
	g := NewWithT(t)
	want := host.ErrNotFound
	if lenient() {
		want = host.ErrNotSupported
	}
	processes := &fakeProcesses{}
	f := newFeatures(processes)
	_, err := f.State(t.Context(), "NoSuchFeature")
	g.Expect(err).To(MatchError(want))
	_, err = f.Enable(t.Context(), "NoSuchFeature")
	g.Expect(err).To(MatchError(want))
	g.Expect(processes.commands).To(BeEmpty())
}

func TestHNSIsNotSupportedWithoutItsService(t *testing.T) {
	g := NewWithT(t)
	h := newHNS()
	_, err := h.Networks(t.Context())
	if err == nil {
		_, err = h.CreateNetwork(t.Context(), []byte("{"))
		g.Expect(err).To(MatchError(host.ErrInvalid))
		return
	}
	g.Expect(err).To(MatchError(host.ErrNotSupported))
	const id = "6B29FC40-CA47-1067-B31D-00DD010662DA"
	_, err = h.CreateNetwork(t.Context(), []byte(`{"Name":"a","Type":"NAT"}`))
	g.Expect(err).To(MatchError(host.ErrNotSupported))
	_, err = h.Endpoints(t.Context(), id)
	g.Expect(err).To(MatchError(host.ErrNotSupported))
	_, err = h.CreateEndpoint(t.Context(), id, []byte("{}"))
	g.Expect(err).To(MatchError(host.ErrNotSupported))
	g.Expect(h.DeleteNetwork(t.Context(), id)).To(MatchError(host.ErrNotSupported))
	g.Expect(h.DeleteEndpoint(t.Context(), id)).To(MatchError(host.ErrNotSupported))
}

func TestTheCodesOfHNSHaveTheirMeaning(t *testing.T) {
	g := NewWithT(t)
	g.Expect(hcnError(nil)).To(Succeed())
	for err, meaning := range map[error]error{
		hresultError(0x803b0001):             host.ErrNotFound,     // network
		hresultError(0x803b0002):             host.ErrNotFound,     // endpoint
		hresultError(0x803b0010):             host.ErrInvalid,      // a network with that name
		hresultError(0x803b001b):             host.ErrInvalid,      // JSON
		hresultError(0x80004001):             host.ErrNotSupported, // E_NOTIMPL
		windows.ERROR_NOT_FOUND:              host.ErrNotFound,
		windows.ERROR_SERVICE_DOES_NOT_EXIST: host.ErrNotSupported,
		windows.RPC_S_SERVER_UNAVAILABLE:     host.ErrBusy,
		windows.ERROR_ACCESS_DENIED:          nil,
	} {
		got := hcnError(err)
		g.Expect(got).To(MatchError(err))
		for _, m := range []error{host.ErrNotFound, host.ErrInvalid, host.ErrNotSupported, host.ErrBusy} {
			g.Expect(errors.Is(got, m)).To(Equal(meaning != nil && errors.Is(m, meaning)), "%v: %v", err, m)
		}
	}
}

func TestTheCodesOfCOMHaveTheirMeaning(t *testing.T) {
	g := NewWithT(t)
	g.Expect(comFailed(nil, "do")).To(Succeed())
	// The firewall's service does not run.
	g.Expect(comFailed(ole.NewError(0x800706d9), "do")).To(MatchError(host.ErrNotSupported))
	g.Expect(comFailed(ole.NewError(0x80040154), "do")).To(MatchError(host.ErrNotSupported))
	g.Expect(comFailed(ole.NewError(0x80070057), "do")).To(MatchError(host.ErrInvalid))
	g.Expect(comFailed(ole.NewError(0x80070005), "do")).To(MatchError(windows.ERROR_ACCESS_DENIED))
	g.Expect(comFailed(ole.NewError(0x80041001), "do")).To(MatchError(ContainSubstring("do: HRESULT 0x80041001")))
	g.Expect(comFailed(errors.New("plain"), "do")).To(MatchError("do: plain"))
}

func TestDomainMembershipIsReadAndNothingIsJoined(t *testing.T) {
	g := NewWithT(t)
	d := newDomain()
	_, err := d.Joined(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(d.JoinOffline(t.Context(), nil)).To(MatchError(host.ErrInvalid))
	if lenient() {
		g.Expect(d.JoinOffline(t.Context(), []byte("blob"))).To(MatchError(host.ErrNotSupported))
		err := d.Join(t.Context(), "corp.example", "", "bob", "secret")
		g.Expect(err).To(MatchError(host.ErrNotSupported))
		g.Expect(err.Error()).NotTo(ContainSubstring("secret"))
	}
}

func TestTheCodesOfDomainsHaveTheirMeaning(t *testing.T) {
	g := NewWithT(t)
	g.Expect(joinFailed(windows.ERROR_LOGON_FAILURE, "join")).To(MatchError(host.ErrInvalid))
	g.Expect(errors.Is(joinFailed(windows.ERROR_NO_SUCH_DOMAIN, "join"), host.ErrInvalid)).To(BeFalse())
	g.Expect(accountFailed(nerrUserNotFound, "read")).To(MatchError(host.ErrNotFound))
	g.Expect(accountFailed(nerrPasswordTooShort, "set")).To(MatchError(host.ErrInvalid))
}
