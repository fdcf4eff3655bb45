package faultloop

import (
	"context"
	"errors"
	"time"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
)

// patience is how long a person waits before pressing the reset button of a machine on which nothing happens any more. It is
// virtual time, and longer than the deadline of a first boot.
const patience = 6 * time.Hour

// errReset is why run is run again on a machine that hung.
var errReset = errors.New("the machine was reset")

// Drive powers a machine on and calls run with a handle of it, and does so again whenever the power was lost, the machine has
// rebooted or the handle was killed, as the SCM does with a service. It returns run's error otherwise. When run does not
// return for six hours, the machine is reset.
func Drive(ctx context.Context, m *sim.Machine, run func(ctx context.Context, h *host.Host) error) error {
	for {
		m.PowerOn(ctx)
		h := m.Host()
		err := watched(ctx, m, func() error { return run(ctx, h) })
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
		if m.Lives(h) {
			return err
		}
		time.Sleep(time.Second) // nothing restarts at once
	}
}

// DriveServices powers a machine on, again whenever the power was lost, until done says so; it looks at the machine, not
// through a handle, every second at first, and less often the longer it takes. When it does not come to that within six
// hours, the machine is reset.
func DriveServices(ctx context.Context, m *sim.Machine, done func() bool) error {
	began := time.Now()
	for !done() {
		m.PowerOn(ctx)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(max(time.Second, time.Since(began)/100)):
		}
		if time.Since(began) > patience {
			m.PowerOff()
			began = time.Now()
		}
	}
	return nil
}

// watched calls run, and resets the machine when it takes too long.
func watched(ctx context.Context, m *sim.Machine, run func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- run() }()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	case <-timer.C:
	}
	m.Cut() // ends calls that hang
	return errors.Join(errReset, <-ended)
}
