package vsphere

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/infrastructure"
)

const (
	// unmarkedGrace is how long a VM may be without owner mark while it is being created.
	unmarkedGrace = time.Minute
	// lookAgainDelay is when something is looked at again that the watch does not report; it grows to lookAgainDelayMax.
	lookAgainDelay    = 2 * time.Second
	lookAgainDelayMax = time.Minute
)

// notReadyError says that our VM exists, but cannot be used yet.
type notReadyError struct{ message string }

// Error implements error.
func (e *notReadyError) Error() string { return e.message }

// locate finds the VM of the machine, or nil. It knows it from the watch, or asks the vCenter for what can be ours: the VM
// with our instance UUID, and that with the BIOS UUID of spec.providerID, which is another one after clusterctl move.
// Errors: *infrastructure.ForeignInstanceError, *infrastructure.ConfigError, *notReadyError.
func (o *operation) locate(ctx context.Context) (*vmFacts, error) {
	if o.record.vm != (reference{}) {
		vm, err := o.examine(ctx, o.record.vm)
		if vm != nil || err != nil {
			return vm, err
		}
	}
	uuid, instance := instanceUUID(o.machine.Owner.UID), true
	vm, err := o.find(ctx, uuid, instance)
	if vm == nil && err == nil && o.machine.ProviderID != "" {
		vm, err = o.find(ctx, strings.TrimPrefix(strings.ToLower(o.machine.ProviderID), "vsphere://"), !instance)
	}
	if vm != nil || err != nil || o.machine.ID == "" {
		return vm, err
	}
	return o.confirmGone(ctx, reference{Type: "VirtualMachine", Value: o.machine.ID})
}

// confirmGone asks for the VM under the reference that it had. To a user who may no longer see it, the vCenter hides a VM from
// every search and reports it as gone from the watch; only this tells a lost privilege from a lost VM.
func (o *operation) confirmGone(ctx context.Context, ref reference) (*vmFacts, error) {
	var vm mo.VirtualMachine
	err := property.DefaultCollector(o.session.client).RetrieveOne(ctx, ref, []string{"name"}, &vm)
	switch {
	case isNotFound(err):
		return nil, nil
	case isFault(err) && !isSessionLost(err):
		return nil, fmt.Errorf("%w: vCenter does not find VM %s any more, but does not say that %s is gone: %s: check that the user may still see it",
			infrastructure.ErrUnavailable, o.machine.InstanceName, ref.Value, describe(err))
	case err != nil:
		return nil, err
	}
	found, err := o.examine(ctx, ref)
	if isA[*infrastructure.ForeignInstanceError](err) {
		return nil, nil // the reference means another VM now, as after a restore of the vCenter
	}
	return found, err
}

func (o *operation) find(ctx context.Context, uuid string, instance bool) (*vmFacts, error) {
	found, err := object.NewSearchIndex(o.session.client).FindByUuid(ctx, nil, uuid, true, &instance)
	if err != nil || found == nil {
		return nil, err
	}
	return o.examine(ctx, found.Reference())
}

// examine returns what is known of the VM ref if it exists and is ours. From then on it is watched, whosever it is: when it
// changes or goes, the reconciler is woken.
func (o *operation) examine(ctx context.Context, ref reference) (*vmFacts, error) {
	owner := o.machine.Owner.Key()
	vm, exists, err := o.session.watch.vmOf(ctx, o.session.watch.track(ref, owner))
	if err != nil {
		return nil, err
	}
	r := o.record
	if !exists {
		o.session.watch.untrack(ref, owner)
		r.unmarkedSince = time.Time{}
		if r.vm == ref {
			r.vm = reference{}
		}
		return nil, nil
	}
	whose, why := vm.owner(o.machine)
	switch {
	case whose == altered && r.deleting:
		whose = ours // nothing else removes it
	case whose == unmarked && !r.deleting && strings.EqualFold(o.machine.ProviderID, providerID(vm.uuid)):
		whose = ours // both of its UUIDs are right: a lost mark makes no running node bad, it only protects the VM from removal
	}
	switch whose {
	case ours:
		r.vm, r.unmarkedSince = ref, time.Time{}
		return &vm, nil
	case altered:
		return nil, &infrastructure.ConfigError{Field: "spec.providerID", Value: o.machine.ProviderID,
			Problem: fmt.Sprintf("VM %s (%s) %s: give the VM its BIOS UUID back, or delete the Machine, which removes the VM", o.machine.InstanceName, ref.Value, why)}
	case unconfigured:
		return nil, &notReadyError{fmt.Sprintf("VM %s (%s) is not ready: %s", o.machine.InstanceName, ref.Value, why)}
	case unmarked:
		if r.unmarkedSince.IsZero() {
			r.unmarkedSince = time.Now()
		}
		if time.Since(r.unmarkedSince) < unmarkedGrace {
			o.lookAgain(lookAgainDelay)
			return nil, &notReadyError{fmt.Sprintf("VM %s (%s) is not ready: %s", o.machine.InstanceName, ref.Value, why)}
		}
	}
	return nil, &infrastructure.ForeignInstanceError{Name: o.machine.InstanceName, ID: ref.Value, Detail: why}
}

// instance returns the machine's instance for its VM.
func (o *operation) instance(vm *vmFacts) infrastructure.Instance {
	i := infrastructure.Instance{
		ID:            o.record.vm.Value,
		ProviderID:    providerID(vm.uuid),
		Addresses:     vm.machineAddresses(o.machine.InstanceName),
		FailureDomain: o.machine.FailureDomain,
	}
	switch vm.power {
	case types.VirtualMachinePowerStatePoweredOn:
		i.State = infrav1.InstanceRunning
	case types.VirtualMachinePowerStateSuspended:
		i.State = infrav1.InstanceSuspended
	default:
		i.State = infrav1.InstancePoweredOff
	}
	return i
}

// creating returns an instance that the vCenter works on.
func (o *operation) creating(message string) infrastructure.Instance {
	return infrastructure.Instance{State: infrav1.InstanceCreating, ID: o.record.vm.Value, FailureDomain: o.machine.FailureDomain, Message: message}
}

// notReady returns a VM that cannot be used yet. One that was seen before is not created again: how it is now is not known.
func (o *operation) notReady(e *notReadyError) (infrastructure.Instance, error) {
	if o.machine.ProviderID != "" {
		return infrastructure.Instance{}, fmt.Errorf("%w: %w", infrastructure.ErrUnavailable, e)
	}
	return o.creating(e.message), nil
}
