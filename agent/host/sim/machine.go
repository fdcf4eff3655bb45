// Package sim is a simulated Windows machine, for tests of what is made of package host.
//
// A Machine is hardware with a disk. Between PowerOn and PowerOff it runs a Windows whose services and programs are Go
// functions; Machine.Host is a handle of the present boot. What a host call did is durable when it returns, as the
// interface demands; what is volatile (processes, the state of services, the boot ID, what was appended to a file that is
// still open) is lost when the power is. Every call can fail, hang, kill its process or cut the power (Options.Inject).
//
// It uses neither files, sockets nor processes of the system it runs on, so that a test can run in a bubble of
// testing/synctest with virtual time. A Machine is created in the bubble that uses it.
package sim

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// Options say what machine it is. All of them have defaults: a Windows Server 2022 with one adapter.
type Options struct {
	// ComputerName is the one of the image. Default: WIN-SIM.
	ComputerName string
	// Info of the machine. Zero fields get defaults; BootID and BootTime are the simulation's.
	Info host.Info
	// Files are in the image: paths and contents. Their folders are made.
	Files map[string]string
	// Programs by the path of their executable, or by its name without a path, both case-insensitive. The executable of one
	// with a path is in the image, also without being in Files.
	Programs map[string]Program
	// Registry are values in the image, beside those that every Windows has.
	Registry []RegistryValue
	// Services that the image has. They start at the first PowerOn.
	Services []host.Service
	// Users of the image, beside Administrator.
	Users []host.User
	// Features that this Windows knows. Default: Containers, enabled, and Microsoft-Hyper-V, which needs a reboot.
	Features map[string]Feature
	// Volumes beside the system drive.
	Volumes []Volume
	// DiskBytes is the size of the system drive. Default: 128 GiB.
	DiskBytes uint64

	// Adapters of the machine. Default: one with DHCP and 10.0.0.10/24.
	Adapters []Adapter
	// Hosts are names that the resolver knows beside the machine's own.
	Hosts map[string][]netip.Addr
	// Resolve is asked for names that are not in Hosts. Default: there are none.
	Resolve func(ctx context.Context, name string) ([]netip.Addr, error)
	// Dial opens connections to the outside. Default: net.Dialer, which does not work in a bubble of synctest.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Outside says that an address, host:port, is outside although its host is one of the machine's own, as that of a real
	// server on the loopback of the computer that simulates. Default: none is.
	Outside func(address string) bool

	// GuestInfo: the machine has a hypervisor with guestinfo variables.
	GuestInfo bool
	// GuestVariables are set in it from the beginning.
	GuestVariables map[string]string
	// OnGuestInfo is called after a program has set a variable, before the call returns to it. ctx is the call's.
	OnGuestInfo func(ctx context.Context, key, value string)
	// SerialPorts that the machine has. Default: COM1; empty but not nil: none.
	SerialPorts []string
	// TimeZones known beside a few usual ones.
	TimeZones []string
	// OfflineDomain is what a blob of djoin joins to. Default: the blob's text, if it looks like a domain.
	OfflineDomain func(blob []byte) (string, error)
	// DomainPassword is the one that Domain.Join accepts. Default: every one but an empty.
	DomainPassword string

	// Inject says what happens to each host call. It is called by several goroutines at once, and without the machine's lock.
	Inject func(Call) Fault
}

// RegistryValue is a value with its place.
type RegistryValue struct {
	Key, Name string
	Value     host.Value
}

// Machine is a simulated machine. All its methods can be called at any time by any goroutine.
type Machine struct {
	opts Options

	mu     sync.Mutex
	disk   disk
	boot   *boot // nil: no power
	last   *boot
	boots  int
	calls  int
	inject func(Call) Fault
	booted chan struct{} // closed at the next boot
}

// disk is what outlives the power.
type disk struct {
	volumes     folded[*volume]
	registry    folded[*folded[host.Value]]
	services    folded[host.Service]
	users       folded[host.User]
	firewall    folded[host.FirewallRule]
	features    folded[Feature]
	environment folded[string]
	roots       map[string][]byte

	name         string // after the next boot
	timeZone     string
	domain       string
	domainNext   string
	otherPending bool // something else in Windows waits for a reboot

	adapters     map[uint32]*adapter
	search       []string
	dynamicStart uint16
	dynamicCount uint16
	hns          hnsState

	events    []Event
	guestInfo map[string]string
	serial    map[string][]string
}

// boot is what a power cut loses.
type boot struct {
	m      *Machine
	number int
	id     string
	since  time.Time
	parent context.Context //nolint:containedctx // of PowerOn
	ctx    context.Context //nolint:containedctx // ends with the power
	cancel context.CancelCauseFunc
	// release forgets that the end of parent cuts the power.
	release func() bool
	off     chan struct{}
	work    sync.WaitGroup
	reboot  *reboot // non-nil: Windows shuts down to boot again

	name        string
	environment map[string]string
	nextPID     uint32
	processes   map[*Process]struct{}
	anonymous   *Process
	services    map[string]*serviceRun
	listeners   map[string]*listener
	nextPort    uint16
	watchers    map[*watcher]struct{}
}

// reboot is a reboot under way.
type reboot struct {
	canceled bool          // the power was cut
	done     chan struct{} // closed when the machine boots again, or will not
}

// New returns a machine without power.
func New(o Options) *Machine {
	m := &Machine{opts: o, inject: o.Inject, booted: make(chan struct{})}
	m.install()
	return m
}

// PowerOn boots the machine, and returns at once, while its services start. It does nothing if the power is on. The end of
// ctx cuts the power; its values reach the programs.
func (m *Machine) PowerOn(ctx context.Context) {
	m.settle()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.boot == nil {
		m.startBoot(ctx)
	}
}

// settle waits for the programs of a boot that is over, and for a reboot that was cut short.
func (m *Machine) settle() {
	m.mu.Lock()
	last, on := m.last, m.boot != nil
	var pending *reboot
	if last != nil {
		pending = last.reboot
	}
	m.mu.Unlock()
	if last == nil || on {
		return
	}
	last.work.Wait()
	if pending != nil {
		<-pending.done
	}
}

// startBoot begins a boot. m.mu is held.
func (m *Machine) startBoot(parent context.Context) {
	m.boots++
	b := &boot{
		m: m, number: m.boots, since: time.Now(), id: "boot-" + strconv.Itoa(m.boots), off: make(chan struct{}),
		nextPID: 1000, nextPort: 49152, name: m.disk.name, environment: m.disk.environment.all(),
		processes: map[*Process]struct{}{}, services: map[string]*serviceRun{}, listeners: map[string]*listener{},
		watchers: map[*watcher]struct{}{}, parent: parent,
	}
	b.ctx, b.cancel = context.WithCancelCause(parent)
	m.boot, m.last = b, b
	m.applyPending()
	b.release = context.AfterFunc(parent, func() { m.cut(b) })
	close(m.booted)
	m.booted = make(chan struct{})
	b.autostart()
}

// applyPending does what waited for a reboot.
func (m *Machine) applyPending() {
	d := &m.disk
	for _, name := range d.features.names() {
		if f, _ := d.features.get(name); f.State == host.FeaturePending {
			f.State = host.FeatureEnabled
			d.features.set(name, f)
		}
	}
	if d.domainNext != "" {
		d.domain, d.domainNext = d.domainNext, ""
	}
	d.otherPending = false
	m.computerNameRegistry(m.boot.name)
}

// Cut cuts the power, and returns at once: programs may still be about to notice. It does nothing if the power is off.
func (m *Machine) Cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last != nil && m.last.reboot != nil {
		m.last.reboot.canceled = true
	}
	if m.boot != nil {
		m.endBoot()
	}
}

func (m *Machine) cut(b *boot) {
	m.mu.Lock()
	last := m.last
	m.mu.Unlock()
	if last == b {
		m.Cut()
	}
}

// endBoot loses everything volatile. m.mu is held.
func (m *Machine) endBoot() {
	b := m.boot
	m.boot = nil
	b.release()
	b.cancel(ErrPowerLost)
	m.tearFiles()
	for p := range b.processes {
		p.die(ErrPowerLost)
	}
	for _, s := range b.services {
		s.forget()
	}
	close(b.off)
}

// PowerOff cuts the power, and returns when all programs have ended. It must not be called by a program.
func (m *Machine) PowerOff() {
	m.Cut()
	m.settle()
}

// Reboot shuts Windows down in order and boots it again, and returns when it boots. It must not be called by a program;
// System.Reboot does the same for them. It does nothing if the power is off.
func (m *Machine) Reboot() {
	m.mu.Lock()
	b := m.boot
	var r *reboot
	if b != nil {
		r = m.requestReboot(b)
	}
	m.mu.Unlock()
	if r != nil {
		<-r.done
	}
}

// shutdownTime is how long services may take to end when Windows shuts down (WaitToKillServiceTimeout).
const shutdownTime = 5 * time.Second

// requestReboot begins a reboot in the background, once. m.mu is held.
func (m *Machine) requestReboot(b *boot) *reboot {
	if b.reboot != nil {
		return b.reboot
	}
	r := &reboot{done: make(chan struct{})}
	b.reboot = r
	services := []*Process{}
	for p := range b.processes {
		if p.service != nil {
			p.stop(ErrShutdown)
			services = append(services, p)
		}
	}
	go func() {
		defer close(r.done)
		awaitAll(services, b.off)
		m.mu.Lock()
		if m.boot == b {
			m.closeFiles()
			m.endBoot()
		}
		m.mu.Unlock()
		b.work.Wait()
		m.mu.Lock()
		defer m.mu.Unlock()
		if !r.canceled {
			m.startBoot(b.parent)
		}
	}()
	return r
}

// awaitAll waits for the end of services when Windows shuts down.
func awaitAll(services []*Process, off <-chan struct{}) {
	timer := time.NewTimer(shutdownTime)
	defer timer.Stop()
	for _, p := range services {
		select {
		case <-p.gone:
		case <-timer.C:
			return
		case <-off:
			return
		}
	}
}

// AwaitBoot waits until the machine has booted at least n times.
func (m *Machine) AwaitBoot(ctx context.Context, n int) error {
	for {
		m.mu.Lock()
		boots, next := m.boots, m.booted
		m.mu.Unlock()
		if boots >= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-next:
		}
	}
}

// Boots returns how many times it has booted.
func (m *Machine) Boots() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.boots
}

// On says whether it has power.
func (m *Machine) On() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.boot != nil
}

// Off returns a channel that is closed when the present boot ends. A machine without power returns a closed one.
func (m *Machine) Off() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.boot == nil {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	return m.boot.off
}

// Host returns a handle of the present boot, that belongs to a process without a program. Every call through it fails with
// ErrPowerLost, and has no effect, once the boot is over. After a fault that kills it, Host returns a new one.
func (m *Machine) Host() *host.Host {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.boot
	if b == nil {
		dead := &Process{m: m, boot: &boot{m: m, number: m.boots}, dead: ErrPowerLost, gone: make(chan struct{})}
		close(dead.gone)
		dead.Host = dead.host()
		return dead.Host
	}
	if b.anonymous == nil || b.anonymous.dead != nil {
		b.anonymous, _ = b.newProcess(b.ctx, nil)
	}
	return b.anonymous.Host
}

func sorted(s []string) []string {
	s = slices.Clone(s)
	slices.Sort(s)
	return s
}

// Lives says whether a handle that Host returned still has an effect: its boot lasts, and no fault has killed it.
func (m *Machine) Lives(h *host.Host) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.boot != nil && m.boot.anonymous != nil && m.boot.anonymous.dead == nil && m.boot.anonymous.Host == h
}
