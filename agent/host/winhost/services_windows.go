//go:build windows

package winhost

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

const (
	// servicesKey is where the service control manager keeps its database.
	servicesKey = `HKLM\SYSTEM\CurrentControlSet\Services`
	// servicePoll is the pause between two looks at a service that is waited for.
	servicePoll = 100 * time.Millisecond
	// deletePatience is how long others may hold a deleted service open.
	deletePatience = 10 * time.Second
)

type services struct {
	registry *registry
	lenient  bool
	notifier *notifier
	// calling is held while a handle is open in lenient mode: Wine 8 mixes up the handles of its service control manager, and
	// sometimes others, when several threads of a process have some.
	calling sync.Mutex
}

func newServices(r *registry, lenient bool) *services {
	return &services{registry: r, lenient: lenient, notifier: newNotifier()}
}

// withService opens a service for the time of a function, which does not wait: an open handle keeps a deleted service from
// going away.
func (s *services) withService(name string, access uint32, do func(h windows.Handle) error) error {
	return s.withManager(windows.SC_MANAGER_CONNECT, func(manager windows.Handle) error {
		h, err := openService(manager, name, access)
		if err != nil {
			return err
		}
		defer closeService(h)
		return do(h)
	})
}

func (s *services) withManager(access uint32, do func(manager windows.Handle) error) error {
	if s.lenient {
		s.calling.Lock()
		defer s.calling.Unlock()
	}
	manager, err := windows.OpenSCManager(nil, nil, access)
	if err != nil {
		return failed(err, "open the service control manager")
	}
	defer closeService(manager)
	return do(manager)
}

func openService(manager windows.Handle, name string, access uint32) (windows.Handle, error) {
	p, err := windows.UTF16PtrFromString(name)
	if err != nil {
		return 0, failed(err, "open service %q", name)
	}
	h, err := windows.OpenService(manager, p, access)
	return h, failed(err, "open service %q", name)
}

func closeService(h windows.Handle) { _ = windows.CloseServiceHandle(h) }

func (s *services) Delete(ctx context.Context, name string) error {
	if err := s.Stop(ctx, name); err != nil {
		if errors.Is(err, host.ErrNotFound) {
			return nil
		}
		return err
	}
	err := s.withService(name, windows.DELETE, func(h windows.Handle) error {
		if err := windows.DeleteService(h); err != nil && !errors.Is(err, windows.ERROR_SERVICE_MARKED_FOR_DELETE) {
			return failed(err, "delete service %q", name)
		}
		return nil
	})
	switch {
	case errors.Is(err, host.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	if err := flushHive(servicesKey); err != nil {
		return err
	}
	s.notifier.wakeAll() // so that a watcher of it lets go
	// It is there until the last program that has it open lets go.
	for deadline := time.Now().Add(deletePatience); ; {
		err := s.withService(name, windows.SERVICE_QUERY_STATUS, func(windows.Handle) error { return nil })
		switch {
		case errors.Is(err, host.ErrNotFound):
			return nil
		case err != nil:
			return err
		case time.Now().After(deadline):
			return fmt.Errorf("delete service %q: %w: another program has it open", name, host.ErrBusy)
		}
		if err := sleep(ctx, servicePoll); err != nil {
			return fmt.Errorf("delete service %q: %w", name, err)
		}
	}
}

func (s *services) Status(ctx context.Context, name string) (host.ServiceStatus, error) {
	if err := ctx.Err(); err != nil {
		return host.ServiceStatus{}, err
	}
	var status host.ServiceStatus
	err := s.withService(name, windows.SERVICE_QUERY_STATUS, func(h windows.Handle) error {
		raw, err := queryStatus(h)
		if err == nil {
			status = statusOf(raw)
		}
		return failed(err, "query service %q", name)
	})
	return status, err
}

func queryStatus(h windows.Handle) (windows.SERVICE_STATUS_PROCESS, error) {
	var raw windows.SERVICE_STATUS_PROCESS
	var needed uint32
	err := windows.QueryServiceStatusEx(h, windows.SC_STATUS_PROCESS_INFO, (*byte)(unsafe.Pointer(&raw)), uint32(unsafe.Sizeof(raw)), &needed)
	return raw, err
}

// statusOf believes the service control manager unless the process is gone.
func statusOf(raw windows.SERVICE_STATUS_PROCESS) host.ServiceStatus {
	if raw.CurrentState != windows.SERVICE_STOPPED && raw.ProcessId != 0 && !alive(raw.ProcessId) {
		return host.ServiceStatus{State: host.ServiceStopped, ExitCode: uint32(windows.ERROR_PROCESS_ABORTED)}
	}
	status := host.ServiceStatus{PID: raw.ProcessId, ExitCode: raw.Win32ExitCode}
	switch raw.CurrentState {
	case windows.SERVICE_RUNNING:
		status.State = host.ServiceRunning
	case windows.SERVICE_START_PENDING, windows.SERVICE_CONTINUE_PENDING:
		status.State = host.ServiceStarting
	case windows.SERVICE_STOP_PENDING:
		status.State = host.ServiceStopping
	case windows.SERVICE_PAUSED, windows.SERVICE_PAUSE_PENDING:
		status.State = host.ServicePaused
	default:
		status.State, status.PID = host.ServiceStopped, 0
	}
	switch status.ExitCode {
	case uint32(windows.ERROR_SERVICE_SPECIFIC_ERROR):
		status.ExitCode = raw.ServiceSpecificExitCode
	case uint32(windows.ERROR_SERVICE_NEVER_STARTED):
		status.ExitCode = 0
	}
	return status
}

// alive says whether a process exists. A service in a process of the system has no other answer than "denied".
func alive(pid uint32) bool {
	h, err := windows.OpenProcess(windows.SYNCHRONIZE, false, pid)
	if err != nil {
		return !errors.Is(err, windows.ERROR_INVALID_PARAMETER)
	}
	defer func() { _ = windows.CloseHandle(h) }()
	event, err := windows.WaitForSingleObject(h, 0)
	return err != nil || event == uint32(windows.WAIT_TIMEOUT)
}

func (s *services) Start(ctx context.Context, name string) error {
	if err := s.startDependencies(ctx, name); err != nil {
		return failed(err, "start service %q", name)
	}
	for started := false; ; {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("start service %q: %w", name, err)
		}
		status, err := s.proceed(name, &started)
		if err != nil || status.State == host.ServiceRunning {
			return failed(err, "start service %q", name)
		}
		_ = sleep(ctx, servicePoll)
	}
}

// proceed does what brings a service nearer to running, if there is something to do, and returns what it does.
func (s *services) proceed(name string, started *bool) (status host.ServiceStatus, err error) {
	const access = windows.SERVICE_QUERY_STATUS | windows.SERVICE_START | windows.SERVICE_PAUSE_CONTINUE
	err = s.withService(name, access, func(h windows.Handle) error {
		raw, err := queryStatus(h)
		if err != nil {
			return err
		}
		switch status = statusOf(raw); {
		case status.State == host.ServiceStopped && *started:
			return endedTooEarly(status)
		case status.State == host.ServiceStopped:
			err = windows.StartService(h, 0, nil)
			*started = err == nil
		case status.State == host.ServicePaused:
			err = windows.ControlService(h, windows.SERVICE_CONTROL_CONTINUE, &windows.SERVICE_STATUS{})
		}
		switch {
		case err != nil && isTransient(err):
			return nil
		case errors.Is(err, windows.ERROR_SERVICE_REQUEST_TIMEOUT): // also if its program ended at once
			if raw, queryErr := queryStatus(h); queryErr == nil && raw.CurrentState == windows.SERVICE_STOPPED {
				return fmt.Errorf("%w: %w", endedTooEarly(statusOf(raw)), err)
			}
		case err == nil && *started: // look at once, as it may run already
			if raw, err = queryStatus(h); err == nil {
				status = statusOf(raw)
			}
		}
		return err
	})
	return status, err
}

func endedTooEarly(status host.ServiceStatus) error {
	return fmt.Errorf("its program ended with exit code %d before it ran", status.ExitCode)
}

// isTransient says whether a service is only about to do something else, or the database is locked, as it is while Windows
// starts.
func isTransient(err error) bool {
	return errors.Is(err, windows.ERROR_SERVICE_DATABASE_LOCKED) || errors.Is(err, windows.ERROR_SERVICE_ALREADY_RUNNING) ||
		errors.Is(err, windows.ERROR_SERVICE_CANNOT_ACCEPT_CTRL) || errors.Is(err, windows.ERROR_SERVICE_NOT_ACTIVE)
}

func (s *services) Stop(ctx context.Context, name string) error {
	// Opened before it stops, as the number of a process that is gone may be another's.
	var process windows.Handle
	defer func() { closeProcess(process) }()
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("stop service %q: %w", name, err)
		}
		status, dependents, err := s.lookAt(ctx, name, &process)
		switch {
		case err != nil:
			return failed(err, "stop service %q", name)
		case status.State == host.ServiceStopped:
			return failed(awaitProcess(ctx, process), "wait for the process of service %q", name)
		}
		for _, dependent := range dependents {
			if err := s.Stop(ctx, dependent); err != nil && !errors.Is(err, host.ErrNotFound) {
				return fmt.Errorf("stop service %q: %w", name, err)
			}
		}
		if status.State != host.ServiceStopping {
			if err := s.askToStop(name); err != nil {
				return failed(err, "stop service %q", name)
			}
		}
		_ = sleep(ctx, servicePoll)
	}
}

// lookAt returns what a service does and what depends on it and has not stopped, and opens its process if it is not open
// and ends with the service, which one that serves others too does not.
func (s *services) lookAt(ctx context.Context, name string, process *windows.Handle) (status host.ServiceStatus, dependents []string, err error) {
	const access = windows.SERVICE_QUERY_STATUS | windows.SERVICE_ENUMERATE_DEPENDENTS
	err = s.withService(name, access, func(h windows.Handle) error {
		raw, err := queryStatus(h)
		if err != nil {
			return err
		}
		if status = statusOf(raw); status.State == host.ServiceStopped {
			return nil
		}
		if *process == 0 && raw.ProcessId != 0 && raw.ServiceType&windows.SERVICE_WIN32_OWN_PROCESS != 0 {
			*process, _ = windows.OpenProcess(windows.SYNCHRONIZE, false, raw.ProcessId) // one that is gone need not be waited for
		}
		dependents, err = s.activeDependents(ctx, h, name)
		return failed(err, "list what depends on it")
	})
	return status, dependents, err
}

func (s *services) askToStop(name string) error {
	return s.withService(name, windows.SERVICE_STOP, func(h windows.Handle) error {
		err := windows.ControlService(h, windows.SERVICE_CONTROL_STOP, &windows.SERVICE_STATUS{})
		if errors.Is(err, windows.ERROR_DEPENDENT_SERVICES_RUNNING) || err != nil && isTransient(err) {
			return nil // the next look tells
		}
		return err
	})
}

func awaitProcess(ctx context.Context, process windows.Handle) error {
	for process != 0 {
		event, err := windows.WaitForSingleObject(process, 0)
		if err != nil || event == windows.WAIT_OBJECT_0 {
			return err
		}
		if err := sleep(ctx, servicePoll/4); err != nil {
			return err
		}
	}
	return nil
}

func closeProcess(process windows.Handle) {
	if process != 0 {
		_ = windows.CloseHandle(process)
	}
}

// activeDependents returns the services that depend on one and are not stopped, in the order in which they shall be stopped.
func (s *services) activeDependents(ctx context.Context, h windows.Handle, name string) ([]string, error) {
	if s.lenient {
		return s.keptDependents(ctx, name)
	}
	var buffer []windows.ENUM_SERVICE_STATUS
	for {
		var first *windows.ENUM_SERVICE_STATUS
		var needed, count uint32
		size := uint32(len(buffer)) * uint32(unsafe.Sizeof(windows.ENUM_SERVICE_STATUS{}))
		if size > 0 {
			first = &buffer[0]
		}
		err := windows.EnumDependentServices(h, windows.SERVICE_ACTIVE, first, size, &needed, &count)
		switch {
		case err == nil:
			names := make([]string, 0, count)
			for _, status := range buffer[:count] {
				names = append(names, windows.UTF16PtrToString(status.ServiceName))
			}
			return slices.Clip(names), nil
		case errors.Is(err, windows.ERROR_MORE_DATA) && needed > size:
			buffer = make([]windows.ENUM_SERVICE_STATUS, needed/uint32(unsafe.Sizeof(windows.ENUM_SERVICE_STATUS{}))+1)
		default:
			return nil, err
		}
	}
}
