package vsphere

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"
	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/infrastructure"
)

// ensure is Platform.Ensure. An existing VM of ours is taken as it is, powered on if need be, whoever started to create it.
func (o *operation) ensure(ctx context.Context, place placement, userData []byte) (infrastructure.Instance, error) {
	busy, err := o.collectTask(ctx)
	switch {
	case busy:
		return o.creating(o.running()), nil
	case isA[*taskError](err):
		if taken, ok := duplicate(err); ok {
			if err := o.consider(taken); err != nil {
				return infrastructure.Instance{}, err
			}
			break
		}
		if isAny(err, &types.ManagedObjectNotFound{}) {
			o.session.inventory.forget(place)
		}
		return infrastructure.Instance{}, o.createFailed(err.Error())
	case err != nil:
		return infrastructure.Instance{}, err
	}
	if o.record.vm == (reference{}) {
		if wait := o.untilRetry(); wait > 0 {
			return infrastructure.Instance{}, &infrastructure.CreateError{Message: o.record.failure, RetryAfter: wait}
		}
	}

	vm, err := o.locateOrCandidate(ctx)
	var notReady *notReadyError
	switch {
	case errors.As(err, &notReady):
		return o.notReady(notReady)
	case err != nil:
		return infrastructure.Instance{}, err
	case vm != nil:
		return o.ensureRunning(ctx, vm)
	case o.machine.ProviderID != "":
		return infrastructure.Instance{State: infrav1.InstanceMissing}, nil // it had a VM; only a new machine gets a new one
	}
	return o.clone(ctx, place, userData)
}

// consider has what took our name examined at the next call. Only a VM can be: a folder or vApp takes a name just as well.
func (o *operation) consider(taken reference) error {
	if taken.Type != "VirtualMachine" {
		return &infrastructure.ForeignInstanceError{
			Name: o.machine.InstanceName, ID: taken.Value, Detail: fmt.Sprintf("it is not a VM, but a %s", cmp.Or(taken.Type, "hidden object")),
		}
	}
	o.record.candidate, o.record.candidatePlace = taken, ""
	return nil
}

// locateOrCandidate locates the VM; what took our name may be ours too.
func (o *operation) locateOrCandidate(ctx context.Context) (*vmFacts, error) {
	r := o.record
	if r.candidate == (reference{}) {
		return o.locate(ctx)
	}
	vm, err := o.examine(ctx, r.candidate)
	if isA[*infrastructure.ForeignInstanceError](err) {
		facts, _, known := o.session.watch.vmOf(ctx, o.session.watch.track(r.candidate, o.machine.Owner.Key()))
		if known != nil {
			return nil, known
		}
		if r.candidatePlace == "" {
			r.candidatePlace = facts.place()
		}
		if r.candidatePlace != facts.place() {
			err = nil // renamed or moved: the name may be free now
		}
	}
	if vm != nil || err != nil {
		return vm, err
	}
	o.session.watch.untrack(r.candidate, o.machine.Owner.Key())
	r.candidate, r.candidatePlace = reference{}, ""
	return o.locate(ctx)
}

// ensureRunning completes a creation that ended before the VM was powered on.
func (o *operation) ensureRunning(ctx context.Context, vm *vmFacts) (infrastructure.Instance, error) {
	instance := o.instance(vm)
	if instance.State == infrav1.InstanceRunning {
		o.succeeded()
	}
	if instance.State != infrav1.InstancePoweredOff {
		return instance, nil
	}
	if wait := o.untilRetry(); wait > 0 {
		return infrastructure.Instance{}, &infrastructure.CreateError{Message: o.record.failure, RetryAfter: wait}
	}
	res, err := methods.PowerOnVM_Task(ctx, o.session.client, &types.PowerOnVM_Task{This: o.record.vm})
	switch {
	case err == nil:
		o.begin(powerOnTask, res.Returnval)
	case isAny(err, &types.InvalidPowerState{}, &types.TaskInProgress{}):
		// It is on already, or the clone task of a predecessor is about to power it on.
		o.awaitOthers()
	case isFault(err) && !isSessionLost(err):
		return infrastructure.Instance{}, o.createFailed(fmt.Sprintf("vCenter refuses to power on VM %s: %s", o.machine.InstanceName, describe(err)))
	default:
		return infrastructure.Instance{}, err
	}
	instance.State = infrav1.InstanceCreating
	instance.Message = fmt.Sprintf("vCenter powers on VM %s (%s)", o.machine.InstanceName, o.record.vm.Value)
	return instance, nil
}

// clone sends the request that creates the VM.
func (o *operation) clone(ctx context.Context, place placement, userData []byte) (infrastructure.Instance, error) {
	extra, err := extraConfig(o.machine, userData)
	if err != nil {
		return infrastructure.Instance{}, err
	}
	var res *types.CloneVM_TaskResponse
	for range 2 {
		var t *target
		if t, err = o.session.inventory.resolve(ctx, place); err != nil {
			return infrastructure.Instance{}, err
		}
		if res, err = methods.CloneVM_Task(ctx, o.session.client, cloneRequest(o.machine, t, extra)); !isNotFound(err) {
			break
		}
		o.session.inventory.forget(place) // what a name stood for is gone; the name may stand for something else now
	}
	log := ctrl.LoggerFrom(ctx).WithValues("vm", o.machine.InstanceName)
	if err == nil {
		log.Info("Cloning VM", "template", place.Template, "task", res.Returnval.Value)
		o.begin(cloneTask, res.Returnval)
		return o.creating(o.running()), nil
	}
	if taken, ok := duplicate(err); ok {
		if err := o.consider(taken); err != nil {
			return infrastructure.Instance{}, err
		}
		o.platform.wakes.wake(o.machine.Owner.Key())
		return o.creating(fmt.Sprintf("checking whose VM %s (%s) is", o.machine.InstanceName, taken.Value)), nil
	}
	if isFault(err) && !isSessionLost(err) {
		return infrastructure.Instance{}, o.createFailed(fmt.Sprintf("vCenter refuses to clone VM %s: %s", o.machine.InstanceName, describe(err)))
	}
	if !isSessionLost(err) {
		o.record.uncertain = true // it may have been carried out
	}
	return infrastructure.Instance{}, err
}

// createFailed remembers a failed creation.
func (o *operation) createFailed(message string) error {
	return &infrastructure.CreateError{Message: message, RetryAfter: o.failed(message)}
}
