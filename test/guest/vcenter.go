package guest

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// userAgent lets a server that counts calls tell ours from those of the manager under test.
const userAgent = "capw-simulated-guest"

// vcenter is one session.
type vcenter struct {
	client   *vim25.Client
	sessions *session.Manager
}

func connect(ctx context.Context, u *url.URL, thumbprint string) (*vcenter, error) {
	sc := soap.NewClient(u, false)
	sc.UserAgent = userAgent
	if thumbprint != "" {
		sc.SetThumbprint(u.Host, thumbprint)
	}
	client, err := vim25.NewClient(ctx, sc)
	if err != nil {
		return nil, fmt.Errorf("connecting to the vCenter %s: %w", u.Host, err)
	}
	client.UserAgent = userAgent
	sessions := session.NewManager(client)
	if err := sessions.Login(ctx, u.User); err != nil {
		return nil, fmt.Errorf("logging in to the vCenter %s: %w", u.Host, err)
	}
	return &vcenter{client: client, sessions: sessions}, nil
}

// close ends the session, also when ctx ended already.
func (vc *vcenter) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = vc.sessions.Logout(ctx) // a session that cannot be closed expires
	vc.client.CloseIdleConnections()
}

// watch follows the power state of all VMs until ctx ends or the connection fails.
func (s *Simulator) watch(ctx context.Context, vc *vcenter) error {
	root := vc.client.ServiceContent.RootFolder
	all, err := view.NewManager(vc.client).CreateContainerView(ctx, root, []string{"VirtualMachine"}, true)
	if err != nil {
		return fmt.Errorf("creating a view of all VMs: %w", err)
	}
	if err := s.forgetMissing(ctx, vc, all.Reference()); err != nil {
		return err
	}
	filter := new(property.WaitFilter).Add(all.Reference(), "VirtualMachine",
		[]string{"name", "config.template", "runtime.powerState", "summary.runtime.bootTime"}, all.TraversalSpec())
	filter.Spec.ObjectSet[0].Skip = types.NewBool(true)
	return property.WaitForUpdates(ctx, property.DefaultCollector(vc.client), filter, func(updates []types.ObjectUpdate) bool {
		for _, u := range updates {
			s.apply(ctx, u)
		}
		return false
	})
}

// forgetMissing removes the guests of VMs that were destroyed while the vCenter was not being watched.
func (s *Simulator) forgetMissing(ctx context.Context, vc *vcenter, viewRef types.ManagedObjectReference) error {
	var v mo.ContainerView
	if err := property.DefaultCollector(vc.client).RetrieveOne(ctx, viewRef, []string{"view"}, &v); err != nil {
		return fmt.Errorf("listing VMs: %w", err)
	}
	exists := make(map[types.ManagedObjectReference]bool, len(v.View))
	for _, ref := range v.View {
		exists[ref] = true
	}
	s.mu.Lock()
	var missing []types.ManagedObjectReference
	for ref := range s.machines {
		if !exists[ref] {
			missing = append(missing, ref)
		}
	}
	s.mu.Unlock()
	for _, ref := range missing {
		s.apply(ctx, types.ObjectUpdate{Kind: types.ObjectUpdateKindLeave, Obj: ref})
	}
	return nil
}

// apply brings the guest of one VM in line with an update of the VM.
func (s *Simulator) apply(ctx context.Context, u types.ObjectUpdate) {
	s.mu.Lock()
	m := s.machines[u.Obj]
	if m == nil && u.Kind != types.ObjectUpdateKindLeave {
		m = &machine{sim: s, ref: u.Obj}
		s.machines[u.Obj] = m
	}
	if u.Kind == types.ObjectUpdateKindLeave {
		delete(s.machines, u.Obj)
	}
	s.mu.Unlock()

	switch {
	case m == nil:
	case u.Kind == types.ObjectUpdateKindLeave:
		m.destroy()
	default:
		m.update(ctx, u.ChangeSet)
	}
}

// hardware is what the virtual machine shows to its guest.
type hardware struct {
	uuid      string // BIOS UUID, lower case
	cpus      int32
	memoryMiB int32
	nics      []types.GuestNicInfo // one per adapter, without addresses
	guestinfo map[string]string
}

// hardwareOf reads the VM as its guest sees it at power-on.
func (s *Simulator) hardwareOf(ctx context.Context, ref types.ManagedObjectReference) (hardware, error) {
	var vm mo.VirtualMachine
	props := []string{"config.uuid", "config.hardware", "config.extraConfig"}
	if err := property.DefaultCollector(s.client()).RetrieveOne(ctx, ref, props, &vm); err != nil {
		return hardware{}, fmt.Errorf("reading the VM: %w", err)
	}
	if vm.Config == nil {
		return hardware{}, fmt.Errorf("reading the VM: it has no configuration yet")
	}
	hw := hardware{
		uuid:      vm.Config.Uuid,
		cpus:      vm.Config.Hardware.NumCPU,
		memoryMiB: vm.Config.Hardware.MemoryMB,
		guestinfo: map[string]string{},
	}
	for _, o := range vm.Config.ExtraConfig {
		if v, ok := o.GetOptionValue().Value.(string); ok {
			hw.guestinfo[o.GetOptionValue().Key] = v
		}
	}
	for _, d := range vm.Config.Hardware.Device {
		card, ok := d.(types.BaseVirtualEthernetCard)
		if !ok {
			continue
		}
		nic := types.GuestNicInfo{
			MacAddress:     card.GetVirtualEthernetCard().MacAddress,
			DeviceConfigId: card.GetVirtualEthernetCard().Key,
			Connected:      true,
		}
		if b, ok := card.GetVirtualEthernetCard().Backing.(*types.VirtualEthernetCardNetworkBackingInfo); ok {
			nic.Network = b.DeviceName
		}
		hw.nics = append(hw.nics, nic)
	}
	return hw, nil
}

// reportGuest tells the vCenter what VMware Tools tell: the computer's name, its addresses, and those of each adapter.
func (s *Simulator) reportGuest(ctx context.Context, ref types.ManagedObjectReference, hostName string, ips []string, nics []types.GuestNicInfo) error {
	set := []types.BaseOptionValue{
		&types.OptionValue{Key: "SET.guest.toolsRunningStatus", Value: string(types.VirtualMachineToolsRunningStatusGuestToolsRunning)},
		&types.OptionValue{Key: "SET.guest.hostName", Value: hostName},
	}
	if len(ips) > 0 {
		set = append(set, &types.OptionValue{Key: "SET.guest.ipAddress", Value: ips[0]})
	}
	// Last, because vcsim derives an incomplete guest.net from guest.ipAddress.
	set = append(set, &types.OptionValue{Key: "SET.guest.net", Value: types.ArrayOfGuestNicInfo{GuestNicInfo: nics}})

	client := s.client()
	task, err := object.NewVirtualMachine(client, ref).Reconfigure(ctx, types.VirtualMachineConfigSpec{ExtraConfig: set})
	if err != nil {
		return fmt.Errorf("reporting what runs in the VM: %w", err)
	}
	if err := task.Wait(ctx); err != nil {
		return fmt.Errorf("reporting what runs in the VM: %w", err)
	}
	return nil
}

func (s *Simulator) client() *vim25.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.vcenter.client
}
