package guest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25/types"

	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/cloudinit/cloudbase"
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

	// disk and addresses belong to the boot that runs.
	disk      disk
	addresses []netip.Addr

	// state is guarded by sim.mu, and changes only under sim.events.
	state State
}

// disk is what a VM keeps over power cycles.
type disk struct {
	// executed holds the instance-ids whose user data ran to its end, well or not.
	executed map[string]bool
	// computerName that Windows has.
	computerName string
	// kubelet is what the user data installed.
	kubelet *kubelet
	// outcome is how the first boot ended, if not in a Node: what later boots find.
	outcome Phase
	err     error
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

// change brings the guest into a phase if do says so, and tells the event.
func (m *machine) change(phase Phase, message string, do func(*State) bool) {
	m.sim.events.Lock()
	defer m.sim.events.Unlock()
	m.sim.mu.Lock()
	changed := do(&m.state)
	if changed {
		m.state.Phase = phase
	}
	name := m.state.VM
	m.sim.mu.Unlock()
	if changed {
		m.sim.opts.OnEvent(Event{Time: time.Now(), VM: name, Phase: phase, Message: message})
	}
}

func (m *machine) fail(ctx context.Context, err error) {
	m.report(ctx, Failed, err.Error(), func(s *State) { s.Err = err })
}

// boot runs from power-on until the power is gone or nothing is left to do.
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

	if m.disk.computerName == "" {
		m.disk.computerName = setupName(hw.uuid)
	}
	data, err := readGuestInfo(hw.guestinfo)
	if err == nil {
		var renamed string
		if renamed, err = computerName(data.localHostname, m.disk.computerName); err == nil {
			m.disk.computerName = renamed
		}
	}
	if !m.reportAddresses(ctx, hw) {
		return
	}
	if err != nil {
		m.fail(ctx, fmt.Errorf("cloudbase-init: %w", err))
		return
	}
	m.runUserData(ctx, hw, data)
}

// reportAddresses takes the machine's addresses and tells the vCenter; false without power.
func (m *machine) reportAddresses(ctx context.Context, hw hardware) bool {
	for i := len(m.addresses); i < len(hw.nics); i++ {
		m.addresses = append(m.addresses, m.sim.dhcp.lease(fmt.Sprintf("%s/%d", hw.uuid, i)))
	}
	ips := m.addresses[:len(hw.nics)]
	if err := forever(ctx, func(ctx context.Context) error {
		return m.sim.reportAddresses(ctx, m.ref, m.disk.computerName, hw.nics, ips)
	}); err != nil {
		return false
	}
	texts := make([]string, len(ips))
	for i, ip := range ips {
		texts[i] = ip.String()
	}
	m.report(ctx, Booting, fmt.Sprintf("Windows is up as %s with %s", m.disk.computerName, strings.Join(texts, ", ")), func(s *State) {
		s.ComputerName = m.disk.computerName
		s.IPs = texts
	})
	return ctx.Err() == nil
}

// runUserData plays the UserData plugin, and then what stays of an earlier run: the kubelet service.
func (m *machine) runUserData(ctx context.Context, hw hardware, data bootData) {
	if data.instanceID != "" && m.disk.executed[data.instanceID] {
		m.resume(ctx, hw)
		return
	}
	m.report(ctx, Joining, fmt.Sprintf("cloudbase-init runs the user data of instance %q", data.instanceID), func(s *State) {
		s.InstanceID = data.instanceID
	})
	outcome, err := m.execute(ctx, hw, data.userData)
	if ctx.Err() != nil {
		return // the script did not end: the next boot runs it again
	}
	if m.disk.executed == nil {
		m.disk.executed = map[string]bool{}
	}
	m.disk.executed[data.instanceID] = true
	m.disk.outcome, m.disk.err = outcome, err
	switch outcome {
	case Running:
		m.disk.kubelet.heartbeats(ctx, m.reporter(ctx, Running))
	case Foreign:
		m.report(ctx, Foreign, err.Error(), func(s *State) { s.ForeignData = data.userData })
	default:
		m.fail(ctx, err)
	}
}

// execute runs user data to its end: Running with a registered Node, or why not.
func (m *machine) execute(ctx context.Context, hw hardware, userData []byte) (Phase, error) {
	format, err := recognise(userData)
	switch {
	case err != nil:
		return Failed, fmt.Errorf("cloudbase-init: %w", err)
	case format == formatUnknown:
		return Failed, errors.New("cloudbase-init ignores the user data: it is of no format that it knows")
	case format != formatBatch:
		return Foreign, fmt.Errorf("the user data is foreign (%s): no node document, no Node", format)
	}
	doc, err := cloudbase.ReadDocument(userData)
	if err != nil {
		return Failed, fmt.Errorf("reading the node document: %w", err)
	}
	m.disk.kubelet = &kubelet{
		doc:       doc,
		host:      m.host(hw),
		intervals: intervals{lease: m.sim.opts.LeaseInterval, status: m.sim.opts.StatusInterval},
	}
	if err := m.disk.kubelet.join(ctx, m.sim.opts.JoinTimeout, m.reporter(ctx, Joining)); err != nil {
		return Failed, err
	}
	m.reportRegistered(ctx, doc)
	return Running, nil
}

// resume is a boot after the first one has ended: Windows starts the kubelet service, if there is one.
func (m *machine) resume(ctx context.Context, hw hardware) {
	switch m.disk.outcome {
	case Running:
		k := m.disk.kubelet
		k.host = m.host(hw)
		m.report(ctx, Joining, "user data of this instance ran already; the kubelet starts with its certificate", func(*State) {})
		if err := k.register(ctx, m.reporter(ctx, Joining)); err != nil {
			m.fail(ctx, err)
			return
		}
		m.reportRegistered(ctx, k.doc)
		k.heartbeats(ctx, m.reporter(ctx, Running))
	case Foreign:
		m.report(ctx, Foreign, "user data of this instance ran already", func(*State) {})
	default:
		m.fail(ctx, fmt.Errorf("user data of this instance ran already, and failed: %w", m.disk.err))
	}
}

func (m *machine) host(hw hardware) host {
	h := host{computerName: m.disk.computerName, uuid: hw.uuid, cpus: hw.cpus, memoryMiB: hw.memoryMiB}
	if len(m.addresses) > 0 {
		h.address = m.addresses[0].String()
	}
	return h
}

func (m *machine) reportRegistered(ctx context.Context, doc *nodev1.NodeConfiguration) {
	m.report(ctx, Running, fmt.Sprintf("Node %s is registered", doc.Node.Name), func(s *State) {
		s.NodeName = doc.Node.Name
		s.Err = nil
	})
}

// reporter reports steps and failures of the kubelet, each when it differs from the one before.
func (m *machine) reporter(ctx context.Context, phase Phase) reporter {
	last := ""
	return func(message string, err error) {
		if err != nil {
			message = fmt.Sprintf("%s: %v", message, err)
		}
		if message == last {
			return
		}
		last = message
		m.report(ctx, phase, message, func(s *State) { s.Err = err })
	}
}

// setupName stands for the random name that Windows Setup gives a generalized image.
func setupName(uuid string) string {
	id := strings.ToUpper(strings.ReplaceAll(uuid, "-", ""))
	return "WIN-" + id[:min(11, len(id))]
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
