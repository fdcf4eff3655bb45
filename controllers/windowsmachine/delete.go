package windowsmachine

import "context"

// deleteUnclaimed lets a WindowsMachine go that never had an instance, without the platform.
func (r *Reconciler) deleteUnclaimed(_ context.Context, s *scope) (bool, error) {
	s.deletion.Done = !claimed(s.object)
	return !s.deletion.Done, nil
}

// deleteInstance removes the instance. It needs neither Machine, Cluster nor bootstrap data.
func (r *Reconciler) deleteInstance(ctx context.Context, s *scope) (_ bool, err error) {
	s.deletion, err = s.platform.Delete(ctx, s.wanted())
	return true, err
}
