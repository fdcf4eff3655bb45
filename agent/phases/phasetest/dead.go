package phasetest

import (
	"context"
	"errors"

	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
)

// UntilDead is a phase in a process that does nothing more once it is dead, instead of failing again and again until the
// deadline: that makes loops over faults of steps without an end of their own many times faster.
func UntilDead(p engine.Phase) engine.Phase {
	for i, s := range p.Steps {
		p.Steps[i].Do = func(ctx context.Context, r *engine.Run) error {
			err := s.Do(ctx, r)
			if errors.Is(err, sim.ErrKilled) || errors.Is(err, sim.ErrPowerLost) {
				<-ctx.Done()
			}
			return err
		}
	}
	return p
}
