package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// services fills host.Services.
type services struct{ p *Process }

func (x services) Get(ctx context.Context, name string) (host.Service, error) {
	return locked(ctx, x.p, "Services.Get", name, func() (host.Service, error) {
		s, ok := x.p.m.disk.services.get(name)
		if !ok {
			return host.Service{}, fmt.Errorf("service %s: %w", name, host.ErrNotFound)
		}
		return cloneService(s), nil
	})
}

func (x services) Apply(ctx context.Context, s host.Service) error {
	return lockedErr(ctx, x.p, "Services.Apply", s.Name, func() error { return x.p.m.applyService(s) })
}

// applyService stores a configuration as the SCM would return it. m.mu is held.
func (m *Machine) applyService(s host.Service) error {
	if err := m.validService(s); err != nil {
		return fmt.Errorf("service %q: %w: %w", s.Name, err, host.ErrInvalid)
	}
	s = cloneService(s)
	if s.DisplayName == "" {
		s.DisplayName = s.Name
	}
	switch {
	case len(s.Restart) == 0: // Windows keeps it only with the actions that it is for
		s.ResetAfter = 0
	case s.ResetAfter == 0:
		s.ResetAfter = time.Hour
	default:
		s.ResetAfter = s.ResetAfter.Truncate(time.Second)
	}
	for i := range s.Restart {
		s.Restart[i] = s.Restart[i].Truncate(time.Millisecond)
	}
	slices.Sort(s.Environment)
	if have, ok := m.disk.services.get(s.Name); ok {
		s.Name = have.Name
	}
	m.disk.services.set(s.Name, s)
	return nil
}

func (m *Machine) validService(s host.Service) error {
	starts := []host.StartType{host.StartAuto, host.StartAutoDelayed, host.StartManual, host.StartDisabled}
	switch {
	case s.Name == "" || len(s.Name) > 256 || slices.ContainsFunc([]rune(s.Name), func(r rune) bool { return r == '/' || r == '\\' }):
		return fmt.Errorf("not a name")
	case len(s.Argv) == 0:
		return fmt.Errorf("no program")
	case !slices.Contains(starts, s.Start):
		return fmt.Errorf("no start type %q", s.Start)
	case m.dependsOn(s.DependsOn, s.Name):
		return fmt.Errorf("it depends on itself")
	}
	_, err := clean(s.Argv[0])
	return err
}

// dependsOn says whether services depend on one, also by others.
func (m *Machine) dependsOn(services []string, name string) bool {
	return slices.ContainsFunc(services, func(d string) bool {
		config, _ := m.disk.services.get(d)
		return fold(d) == fold(name) || m.dependsOn(config.DependsOn, name)
	})
}

func cloneService(s host.Service) host.Service {
	s.Argv, s.DependsOn = slices.Clone(s.Argv), slices.Clone(s.DependsOn)
	s.Restart, s.Environment = slices.Clone(s.Restart), slices.Clone(s.Environment)
	return s
}

func (x services) Delete(ctx context.Context, name string) error {
	return blockingErr(ctx, x.p, "Services.Delete", name, func() error {
		for {
			err := x.p.boot.stop(ctx, x.p.gone, name)
			if errors.Is(err, host.ErrNotFound) {
				return nil
			}
			if err != nil || x.p.deleteStopped(name) {
				return err
			}
		}
	})
}

// deleteStopped removes a service, unless something has started it again.
func (p *Process) deleteStopped(name string) bool {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	switch run := p.boot.run(name); {
	case p.dead != nil:
		return true
	case run.state != host.ServiceStopped:
		return false
	default:
		run.forget()
		p.m.disk.services.remove(name)
		delete(p.boot.services, fold(name))
		p.boot.notify(name)
		return true
	}
}

func (x services) Status(ctx context.Context, name string) (host.ServiceStatus, error) {
	return locked(ctx, x.p, "Services.Status", name, func() (host.ServiceStatus, error) {
		if _, ok := x.p.m.disk.services.get(name); !ok {
			return host.ServiceStatus{}, fmt.Errorf("service %s: %w", name, host.ErrNotFound)
		}
		return x.p.boot.run(name).status(), nil
	})
}

func (s *serviceRun) status() host.ServiceStatus {
	status := host.ServiceStatus{State: s.state, ExitCode: s.exit}
	if s.proc != nil {
		status.PID = s.proc.PID
	}
	return status
}

func (x services) Start(ctx context.Context, name string) error {
	return blockingErr(ctx, x.p, "Services.Start", name, func() error { return x.p.boot.start(ctx, x.p.gone, name) })
}

func (x services) Stop(ctx context.Context, name string) error {
	return blockingErr(ctx, x.p, "Services.Stop", name, func() error { return x.p.boot.stop(ctx, x.p.gone, name) })
}

func (x services) Changes(ctx context.Context, names []string) (<-chan string, error) {
	return locked(ctx, x.p, "Services.Changes", fmt.Sprint(names), func() (<-chan string, error) {
		return watch(ctx, x.p, names, func(name string) string { return name }), nil
	})
}

// watcher collects names until somebody takes them.
type watcher struct {
	names   map[string]string // as folded, as asked for
	pending []string
	wake    chan struct{}
}

// networkChange is the name under which changes of the network are told. No service can have it.
const networkChange = `\network`

// notify tells that something changed. m.mu is held.
func (b *boot) notify(name string) {
	for w := range b.watchers {
		asked, ok := w.names[fold(name)]
		if !ok || slices.Contains(w.pending, asked) {
			continue
		}
		w.pending = append(w.pending, asked)
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// watch returns a channel of changes that is closed when ctx or the process ends. m.mu is held.
func watch[T any](ctx context.Context, p *Process, names []string, item func(string) T) <-chan T {
	w := &watcher{names: map[string]string{}, wake: make(chan struct{}, 1)}
	for _, n := range names {
		w.names[fold(n)] = n
	}
	b, out := p.boot, make(chan T)
	b.watchers[w] = struct{}{}
	b.work.Go(func() {
		defer close(out)
		defer func() {
			b.m.mu.Lock()
			defer b.m.mu.Unlock()
			delete(b.watchers, w)
		}()
		for {
			b.m.mu.Lock()
			var name string
			pending := len(w.pending) > 0
			if pending {
				name, w.pending = w.pending[0], w.pending[1:]
			}
			b.m.mu.Unlock()
			if !pending {
				if await(ctx, p.gone, w.wake) != nil {
					return
				}
				continue
			}
			select {
			case out <- item(name):
			case <-ctx.Done():
				return
			case <-p.gone:
				return
			}
		}
	})
	return out
}
