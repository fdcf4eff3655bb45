//go:build windows

package winhost

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/windows"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// callCode calls a function that returns a Win32 or network management error code, 0 for success. Pointers among the
// arguments are converted in the call itself: the directive keeps what they point to alive, and off the stack, which moves.
//
//go:uintptrescapes
func callCode(p *windows.LazyProc, args ...uintptr) error {
	if err := p.Find(); err != nil {
		return fmt.Errorf("%w: %w", host.ErrNotSupported, err)
	}
	if r, _, _ := p.Call(args...); r != 0 {
		return syscall.Errno(r)
	}
	return nil
}

// callHRESULT calls a function that returns an HRESULT, as callCode. Its error is a hresultError, or the Win32 code that it
// stands for.
//
//go:uintptrescapes
func callHRESULT(p *windows.LazyProc, args ...uintptr) error {
	if err := p.Find(); err != nil {
		return fmt.Errorf("%w: %w", host.ErrNotSupported, err)
	}
	r, _, _ := p.Call(args...)
	code := hresultError(uint32(r)) // the upper half is undefined
	switch {
	case int32(code) >= 0:
		return nil
	case uint32(code)&facilityWin32Mask == facilityWin32:
		return syscall.Errno(uint32(code) &^ facilityWin32Mask)
	default:
		return code
	}
}

// hresultError is an HRESULT that stands for no Win32 code.
type hresultError uint32

// Error implements error.
func (e hresultError) Error() string { return fmt.Sprintf("HRESULT 0x%08x", uint32(e)) }
