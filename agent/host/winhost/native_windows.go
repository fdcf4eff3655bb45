//go:build windows

package winhost

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// proc returns a function of a DLL in the system folder.
func proc(dll, name string) *windows.LazyProc { return windows.NewLazySystemDLL(dll).NewProc(name) }

// call calls a function that returns 0 for failure and sets the last error. Pointers among args are kept in
// place while it runs.
//
//go:uintptrescapes
func call(p *windows.LazyProc, args ...uintptr) (uintptr, error) {
	if err := p.Find(); err != nil {
		return 0, fmt.Errorf("%w: %w", host.ErrNotSupported, err)
	}
	r, _, err := p.Call(args...)
	if r == 0 {
		return 0, err
	}
	return r, nil
}

// callStatus calls a function that returns a Win32 error code, 0 for success. Pointers among args are kept
// in place while it runs.
//
//go:uintptrescapes
func callStatus(p *windows.LazyProc, args ...uintptr) error {
	if err := p.Find(); err != nil {
		return fmt.Errorf("%w: %w", host.ErrNotSupported, err)
	}
	if r, _, _ := p.Call(args...); r != 0 {
		return syscall.Errno(r)
	}
	return nil
}

// failed says what was attempted, and adds the host's own error where Windows' answer means it.
func failed(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	attempt := fmt.Sprintf(format, args...)
	if meaning := meaningOf(err); meaning != nil && !errors.Is(err, meaning) {
		return fmt.Errorf("%s: %w: %w", attempt, meaning, err)
	}
	return fmt.Errorf("%s: %w", attempt, err)
}

// meaningOf returns the host's error that an error code of Windows stands for, or nil.
func meaningOf(err error) error {
	var code syscall.Errno
	if !errors.As(err, &code) {
		return nil
	}
	switch code {
	case windows.ERROR_SERVICE_DOES_NOT_EXIST:
		return host.ErrNotFound
	case windows.ERROR_SERVICE_DATABASE_LOCKED, windows.ERROR_SERVICE_MARKED_FOR_DELETE, windows.ERROR_SHARING_VIOLATION,
		windows.ERROR_LOCK_VIOLATION, windows.ERROR_BUSY:
		return host.ErrBusy
	case windows.ERROR_INVALID_PARAMETER, windows.ERROR_INVALID_NAME, windows.ERROR_INVALID_COMPUTERNAME,
		windows.ERROR_SERVICE_DISABLED, windows.ERROR_DUPLICATE_SERVICE_NAME, windows.ERROR_CIRCULAR_DEPENDENCY, windows.ERROR_FILENAME_EXCED_RANGE, syscall.EINVAL:
		return host.ErrInvalid
	case windows.ERROR_CALL_NOT_IMPLEMENTED, windows.ERROR_NOT_SUPPORTED, windows.ERROR_PROC_NOT_FOUND,
		windows.ERROR_INVALID_LEVEL:
		return host.ErrNotSupported
	}
	return nil
}

// sleep waits, and says that ctx ended meanwhile.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// enablePrivileges switches on privileges, for all of the process. One that the process does not have, or that this Windows
// does not know, is no failure here: what needs it fails, and says so.
func enablePrivileges(names ...string) error {
	var token windows.Token
	if err := windows.OpenProcessToken(windows.CurrentProcess(), windows.TOKEN_ADJUST_PRIVILEGES|windows.TOKEN_QUERY, &token); err != nil {
		return failed(err, "open the process token")
	}
	defer func() { _ = token.Close() }()
	for _, name := range names {
		var luid windows.LUID
		if err := windows.LookupPrivilegeValue(nil, utf16Pointer(name), &luid); err != nil {
			continue
		}
		state := windows.Tokenprivileges{PrivilegeCount: 1}
		state.Privileges[0] = windows.LUIDAndAttributes{Luid: luid, Attributes: windows.SE_PRIVILEGE_ENABLED}
		if err := windows.AdjustTokenPrivileges(token, false, &state, 0, nil, nil); err != nil {
			return failed(err, "enable %s", name)
		}
	}
	return nil
}

// utf16Pointer converts a text that is known to hold no NUL.
func utf16Pointer(s string) *uint16 {
	p, err := windows.UTF16PtrFromString(s)
	if err != nil {
		panic(fmt.Sprintf("winhost: NUL in %q", s))
	}
	return p
}

// securityAttributes returns what makes an object with an SDDL; nil for an empty one.
func securityAttributes(sddl string) (*windows.SecurityAttributes, error) {
	if sddl == "" {
		return nil, nil
	}
	sd, err := windows.SecurityDescriptorFromString(sddl)
	if err != nil {
		return nil, failed(err, "read security descriptor %q", sddl)
	}
	sa := &windows.SecurityAttributes{SecurityDescriptor: sd}
	sa.Length = uint32(unsafe.Sizeof(*sa))
	return sa, nil
}

// ignoreNotFound drops an error that says that something is not there.
func ignoreNotFound(err error) error {
	if errors.Is(err, host.ErrNotFound) {
		return nil
	}
	return err
}
