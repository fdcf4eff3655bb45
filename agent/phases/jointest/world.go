// Package jointest is a simulated machine before a simulated cluster, for tests of the phases that need both.
package jointest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/capw-dev/cluster-api-provider-windows/agent/apiclient/apitest"
	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim/simkubelet"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// World is a machine whose phases before Join are done, and the cluster that it shall join.
type World struct {
	API     *apitest.Server
	Machine *sim.Machine
	// Doc has its defaults; Facts are those of the phases before, and what the phases add.
	Doc   *nodev1.NodeConfiguration
	Facts engine.Facts
	// Statuses that were reported.
	Statuses []nodev1.BootStatus
}

// Options change a World before it is made.
type Options struct {
	API     apitest.Options
	Kubelet simkubelet.Options
	// Doc changes the document before its defaults are set.
	Doc func(*nodev1.NodeConfiguration)
	// Machine changes the machine.
	Machine func(*sim.Options)
	Inject  func(sim.Call) sim.Fault
}

// Name of the node, its provider ID and address.
const (
	Name       = "win-a"
	ProviderID = "vsphere://421d3c5a-1122-3344-5566-778899aabbcc"
	Address    = "10.0.0.10"
)

// New makes a World without power. Close ends it.
func New(o Options) *World {
	w := &World{API: apitest.New(o.API), Facts: engine.Facts{NodeIPs: []string{Address}, ProviderID: ProviderID}}
	given := &nodev1.NodeConfiguration{
		Cluster: nodev1.ClusterInfo{Namespace: "default", Name: "demo", KubernetesVersion: "v1.36.3"},
		Node: nodev1.NodeInfo{
			Name: Name, ProviderID: "Auto", Labels: map[string]string{"example.com/pool": "win"},
			Taints: []corev1.Taint{
				{Key: "os", Value: "windows", Effect: corev1.TaintEffectNoSchedule},
				{Key: "node.cluster.x-k8s.io/uninitialized", Effect: corev1.TaintEffectNoSchedule},
			},
		},
		Join: w.API.Join(),
		OS:   nodev1.OSInfo{Users: []nodev1.User{{Name: "admin", Password: "a-local-secret"}}},
	}
	given.APIVersion, given.Kind = nodev1.APIVersion, nodev1.NodeConfigurationKind
	if o.Doc != nil {
		o.Doc(given)
	}
	document, err := json.Marshal(given)
	if err != nil {
		panic(err)
	}
	w.Doc = given.DeepCopy()
	w.Doc.Default()

	options := sim.Options{
		ComputerName: strings.ToUpper(Name), Inject: o.Inject, Dial: w.API.DialContext,
		Programs: map[string]sim.Program{
			layout.Agent: simkubelet.Runner, layout.Kubelet: simkubelet.Program(o.Kubelet), layout.Kubeadm: simkubelet.Kubeadm,
			layout.Containerd: simkubelet.Containerd, `C:\k\idle.exe`: simkubelet.Idle,
		},
		Files: map[string]string{
			layout.Document: string(document), layout.Join(layout.LogDir, "readme.txt"): "logs", layout.KubeletPKIDir + `\readme.txt`: "",
		},
		Services: []host.Service{
			{Name: layout.AgentService, Argv: []string{`C:\k\idle.exe`}, Start: host.StartAuto},
			{Name: layout.ContainerdService, Argv: []string{layout.Containerd}, Start: host.StartAuto},
		},
	}
	options.Adapters = []sim.Adapter{{
		Adapter: host.Adapter{DHCP: true, Addresses: []netip.Prefix{netip.MustParsePrefix(Address + "/24")}},
	}}
	if o.Machine != nil {
		o.Machine(&options)
	}
	w.Machine = sim.New(options)
	return w
}

// Close ends machine and cluster.
func (w *World) Close() {
	w.Machine.PowerOff()
	w.API.Close()
}

// Boot powers the machine on and runs phases to their end. Give a context with a deadline.
func (w *World) Boot(ctx context.Context, phases ...engine.Phase) error {
	w.Machine.PowerOn(ctx)
	return w.Run(ctx, w.Machine.Host(), phases...)
}

// Run runs phases to their end, or goes on where the journal on the machine says.
func (w *World) Run(ctx context.Context, h *host.Host, phases ...engine.Phase) error {
	journal, err := engine.LoadJournal(ctx, h.Files)
	if errors.Is(err, fs.ErrNotExist) {
		journal, err = &engine.Journal{Facts: w.Facts}, nil
	}
	if err != nil {
		return fmt.Errorf("loading the journal: %w", err)
	}
	e := &engine.Engine{
		Host: h, Doc: w.Doc, Phases: phases, Journal: journal, Version: "test",
		Report: func(_ context.Context, s nodev1.BootStatus) { w.Statuses = append(w.Statuses, s) },
	}
	err = e.Run(ctx)
	if err == nil {
		w.Facts = journal.Facts
	}
	return err
}

// Codes returns the codes that were reported, without repetitions that follow each other.
func (w *World) Codes() []codes.Code {
	var out []codes.Code
	for _, s := range w.Statuses {
		if code := codes.Code(s.Code); code != "" && (len(out) == 0 || out[len(out)-1] != code) {
			out = append(out, code)
		}
	}
	return out
}
