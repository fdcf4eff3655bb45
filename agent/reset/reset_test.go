package reset

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim/faultloop"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim/simkubelet"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/hostprep"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/phasetest"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/services"
	"github.com/capw-dev/cluster-api-provider-windows/agent/runner"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

const exampleKey = `HKLM\SOFTWARE\Example`

// image is one that brings a kubelet service of its own, a registry value, an account and a file of a user.
func image() sim.Options {
	return sim.Options{
		ComputerName: "prod-ki54itvck1",
		Files: map[string]string{
			`C:\k\kubelet.exe`: "program", `C:\data\volume\precious.txt`: "a user's", `C:\var\lib\foreign\state`: "of another program",
		},
		Registry: []sim.RegistryValue{{Key: exampleKey, Name: "Old", Value: host.StringValue("before")}},
		Users:    []host.User{{Name: "ops"}},
		Services: []host.Service{
			{Name: layout.AgentService, Argv: []string{layout.Agent, "run"}, Start: host.StartAuto},
			{Name: "kubelet", DisplayName: "kubelet", Argv: []string{`C:\k\kubelet.exe`, "--image"}, Start: host.StartManual, Environment: []string{"A=1"}},
			{Name: "WinDefend", Argv: []string{`C:\Windows\System32\svchost.exe`}, Start: host.StartManual},
		},
		Programs: map[string]sim.Program{
			layout.Agent: func(ctx context.Context, p *sim.Process) int {
				if _, _, ok := runner.Unwrap(p.Argv); ok {
					return simkubelet.Runner(ctx, p)
				}
				return simkubelet.Idle(ctx, p)
			},
			layout.Containerd:                  simkubelet.Idle,
			layout.Kubelet:                     simkubelet.Idle,
			`C:\k\csi-proxy.exe`:               simkubelet.Idle,
			`C:\k\flanneld.exe`:                simkubelet.Idle,
			`C:\Windows\System32\svchost.exe`:  simkubelet.Idle,
			`C:\Windows\System32\taskkill.exe`: func(context.Context, *sim.Process) int { return 128 },
		},
	}
}

func document(ca string) *nodev1.NodeConfiguration {
	return phasetest.Document(func(doc *nodev1.NodeConfiguration) {
		doc.Services.CSIProxy = &nodev1.ServiceOptions{}
		doc.Services.CNI = &nodev1.CNI{Type: nodev1.CNIFlannelOverlay, PodCIDR: "10.244.0.0/16", ServiceCIDR: "10.96.0.0/12"}
		doc.OS = nodev1.OSInfo{
			Users:       []nodev1.User{{Name: "ops", Groups: []string{host.AdministratorsSID}}, {Name: "new"}},
			Proxy:       nodev1.ProxyInfo{HTTPS: "http://proxy.example.test:3128"},
			TrustedCAs:  []string{ca},
			Environment: map[string]string{"POOL": "win"},
			Registry: []nodev1.RegistryValue{
				{Key: exampleKey, Name: "Old", Type: "String", Value: "after"}, {Key: exampleKey, Name: "New", Type: "DWord", Value: "7"},
			},
		}
	})
}

func certificate() (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(7)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), err
}

// bootstrap makes a machine a node as far as the phases that change it most do, and returns what was before and the facts.
func bootstrap(ctx context.Context, m *sim.Machine) (sim.Snapshot, *engine.Facts, error) {
	ca, err := certificate()
	if err != nil {
		return nil, nil, err
	}
	m.PowerOn(ctx)
	time.Sleep(time.Minute)
	before := m.Snapshot()
	phase := services.Phase()
	phase.Steps = append([]engine.Step{{Name: "join", Budget: engine.Once(time.Minute), Do: func(_ context.Context, r *engine.Run) error {
		r.Facts.KubeletArgs = []string{"--windows-service"}
		return nil
	}}}, phase.Steps...)
	r, err := phasetest.Run(ctx, m, document(ca), hostprep.Phase(), phase)
	if err != nil {
		return nil, nil, err
	}
	// What programs of a node leave behind.
	for _, path := range []string{
		`C:\var\lib\kubelet\pki\kubelet-client.pem`, `C:\var\lib\kubelet\pods\1\volume\x`, `C:\var\lib\cni\networks\n\10.0.0.1`,
		`C:\etc\kubernetes\kubelet.conf`, `C:\run\flannel\subnet.env`, layout.Sentinel,
	} {
		m.WriteFile(path, "state")
	}
	_, err = m.Host().HNS.CreateNetwork(ctx, []byte(`{"Name":"flannel.4096","Type":"Overlay","SchemaVersion":{"Major":2}}`))
	return before, &r.Facts, errors.Join(err, m.Host().Services.Stop(ctx, layout.AgentService))
}

// kept is what a reset leaves: the agent's own state, and what a machine keeps.
func kept(key string) bool {
	switch key {
	case `file C:\k`, `file C:\var`, `file C:\Program Files\containerd`: // folders that were there; users can no longer write to them
		return true
	case `file C:\ProgramData\containerd`, `file C:\opt`, `file C:\opt\cni`: // empty ones above those that are remembered
		return true
	}
	emptyKey := strings.HasPrefix(key, "registry ") && !strings.Contains(key, " @")
	return emptyKey || strings.HasPrefix(key, "file "+layout.StateDir) || strings.HasPrefix(key, "feature ") ||
		key == "serviceState "+layout.AgentService || strings.HasPrefix(key, "system ") || key == "user ops"
}

func TestAMachineIsAsItsImageWasAfterAReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		m := sim.New(image())
		defer m.PowerOff()
		before, facts, err := bootstrap(t.Context(), m)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(faultloop.Diff(before, m.Snapshot(), kept)).NotTo(BeEmpty())

		var acts []string
		o := Options{Report: func(act string, err error) { acts = append(acts, fmt.Sprint(act, err)) }}
		g.Expect(Run(t.Context(), m.Host(), facts, o)).To(Succeed())
		g.Expect(faultloop.Diff(before, m.Snapshot(), kept)).To(BeEmpty())
		g.Expect(m.Files()).To(ContainElements(`C:\data\volume\precious.txt`, `C:\var\lib\foreign\state`, layout.Agent))
		g.Expect(acts).To(ContainElement(ContainSubstring("undo service csi-proxy")))

		g.Expect(Run(t.Context(), m.Host(), facts, Options{})).To(Succeed(), "again")
		g.Expect(faultloop.Diff(before, m.Snapshot(), kept)).To(BeEmpty())
	})
}

func TestAResetThatFailsInOnePlaceGoesOnAndIsCompletedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		m := sim.New(image())
		defer m.PowerOff()
		before, facts, err := bootstrap(t.Context(), m)
		g.Expect(err).NotTo(HaveOccurred())
		failed := map[string]bool{}
		m.SetInject(func(c sim.Call) sim.Fault { // every kind of act fails once
			if c.Program != "" || failed[c.Op] {
				return sim.Fault{}
			}
			failed[c.Op] = true
			return sim.Fault{Kind: sim.Fail}
		})
		err = Run(t.Context(), m.Host(), facts, Options{})
		for _, what := range []string{"stop service", "end containers", "remove networks", "undo file", "undo registry", "undo environment", "undo certificate", "undo firewall", "undo user"} {
			g.Expect(err).To(MatchError(ContainSubstring(what)))
		}
		m.SetInject(nil)
		g.Expect(Run(t.Context(), m.Host(), facts, Options{})).To(Succeed())
		g.Expect(faultloop.Diff(before, m.Snapshot(), kept)).To(BeEmpty())
	})
}

func TestAResetWithoutTracesTouchesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		m := sim.New(image())
		defer m.PowerOff()
		m.PowerOn(t.Context())
		m.WriteFile(`C:\etc\kubernetes\kubelet.conf`, "of a node that somebody else has made")
		calls := m.Calls()
		g.Expect(Run(t.Context(), m.Host(), &engine.Facts{}, Options{})).To(Succeed())
		g.Expect(m.Calls()).To(Equal(calls))
	})
}

func TestATraceOfAnotherVersionIsSaidAndNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		m := sim.New(image())
		defer m.PowerOff()
		m.PowerOn(t.Context())
		err := Run(t.Context(), m.Host(), &engine.Facts{Traces: []engine.Trace{{Kind: "ScheduledTask", Name: "x"}}}, Options{})
		g.Expect(err).To(MatchError(ContainSubstring("undo scheduledtask x")))
	})
}
