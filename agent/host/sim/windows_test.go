package sim_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"math/big"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
)

func TestUsersKeepTheirGroupsAndNeverTellTheirPassword(t *testing.T) {
	inBubble(t, sim.Options{}, func(g *WithT, ctx context.Context, m *sim.Machine) {
		u := m.Host().Users
		_, err := u.Get(ctx, "capw")
		g.Expect(err).To(MatchError(host.ErrNotFound))
		g.Expect(u.Apply(ctx, host.User{Name: "capw", Password: "secret", Groups: []string{"administrators"}})).To(Succeed())
		g.Expect(u.Apply(ctx, host.User{Name: "CAPW", FullName: "Somebody", Groups: []string{"S-1-5-32-545"}})).To(Succeed())
		g.Expect(u.Get(ctx, "capw")).To(Equal(host.User{
			Name: "capw", FullName: "Somebody", Groups: []string{host.AdministratorsSID, "S-1-5-32-545"}, ProfileDir: `C:\Users\capw`,
		}))
		kept, _ := m.User("capw")
		g.Expect(kept.Password).To(Equal("secret"))
		g.Expect(u.Apply(ctx, host.User{Name: "x", Groups: []string{"Nobody"}})).To(MatchError(host.ErrNotFound))
		g.Expect(u.Apply(ctx, host.User{Name: strings.Repeat("x", 21)})).To(MatchError(host.ErrInvalid))
		g.Expect(u.Delete(ctx, "capw")).To(Succeed())
		g.Expect(u.Delete(ctx, "capw")).To(Succeed())
		_, err = u.Get(ctx, "capw")
		g.Expect(err).To(MatchError(host.ErrNotFound))
	})
}

func TestRootsAreKnownByTheirFingerprint(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	inBubble(t, sim.Options{}, func(g *WithT, ctx context.Context, m *sim.Machine) {
		c := m.Host().Certificates
		g.Expect(c.AddRoot(ctx, []byte("no certificate"))).To(MatchError(host.ErrInvalid))
		g.Expect(c.AddRoot(ctx, der)).To(Succeed())
		g.Expect(c.AddRoot(ctx, der)).To(Succeed())
		roots, err := c.Roots(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(roots).To(ConsistOf(MatchRegexp("^[0-9a-f]{64}$")))
		g.Expect(c.RemoveRoot(ctx, roots[0])).To(Succeed())
		g.Expect(c.Roots(ctx)).To(BeEmpty())
	})
}

func TestAFeatureBringsThoseThatItNeeds(t *testing.T) {
	o := sim.Options{Features: map[string]sim.Feature{
		"Containers": {Requires: []string{"Base"}}, "Base": {Reboot: true}, "Simple": {},
	}}
	inBubble(t, o, func(g *WithT, ctx context.Context, m *sim.Machine) {
		f := m.Host().Features
		g.Expect(f.Enable(ctx, "Containers")).To(BeTrue())
		g.Expect(f.State(ctx, "base")).To(Equal(host.FeaturePending))
		g.Expect(f.Enable(ctx, "Simple")).To(BeFalse())
		g.Expect(f.State(ctx, "Simple")).To(Equal(host.FeatureEnabled))
		_, err := f.Enable(ctx, "Unknown")
		g.Expect(err).To(MatchError(host.ErrNotFound))
		_, err = f.State(ctx, "Unknown")
		g.Expect(err).To(MatchError(host.ErrNotFound))
		m.Reboot()
		f = m.Host().Features
		g.Expect(f.State(ctx, "Base")).To(Equal(host.FeatureEnabled))
		g.Expect(f.Enable(ctx, "Containers")).To(BeFalse())
	})
}

func TestReportsReachTheOutsideWhereThereIsAWay(t *testing.T) {
	inBubble(t, sim.Options{GuestInfo: true, GuestVariables: map[string]string{"guestinfo.in": "x"}}, func(g *WithT, ctx context.Context, m *sim.Machine) {
		r := m.Host().Reporting
		g.Expect(r.Event(ctx, host.EventWarning, 7, "something")).To(Succeed())
		g.Expect(m.Events()).To(Equal([]sim.Event{{Boot: 1, Source: "CAPW", Level: host.EventWarning, ID: 7, Message: "something"}}))
		g.Expect(r.Event(ctx, "Loud", 7, "something")).To(MatchError(host.ErrInvalid))
		g.Expect(r.GuestInfo(ctx, "guestinfo.in")).To(Equal("x"))
		g.Expect(r.SetGuestInfo(ctx, "guestinfo.out", "y")).To(Succeed())
		g.Expect(m.GuestInfo()).To(HaveKeyWithValue("guestinfo.out", "y"))
		_, err := r.GuestInfo(ctx, "guestinfo.none")
		g.Expect(err).To(MatchError(host.ErrNotFound))
		g.Expect(r.SerialLine(ctx, "com1", "line")).To(Succeed())
		g.Expect(m.SerialLines("COM1")).To(Equal([]string{"line"}))
		g.Expect(r.SerialLine(ctx, "COM2", "line")).To(MatchError(host.ErrNotSupported))
	})
	inBubble(t, sim.Options{SerialPorts: []string{}}, func(g *WithT, ctx context.Context, m *sim.Machine) {
		r := m.Host().Reporting
		g.Expect(r.SetGuestInfo(ctx, "guestinfo.out", "y")).To(MatchError(host.ErrNotSupported))
		_, err := r.GuestInfo(ctx, "guestinfo.out")
		g.Expect(err).To(MatchError(host.ErrNotSupported))
		g.Expect(r.SerialLine(ctx, "COM1", "line")).To(MatchError(host.ErrNotSupported))
	})
}

func TestTheTimeZoneIsOneThatWindowsKnows(t *testing.T) {
	inBubble(t, sim.Options{}, func(g *WithT, ctx context.Context, m *sim.Machine) {
		s := m.Host().System
		g.Expect(s.SetTimeZone(ctx, "W. Europe Standard Time")).To(Succeed())
		g.Expect(s.TimeZone(ctx)).To(Equal("W. Europe Standard Time"))
		g.Expect(s.SetTimeZone(ctx, "Europe/Berlin")).To(MatchError(host.ErrInvalid))
		g.Expect(s.RebootPending(ctx)).To(BeFalse())
		m.RequireReboot()
		g.Expect(s.RebootPending(ctx)).To(BeTrue())
	})
}

func TestADomainIsJoinedWithTheRightPassword(t *testing.T) {
	inBubble(t, sim.Options{DomainPassword: "right"}, func(g *WithT, ctx context.Context, m *sim.Machine) {
		d := m.Host().Domain
		g.Expect(d.Join(ctx, "corp.example", "OU=x", "admin", "wrong")).To(MatchError(host.ErrInvalid))
		g.Expect(d.JoinOffline(ctx, []byte{0, 1})).To(MatchError(host.ErrInvalid))
		g.Expect(d.JoinOffline(ctx, []byte("corp.example"))).To(Succeed())
		m.Reboot()
		d = m.Host().Domain
		g.Expect(d.Joined(ctx)).To(Equal("corp.example"))
		g.Expect(d.Join(ctx, "CORP.example", "OU=x", "admin", "right")).To(Succeed())
		g.Expect(m.Host().System.RebootPending(ctx)).To(BeFalse(), "it is a member already")
	})
}

func TestASnapshotHoldsTheWholeStateAndTwoEqualMachinesHaveEqualOnes(t *testing.T) {
	o := sim.Options{Programs: programs(serve), Services: []host.Service{demo("a", automatic)}}
	var snapshots []sim.Snapshot
	for range 2 {
		inBubble(t, o, func(g *WithT, ctx context.Context, m *sim.Machine) {
			before := m.Snapshot()
			h := m.Host()
			g.Expect(h.Files.Write(ctx, `C:\f`, []byte("content"), host.ACLSystem)).To(Succeed())
			g.Expect(h.Registry.Set(ctx, `HKLM\SOFTWARE\x`, "v", host.DWordValue(1))).To(Succeed())
			g.Expect(h.Users.Apply(ctx, host.User{Name: "u"})).To(Succeed())
			g.Expect(h.System.SetComputerName(ctx, "n")).To(Succeed())
			after := m.Snapshot()
			g.Expect(after).To(HaveKeyWithValue(`file C:\f`, "System\ncontent"))
			g.Expect(after).To(HaveKeyWithValue("serviceState a", "Running"))
			for _, key := range []string{`file C:\f`, `registry HKLM\SOFTWARE\x @v`, "user u", "system computer name"} {
				g.Expect(after[key]).NotTo(Equal(before[key]), key)
			}
			snapshots = append(snapshots, after)
		})
	}
	NewWithT(t).Expect(snapshots[0]).To(Equal(snapshots[1]))
}
