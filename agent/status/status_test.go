package status_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/status"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

func machine(t *testing.T, o sim.Options) (*sim.Machine, *WithT) {
	t.Helper()
	g := NewWithT(t)
	m := sim.New(o)
	m.PowerOn(t.Context())
	g.Expect(m.Host().Files.Mkdir(t.Context(), layout.StateDir, host.ACLSystem)).To(Succeed())
	return m, g
}

func TestAStatusIsOneLineEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, g := machine(t, sim.Options{GuestInfo: true})
		defer m.PowerOff()
		s := nodev1.BootStatus{
			Phase: "Join", Step: "discover", State: nodev1.BootWaiting, Code: "CAPW-0006", Node: "win-1", Attempt: 3,
			Message: "first\r\nsecond \"quoted\" " + strings.Repeat("ü", 300),
		}
		status.New(m.Host(), "COM1").Report(t.Context(), s)

		line := m.GuestInfo()[status.GuestInfoKey]
		g.Expect(line).NotTo(Or(ContainSubstring("\n"), ContainSubstring("\r"), BeEmpty()))
		g.Expect(m.SerialLines("COM1")).To(Equal([]string{line}))
		last, err := status.Last(t.Context(), m.Host().Files)
		g.Expect(err).NotTo(HaveOccurred())
		var told nodev1.BootStatus
		g.Expect(json.Unmarshal([]byte(line), &told)).To(Succeed())
		g.Expect(*last).To(Equal(told))
		g.Expect([]rune(told.Message)).To(HaveLen(nodev1.MaxStatusMessage))
		g.Expect(told.Message).To(HaveSuffix("ü..."))
		events := m.Events()
		g.Expect(events).To(HaveLen(1))
		g.Expect(events[0].Level).To(Equal(host.EventWarning))
		g.Expect(events[0].Message).To(And(ContainSubstring("Phase Join"), ContainSubstring("StateNotWritable"), ContainSubstring("Remedy: ")))
	})
}

func TestAReaderThatFailsOrHangsDoesNotKeepTheOthersFromBeingTold(t *testing.T) {
	for _, kind := range []sim.FaultKind{sim.Fail, sim.Hang, sim.HangForever} {
		for _, op := range []string{"Reporting.SetGuestInfo", "Reporting.Event", "Files.Write", "Reporting.SerialLine"} {
			synctest.Test(t, func(t *testing.T) {
				m, g := machine(t, sim.Options{GuestInfo: true})
				defer m.PowerOff()
				m.SetInject(func(c sim.Call) sim.Fault {
					if c.Op == op {
						return sim.Fault{Kind: kind}
					}
					return sim.Fault{}
				})
				begin := time.Now()
				r := status.New(m.Host(), "COM1")
				for range 3 {
					r.Report(t.Context(), nodev1.BootStatus{Phase: "Host", State: nodev1.BootRunning})
				}
				g.Expect(time.Since(begin)).To(BeNumerically("<", time.Minute), "%s of %s", kind, op)
				reached := 0
				for _, has := range []bool{m.GuestInfo()[status.GuestInfoKey] != "", len(m.Events()) > 0, len(m.SerialLines("COM1")) > 0} {
					if has {
						reached++
					}
				}
				if _, err := m.ReadFile(layout.Status); err == nil {
					reached++
				}
				g.Expect(reached).To(Equal(3), "%s of %s", kind, op)
			})
		}
	}
}

func TestWithoutAHypervisorTheStatusIsStillWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, g := machine(t, sim.Options{})
		defer m.PowerOff()
		status.New(m.Host(), "").Report(t.Context(), nodev1.BootStatus{Phase: "Host", State: nodev1.BootRunning})
		last, err := status.Last(t.Context(), m.Host().Files)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(last.Phase).To(Equal("Host"))
		g.Expect(m.SerialLines("COM1")).To(BeEmpty())
	})
}
