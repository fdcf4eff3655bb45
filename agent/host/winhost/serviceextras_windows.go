//go:build windows

package winhost

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// extras are the parts of a service's configuration that have a call of their own (QueryServiceConfig2).
type extras struct {
	description string
	delayed     bool
	recovery    recovery
}

// recovery is what the service control manager does when a service fails.
type recovery struct {
	restart    []time.Duration
	resetAfter time.Duration
	// nonCrash: an orderly end with an exit code other than 0 is a failure too.
	nonCrash bool
	// other: it has actions that are none of ours, such as to run a program.
	other bool
}

func (r recovery) equal(o recovery) bool {
	return slices.Equal(r.restart, o.restart) && r.resetAfter == o.resetAfter && r.nonCrash == o.nonCrash && r.other == o.other
}

func (s *services) readExtras(ctx context.Context, h windows.Handle, name string) (extras, error) {
	var e extras
	buffer, err := queryLevel(h, windows.SERVICE_CONFIG_DESCRIPTION)
	if err != nil {
		return e, failed(err, "read its description")
	}
	e.description = windows.UTF16PtrToString((*windows.SERVICE_DESCRIPTION)(unsafe.Pointer(&buffer[0])).Description)
	if e.delayed, err = readDelayed(h); s.missing(err) {
		e.delayed, err = s.keptDelayed(ctx, name)
	}
	if err != nil {
		return e, failed(err, "read its delayed start")
	}
	if e.recovery, err = readRecovery(h); s.missing(err) {
		e.recovery, err = s.keptRecovery(ctx, name)
	}
	return e, failed(err, "read its recovery actions")
}

// applyExtras sets each level for itself, and only where it differs.
func (s *services) applyExtras(ctx context.Context, h windows.Handle, want host.Service) error {
	have, err := s.readExtras(ctx, h, want.Name)
	if err != nil {
		return failed(err, "change service %q", want.Name)
	}
	if have.description != want.Description {
		info := windows.SERVICE_DESCRIPTION{Description: utf16Pointer(want.Description)}
		if err := windows.ChangeServiceConfig2(h, windows.SERVICE_CONFIG_DESCRIPTION, (*byte)(unsafe.Pointer(&info))); err != nil {
			return failed(err, "set the description of service %q", want.Name)
		}
	}
	// Windows knows a delayed start of services that start automatically only.
	delayed := want.Start == host.StartAutoDelayed
	if have.delayed != delayed && (delayed || want.Start == host.StartAuto) {
		if err := s.setDelayed(ctx, h, want.Name, delayed); err != nil {
			return failed(err, "set the delayed start of service %q", want.Name)
		}
	}
	if r := recoveryFor(want); !have.recovery.equal(r) {
		if err := s.setRecovery(ctx, h, want.Name, r); err != nil {
			return failed(err, "set the recovery actions of service %q", want.Name)
		}
	}
	return nil
}

// recoveryFor returns what Windows can keep: pauses of whole milliseconds, and whole seconds until the count begins again.
func recoveryFor(want host.Service) recovery {
	if len(want.Restart) == 0 {
		return recovery{}
	}
	r := recovery{resetAfter: want.ResetAfter.Truncate(time.Second), nonCrash: true}
	if want.ResetAfter == 0 {
		r.resetAfter = defaultResetAge
	}
	for _, pause := range want.Restart {
		r.restart = append(r.restart, pause.Truncate(time.Millisecond))
	}
	return r
}

func readDelayed(h windows.Handle) (bool, error) {
	buffer, err := queryLevel(h, windows.SERVICE_CONFIG_DELAYED_AUTO_START_INFO)
	if err != nil {
		return false, err
	}
	return (*windows.SERVICE_DELAYED_AUTO_START_INFO)(unsafe.Pointer(&buffer[0])).IsDelayedAutoStartUp != 0, nil
}

func readRecovery(h windows.Handle) (recovery, error) {
	buffer, err := queryLevel(h, windows.SERVICE_CONFIG_FAILURE_ACTIONS)
	if err != nil {
		return recovery{}, err
	}
	flag, err := queryLevel(h, windows.SERVICE_CONFIG_FAILURE_ACTIONS_FLAG)
	if err != nil {
		return recovery{}, err
	}
	info := (*windows.SERVICE_FAILURE_ACTIONS)(unsafe.Pointer(&buffer[0]))
	var r recovery
	if info.Actions != nil {
		for _, action := range unsafe.Slice(info.Actions, info.ActionsCount) {
			r.restart = append(r.restart, time.Duration(action.Delay)*time.Millisecond)
			r.other = r.other || action.Type != windows.SC_ACTION_RESTART
		}
	}
	r.nonCrash = (*windows.SERVICE_FAILURE_ACTIONS_FLAG)(unsafe.Pointer(&flag[0])).FailureActionsOnNonCrashFailures != 0
	if info.ActionsCount > 0 {
		r.resetAfter = time.Duration(info.ResetPeriod) * time.Second
	}
	return r, nil
}

func (s *services) setDelayed(ctx context.Context, h windows.Handle, name string, delayed bool) error {
	info := windows.SERVICE_DELAYED_AUTO_START_INFO{}
	if delayed {
		info.IsDelayedAutoStartUp = 1
	}
	err := windows.ChangeServiceConfig2(h, windows.SERVICE_CONFIG_DELAYED_AUTO_START_INFO, (*byte)(unsafe.Pointer(&info)))
	if s.missing(err) {
		return s.keepDelayed(ctx, name, delayed)
	}
	return err
}

func (s *services) setRecovery(ctx context.Context, h windows.Handle, name string, r recovery) error {
	if slices.ContainsFunc(r.restart, func(d time.Duration) bool { return d < 0 || d.Milliseconds() >= math.MaxUint32 }) ||
		r.resetAfter < 0 || r.resetAfter/time.Second >= math.MaxUint32 {
		return host.ErrInvalid
	}
	// Even no actions need a pointer: without one, the old ones stay.
	actions := make([]windows.SC_ACTION, max(1, len(r.restart)))
	for i, pause := range r.restart {
		actions[i] = windows.SC_ACTION{Type: windows.SC_ACTION_RESTART, Delay: uint32(pause.Milliseconds())}
	}
	info := windows.SERVICE_FAILURE_ACTIONS{ResetPeriod: uint32(r.resetAfter / time.Second), ActionsCount: uint32(len(r.restart)), Actions: &actions[0]}
	flag := windows.SERVICE_FAILURE_ACTIONS_FLAG{}
	if r.nonCrash {
		flag.FailureActionsOnNonCrashFailures = 1
	}
	err := errors.Join(
		windows.ChangeServiceConfig2(h, windows.SERVICE_CONFIG_FAILURE_ACTIONS, (*byte)(unsafe.Pointer(&info))),
		windows.ChangeServiceConfig2(h, windows.SERVICE_CONFIG_FAILURE_ACTIONS_FLAG, (*byte)(unsafe.Pointer(&flag))))
	if s.lenient && (err == nil || s.missing(err)) {
		return s.keepRecovery(ctx, name, r) // Wine 8 says yes to the first call, and forgets it
	}
	return err
}

func queryLevel(h windows.Handle, level uint32) ([]byte, error) {
	return growing(func(p *byte, size uint32, needed *uint32) error {
		return windows.QueryServiceConfig2(h, level, p, size, needed)
	})
}

// missing says whether an error is one that is to be passed over.
func (s *services) missing(err error) bool {
	return s.lenient && errors.Is(err, windows.ERROR_INVALID_LEVEL)
}
