// Package engine runs the phases of a first boot: in order, each step until it succeeds or its time is over, with every
// step's outcome in a journal, so that a power cut at any instruction costs at most the step that ran.
package engine

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// Phase is a named part of a first boot. The list of its steps is its documentation.
type Phase struct {
	Name  string
	Steps []Step
}

// Step is one thing that is done. It may be repeated at any time and from any state that it can leave behind: after a
// failure, a crash or a reboot it finds what it did before and goes on.
type Step struct {
	// Name in a few words.
	Name string
	// Do does it. Its errors have a code (package codes); those of class Retryable are tried again within Budget.
	Do func(ctx context.Context, r *Run) error
	// Budget bounds it.
	Budget Budget
	// When says whether the step applies; nil: always. It only looks at the document and the facts.
	When func(r *Run) bool
}

// Budget bounds the attempts of a step.
type Budget struct {
	// Attempt is the time of one attempt; the step's context ends then.
	Attempt time.Duration
	// Interval is the pause after the first failure; it doubles up to MaxInterval, with jitter.
	Interval, MaxInterval time.Duration
	// Total is the time of all attempts together; 0: up to the deadline of the first boot.
	Total time.Duration
}

// Once allows one attempt of the given time. A retryable failure ends the first boot, too.
func Once(attempt time.Duration) Budget { return Budget{Attempt: attempt, Total: attempt} }

// Retry allows attempts of the given time, with pauses from interval to ten times interval, until total is over; total 0
// is up to the deadline of the first boot.
func Retry(attempt, interval, total time.Duration) Budget {
	return Budget{Attempt: attempt, Interval: interval, MaxInterval: 10 * interval, Total: total}
}

// Run is what steps work with.
type Run struct {
	// Host is the machine.
	Host *host.Host
	// Doc is the node document with its defaults. Steps do not change it.
	Doc *nodev1.NodeConfiguration
	// Facts are what steps found out. They are in the journal after the step has succeeded, or after Save.
	Facts *Facts

	save func(ctx context.Context) error
}

// NewRun returns a Run whose facts and traces are stored by save.
func NewRun(h *host.Host, doc *nodev1.NodeConfiguration, facts *Facts, save func(ctx context.Context) error) *Run {
	return &Run{Host: h, Doc: doc, Facts: facts, save: save}
}

// Save makes the facts durable now, before an act that needs them to be remembered.
func (r *Run) Save(ctx context.Context) error { return r.save(ctx) }

// Trace remembers something that reset shall undo, durably. It is called before the act, so that a power cut between the
// two leaves nothing unknown. A trace that is there already keeps what it says: the state before the first act.
func (r *Run) Trace(ctx context.Context, t Trace) error {
	for _, have := range r.Facts.Traces {
		if have.Kind == t.Kind && have.Name == t.Name {
			return nil
		}
	}
	before := r.Facts.Traces
	r.Facts.Traces = append(slices.Clone(before), t)
	if err := r.save(ctx); err != nil {
		r.Facts.Traces = before // else the next attempt would take it for durable
		return err
	}
	return nil
}

// RequestReboot makes the engine reboot the machine at the end of the phase, and run the phase once more after that, in
// which nothing should request a reboot any more. Only phases before Join may.
func (r *Run) RequestReboot(reason string) {
	for _, have := range r.Facts.RebootReasons {
		if have == reason {
			return
		}
	}
	r.Facts.RebootReasons = append(r.Facts.RebootReasons, reason)
}

// Facts are what the node has found out, kept in the journal. They hold no secrets.
type Facts struct {
	// RebootReasons that wait for the end of the phase.
	RebootReasons []string `json:"rebootReasons,omitempty"`
	// Traces are what reset undoes, oldest first.
	Traces []Trace `json:"traces,omitempty"`

	// NodeIPs that the kubelet reports, at most one per family, and the MAC of their adapter.
	NodeIPs []string `json:"nodeIPs,omitempty"`
	NodeMAC string   `json:"nodeMAC,omitempty"`
	// ProviderID from the firmware; empty if an external cloud provider sets it.
	ProviderID string `json:"providerID,omitempty"`
	// WindowsBuild, such as 10.0.20348.
	WindowsBuild string `json:"windowsBuild,omitempty"`
	// RebootsFor says, by what needed a reboot, in which boot (BootID) that was found first.
	RebootsFor map[string]string `json:"rebootsFor,omitempty"`
	// CleanedBootID is the boot in which stale HNS networks were removed.
	CleanedBootID string `json:"cleanedBootID,omitempty"`

	// Paths of artifacts and programs by name: kubelet, kubeadm, containerd, kube-proxy, ...
	Paths map[string]string `json:"paths,omitempty"`
	// Versions of programs by name, such as v1.36.3.
	Versions map[string]string `json:"versions,omitempty"`

	// RanCommands are the commands of the document that have run, by list and index, such as preJoin/0.
	RanCommands []string `json:"ranCommands,omitempty"`

	// ContainerdConfig is the SHA-256 sum of the config.toml that the agent has started containerd with.
	ContainerdConfig string `json:"containerdConfig,omitempty"`

	// ClusterDNS and ClusterDomain from the kubelet configuration, KubeletArgs the kubelet's flags without its path.
	ClusterDNS    []string `json:"clusterDNS,omitempty"`
	ClusterDomain string   `json:"clusterDomain,omitempty"`
	KubeletArgs   []string `json:"kubeletArgs,omitempty"`
	// ServiceCIDR, PodCIDR of the node and the HNS network of the CNI, once they are known.
	PodCIDR    string `json:"podCIDR,omitempty"`
	HNSNetwork string `json:"hnsNetwork,omitempty"`
	SourceVIP  string `json:"sourceVIP,omitempty"`
}

// Trace is something that the agent changed.
type Trace struct {
	Kind TraceKind `json:"kind"`
	// Name of the service, path, variable, rule, RegistryName, fingerprint, HNS network ID, user.
	Name string `json:"name"`
	// Before is what was there, as the kind needs it to restore: a registry value or a variable as JSON; empty: nothing.
	Before string `json:"before,omitempty"`
}

// TraceKind says what a Trace is of.
type TraceKind string

// Kinds of traces, and what reset does with them.
const (
	TraceService     TraceKind = "Service"     // restores its configuration, stopped, or deletes it
	TraceFile        TraceKind = "File"        // removes the file or folder
	TraceRegistry    TraceKind = "Registry"    // restores the value
	TraceEnvironment TraceKind = "Environment" // restores the variable
	TraceFirewall    TraceKind = "Firewall"    // deletes the rule
	TraceCertificate TraceKind = "Certificate" // removes the root
	TraceUser        TraceKind = "User"        // deletes the account
	TraceHNSNetwork  TraceKind = "HNSNetwork"  // deletes the network
)

// RegistryName is the Name of a Trace of a registry value. Between key and value stand two backslashes, as no key has two in
// a row, while the name of a value may be anything, such as a path.
func RegistryName(key, value string) string { return key + `\\` + value }

// SplitRegistryName returns key and value of a RegistryName.
func SplitRegistryName(name string) (key, value string) {
	key, value, _ = strings.Cut(name, `\\`)
	return key, value
}
