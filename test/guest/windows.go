package guest

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim/simagent"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim/simkubelet"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/status"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/cloudinit/cloudbase"
)

// Services of the image, beside Windows' own.
const (
	toolsProgram     = `C:\Program Files\VMware\VMware Tools\vmtoolsd.exe`
	cloudbaseProgram = `C:\Program Files\Cloudbase Solutions\Cloudbase-Init\Python\Scripts\cloudbase-init.exe`
)

// install gives the VM a disk with a generalized image that has what the document of the user data wants, and addresses.
func (m *machine) install(hw hardware) {
	doc := documentOf(hw.guestinfo)
	programs := simagent.Programs(simagent.Options{Kubelet: simkubelet.Options{
		Version: doc.Cluster.KubernetesVersion, Heartbeat: m.sim.opts.Heartbeat,
	}})
	maps.Copy(programs, map[string]sim.Program{toolsProgram: m.tools, cloudbaseProgram: m.cloudbaseInit})
	m.nics = slices.Clone(hw.nics)
	adapters := make([]sim.Adapter, 0, len(m.nics)) // not nil, which means a default
	for i, nic := range m.nics {
		m.addresses = append(m.addresses, m.sim.dhcp.lease(fmt.Sprintf("%s/%d", hw.uuid, i)))
		adapters = append(adapters, adapter(nic.MacAddress, m.addresses[i], i == 0))
	}
	m.windows = sim.New(sim.Options{
		ComputerName: setupName(hw.uuid),
		Info:         info(hw),
		Programs:     programs,
		Services: append(simagent.Services(),
			host.Service{Name: "VMTools", Argv: []string{toolsProgram}, Start: host.StartAuto},
			host.Service{Name: "cloudbase-init", Argv: []string{cloudbaseProgram}, Start: host.StartAuto}),
		Adapters:    adapters,
		Outside:     func(address string) bool { return address == doc.Join.APIServerEndpoint },
		GuestInfo:   true,
		OnGuestInfo: m.onGuestInfo,
	})
}

// documentOf returns the node document of the user data, or an empty one.
func documentOf(guestinfo map[string]string) *nodev1.NodeConfiguration {
	data, err := readGuestInfo(guestinfo)
	if err == nil {
		if doc, err := cloudbase.ReadDocument(data.userData); err == nil {
			return doc
		}
	}
	return &nodev1.NodeConfiguration{}
}

// info is what Windows finds in the hardware. vSphere's serial number is the BIOS UUID.
func info(hw hardware) host.Info {
	i := host.Info{
		CPUs: int(hw.cpus), MemoryBytes: uint64(hw.memoryMiB) << 20, //nolint:gosec // not negative
		Manufacturer: "VMware, Inc.", Product: "VMware7,1",
	}
	if id, err := hex.DecodeString(strings.ReplaceAll(hw.uuid, "-", "")); err == nil && len(id) == len(i.UUID) {
		i.UUID = [16]byte(id)
		i.Serial = fmt.Sprintf("VMware-% x-% x", id[:8], id[8:])
	}
	return i
}

// setupName stands for the random name that Windows Setup gives a generalized image.
func setupName(uuid string) string {
	id := strings.ToUpper(strings.ReplaceAll(uuid, "-", ""))
	return "WIN-" + id[:min(11, len(id))]
}

// tools is the service of VMware Tools: it tells the vCenter the machine's name and addresses, and again when they change.
func (m *machine) tools(ctx context.Context, p *sim.Process) int {
	p.Running()
	changes, err := p.Host.Network.Changes(ctx)
	if err != nil {
		return 1
	}
	told := ""
	for ctx.Err() == nil {
		err := forever(ctx, func(ctx context.Context) error {
			name, _, err := p.Host.System.ComputerName(ctx)
			if err != nil {
				return err
			}
			adapters, err := p.Host.Network.Adapters(ctx)
			if err != nil {
				return err
			}
			ips := assign(m.nics, adapters)
			if text := fmt.Sprintf("Windows is up as %s with %s", name, strings.Join(ips, ", ")); text != told {
				if err := m.sim.reportGuest(ctx, m.ref, name, ips, m.nics); err != nil {
					return err
				}
				told = text
				m.report(ctx, "", text, func(s *State) { s.ComputerName, s.IPs = name, ips })
			}
			return nil
		})
		if err != nil {
			return 0 // no power
		}
		select {
		case <-ctx.Done():
		case <-changes:
		}
	}
	return 0
}

// assign gives the VM's adapters the addresses that Windows has on them, and returns those without the link-local ones.
func assign(nics []types.GuestNicInfo, adapters []host.Adapter) []string {
	var ips []string
	for i := range nics {
		nic := &nics[i]
		nic.IpAddress, nic.IpConfig = nil, &types.NetIpConfigInfo{}
		add := func(p netip.Prefix) {
			nic.IpAddress = append(nic.IpAddress, p.Addr().String())
			nic.IpConfig.IpAddress = append(nic.IpConfig.IpAddress, types.NetIpConfigInfoIpAddress{
				IpAddress: p.Addr().String(), PrefixLength: int32(p.Bits()), //nolint:gosec // at most 128
				State: string(types.NetIpConfigInfoIpAddressStatusPreferred),
			})
		}
		for _, a := range adapters {
			if !strings.EqualFold(a.MAC, nic.MacAddress) {
				continue
			}
			for _, p := range a.Addresses {
				add(p)
				ips = append(ips, p.Addr().String())
			}
		}
		add(netip.PrefixFrom(linkLocalAddress(nic.MacAddress), 64))
	}
	return ips
}

// onGuestInfo follows the agent, by what it tells the hypervisor.
func (m *machine) onGuestInfo(ctx context.Context, key, value string) {
	if key != status.GuestInfoKey {
		return
	}
	s := nodev1.BootStatus{}
	if err := json.Unmarshal([]byte(value), &s); err != nil {
		m.fail(ctx, fmt.Errorf("the agent reports no status: %w: %q", err, value))
		return
	}
	if _, done := s.Elapsed[s.Phase]; done && s.State == nodev1.BootRunning {
		return // the end of a phase, and the next one begins
	}
	failure := &engine.Failure{Code: codes.Code(s.Code), Phase: s.Phase, Step: s.Step, Message: s.Message}
	switch s.State {
	case nodev1.BootFailed:
		m.fail(ctx, failure)
	case nodev1.BootWaiting:
		m.report(ctx, Joining, failure.Error(), func(st *State) { st.Err = failure })
	case nodev1.BootRebooting:
		m.report(ctx, Joining, fmt.Sprintf("%s, reboots: %s", s.Phase, s.Message), func(st *State) { st.Err = nil })
	case nodev1.BootDone:
		m.reportRunning(ctx, s.Node)
	default:
		m.report(ctx, Joining, s.Phase, func(st *State) { st.Err = nil })
	}
}

func (m *machine) reportRunning(ctx context.Context, node string) {
	m.report(ctx, Running, fmt.Sprintf("the first boot is done, Node %s is Ready", node), func(s *State) {
		s.NodeName, s.Err = node, nil
	})
}

// resume tells what becomes of a machine whose first boot has ended before: the agent has nothing new to report.
func (m *machine) resume(ctx context.Context) {
	files := m.windows.Host().Files
	journal, err := engine.LoadJournal(ctx, files)
	switch {
	case err != nil: // there is none yet
	case journal.Failure != nil:
		m.fail(ctx, journal.Failure)
	case journal.Done:
		last, err := status.Last(ctx, files)
		if err != nil {
			return // no power
		}
		for m.windows.ServiceStatus(layout.KubeletService).State != host.ServiceRunning {
			if !pause(ctx, 50*time.Millisecond) {
				return
			}
		}
		m.reportRunning(ctx, last.Node)
	}
}
