package sim

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// Snapshot is what a machine's disk holds and what its services do, one line for each thing: "file C:\k\kubelet.exe" to what
// is to be said of it. The first word of a key is its kind: file, registry, service, serviceState, user, firewall, feature,
// environment, root, adapter, route, hns, guestinfo, system. The event log and the serial lines, which tell a story and no
// state, are not in it.
type Snapshot map[string]string

// Snapshot returns the present state, with or without power.
func (m *Machine) Snapshot() Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, d := Snapshot{}, &m.disk
	m.walk(func(path string, f *file) { s["file "+path] = f.describe() })
	for _, key := range d.registry.names() {
		values, _ := d.registry.get(key)
		s["registry "+key] = ""
		for name, v := range values.all() {
			s["registry "+key+` @`+name] = describe(v)
		}
	}
	for name, config := range d.services.all() {
		s["service "+name] = describe(config)
		s["serviceState "+name] = string(host.ServiceStopped)
		if m.boot != nil {
			s["serviceState "+name] = string(m.boot.run(name).state)
		}
	}
	addAll(s, "user ", d.users.all())
	addAll(s, "firewall ", d.firewall.all())
	addAll(s, "feature ", d.features.all())
	addAll(s, "environment ", d.environment.all())
	addAll(s, "guestinfo ", d.guestInfo)
	for fingerprint := range d.roots {
		s["root "+fingerprint] = ""
	}
	for _, a := range m.currentAdapters() {
		s["adapter "+a.Name] = describe(a)
	}
	for _, r := range m.routes() {
		s[fmt.Sprintf("route %d %s %s", r.Index, r.To, r.Via)] = strconv.FormatUint(uint64(r.Metric), 10)
	}
	for _, n := range d.hns.networks {
		s["hns "+n.Name] = n.Type + " " + n.settings
		for _, e := range n.endpoints {
			s["hns "+n.Name+" endpoint "+e.Name] = e.IP
		}
	}
	s["system computer name"], s["system time zone"] = d.name, d.timeZone
	s["system domain"], s["system domain after boot"] = d.domain, d.domainNext
	s["system dynamic ports"] = fmt.Sprintf("%d+%d", d.dynamicStart, d.dynamicCount)
	return s
}

func addAll[T any](s Snapshot, kind string, values map[string]T) {
	for name, v := range values {
		s[kind+name] = describe(v)
	}
}

func describe(v any) string {
	if text, ok := v.(string); ok {
		return text
	}
	out, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(out)
}

// maxShown is the size of files that a snapshot shows as they are.
const maxShown = 16 << 10

// describe returns the access control and the content of a file, or its checksum if that is no short text.
func (f *file) describe() string {
	switch {
	case f.dir:
		return "folder " + string(f.acl)
	case len(f.content) <= maxShown && utf8.Valid(f.content):
		return string(f.acl) + "\n" + string(f.content)
	default:
		sum := sha256.Sum256(f.content)
		return fmt.Sprintf("%s\n%d bytes, SHA-256 %s", f.acl, len(f.content), hex.EncodeToString(sum[:]))
	}
}

// ReadFile returns the content of a file, with or without power.
func (m *Machine) ReadFile(path string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, err := m.lookup(path)
	if err != nil {
		return nil, err
	}
	return append([]byte{}, f.content...), nil
}

// WriteFile writes a file with its folders, as somebody else on the machine, or at work on its disk, might do.
func (m *Machine) WriteFile(path, content string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.addFile(path, content)
}

// RemoveFile removes a file or folder, as somebody else might do.
func (m *Machine) RemoveFile(path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.remove(path)
}

// Files returns the paths of all files and folders.
func (m *Machine) Files() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := []string{}
	m.walk(func(path string, _ *file) { out = append(out, path) })
	return out
}

// EffectiveACL returns the access control of a file or folder, or the one that it inherits.
func (m *Machine) EffectiveACL(path string) (host.ACL, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, err := m.lookup(path)
	if err != nil {
		return "", err
	}
	for f.acl == host.ACLInherited && f.parent != nil {
		f = f.parent
	}
	return f.acl, nil
}

// Services returns the configurations of all services, by name.
func (m *Machine) Services() map[string]host.Service {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.disk.services.all()
}

// ServiceStatus returns what a service does; a service that does not exist, or a machine without power, is Stopped.
func (m *Machine) ServiceStatus(name string) host.ServiceStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.boot == nil {
		return host.ServiceStatus{State: host.ServiceStopped}
	}
	return m.boot.run(name).status()
}

// KillService kills the process of a service, as a crash does. It says whether there was one.
func (m *Machine) KillService(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.boot == nil || m.boot.run(name).proc == nil {
		return false
	}
	m.boot.run(name).proc.killLocked()
	return true
}

// RegistryValue returns a value of the registry.
func (m *Machine) RegistryValue(key, name string) (host.Value, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	values, ok := m.disk.registry.get(key)
	if !ok {
		return host.Value{}, false
	}
	return values.get(name)
}

// SetRegistryValue sets a value, as somebody else might do.
func (m *Machine) SetRegistryValue(key, name string, v host.Value) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.setRegistry(key, name, v)
}

// User returns an account with its password.
func (m *Machine) User(name string) (host.User, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.disk.users.get(name)
}

// FirewallRules returns all rules, by name.
func (m *Machine) FirewallRules() map[string]host.FirewallRule {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.disk.firewall.all()
}

// Environment returns the machine's variables.
func (m *Machine) Environment() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.disk.environment.all()
}

// ComputerName returns the name that Windows has, or had when it had power, and the one after the next boot.
func (m *Machine) ComputerName() (now, next string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now = m.opts.ComputerName
	if m.last != nil {
		now = m.last.name
	}
	return now, m.disk.name
}

// Events returns the event log.
func (m *Machine) Events() []Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.disk.events)
}

// GuestInfo returns the variables that the hypervisor sees.
func (m *Machine) GuestInfo() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.disk.guestInfo)
}

// SetGuestInfo sets a variable from outside, as people do at the hypervisor.
func (m *Machine) SetGuestInfo(key, value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.disk.guestInfo[key] = value
}

// SerialLines returns what was written to a serial port, such as COM1.
func (m *Machine) SerialLines(port string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.disk.serial[port])
}

// Adapters returns the adapters as Windows shows them.
func (m *Machine) Adapters() []host.Adapter {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.currentAdapters()
}

// SetLink plugs the cable of an adapter in, or out.
func (m *Machine) SetLink(index uint32, up bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a := m.disk.adapters[index]; a != nil && a.Up != up {
		a.Up = up
		m.networkChanged()
	}
}

// SetAddresses gives an adapter other addresses: those that its DHCP server gives, or the manual ones without DHCP.
func (m *Machine) SetAddresses(index uint32, addresses ...netip.Prefix) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.disk.adapters[index]
	switch {
	case a == nil:
		return
	case a.DHCP:
		lease := Lease{}
		if a.lease != nil {
			lease = *a.lease
		}
		lease.Addresses = addresses
		a.lease = &lease
	default:
		a.Addresses = addresses
	}
	m.networkChanged()
}

func (m *Machine) networkChanged() {
	if m.boot != nil {
		m.boot.notify(networkChange)
	}
}

// RequireReboot makes Windows wait for a reboot, as an update does.
func (m *Machine) RequireReboot() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.disk.otherPending = true
}

// SetFeature changes what Windows knows of a feature.
func (m *Machine) SetFeature(name string, f Feature) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.disk.features.set(name, f)
}

// computerNameRegistry is where Windows keeps its name.
func (m *Machine) computerNameRegistry(name string) {
	const key = `HKLM\SYSTEM\CurrentControlSet\Control\ComputerName\ActiveComputerName`
	must(m.setRegistry(key, "ComputerName", host.StringValue(name)))
}
