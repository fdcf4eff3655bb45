package vsphere

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/vim25/types"
)

// taskKind is what a task does, as people read it.
type taskKind string

const (
	cloneTask    taskKind = "clone"
	powerOnTask  taskKind = "power-on"
	powerOffTask taskKind = "power-off"
	destroyTask  taskKind = "destroy"
)

// task is something that the vCenter does for us.
type task struct {
	ref  reference
	kind taskKind
}

// begin remembers a task and has its end wake the reconciler.
func (o *operation) begin(kind taskKind, ref reference) {
	o.record.task, o.record.awaited = &task{ref: ref, kind: kind}, 0
	if kind == cloneTask {
		o.platform.mu.Lock()
		o.platform.clones[cloneKey{o.session.server, ref.Value}] = o.machine.Owner.Key()
		o.platform.mu.Unlock()
	}
	o.session.watch.track(ref, o.machine.Owner.Key())
}

// running says what the task does.
func (o *operation) running() string {
	t := o.record.task
	return fmt.Sprintf("vCenter runs %s of VM %s (%s)", t.kind, o.machine.InstanceName, t.ref.Value)
}

// taskError is a task that failed.
type taskError struct {
	kind  taskKind
	fault *types.LocalizedMethodFault
	text  string
}

// Error implements error.
func (e *taskError) Error() string { return e.text }

// collectTask takes over the result of the task, if it has ended. busy is true while it runs. The error is a *taskError
// when it failed.
func (o *operation) collectTask(ctx context.Context) (busy bool, err error) {
	t := o.record.task
	if t == nil {
		return false, nil
	}
	owner := o.machine.Owner.Key()
	tracked := o.session.watch.track(t.ref, owner)
	facts, exists, err := o.session.watch.taskOf(ctx, tracked)
	if err != nil {
		return false, err
	}
	if exists && !facts.ended() {
		return true, nil
	}
	o.record.task = nil
	o.session.watch.untrack(t.ref, owner)
	o.platform.mu.Lock()
	delete(o.platform.clones, cloneKey{o.session.server, t.ref.Value})
	o.platform.mu.Unlock()
	if !exists {
		// The vCenter forgot it. What it did will be seen, when it did it.
		if t.kind == cloneTask {
			o.record.uncertain = true
		}
		return false, nil
	}
	if facts.state == types.TaskInfoStateSuccess {
		if vm := facts.madeVM(); vm != (reference{}) {
			o.record.vm = vm
		}
		if t.kind == destroyTask {
			o.record.destroyed = true
		}
		return false, nil
	}
	failed := &taskError{kind: t.kind, fault: facts.fault}
	if t.kind != cloneTask && isAny(failed, &types.InvalidPowerState{}) {
		return false, nil // somebody else was faster, and what is there is what counts
	}
	text := fmt.Sprintf("vCenter task %s of VM %s failed", t.kind, o.machine.InstanceName)
	if facts.fault != nil {
		text += ": " + describe(facts.fault)
	}
	failed.text = text
	return false, failed
}

// duplicate returns what has our name already, when that is why err happened.
func duplicate(err error) (reference, bool) {
	var name *types.DuplicateName
	if _, ok := fault.As(faultOf(err), &name); !ok {
		return reference{}, false
	}
	return name.Object, true
}

// isAny is true when err, an error or a task's fault, is or is caused by one of the faults.
func isAny(err error, faults ...types.BaseMethodFault) bool {
	return slices.ContainsFunc(faults, func(f types.BaseMethodFault) bool { return fault.Is(faultOf(err), f) })
}

// faultOf returns what govmomi finds the faults of err in.
func faultOf(err error) any {
	if failed, ok := errors.AsType[*taskError](err); ok && failed.fault != nil {
		return failed.fault
	}
	return err
}

// ownsClone is true for a clone task that one of our records knows.
func (p *Platform) ownsClone(server string, ref reference) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.clones[cloneKey{server, ref.Value}]
	return ok
}
