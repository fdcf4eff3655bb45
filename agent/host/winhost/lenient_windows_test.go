//go:build windows

package winhost

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// absent is a Windows without firewall, servicing, or a way to read the dynamic ports.
type absent struct {
	host.Network

	err error
}

func (a absent) Rules(context.Context) ([]string, error)                  { return nil, a.err }
func (a absent) Apply(context.Context, host.FirewallRule) error           { return a.err }
func (a absent) Delete(context.Context, string) error                     { return a.err }
func (a absent) State(context.Context, string) (host.FeatureState, error) { return "", a.err }
func (a absent) Enable(context.Context, string) (bool, error)             { return false, a.err }
func (a absent) DynamicPorts(context.Context) (start, count uint16, err error) {
	return 0, 0, a.err
}
func (a absent) SetDynamicPorts(context.Context, uint16, uint16) error { return nil }

// noUsers is a Windows without accounts.
type noUsers struct{ host.Users }

func (noUsers) Get(context.Context, string) (host.User, error) { return host.User{}, host.ErrNotFound }
func (noUsers) Delete(context.Context, string) error           { return nil }

// boot is a system in a boot.
type boot struct {
	host.System

	id string
}

func (b *boot) Info(context.Context) (host.Info, error) { return host.Info{BootID: b.id}, nil }

func lenientHost(t *testing.T, err error) (*host.Host, *fakeProcesses, *boot) {
	t.Helper()
	processes, system, registry := &fakeProcesses{}, &boot{id: "1"}, newRegistry()
	h := &host.Host{Firewall: absent{err: err}, Features: absent{err: err}, Network: absent{err: err}, Users: noUsers{},
		Processes: processes, System: system, Registry: registry}
	makeUp(h)
	if err := registry.DeleteKey(t.Context(), absentKey); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := registry.DeleteKey(context.Background(), absentKey); err != nil {
			t.Error(err)
		}
	})
	return h, processes, system
}

func TestWhatIsAbsentIsRememberedInLenientMode(t *testing.T) {
	g := NewWithT(t)
	h, processes, system := lenientHost(t, host.ErrNotSupported)
	ctx := t.Context()

	g.Expect(h.Firewall.Rules(ctx)).To(BeEmpty())
	g.Expect(h.Firewall.Apply(ctx, host.FirewallRule{Name: "CAPW kubelet", Protocol: "TCP"})).To(Succeed())
	g.Expect(h.Firewall.Rules(ctx)).To(Equal([]string{"CAPW kubelet"}))
	g.Expect(h.Firewall.Delete(ctx, "CAPW kubelet")).To(Succeed())
	g.Expect(h.Firewall.Delete(ctx, "CAPW kubelet")).To(Succeed())
	g.Expect(h.Firewall.Rules(ctx)).To(BeEmpty())

	start, count, err := h.Network.DynamicPorts(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect([]uint16{start, count}).To(Equal([]uint16{49152, 16384}))
	g.Expect(h.Network.SetDynamicPorts(ctx, 34000, 31536)).To(Succeed())
	start, count, err = h.Network.DynamicPorts(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect([]uint16{start, count}).To(Equal([]uint16{34000, 31536}))

	g.Expect(h.Features.State(ctx, "Containers")).To(Equal(host.FeatureDisabled))
	processes.exitCode = 87
	_, err = h.Features.Enable(ctx, "Containers")
	g.Expect(err).To(HaveOccurred())
	processes.exitCode = 3010
	for range 2 {
		g.Expect(h.Features.Enable(ctx, "Containers")).To(BeTrue())
	}
	g.Expect(processes.commands).To(HaveLen(2), "dism.exe runs once for each try")
	g.Expect(h.Features.State(ctx, "containers")).To(Equal(host.FeaturePending))
	system.id = "2"
	g.Expect(h.Features.State(ctx, "Containers")).To(Equal(host.FeatureEnabled))

	_, err = h.Users.Get(ctx, "bob")
	g.Expect(err).To(MatchError(host.ErrNotFound))
	g.Expect(h.Users.Apply(ctx, host.User{Name: "bob", FullName: "Bob", Password: "secret", Groups: []string{"Administrators"}})).To(Succeed())
	g.Expect(h.Users.Apply(ctx, host.User{Name: "Bob", Groups: []string{host.AdministratorsSID, "docker-users"}})).To(Succeed())
	bob, err := h.Users.Get(ctx, "bob")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(bob.ProfileDir).To(HaveSuffix(`:\users\bob`))
	bob.ProfileDir = ""
	g.Expect(bob).To(Equal(host.User{Name: "Bob", FullName: "Bob", Groups: []string{host.AdministratorsSID, "docker-users"}}))
	g.Expect(h.Users.Delete(ctx, "bob")).To(Succeed())
	_, err = h.Users.Get(ctx, "bob")
	g.Expect(err).To(MatchError(host.ErrNotFound))
}

func TestLenientModeHidesNoOtherError(t *testing.T) {
	g := NewWithT(t)
	broken := errors.New("broken")
	h, _, _ := lenientHost(t, broken)
	_, err := h.Firewall.Rules(t.Context())
	g.Expect(err).To(MatchError(broken))
	g.Expect(h.Firewall.Apply(t.Context(), host.FirewallRule{Name: "a", Protocol: "TCP"})).To(MatchError(broken))
	g.Expect(h.Firewall.Delete(t.Context(), "a")).To(MatchError(broken))
	_, err = h.Features.State(t.Context(), "Containers")
	g.Expect(err).To(MatchError(broken))
	_, err = h.Features.Enable(t.Context(), "Containers")
	g.Expect(err).To(MatchError(broken))
	_, _, err = h.Network.DynamicPorts(t.Context())
	g.Expect(err).To(MatchError(broken))
}
