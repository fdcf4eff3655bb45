package guest

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
)

// machine is one VM and the guest in it.
type machine struct {
	sim *Simulator
	ref types.ManagedObjectReference

	// What the watch saw last; only the watch uses these.
	name     string
	template bool
	power    types.VirtualMachinePowerState
	bootTime time.Time

	// The boot that runs, or ran last; nil before the first one. The next one starts when done is closed.
	halt context.CancelFunc
	done chan struct{}

	// windows is made at the first boot with user data, with its adapters and their addresses; all belong to the boot that
	// runs.
	windows   *sim.Machine
	nics      []types.GuestNicInfo
	addresses []netip.Addr

	// told is the last event; guarded by sim.events.
	told string

	// state is guarded by sim.mu, and changes only under sim.events.
	state State
}

// update applies changed properties of the VM.
func (m *machine) update(ctx context.Context, changes []types.PropertyChange) {
	running := m.power == types.VirtualMachinePowerStatePoweredOn && !m.template
	reset := false
	for _, c := range changes {
		switch v := c.Val.(type) {
		case string:
			m.name = v
		case bool:
			m.template = v
		case types.VirtualMachinePowerState:
			m.power = v
		case time.Time:
			reset = !m.bootTime.IsZero() && !m.bootTime.Equal(v)
			m.bootTime = v
		}
	}
	run := m.power == types.VirtualMachinePowerStatePoweredOn && !m.template
	if running && (!run || reset) {
		m.powerOff()
	}
	if !run {
		m.bootTime = time.Time{} // the next power-on may be seen before its time
	}
	if run && (!running || reset) {
		m.powerOn(ctx)
	}
}

func (m *machine) powerOn(ctx context.Context) {
	previous := m.done
	ctx, m.halt = context.WithCancel(ctx)
	m.done = make(chan struct{})
	name, done := m.name, m.done
	go func() {
		defer close(done)
		if previous != nil {
			<-previous
		}
		m.boot(ctx, name)
	}()
}

// cut takes the power away at once; the guest reports nothing from now on.
func (m *machine) cut() {
	if m.halt != nil {
		m.halt()
	}
}

// await waits until the guest's last boot has ended.
func (m *machine) await() {
	if m.done != nil {
		<-m.done
	}
}

func (m *machine) powerOff() {
	m.cut()
	m.record(Stopped, "powered off")
}

func (m *machine) destroy() {
	m.cut()
	m.record(Gone, "destroyed")
	go func() {
		m.await()
		m.sim.dhcp.release(m.addresses)
	}()
}

// record reports what happened to a VM whose guest ever did something.
func (m *machine) record(phase Phase, message string) {
	m.change(phase, message, func(s *State) bool {
		known := s.Phase != ""
		s.Err = nil
		return known
	})
}

// report changes the state and reports it, unless the power is gone.
func (m *machine) report(ctx context.Context, phase Phase, message string, change func(*State)) {
	m.change(phase, message, func(s *State) bool {
		if ctx.Err() != nil {
			return false
		}
		change(s)
		return true
	})
}

// change brings the guest into a phase if do says so, and tells the event unless it was the last one told. The empty phase
// leaves the guest in the one that it is in.
func (m *machine) change(phase Phase, message string, do func(*State) bool) {
	m.sim.events.Lock()
	defer m.sim.events.Unlock()
	m.sim.mu.Lock()
	changed := do(&m.state)
	if changed {
		m.state.Phase = cmp.Or(phase, m.state.Phase)
	}
	e := Event{VM: m.state.VM, Phase: m.state.Phase, Message: message}
	m.sim.mu.Unlock()
	if told := string(e.Phase) + " " + message; changed && told != m.told {
		m.told = told
		e.Time = time.Now()
		m.sim.opts.OnEvent(e)
	}
}

// fail reports why the machine will not become a Node. The first reason stays: what follows comes from it.
func (m *machine) fail(ctx context.Context, err error) {
	m.report(ctx, Failed, err.Error(), func(s *State) {
		if s.Phase != Failed {
			s.Err = err
		}
	})
}

// boot runs from power-on until the power is gone, or nothing is left to do.
func (m *machine) boot(ctx context.Context, name string) {
	var hw hardware
	err := forever(ctx, func(ctx context.Context) (err error) {
		hw, err = m.sim.hardwareOf(ctx, m.ref)
		return err
	})
	if err != nil || hw.guestinfo["guestinfo.userdata"] == "" {
		return // no power, or none of our business
	}
	m.sim.mu.Lock()
	boots := m.state.Boots + 1
	m.sim.mu.Unlock()
	m.report(ctx, Booting, fmt.Sprintf("Windows starts, boot %d", boots), func(s *State) {
		*s = State{
			VM: name, Reference: m.ref.Value, UUID: hw.uuid, Boots: boots,
			InstanceID: s.InstanceID, ComputerName: s.ComputerName, ForeignData: s.ForeignData,
		}
	})
	if !pause(ctx, m.sim.opts.BootDelay(name)) {
		return
	}
	if err := m.sim.opts.FailBoot(name); err != nil {
		m.fail(ctx, fmt.Errorf("booting Windows: %w", err))
		return
	}
	if m.windows == nil {
		m.install(hw)
	}
	for key, value := range hw.guestinfo {
		m.windows.SetGuestInfo(key, value)
	}
	m.windows.PowerOn(ctx)
	m.resume(ctx)
	<-ctx.Done()
	m.windows.PowerOff()
}

// pause waits; false when ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
