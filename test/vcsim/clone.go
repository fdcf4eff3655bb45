package vcsim

import (
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// CloneStage is a moment in a clone task.
type CloneStage string

const (
	// CloneStarted is when the task runs and its VM does not exist yet.
	CloneStarted CloneStage = "Started"
	// CloneCreated is when the VM is in the inventory and powered off.
	CloneCreated CloneStage = "Created"
	// ClonePoweredOn is when the VM is powered on and the task still runs.
	ClonePoweredOn CloneStage = "PoweredOn"
)

// CloneHook takes part in the clone task of the VM name. It may block to hold the task at that moment; a fault fails the
// task: at CloneStarted and CloneCreated nothing is left, as after a failed clone; at ClonePoweredOn the VM stays, powered
// off, as after a failed power-on.
type CloneHook func(stage CloneStage, name string) types.BaseMethodFault

// template is a VM whose clones are what vCenter makes of them. The simulator's own clone drops most of spec.config and
// swallows device errors; this one inherits from the template, applies the whole specification, fails the task at the
// first error and leaves nothing behind then. Clones run in parallel.
type template struct {
	*simulator.VirtualMachine
	server *Server
}

func (s *Server) wrapTemplate(ref types.ManagedObjectReference) {
	registry := s.model.Service.Context.Map
	registry.Put(&template{VirtualMachine: registry.Get(ref).(*simulator.VirtualMachine), server: s})
}

// taskLock gives each clone task a lock of its own; the simulator would hold the template's for the whole task.
type taskLock types.ManagedObjectReference

// Reference implements mo.Reference.
func (l taskLock) Reference() types.ManagedObjectReference { return types.ManagedObjectReference(l) }

// CloneVMTask implements the vim25 method.
func (t *template) CloneVMTask(ctx *simulator.Context, req *types.CloneVM_Task) soap.HasFault {
	own := *ctx // the request's context ends its locks with the request; the task takes locks of its own
	lock := taskLock{Type: "VirtualMachine", Value: "clone-" + uuid.NewString()}
	task := simulator.CreateTask(lock, "cloneVm", func(*simulator.Task) (types.AnyType, types.BaseMethodFault) {
		ref, fault := t.clone(&own, req)
		if fault != nil {
			return nil, fault
		}
		return ref, nil
	})
	ref := task.Run(&own)
	ctx.WithLock(task, func() {
		ctx.Update(task, []types.PropertyChange{{Name: "info.entity", Val: &t.Self}, {Name: "info.entityName", Val: t.Name}})
	})
	return &methods.CloneVM_TaskBody{Res: &types.CloneVM_TaskResponse{Returnval: ref}}
}

func (t *template) clone(ctx *simulator.Context, req *types.CloneVM_Task) (ref types.ManagedObjectReference, fault types.BaseMethodFault) {
	delays := t.server.delays.Load()
	time.Sleep(delays.Clone)
	if fault := t.hook(CloneStarted, req.Name); fault != nil {
		return ref, fault
	}
	if fault := t.check(ctx, req.Spec); fault != nil {
		return ref, fault
	}
	want := types.VirtualMachineConfigSpec{}
	if req.Spec.Config != nil {
		want = *req.Spec.Config
	}
	ref, fault = t.create(ctx, req, want)
	if fault != nil {
		return ref, fault
	}
	clone := ctx.Map.Get(ref).(*simulator.VirtualMachine)
	fault = t.configure(ctx, clone, req.Spec, want)
	if fault == nil {
		fault = t.hook(CloneCreated, req.Name)
	}
	if fault != nil {
		_ = outcome(ctx, clone.DestroyTask(ctx, &types.Destroy_Task{This: ref}).(*methods.Destroy_TaskBody).Res.Returnval)
		return ref, fault
	}
	switch {
	case req.Spec.Template:
		clone.MarkAsTemplate(&types.MarkAsTemplate{This: ref})
	case req.Spec.PowerOn:
		time.Sleep(delays.PowerOn)
		power := &types.PowerOnVM_Task{This: ref}
		if fault := outcome(ctx, clone.PowerOnVMTask(ctx, power).(*methods.PowerOnVM_TaskBody).Res.Returnval); fault != nil {
			return ref, fault
		}
		if fault := t.hook(ClonePoweredOn, req.Name); fault != nil {
			off := &types.PowerOffVM_Task{This: ref}
			_ = outcome(ctx, clone.PowerOffVMTask(ctx, off).(*methods.PowerOffVM_TaskBody).Res.Returnval)
			return ref, fault
		}
	}
	return ref, nil
}

func (t *template) hook(stage CloneStage, name string) types.BaseMethodFault {
	if hook := t.server.cloneHook.Load(); hook != nil {
		return (*hook)(stage, name)
	}
	return nil
}

// check refuses what vCenter refuses and the simulator accepts or panics on.
func (t *template) check(ctx *simulator.Context, spec types.VirtualMachineCloneSpec) types.BaseMethodFault {
	for property, ref := range map[string]*types.ManagedObjectReference{
		"spec.location.pool":      spec.Location.Pool,
		"spec.location.datastore": spec.Location.Datastore,
		"spec.location.host":      spec.Location.Host,
	} {
		if ref != nil && ctx.Map.Get(*ref) == nil {
			return &types.ManagedObjectNotFound{Obj: *ref}
		}
		if ref == nil && property == "spec.location.pool" {
			return &types.InvalidArgument{InvalidProperty: property}
		}
	}
	if spec.Snapshot == nil && strings.HasPrefix(spec.Location.DiskMoveType, "createNewChildDiskBacking") {
		return &types.InvalidArgument{InvalidProperty: "spec.snapshot"}
	}
	return nil
}

// create makes the bare VM, with its identity and its extraConfig from the first moment on. The simulator panics when two
// VMs are created in one folder at a time.
func (t *template) create(ctx *simulator.Context, req *types.CloneVM_Task, want types.VirtualMachineConfigSpec) (types.ManagedObjectReference, types.BaseMethodFault) {
	t.server.cloneMu.Lock()
	defer t.server.cloneMu.Unlock()
	bare := *req
	bare.Spec.PowerOn, bare.Spec.Template, bare.Spec.Customization = false, false, nil
	bare.Spec.Location.DeviceChange = nil
	bare.Spec.Config = &types.VirtualMachineConfigSpec{InstanceUuid: want.InstanceUuid, Uuid: want.Uuid, ExtraConfig: want.ExtraConfig}
	body := t.VirtualMachine.CloneVMTask(ctx, &bare).(*methods.CloneVM_TaskBody)
	if body.Fault_ != nil {
		return types.ManagedObjectReference{}, body.Fault_.VimFault().(types.BaseMethodFault)
	}
	task := ctx.Map.Get(body.Res.Returnval).(*simulator.Task)
	task.Wait()
	if task.Info.Error != nil {
		return types.ManagedObjectReference{}, task.Info.Error.Fault
	}
	return task.Info.Result.(types.ManagedObjectReference), nil
}

// configure gives the clone what it inherits and then what the specification asks for.
func (t *template) configure(ctx *simulator.Context, clone *simulator.VirtualMachine, spec types.VirtualMachineCloneSpec, want types.VirtualMachineConfigSpec) types.BaseMethodFault {
	reconfigure := func(spec types.VirtualMachineConfigSpec) types.BaseMethodFault {
		body := clone.ReconfigVMTask(ctx, &types.ReconfigVM_Task{This: clone.Self, Spec: spec}).(*methods.ReconfigVM_TaskBody)
		return outcome(ctx, body.Res.Returnval)
	}
	config := t.Config
	var inherited []types.BaseOptionValue
	for _, o := range config.ExtraConfig {
		key := o.GetOptionValue().Key
		overridden := slices.ContainsFunc(want.ExtraConfig, func(x types.BaseOptionValue) bool { return x.GetOptionValue().Key == key })
		if key != "govcsim" && !overridden {
			inherited = append(inherited, o)
		}
	}
	// Firmware first: secure boot is checked against it.
	first := types.VirtualMachineConfigSpec{Firmware: config.Firmware, Annotation: config.Annotation, ExtraConfig: inherited}
	if want.Firmware != "" {
		first.Firmware = want.Firmware
	}
	if fault := reconfigure(first); fault != nil {
		return fault
	}
	options, flags := *config.BootOptions, config.Flags
	if fault := reconfigure(types.VirtualMachineConfigSpec{BootOptions: &options, Flags: &flags}); fault != nil {
		return fault
	}
	want.DeviceChange = append(slices.Clone(spec.Location.DeviceChange), want.DeviceChange...)
	devices := object.VirtualDeviceList(clone.Config.Hardware.Device)
	for _, change := range want.DeviceChange {
		c := change.GetVirtualDeviceConfigSpec()
		if disk, ok := c.Device.(*types.VirtualDisk); ok && c.Operation == types.VirtualDeviceConfigSpecOperationEdit {
			if fault := rebase(disk, devices); fault != nil {
				return fault
			}
		}
	}
	want.Uuid, want.InstanceUuid, want.Name, want.Files = "", "", "", nil
	if fault := reconfigure(want); fault != nil {
		return fault
	}
	if spec.Customization != nil {
		body := clone.CustomizeVMTask(ctx, &types.CustomizeVM_Task{This: clone.Self, Spec: *spec.Customization}).(*methods.CustomizeVM_TaskBody)
		return outcome(ctx, body.Res.Returnval)
	}
	return nil
}

// rebase makes an edit of the template's disk one of the clone's own; a disk can only grow.
func rebase(disk *types.VirtualDisk, devices object.VirtualDeviceList) types.BaseMethodFault {
	own, ok := devices.FindByKey(disk.Key).(*types.VirtualDisk)
	if !ok {
		return &types.InvalidDeviceSpec{}
	}
	if disk.CapacityInBytes == 0 {
		disk.CapacityInBytes = disk.CapacityInKB * 1024
	}
	if disk.CapacityInBytes < own.CapacityInBytes {
		return &types.InvalidDeviceOperation{}
	}
	disk.CapacityInKB = disk.CapacityInBytes / 1024
	disk.Backing, disk.ControllerKey, disk.UnitNumber = own.Backing, own.ControllerKey, own.UnitNumber
	return nil
}

// outcome waits for a task of the simulator.
func outcome(ctx *simulator.Context, ref types.ManagedObjectReference) types.BaseMethodFault {
	task := ctx.Map.Get(ref).(*simulator.Task)
	task.Wait()
	if task.Info.Error != nil {
		return task.Info.Error.Fault
	}
	return nil
}
