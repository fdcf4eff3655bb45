package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// What the SCM waits for, and how long.
const (
	// connectTime is how long a service's process may take to say that it runs (ServicesPipeTimeout).
	connectTime = 30 * time.Second
	// delayedStart is when services of start type AutoDelayed start after the boot (AutoStartDelay).
	delayedStart = 2 * time.Minute
)

// serviceRun is what a service does in a boot.
type serviceRun struct {
	b       *boot
	name    string
	state   host.ServiceState
	proc    *Process
	exit    uint32
	attempt *attempt      // of the last start
	stopped chan struct{} // closed when it is stopped

	stopRequested bool
	killed        bool // its process was killed from outside
	timedOut      bool // its process was killed because it never said that it runs
	failures      int
	lastFailure   time.Time
	restart       *time.Timer
}

// attempt is a start under way.
type attempt struct {
	done chan struct{}
	err  error
}

// run returns the state of a service. m.mu is held.
func (b *boot) run(name string) *serviceRun {
	s := b.services[fold(name)]
	if s == nil {
		s = &serviceRun{b: b, name: name, state: host.ServiceStopped, stopped: make(chan struct{})}
		close(s.stopped)
		b.services[fold(name)] = s
	}
	return s
}

// autostart starts the automatic services in the background, as the SCM does at a boot. m.mu is held.
func (b *boot) autostart() {
	for _, name := range b.m.disk.services.names() {
		var delay time.Duration
		switch s, _ := b.m.disk.services.get(name); s.Start {
		case host.StartAuto:
		case host.StartAutoDelayed:
			delay = delayedStart
		default:
			continue
		}
		b.work.Go(func() {
			timer := time.NewTimer(delay)
			defer timer.Stop()
			select {
			case <-timer.C:
				if err := b.start(b.ctx, b.off, name); err != nil {
					b.m.systemEvent(b, fmt.Sprintf("%s failed to start: %v", name, err))
				}
			case <-b.off:
			}
		})
	}
}

// start starts a service, after those that it depends on, and waits until it runs.
func (b *boot) start(ctx context.Context, gone <-chan struct{}, name string) error {
	for dependenciesRun := false; ; {
		b.m.mu.Lock()
		config, ok := b.m.disk.services.get(name)
		run := b.run(name)
		err := b.startable(config, ok)
		var wait <-chan struct{}
		var started *attempt
		switch {
		case b.m.boot != b:
			err = ErrPowerLost
		case ok && run.state == host.ServiceRunning:
			b.m.mu.Unlock()
			return nil
		case run.state == host.ServiceStarting:
			err, started = nil, run.attempt
		case run.state == host.ServiceStopping:
			err, wait = nil, run.stopped
		case err == nil && dependenciesRun:
			started = run.launch(config)
		}
		b.m.mu.Unlock()
		switch {
		case err != nil:
			return fmt.Errorf("start service %s: %w", name, err)
		case started != nil:
			if err := await(ctx, gone, started.done); err != nil {
				return err
			}
			if started.err != nil {
				return fmt.Errorf("start service %s: %w", name, started.err)
			}
			return nil
		case wait != nil:
			if err := await(ctx, gone, wait); err != nil {
				return err
			}
		default:
			for _, d := range config.DependsOn {
				if err := b.start(ctx, gone, d); err != nil {
					return fmt.Errorf("start service %s: a dependency: %w", name, err)
				}
			}
			dependenciesRun = true
		}
	}
}

// startable says why a stopped service cannot start.
func (b *boot) startable(config host.Service, found bool) error {
	switch {
	case !found:
		return host.ErrNotFound
	case b.reboot != nil:
		return fmt.Errorf("%w: %w", ErrShutdown, host.ErrBusy)
	case config.Start == host.StartDisabled:
		return fmt.Errorf("it is disabled: %w", host.ErrInvalid)
	default:
		return nil
	}
}

func await(ctx context.Context, gone, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-gone:
		return ErrKilled
	}
}

// launch starts the process. m.mu is held.
func (s *serviceRun) launch(config host.Service) *attempt {
	a := &attempt{done: make(chan struct{})}
	s.attempt = a
	p, run, err := s.b.launch(s.b.ctx, config.Argv)
	if err != nil {
		s.exit = errorFileNotFound
		a.err = err
		close(a.done)
		return a
	}
	p.service, p.main = s, true
	p.Env = mergeEnv(s.b.environment, config.Environment)
	s.proc, s.stopRequested, s.killed, s.timedOut, s.stopped = p, false, false, false, make(chan struct{})
	s.set(host.ServiceStarting)
	timer := time.AfterFunc(connectTime, func() {
		s.b.m.mu.Lock()
		defer s.b.m.mu.Unlock()
		if s.proc == p && s.state == host.ServiceStarting && p.dead == nil {
			s.timedOut = true
			a.err = errors.New("its process did not say in time that it runs (1053)")
			p.killLocked()
		}
	})
	p.onDeath[timer] = func() { timer.Stop() }
	go run()
	return a
}

const errorFileNotFound = 2

// running is said by the process. m.mu is held.
func (s *serviceRun) running() {
	if s.state == host.ServiceStarting {
		s.set(host.ServiceRunning)
		close(s.attempt.done)
	}
}

// ended is called when the process is dead. m.mu is held.
func (s *serviceRun) ended(p *Process) {
	if s.proc != p {
		return
	}
	ran := s.state != host.ServiceStarting
	s.exit, s.proc = p.exit, nil
	s.set(host.ServiceStopped)
	close(s.stopped)
	if !ran {
		if s.attempt.err == nil {
			s.attempt.err = fmt.Errorf("it ended with exit code %d before it ran", p.exit)
		}
		close(s.attempt.done)
	}
	failed := !s.timedOut && (s.killed || ran && p.exit != 0)
	if failed && !s.stopRequested && s.b.reboot == nil {
		s.recover()
	}
}

// recover schedules the restart that the service's configuration asks for.
func (s *serviceRun) recover() {
	config, ok := s.b.m.disk.services.get(s.name)
	if !ok || len(config.Restart) == 0 {
		return
	}
	if time.Since(s.lastFailure) > config.ResetAfter {
		s.failures = 0
	}
	delay := config.Restart[min(s.failures, len(config.Restart)-1)]
	s.failures++
	s.lastFailure = time.Now()
	s.restart = time.AfterFunc(delay, func() {
		s.b.m.mu.Lock()
		alive := s.b.m.boot == s.b
		if alive {
			s.b.work.Add(1)
		}
		s.b.m.mu.Unlock()
		if !alive {
			return
		}
		defer s.b.work.Done()
		if err := s.b.start(s.b.ctx, s.b.off, s.name); err != nil {
			s.b.m.systemEvent(s.b, fmt.Sprintf("%s was not restarted: %v", s.name, err))
		}
	})
}

// forget drops what waits. m.mu is held.
func (s *serviceRun) forget() {
	if s.restart != nil {
		s.restart.Stop()
	}
}

func (s *serviceRun) set(state host.ServiceState) {
	s.state = state
	s.b.notify(s.name)
}

// stop stops a service after those that depend on it, and waits until its process is gone.
func (b *boot) stop(ctx context.Context, gone <-chan struct{}, name string) error {
	for {
		b.m.mu.Lock()
		if b.m.boot != b {
			b.m.mu.Unlock()
			return ErrPowerLost
		}
		if _, ok := b.m.disk.services.get(name); !ok {
			b.m.mu.Unlock()
			return fmt.Errorf("stop service %s: %w", name, host.ErrNotFound)
		}
		run := b.run(name)
		if run.state == host.ServiceStopped {
			b.m.mu.Unlock()
			return nil
		}
		dependents := b.dependents(name)
		wait := run.stopped
		switch {
		case len(dependents) > 0:
		case run.state == host.ServiceStarting:
			wait = run.attempt.done
		case run.state == host.ServiceRunning:
			run.stopRequested = true
			run.set(host.ServiceStopping)
			run.proc.stop(ErrStop)
		}
		b.m.mu.Unlock()
		if len(dependents) > 0 {
			for _, d := range dependents {
				if err := b.stop(ctx, gone, d); err != nil {
					return err
				}
			}
			continue
		}
		if err := await(ctx, gone, wait); err != nil {
			return err
		}
	}
}

// dependents returns the services that are not stopped and depend on one. m.mu is held.
func (b *boot) dependents(name string) []string {
	out := []string{}
	for _, other := range b.m.disk.services.names() {
		config, _ := b.m.disk.services.get(other)
		depends := slices.ContainsFunc(config.DependsOn, func(d string) bool { return fold(d) == fold(name) })
		if depends && b.run(other).state != host.ServiceStopped {
			out = append(out, other)
		}
	}
	return out
}
