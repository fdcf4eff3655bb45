package sim

import (
	"context"
	"errors"
	"fmt"
)

// Errors of calls through a handle that is dead. Programs cannot see them on Windows: there, they would be dead, too.
var (
	// ErrPowerLost: the boot that the handle belongs to is over.
	ErrPowerLost = errors.New("the simulated machine has lost its power")
	// ErrKilled: the process that the handle belongs to was killed, or has ended.
	ErrKilled = errors.New("the simulated process is dead")
)

// Call is a host call about to be made.
type Call struct {
	// Index counts the calls of the machine's life from 0.
	Index int
	// Boot counts the machine's boots from 1.
	Boot int
	// Op, such as Services.Start, or File.Write for a write to what Files.Append returned.
	Op string
	// Detail is the path, name or address that the call is about.
	Detail string
	// Program is the path of the executable that calls; empty for a handle of Machine.Host.
	Program string
}

// String returns one line for people.
func (c Call) String() string {
	return fmt.Sprintf("call %d (boot %d) %s(%s)", c.Index, c.Boot, c.Op, c.Detail)
}

// Fault is what happens to a call. The zero Fault is none.
type Fault struct {
	Kind FaultKind
	// Err is the error that Fail and FailAfter report. Default: an error that says that a fault was injected.
	Err error
}

// FaultKind says what happens to a call.
type FaultKind string

// Kinds of faults.
const (
	// None: the call does what it shall.
	None FaultKind = ""
	// Fail: it has no effect and reports Err.
	Fail FaultKind = "Fail"
	// FailAfter: it has its effect and reports Err.
	FailAfter FaultKind = "FailAfter"
	// PowerCutBefore and PowerCutAfter: the machine loses its power before or after the effect.
	PowerCutBefore FaultKind = "PowerCutBefore"
	PowerCutAfter  FaultKind = "PowerCutAfter"
	// KillBefore and KillAfter: the calling process dies before or after the effect; the machine stays up.
	KillBefore FaultKind = "KillBefore"
	KillAfter  FaultKind = "KillAfter"
	// Hang: nothing happens until the call's context ends.
	Hang FaultKind = "Hang"
	// HangForever: nothing happens, not even when the context ends, until the process or the power does.
	HangForever FaultKind = "HangForever"
)

// errInjected is what a fault reports that has no error of its own.
var errInjected = errors.New("injected fault")

func (f Fault) err() error {
	if f.Err != nil {
		return f.Err
	}
	return errInjected
}

// locked makes a host call whose effect takes no time. act runs under the machine's lock, and only if the process lives.
func locked[T any](ctx context.Context, p *Process, op, detail string, act func() (T, error)) (T, error) {
	return blocking(ctx, p, op, detail, func() (T, error) {
		p.m.mu.Lock()
		defer p.m.mu.Unlock()
		if p.dead != nil {
			var zero T
			return zero, p.dead
		}
		return act()
	})
}

// lockedErr is locked for calls that return only an error.
func lockedErr(ctx context.Context, p *Process, op, detail string, act func() error) error {
	_, err := locked(ctx, p, op, detail, func() (struct{}, error) { return struct{}{}, act() })
	return err
}

// blocking makes a host call that may take time. act runs without the machine's lock and minds the life of the process
// itself.
func blocking[T any](ctx context.Context, p *Process, op, detail string, act func() (T, error)) (T, error) {
	var zero T
	fault, err := p.m.begin(p, op, detail)
	if err != nil {
		return zero, err
	}
	switch fault.Kind {
	case Fail:
		return zero, fmt.Errorf("%s(%s): %w", op, detail, fault.err())
	case PowerCutBefore:
		p.m.Cut()
		return zero, ErrPowerLost
	case KillBefore:
		p.kill()
		return zero, ErrKilled
	case Hang:
		select {
		case <-ctx.Done():
			return zero, ctx.Err()
		case <-p.gone:
			return zero, p.deadErr()
		}
	case HangForever:
		<-p.gone
		return zero, p.deadErr()
	case None, FailAfter, PowerCutAfter, KillAfter:
	}
	if err := ctx.Err(); err != nil {
		return zero, err
	}
	result, err := act()
	switch fault.Kind {
	case FailAfter:
		if err == nil {
			err = fmt.Errorf("%s(%s): %w", op, detail, fault.err())
		}
		return zero, err
	case PowerCutAfter:
		p.m.Cut()
		return zero, ErrPowerLost
	case KillAfter:
		p.kill()
		return zero, ErrKilled
	default:
		if dead := p.deadErr(); dead != nil { // died meanwhile
			return zero, dead
		}
		return result, err
	}
}

func blockingErr(ctx context.Context, p *Process, op, detail string, act func() error) error {
	_, err := blocking(ctx, p, op, detail, func() (struct{}, error) { return struct{}{}, act() })
	return err
}

// begin counts a call and asks for its fault.
func (m *Machine) begin(p *Process, op, detail string) (Fault, error) {
	m.mu.Lock()
	if p.dead != nil {
		defer m.mu.Unlock()
		return Fault{}, p.dead
	}
	call := Call{Index: m.calls, Boot: p.boot.number, Op: op, Detail: detail}
	if p.exe != nil {
		call.Program = p.Argv[0]
	}
	m.calls++
	inject := m.inject
	m.mu.Unlock()
	if inject == nil {
		return Fault{}, nil
	}
	return inject(call), nil
}

// SetInject replaces Options.Inject from the next call on; nil: no more faults.
func (m *Machine) SetInject(inject func(Call) Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inject = inject
}

// Calls returns how many host calls were made in the machine's life.
func (m *Machine) Calls() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls
}
