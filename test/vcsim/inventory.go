package vcsim

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// VM is a virtual machine in the inventory, templates excluded.
type VM struct {
	// Name in the inventory.
	Name string `json:"name"`
	// ID is the value of the managed object reference.
	ID string `json:"id"`
	// PowerState is poweredOn, poweredOff or suspended.
	PowerState string `json:"powerState"`
	// InstanceUUID and UUID (BIOS).
	InstanceUUID string `json:"instanceUUID"`
	UUID         string `json:"uuid"`
	// Config are the values of extraConfig.
	Config map[string]string `json:"config,omitempty"`
}

// VMs returns all virtual machines except templates, by name.
func (s *Server) VMs() []VM {
	ctx := s.context()
	vms := []VM{}
	for _, e := range ctx.Map.All("VirtualMachine") {
		vm, ok := e.(*simulator.VirtualMachine)
		if !ok {
			continue // a template
		}
		ctx.WithLock(vm, func() {
			if vm.Config == nil || vm.Config.Template {
				return
			}
			v := VM{
				Name: vm.Name, ID: vm.Self.Value, PowerState: string(vm.Runtime.PowerState),
				InstanceUUID: vm.Config.InstanceUuid, UUID: vm.Config.Uuid, Config: map[string]string{},
			}
			for _, o := range vm.Config.ExtraConfig {
				v.Config[o.GetOptionValue().Key] = fmt.Sprint(o.GetOptionValue().Value)
			}
			vms = append(vms, v)
		})
	}
	slices.SortFunc(vms, func(a, b VM) int { return strings.Compare(a.Name, b.Name) })
	return vms
}

// DestroyVM powers off and destroys the VM name behind everyone's back.
func (s *Server) DestroyVM(ctx context.Context, name string) error {
	return s.withVM(ctx, name, func(vm *object.VirtualMachine) error {
		if task, err := vm.PowerOff(ctx); err == nil {
			_ = task.Wait(ctx) // it may be off already
		}
		return wait(ctx, vm.Destroy)
	})
}

// PowerOffVM powers off the VM name behind everyone's back.
func (s *Server) PowerOffVM(ctx context.Context, name string) error {
	return s.withVM(ctx, name, func(vm *object.VirtualMachine) error { return wait(ctx, vm.PowerOff) })
}

// CreateForeignVM clones a powered-on VM name that nobody owns into the folder /DC0/vm.
func (s *Server) CreateForeignVM(ctx context.Context, name string) error {
	return s.with(ctx, func(c *govmomi.Client) error {
		f := find.NewFinder(c.Client)
		template, err := f.VirtualMachine(ctx, Template)
		if err != nil {
			return err
		}
		folder, err := f.Folder(ctx, "/DC0/vm")
		if err != nil {
			return err
		}
		pool, err := f.ResourcePool(ctx, "/DC0/host/DC0_C0/Resources")
		if err != nil {
			return err
		}
		ref := pool.Reference()
		spec := types.VirtualMachineCloneSpec{PowerOn: true, Location: types.VirtualMachineRelocateSpec{Pool: &ref}}
		return wait(ctx, func(ctx context.Context) (*object.Task, error) { return template.Clone(ctx, folder, name, spec) })
	})
}

// SetExtraConfig writes values into the extraConfig of the VM name; keys that start with SET. set properties, as the
// simulator's documentation says.
func (s *Server) SetExtraConfig(ctx context.Context, name string, values map[string]any) error {
	return s.withVM(ctx, name, func(vm *object.VirtualMachine) error {
		var spec types.VirtualMachineConfigSpec
		for key, value := range values {
			spec.ExtraConfig = append(spec.ExtraConfig, &types.OptionValue{Key: key, Value: value})
		}
		return wait(ctx, func(ctx context.Context) (*object.Task, error) { return vm.Reconfigure(ctx, spec) })
	})
}

func (s *Server) withVM(ctx context.Context, name string, f func(*object.VirtualMachine) error) error {
	return s.with(ctx, func(c *govmomi.Client) error {
		vm, err := find.NewFinder(c.Client).VirtualMachine(ctx, "/DC0/vm/"+name)
		if err != nil {
			return err
		}
		return f(vm)
	})
}

func wait(ctx context.Context, start func(context.Context) (*object.Task, error)) error {
	task, err := start(ctx)
	if err != nil {
		return err
	}
	return task.Wait(ctx)
}

// makeTemplate turns the model's only VM into a Windows Server 2022 template as image-builder makes it.
func (s *Server) makeTemplate(ctx context.Context) error {
	var ref types.ManagedObjectReference
	err := s.with(ctx, func(c *govmomi.Client) error {
		vm, err := find.NewFinder(c.Client).VirtualMachine(ctx, "/DC0/vm/DC0_C0_RP0_VM0")
		if err != nil {
			return err
		}
		ref = vm.Reference()
		spec := func(spec types.VirtualMachineConfigSpec) func(context.Context) (*object.Task, error) {
			return func(ctx context.Context) (*object.Task, error) { return vm.Reconfigure(ctx, spec) }
		}
		for _, step := range []func(context.Context) (*object.Task, error){
			vm.PowerOff,
			func(ctx context.Context) (*object.Task, error) { return vm.Rename(ctx, "windows-2022") },
			// One after the other: the simulator checks secure boot against the firmware that was.
			spec(types.VirtualMachineConfigSpec{
				Firmware: string(types.GuestOsDescriptorFirmwareTypeEfi), GuestId: string(types.VirtualMachineGuestOsIdentifierWindows2019srvNext_64Guest),
				NumCPUs: 2, MemoryMB: 4096, Annotation: "Windows Server 2022, generalized, cloudbase-init",
			}),
			spec(types.VirtualMachineConfigSpec{BootOptions: &types.VirtualMachineBootOptions{EfiSecureBootEnabled: types.NewBool(true)}}),
		} {
			if err := wait(ctx, step); err != nil {
				return err
			}
		}
		return vm.MarkAsTemplate(ctx)
	})
	if err != nil {
		return err
	}
	s.wrapTemplate(ref)
	return nil
}

// Hardware is what a VM is made of.
type Hardware struct {
	NumCPU, CoresPerSocket int32
	MemoryMiB              int64
	Firmware               string
	// Networks of the network adapters and Datastores of the disks, by name.
	Networks, Datastores []string
}

// Hardware returns what the VM name is made of.
func (s *Server) Hardware(ctx context.Context, name string) (Hardware, error) {
	var h Hardware
	err := s.withVM(ctx, name, func(vm *object.VirtualMachine) error {
		var m mo.VirtualMachine
		if err := vm.Properties(ctx, vm.Reference(), []string{"config"}, &m); err != nil {
			return err
		}
		h.NumCPU, h.MemoryMiB, h.Firmware = m.Config.Hardware.NumCPU, int64(m.Config.Hardware.MemoryMB), m.Config.Firmware
		if n := m.Config.Hardware.NumCoresPerSocket; n != nil {
			h.CoresPerSocket = *n
		}
		for _, device := range m.Config.Hardware.Device {
			switch b := device.GetVirtualDevice().Backing.(type) {
			case *types.VirtualEthernetCardNetworkBackingInfo:
				h.Networks = append(h.Networks, b.DeviceName)
			case *types.VirtualEthernetCardDistributedVirtualPortBackingInfo:
				h.Networks = append(h.Networks, s.portGroup(b.Port.PortgroupKey))
			case *types.VirtualDiskFlatVer2BackingInfo:
				var p object.DatastorePath
				p.FromString(b.FileName)
				h.Datastores = append(h.Datastores, p.Datastore)
			}
		}
		return nil
	})
	return h, err
}

// portGroup returns the name of a distributed port group.
func (s *Server) portGroup(key string) string {
	for _, e := range s.context().Map.All("DistributedVirtualPortgroup") {
		if g, ok := e.(*simulator.DistributedVirtualPortgroup); ok && g.Key == key {
			return g.Name
		}
	}
	return key
}

// RenameVM renames the VM name.
func (s *Server) RenameVM(ctx context.Context, name, to string) error {
	return s.withVM(ctx, name, func(vm *object.VirtualMachine) error {
		return wait(ctx, func(ctx context.Context) (*object.Task, error) { return vm.Rename(ctx, to) })
	})
}

// CreateFolder creates a VM folder in the folder at path.
func (s *Server) CreateFolder(ctx context.Context, path, name string) error {
	return s.with(ctx, func(c *govmomi.Client) error {
		folder, err := find.NewFinder(c.Client).Folder(ctx, path)
		if err != nil {
			return err
		}
		_, err = folder.CreateFolder(ctx, name)
		return err
	})
}

// RemoveFolder destroys the folder at path.
func (s *Server) RemoveFolder(ctx context.Context, path string) error {
	return s.with(ctx, func(c *govmomi.Client) error {
		folder, err := find.NewFinder(c.Client).Folder(ctx, path)
		if err != nil {
			return err
		}
		return wait(ctx, folder.Destroy)
	})
}

// ReplaceTemplate puts another template in the place of the Windows template, as a monthly image build does.
func (s *Server) ReplaceTemplate(ctx context.Context) error {
	if err := s.CreateForeignVM(ctx, "new-template"); err != nil {
		return err
	}
	var ref types.ManagedObjectReference
	err := s.with(ctx, func(c *govmomi.Client) error {
		f := find.NewFinder(c.Client)
		old, err := f.VirtualMachine(ctx, Template)
		if err != nil {
			return err
		}
		if err := wait(ctx, old.Destroy); err != nil {
			return err
		}
		vm, err := f.VirtualMachine(ctx, "/DC0/vm/new-template")
		if err != nil {
			return err
		}
		ref = vm.Reference()
		for _, step := range []func(context.Context) (*object.Task, error){
			vm.PowerOff,
			func(ctx context.Context) (*object.Task, error) { return vm.Rename(ctx, "windows-2022") },
		} {
			if err := wait(ctx, step); err != nil {
				return err
			}
		}
		return vm.MarkAsTemplate(ctx)
	})
	if err != nil {
		return err
	}
	s.wrapTemplate(ref)
	return nil
}
