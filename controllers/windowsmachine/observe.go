package windowsmachine

import (
	"context"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
)

// observeInstance looks at an instance that was seen before. One that is gone is reported and never created again: its
// Machine has a Node, or had one, and only Cluster API (a MachineHealthCheck) replaces Machines. It needs neither Cluster
// nor bootstrap data, so it also finds the instance of a WindowsMachine that clusterctl moved, whose status is lost.
func (r *Reconciler) observeInstance(ctx context.Context, s *scope) (bool, error) {
	if s.object.Spec.ProviderID == "" {
		return true, nil
	}
	instance, err := s.platform.Observe(ctx, s.wanted())
	if err != nil {
		return false, err
	}
	s.instance = &instance
	if s.provisioned() {
		return false, nil
	}
	// Created, but not seen running yet: the platform may have something left to do.
	return instance.State == infrav1.InstanceCreating || instance.State == infrav1.InstancePoweredOff, nil
}
