package vsphere

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capw-dev/cluster-api-provider-windows/infrastructure"
)

// delete is Platform.Delete. A clone in flight is awaited, never cancelled: what a cancelled clone leaves behind is known
// only when it has ended.
func (o *operation) delete(ctx context.Context) (infrastructure.Progress, error) {
	if !o.record.deleting {
		o.record.deleting = true
		o.succeeded() // what failed before was the creation
	}
	busy, err := o.collectTask(ctx)
	var failed *taskError
	switch {
	case busy:
		return infrastructure.Progress{Message: o.running()}, nil
	case err == nil:
	case errors.As(err, &failed):
		harmless := failed.kind == cloneTask || failed.kind == powerOnTask || // what counts is what is there
			isAny(err, &types.ManagedObjectNotFound{}) // somebody else was faster
		if !harmless {
			return infrastructure.Progress{}, o.deleteFailed(err.Error())
		}
	default:
		return infrastructure.Progress{}, err
	}

	// First what runs, then what is there: a VM is in one of them.
	if err := o.lookForStrays(ctx); err != nil {
		return infrastructure.Progress{}, err
	}
	var vm *vmFacts
	if err = nil; !o.record.destroyed {
		vm, err = o.locateForDelete(ctx)
	}
	if err == nil && vm == nil && len(o.record.strays) > 0 {
		var waiting string
		if waiting, err = o.awaitStrays(ctx); waiting != "" {
			return infrastructure.Progress{Message: waiting}, nil
		}
		if err == nil {
			vm, err = o.locateForDelete(ctx)
		}
	}
	var notReady *notReadyError
	switch {
	case errors.As(err, &notReady):
		return infrastructure.Progress{Message: notReady.message}, nil
	case err != nil:
		return infrastructure.Progress{}, err
	case vm == nil:
		return infrastructure.Progress{Done: true}, nil
	}
	return o.remove(ctx, vm)
}

// locateForDelete locates the VM. Whatever is not ours is left alone, and nothing to wait for.
func (o *operation) locateForDelete(ctx context.Context) (*vmFacts, error) {
	vm, err := o.locate(ctx)
	var foreign *infrastructure.ForeignInstanceError
	if errors.As(err, &foreign) {
		if !o.record.unmarkedSince.IsZero() {
			return nil, &notReadyError{fmt.Sprintf("VM %s (%s) is left alone, because %s: restore the mark or remove the VM", foreign.Name, foreign.ID, foreign.Detail)}
		}
		err = nil
	}
	if vm != nil || err != nil || o.machine.ProviderID != "" {
		return vm, err
	}
	// The vCenter may have given our VM another instance UUID than we asked for.
	return o.locateByName(ctx)
}

// locateByName finds our VM by its name in its folder, if there is still one. Of the placement it needs nothing else, such as
// a template, which may be gone long before the last VM that was made of it.
func (o *operation) locateByName(ctx context.Context) (*vmFacts, error) {
	place, err := placementOf(o.machine)
	var folder reference
	if err == nil {
		folder, err = o.session.inventory.folder(ctx, place)
	}
	if isA[*infrastructure.ConfigError](err) || isA[*infrastructure.FailureDomainError](err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found, err := object.NewSearchIndex(o.session.client).FindChild(ctx, folder, o.machine.InstanceName)
	if err != nil || found == nil || found.Reference().Type != "VirtualMachine" {
		if isNotFound(err) {
			return nil, nil // the folder is gone
		}
		return nil, err
	}
	vm, err := o.examine(ctx, found.Reference())
	if isA[*infrastructure.ForeignInstanceError](err) {
		return nil, nil
	}
	return vm, err
}

// lookForStrays finds, once, the clone tasks that could still create our VM although they are not among our own tasks: one
// that a manager started which died, or one whose answer was lost. A clone task does not say which VM it creates, so all that
// run now count.
func (o *operation) lookForStrays(ctx context.Context) error {
	r, inventory := o.record, o.session.inventory
	switch {
	case r.uncertain:
		running, err := o.runningClones(ctx)
		if err != nil {
			return err
		}
		r.strays, r.uncertain = running, false
	case r.strays != nil:
	case inventory.settled.Load():
		r.strays = []reference{}
	default:
		shared := context.WithoutCancel(ctx) // all who ask at the same time share the call
		running, err, _ := inventory.flight.Do("running clones", func() (any, error) { return o.runningClones(shared) })
		if err != nil {
			return err
		}
		r.strays = slices.Clone(running.([]reference))
		// Those who died before us start no more, and our own tasks are known.
		inventory.settled.Store(len(r.strays) == 0)
	}
	return nil
}

// awaitStrays returns what to wait for, while strays run.
func (o *operation) awaitStrays(ctx context.Context) (waiting string, err error) {
	w, owner := o.session.watch, o.machine.Owner.Key()
	left := []reference{}
	for _, ref := range o.record.strays {
		t, exists, err := w.taskOf(ctx, w.track(ref, owner))
		if err != nil {
			return "", err
		}
		if exists && !t.ended() {
			left = append(left, ref)
			continue
		}
		w.untrack(ref, owner)
	}
	o.record.strays = left
	if len(left) == 0 {
		return "", nil
	}
	return fmt.Sprintf("waiting for the end of clone tasks that could still create VM %s: %s and %d more",
		o.machine.InstanceName, left[0].Value, len(left)-1), nil
}

// runningClones returns the clone tasks that are queued or running, except those that others of our WindowsMachines know as
// theirs.
func (o *operation) runningClones(ctx context.Context) ([]reference, error) {
	manager, skip := *o.session.client.ServiceContent.TaskManager, true
	res, err := property.DefaultCollector(o.session.client).RetrieveProperties(ctx, types.RetrieveProperties{SpecSet: []types.PropertyFilterSpec{{
		ObjectSet: []types.ObjectSpec{{Obj: manager, Skip: &skip, SelectSet: []types.BaseSelectionSpec{
			&types.TraversalSpec{Type: manager.Type, Path: "recentTask"},
		}}},
		PropSet: []types.PropertySpec{{Type: "Task", PathSet: []string{"info.state", "info.descriptionId"}}},
	}}})
	if err != nil {
		return nil, fmt.Errorf("looking for running clone tasks: %w", err)
	}
	var tasks []mo.Task
	if err := mo.LoadObjectContent(res.Returnval, &tasks); err != nil {
		return nil, fmt.Errorf("reading running clone tasks: %w", err)
	}
	running := []reference{}
	for _, t := range tasks {
		// VirtualMachine.clone; simulators append to it.
		if strings.HasPrefix(t.Info.DescriptionId, "VirtualMachine.clone") &&
			(t.Info.State == types.TaskInfoStateQueued || t.Info.State == types.TaskInfoStateRunning) &&
			!slices.Contains(running, t.Self) && !o.platform.ownsClone(o.session.server, t.Self) {
			running = append(running, t.Self)
		}
	}
	return running, nil
}

// remove powers the VM off and destroys it, one task per call.
func (o *operation) remove(ctx context.Context, vm *vmFacts) (infrastructure.Progress, error) {
	if wait := o.untilRetry(); wait > 0 {
		return infrastructure.Progress{}, &infrastructure.DeleteError{Message: o.record.failure, RetryAfter: wait}
	}
	kind, ref := destroyTask, o.record.vm
	var begun reference
	var err error
	if vm.power == types.VirtualMachinePowerStatePoweredOff {
		var res *types.Destroy_TaskResponse
		if res, err = methods.Destroy_Task(ctx, o.session.client, &types.Destroy_Task{This: ref}); err == nil {
			begun = res.Returnval
		}
	} else {
		kind = powerOffTask
		var res *types.PowerOffVM_TaskResponse
		if res, err = methods.PowerOffVM_Task(ctx, o.session.client, &types.PowerOffVM_Task{This: ref}); err == nil {
			begun = res.Returnval
		}
	}
	switch {
	case err == nil:
		ctrl.LoggerFrom(ctx).Info("Removing VM", "vm", o.machine.InstanceName, "id", ref.Value, "step", kind, "task", begun.Value)
		o.begin(kind, begun)
		return infrastructure.Progress{Message: o.running()}, nil
	case isAny(err, &types.InvalidPowerState{}, &types.TaskInProgress{}, &types.ManagedObjectNotFound{}):
		o.awaitOthers()
		return infrastructure.Progress{Message: fmt.Sprintf("VM %s (%s) changes: %s", o.machine.InstanceName, ref.Value, describe(err))}, nil
	case isFault(err) && !isSessionLost(err):
		return infrastructure.Progress{}, o.deleteFailed(fmt.Sprintf("vCenter refuses %s of VM %s: %s", kind, o.machine.InstanceName, describe(err)))
	}
	return infrastructure.Progress{}, err
}

// deleteFailed remembers a failed deletion.
func (o *operation) deleteFailed(message string) error {
	return &infrastructure.DeleteError{Message: message, RetryAfter: o.failed(message)}
}
