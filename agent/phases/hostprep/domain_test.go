package hostprep_test

import (
	"context"
	"testing"
	"testing/synctest"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/hostprep"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/phasetest"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// eager is a domain membership that shows as soon as it is asked for, as on Windows, where it is in effect only after a boot.
type eager struct {
	host.Domain

	name string
}

func (d *eager) Joined(context.Context) (string, error) { return d.name, nil }

func (d *eager) Join(_ context.Context, domain, _, _, _ string) error {
	d.name = domain
	return nil
}

func TestAMembershipThatAlreadyShowsStillGetsItsReboot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		m := sim.New(image())
		defer m.PowerOff()
		m.PowerOn(t.Context())
		h := *m.Host()
		h.Domain = &eager{}
		doc := phasetest.Document(func(doc *nodev1.NodeConfiguration) { doc.OS.DomainJoin = online("right") })
		facts := &engine.Facts{}
		r := engine.NewRun(&h, doc, facts, func(context.Context) error { return nil })
		for _, s := range hostprep.Phase().Steps {
			if s.Name != "join the domain" {
				continue
			}
			for range 2 { // the second time is after a crash
				facts.RebootReasons = nil
				g.Expect(s.Do(t.Context(), r)).To(Succeed())
				g.Expect(facts.RebootReasons).To(ConsistOf("the membership in a domain"))
			}
			m.Reboot()
			h2 := *m.Host()
			h2.Domain, facts.RebootReasons = h.Domain, nil
			g.Expect(s.Do(t.Context(), engine.NewRun(&h2, doc, facts, nil))).To(Succeed())
			g.Expect(facts.RebootReasons).To(BeEmpty())
			return
		}
		t.Error("there is no such step")
	})
}
