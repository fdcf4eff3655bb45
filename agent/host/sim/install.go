package sim

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// install writes the image to the disk.
func (m *Machine) install() {
	o := &m.opts
	setDefault(&o.ComputerName, "WIN-SIM")
	setDefault(&o.DiskBytes, 128<<30)
	if o.SerialPorts == nil {
		o.SerialPorts = []string{"COM1"}
	}
	defaultInfo(&o.Info)
	m.disk = disk{
		name: o.ComputerName, timeZone: "UTC", dynamicStart: 49152, dynamicCount: 16384, roots: map[string][]byte{},
		guestInfo: map[string]string{}, serial: map[string][]string{}, adapters: map[uint32]*adapter{},
	}
	maps.Copy(m.disk.guestInfo, o.GuestVariables)
	m.installVolumes()
	m.installFeatures()
	m.installNetwork()
	m.installRegistry()
	for name, value := range map[string]string{
		"ComSpec": `C:\Windows\system32\cmd.exe`, "OS": "Windows_NT", "windir": `C:\Windows`, "TEMP": `C:\Windows\TEMP`,
		"Path":                   `C:\Windows\system32;C:\Windows;C:\Windows\System32\Wbem`,
		"PROCESSOR_ARCHITECTURE": strings.ToUpper(o.Info.Arch), "NUMBER_OF_PROCESSORS": strconv.Itoa(o.Info.CPUs),
	} {
		m.disk.environment.set(name, value)
	}
	must(m.applyUser(host.User{Name: "Administrator", Groups: []string{host.AdministratorsSID}}))
	for _, u := range o.Users {
		must(m.applyUser(u))
	}
	for _, s := range o.Services {
		must(m.applyService(s))
	}
}

// must ends a test whose Options make no sense.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("sim.Options: %v", err))
	}
}

func defaultInfo(i *host.Info) {
	setDefault(&i.Build, "10.0.20348")
	setDefault(&i.Revision, 2762)
	setDefault(&i.ProductName, "Windows Server 2022 Datacenter")
	setDefault(&i.InstallationType, "Server Core")
	i.Server = i.Server || i.InstallationType != "Client"
	setDefault(&i.Arch, "amd64")
	setDefault(&i.CPUs, 4)
	setDefault(&i.MemoryBytes, 8<<30)
	setDefault(&i.UUID, [16]byte{0x42, 0x1d, 0x3c, 0x5a, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc})
	setDefault(&i.Serial, "VMware-42 1d 3c 5a 11 22 33 44-55 66 77 88 99 aa bb cc")
	setDefault(&i.Manufacturer, "VMware, Inc.")
	setDefault(&i.Product, "VMware7,1")
	i.SystemDrive, i.SystemRoot = systemDrive, systemDrive+`\Windows`
}

func (m *Machine) installVolumes() {
	system := host.Volume{Root: systemDrive + `\`, FileSystem: "NTFS", Kind: host.VolumeFixed, TotalBytes: m.opts.DiskBytes}
	m.disk.volumes.set(system.Root, &volume{Volume: system, root: &file{dir: true}})
	for _, dir := range []string{`Windows\System32`, `Windows\TEMP`, "Program Files", "ProgramData", `Users\Administrator`} {
		must(m.mkdir(systemDrive+`\`+dir, host.ACLInherited))
	}
	for _, path := range slices.Sorted(maps.Keys(m.opts.Programs)) {
		if strings.Contains(path, `\`) {
			m.addFile(path, "MZ "+base(path))
		}
	}
	for path, content := range m.opts.Files {
		m.addFile(path, content)
	}
	for _, v := range m.opts.Volumes {
		setDefault(&v.TotalBytes, 1<<30)
		setDefault(&v.Kind, host.VolumeCDROM)
		setDefault(&v.FileSystem, "CDFS")
		added := &volume{Volume: v.Volume, root: &file{dir: true}}
		m.disk.volumes.set(v.Root, added)
		for path, content := range v.Files {
			m.addFile(path, content)
		}
		added.readOnly = v.Kind == host.VolumeCDROM
	}
}

// addFile writes a file of the image, with its folders.
func (m *Machine) addFile(path, content string) {
	i := strings.LastIndexByte(path, '\\')
	if i < 0 {
		must(fmt.Errorf("file %q: not a path", path))
	}
	must(m.mkFolder(path[:i+1]))
	must(m.put(path, []byte(content), host.ACLInherited))
}

// mkFolder makes a folder if there is none.
func (m *Machine) mkFolder(path string) error {
	if f, err := m.lookup(path); err == nil && f.dir {
		return nil
	}
	return m.mkdir(path, host.ACLInherited)
}

func (m *Machine) installFeatures() {
	known := m.opts.Features
	if known == nil {
		known = map[string]Feature{
			"Containers":        {State: host.FeatureEnabled, Reboot: true},
			"Microsoft-Hyper-V": {State: host.FeatureDisabled, Reboot: true},
		}
	}
	for name, f := range known {
		setDefault(&f.State, host.FeatureDisabled)
		m.disk.features.set(name, f)
	}
}

func (m *Machine) installNetwork() {
	adapters := m.opts.Adapters
	if adapters == nil {
		adapters = []Adapter{{
			Adapter: host.Adapter{
				DHCP: true, Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.10/24")},
				DNSServers: []netip.Addr{netip.MustParseAddr("10.0.0.2")}, SearchDomains: []string{"example.test"},
			},
			Gateways: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
		}}
	}
	for i, a := range adapters {
		added := newAdapter(a, i+1)
		m.disk.adapters[added.Index] = added
	}
}

func (m *Machine) installRegistry() {
	const current = `HKLM\SOFTWARE\Microsoft\Windows NT\CurrentVersion`
	build := m.opts.Info.Build[strings.LastIndexByte(m.opts.Info.Build, '.')+1:]
	for _, v := range append([]RegistryValue{
		{current, "ProductName", host.StringValue(m.opts.Info.ProductName)},
		{current, "CurrentBuildNumber", host.StringValue(build)},
		{current, "UBR", host.DWordValue(m.opts.Info.Revision)},
		{current, "InstallationType", host.StringValue(m.opts.Info.InstallationType)},
		{`HKLM\SYSTEM\CurrentControlSet\Services`, "", host.StringValue("")},
	}, m.opts.Registry...) {
		must(m.setRegistry(v.Key, v.Name, v.Value))
	}
}
