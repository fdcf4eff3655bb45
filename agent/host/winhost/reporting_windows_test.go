//go:build windows

package winhost

import (
	"context"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
)

func TestEventsHaveARegisteredSource(t *testing.T) {
	g, r := NewWithT(t), newRegistry()
	reporting := newReporting(r, newProcesses())
	for _, level := range []host.EventLevel{host.EventInformation, host.EventWarning, host.EventError} {
		g.Expect(reporting.Event(t.Context(), level, 701, "A test of CAPW says hello")).To(Succeed())
	}
	g.Expect(reporting.Event(t.Context(), host.EventError, 1, strings.Repeat("x", 40_000))).To(Succeed())
	source, err := r.Get(t.Context(), eventSourceKey, "EventMessageFile")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(source.Text).To(ContainSubstring("EventCreate.exe"))
}

func TestASerialPortThatIsNotThereIsNotSupported(t *testing.T) {
	g, r := NewWithT(t), newReporting(newRegistry(), newProcesses())
	g.Expect(r.SerialLine(t.Context(), "COM199", "hello")).To(MatchError(host.ErrNotSupported))
	for _, port := range []string{"", "COM", "COM0", "COM1000", "LPT1", `COM1\x`, `..\COM1`} {
		g.Expect(r.SerialLine(t.Context(), port, "hello")).To(MatchError(host.ErrInvalid), port)
	}
}

// rpctool stands in for VMware's program: it is the test binary, whose first argument is the request.
func TestGuestInfoGoesThroughVMwareTools(t *testing.T) {
	g, f, registry := NewWithT(t), newFiles(), newRegistry()
	r := newReporting(registry, newProcesses())
	const toolsKey = `HKLM\SOFTWARE\VMware, Inc.\VMware Tools`
	if _, err := registry.Get(t.Context(), toolsKey, "InstallPath"); err == nil {
		g.Expect(r.SetGuestInfo(t.Context(), "guestinfo.capw.test", "a value")).To(Succeed())
		g.Expect(r.GuestInfo(t.Context(), "guestinfo.capw.test")).To(Equal("a value"))
		return
	}
	g.Expect(r.SetGuestInfo(t.Context(), "guestinfo.capw.test", "x")).To(MatchError(host.ErrNotSupported))
	_, err := r.GuestInfo(t.Context(), "guestinfo.capw.test")
	g.Expect(err).To(MatchError(host.ErrNotSupported))

	dir := tempDir(t)
	program, err := f.Read(t.Context(), self(t))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(f.Write(t.Context(), layout.Join(dir, "rpctool.exe"), program, host.ACLInherited)).To(Succeed())
	g.Expect(registry.Set(t.Context(), toolsKey, "InstallPath", host.StringValue(dir+`\`))).To(Succeed())
	cleanUp(t, func(ctx context.Context) error { return registry.DeleteKey(ctx, toolsKey) })

	_, err = r.GuestInfo(t.Context(), "guestinfo.capw.test")
	g.Expect(err).To(MatchError(host.ErrNotFound))
	value := `{"phase": "Join", "message": "a \"quoted\" C:\\path\\"}`
	g.Expect(r.SetGuestInfo(t.Context(), "guestinfo.capw.test", value)).To(Succeed())
	g.Expect(r.GuestInfo(t.Context(), "guestinfo.capw.test")).To(Equal(value))
	g.Expect(r.SetGuestInfo(t.Context(), "guestinfo.capw.refused", "x")).To(MatchError(ContainSubstring("exit code 1")))
	g.Expect(r.SetGuestInfo(t.Context(), "other", "x")).To(MatchError(host.ErrInvalid))
}
