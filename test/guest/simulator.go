// Package guest simulates the Windows guests of the VMs in a vCenter, or rather in vcsim, which runs VMs but nothing
// inside them.
//
// A Simulator watches the vCenter. Each VM that is powered on with user data is a simulated Windows machine (package sim)
// whose image holds VMware Tools, which report the machine's name and addresses; cloudbase-init, which decodes the guestinfo
// variables, names the computer and runs the user data once per instance-id; and the node agent, the real one, with a
// kubelet and a containerd of package simagent. The agent joins the workload cluster over the network, with nothing but what
// the VM gives it.
//
// What a VM has on its disk survives power cycles and is gone with the VM. Its hardware is what it was at the first power-on.
package guest

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Options of a Simulator. Only VCenter is required. BootDelay and FailBoot are called from many guests at a time.
type Options struct {
	// VCenter is the SOAP endpoint with credentials, such as https://user:password@127.0.0.1:8989/sdk.
	VCenter *url.URL
	// Thumbprint of the vCenter's certificate, SHA-1 or SHA-256; empty for a certificate that the system trusts.
	Thumbprint string

	// FirstBoot is how long Windows takes from power-on until it has addresses and runs cloudbase-init. Default: 1 s.
	FirstBoot time.Duration
	// BootDelay overrides FirstBoot for the named VM and each of its power-ons.
	BootDelay func(vm string) time.Duration
	// FailBoot lets Windows fail to start when it returns an error: no addresses, no cloudbase-init, no Node.
	FailBoot func(vm string) error

	// Heartbeat is the kubelet's interval of Lease renewals and of Node status reports. Default: 10 s.
	Heartbeat time.Duration

	// OnEvent is told each step of each guest, one at a time: what the guest does next waits for it. It must not block; it may
	// call Snapshot.
	OnEvent func(Event)
}

func (o Options) withDefaults() Options {
	o.FirstBoot = cmp.Or(o.FirstBoot, time.Second)
	o.Heartbeat = cmp.Or(o.Heartbeat, 10*time.Second)
	if o.BootDelay == nil {
		d := o.FirstBoot
		o.BootDelay = func(string) time.Duration { return d }
	}
	if o.FailBoot == nil {
		o.FailBoot = func(string) error { return nil }
	}
	if o.OnEvent == nil {
		o.OnEvent = func(Event) {}
	}
	return o
}

// Phase of a guest.
type Phase string

const (
	// Booting means: Windows starts.
	Booting Phase = "Booting"
	// Joining means: the user data, and then the agent that it has started, make the machine a node; the event's Message is
	// the agent's phase. State.Err is the failure that is being tried again.
	Joining Phase = "Joining"
	// Running means: the first boot is done, the Node was Ready, and the machine's kubelet runs.
	Running Phase = "Running"
	// Foreign means: the user data is of a form that carries no node document, such as cloud-config. It counts as run and
	// is kept in State.ForeignData.
	Foreign Phase = "Foreign"
	// Failed means: the machine will not become a Node; State.Err says why.
	Failed Phase = "Failed"
	// Stopped means: the VM is not powered on.
	Stopped Phase = "Stopped"
	// Gone means: the VM does not exist any more. It is the last event of a guest; Snapshot does not show it.
	Gone Phase = "Gone"
)

// Event is one step of a guest.
type Event struct {
	Time time.Time
	// VM is its name; empty for an event of the Simulator itself, such as a lost connection to the vCenter.
	VM string
	// Phase that the guest is in after the step; empty for an event of the Simulator itself.
	Phase Phase
	// Message says in one sentence what happened.
	Message string
}

// String returns the event as one line.
func (e Event) String() string {
	return fmt.Sprintf("%s %-15s %-8s %s", e.Time.Format("15:04:05.000"), e.VM, e.Phase, e.Message)
}

// State of a guest.
type State struct {
	// VM is its name, Reference its managed object ID, UUID its BIOS UUID.
	VM, Reference, UUID string
	Phase               Phase
	// Err is why the guest is Failed, or what is tried again while Joining. What the agent reports is an *engine.Failure.
	Err error
	// Boots counts the power-ons seen.
	Boots int
	// InstanceID as cloudbase-init took it from the metadata, ComputerName as Windows has it.
	InstanceID, ComputerName string
	// NodeName is the name of the Node, once the first boot is done.
	NodeName string
	// IPs that the guest reported, the Node's address first.
	IPs []string
	// ForeignData is the decoded user data of a Foreign guest.
	ForeignData []byte
}

// Simulator simulates all guests of one vCenter.
type Simulator struct {
	opts Options
	dhcp addressPool

	// events orders state changes and their callbacks; it is taken before mu.
	events sync.Mutex

	mu       sync.Mutex
	vcenter  *vcenter
	machines map[types.ManagedObjectReference]*machine
}

// New returns a Simulator; Run starts it.
func New(opts Options) *Simulator {
	return &Simulator{opts: opts.withDefaults(), machines: map[types.ManagedObjectReference]*machine{}}
}

// Run simulates a guest for each VM until ctx ends, and returns nil then, with every guest stopped. A lost connection to
// the vCenter is established again; only if the first one fails is that an error.
func (s *Simulator) Run(ctx context.Context) error {
	defer s.stopAll()
	vc, err := connect(ctx, s.opts.VCenter, s.opts.Thumbprint)
	if err != nil {
		return err
	}
	for {
		s.mu.Lock()
		s.vcenter = vc
		s.mu.Unlock()
		err := s.watch(ctx, vc)
		vc.close(ctx)
		if ctx.Err() != nil {
			return nil
		}
		s.notify("", "", fmt.Sprintf("lost the vCenter: %v", err))
		if vc, err = s.reconnect(ctx); err != nil {
			return nil // ctx ended
		}
	}
}

func (s *Simulator) reconnect(ctx context.Context) (vc *vcenter, err error) {
	err = forever(ctx, func(ctx context.Context) error {
		vc, err = connect(ctx, s.opts.VCenter, s.opts.Thumbprint)
		return err
	})
	return vc, err
}

// forever tries do, with the kubelet's back-off, until it succeeds, which returns nil, or ctx ends, which returns its error.
func forever(ctx context.Context, do func(ctx context.Context) error) error {
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 10, Cap: 7 * time.Second, Jitter: 0.1}
	return backoff.DelayFunc().Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		return do(ctx) == nil, nil
	})
}

// Snapshot returns the state of each guest, by name.
func (s *Simulator) Snapshot() []State {
	s.mu.Lock()
	defer s.mu.Unlock()
	states := make([]State, 0, len(s.machines))
	for _, m := range s.machines {
		if m.state.Phase != "" {
			states = append(states, m.state)
		}
	}
	slices.SortFunc(states, func(a, b State) int {
		return cmp.Or(cmp.Compare(a.VM, b.VM), cmp.Compare(a.Reference, b.Reference))
	})
	return states
}

// notify calls OnEvent; the caller holds no lock.
func (s *Simulator) notify(vm string, phase Phase, message string) {
	s.events.Lock()
	defer s.events.Unlock()
	s.opts.OnEvent(Event{Time: time.Now(), VM: vm, Phase: phase, Message: message})
}

func (s *Simulator) stopAll() {
	s.mu.Lock()
	machines := s.machines
	s.machines = map[types.ManagedObjectReference]*machine{}
	s.mu.Unlock()
	for _, m := range machines {
		m.cut()
	}
	for _, m := range machines {
		m.await()
	}
}
