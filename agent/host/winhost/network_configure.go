package winhost

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

const (
	// configureRounds is how often changes are made and read back before giving up. One is enough unless a command does
	// more than it was asked for.
	configureRounds = 3
	// detectionTime is how long duplicate address detection may take; by default it is 3 seconds for IPv4, 1 for IPv6.
	detectionTime = 15 * time.Second
	// settleTime is how long a change may take to show.
	settleTime = 2 * time.Second
	// configurePause is between two looks.
	configurePause = 250 * time.Millisecond
)

// configurator brings one adapter to what it shall be.
type configurator struct {
	state func(context.Context) (adapterState, error)
	apply func(context.Context, change) error
}

// configure returns when the adapter is as c says and its addresses may be used. An address that another machine has is
// host.ErrBusy.
func (by configurator) configure(ctx context.Context, c host.AdapterConfig) error {
	if err := by.converge(ctx, c); err != nil {
		return err
	}
	return by.detectDuplicates(ctx, c)
}

// converge makes the changes that are needed until none is.
func (by configurator) converge(ctx context.Context, c host.AdapterConfig) error {
	for round := 0; ; round++ {
		changes, err := by.remaining(ctx, c, round > 0)
		if err != nil || len(changes) == 0 {
			return err
		}
		if round == configureRounds {
			return fmt.Errorf("it was accepted, but had no effect: %s", changes[0])
		}
		for _, change := range changes {
			if err := by.apply(ctx, change); err != nil {
				return err
			}
		}
	}
}

// remaining returns what is still to be done. After changes were made it gives them time to show.
func (by configurator) remaining(ctx context.Context, c host.AdapterConfig, changed bool) ([]change, error) {
	for waited := time.Duration(0); ; waited += configurePause {
		s, err := by.state(ctx)
		if err != nil {
			return nil, err
		}
		changes, err := s.plan(c)
		if err != nil || !changed {
			return changes, err
		}
		// A duplicate that was found before is tried again; after that it is the truth.
		if err := s.duplicates(c); err != nil {
			return nil, err
		}
		changes = slices.DeleteFunc(changes, func(c change) bool { return c.optional })
		if len(changes) == 0 || waited >= settleTime {
			return changes, nil
		}
		if err := pause(ctx, configurePause); err != nil {
			return nil, err
		}
	}
}

// detectDuplicates waits until the addresses may be used.
func (by configurator) detectDuplicates(ctx context.Context, c host.AdapterConfig) error {
	for waited := time.Duration(0); ; waited += configurePause {
		s, err := by.state(ctx)
		if err != nil {
			return err
		}
		if err := s.duplicates(c); err != nil {
			return err
		}
		pending := s.tentative(c)
		if len(pending) == 0 {
			return nil
		}
		if waited >= detectionTime {
			return fmt.Errorf("address %s is still tentative after %s: it becomes usable when the link works", pending[0], detectionTime)
		}
		if err := pause(ctx, configurePause); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
