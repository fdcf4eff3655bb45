package vsphere

import (
	"context"
	"errors"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/infrastructure"
)

// observe is Platform.Observe. It costs no call when the watch knows the VM.
func (o *operation) observe(ctx context.Context) (infrastructure.Instance, error) {
	busy, err := o.collectTask(ctx)
	switch {
	case busy && (o.record.task.kind == cloneTask || o.record.task.kind == powerOnTask):
		return o.creating(o.running()), nil
	case isA[*taskError](err):
		o.failed(err.Error()) // Ensure or Delete return it
	case err != nil:
		return infrastructure.Instance{}, err
	}
	vm, err := o.locate(ctx)
	var notReady *notReadyError
	switch {
	case errors.As(err, &notReady):
		return o.notReady(notReady)
	case err != nil:
		return infrastructure.Instance{}, err
	case vm == nil:
		return infrastructure.Instance{State: infrav1.InstanceMissing}, nil
	}
	return o.instance(vm), nil
}
