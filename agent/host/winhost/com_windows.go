//go:build windows

package winhost

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/go-ole/go-ole"
	"github.com/go-ole/go-ole/oleutil"
	"golang.org/x/sys/windows"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// HRESULTs that callers tell apart.
const (
	sFalse             = 0x00000001
	rpcEChangedMode    = 0x80010106
	regdbEClassNotReg  = 0x80040154
	wbemEInvalidNS     = 0x8004100e
	wbemEInvalidClass  = 0x80041010
	facilityWin32      = 0x80070000
	facilityWin32Mask  = 0xffff0000
	comUnknownMember   = 0x80020006 // DISP_E_UNKNOWNNAME
	comNotImplemented  = 0x80004001 // E_NOTIMPL
	comNoElement       = 0x8002802b // TYPE_E_ELEMENTNOTFOUND, of Wine for what it lacks
	epmapperNoEndpoint = facilityWin32 | 1753
)

// withCOM runs do on a thread that is in the multithreaded apartment for that time, and for nothing else.
func withCOM(ctx context.Context, do func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := ole.CoInitializeEx(0, ole.COINIT_MULTITHREADED)
		switch hresult(err) {
		case 0, sFalse: // also when somebody entered before: each entry is left once
			defer ole.CoUninitialize()
		case rpcEChangedMode: // the thread is in an apartment already, which serves as well
		default:
			done <- fmt.Errorf("enter COM: %w", err)
			return
		}
		done <- do()
	}()
	return <-done
}

// hresult returns the HRESULT of an error, 0 for none or another error. That of a method that ran and failed is the one
// that the method gave.
func hresult(err error) uint32 {
	var e *ole.OleError
	if !errors.As(err, &e) {
		return 0
	}
	var info ole.EXCEPINFO
	if errors.As(e.SubError(), &info) && info.SCODE() != 0 {
		return info.SCODE()
	}
	return uint32(e.Code())
}

// comFailed says what was attempted, and adds the host's own error where the HRESULT means it.
func comFailed(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	attempt := fmt.Sprintf(format, args...)
	code := hresult(err)
	switch {
	case code == 0:
		return failed(err, "%s", attempt)
	case code == regdbEClassNotReg, code == wbemEInvalidNS, code == wbemEInvalidClass, code == comUnknownMember,
		code == comNotImplemented, code == comNoElement, code == epmapperNoEndpoint:
		return fmt.Errorf("%s: %w: HRESULT 0x%08x: %w", attempt, host.ErrNotSupported, code, err)
	case code&facilityWin32Mask == facilityWin32:
		return failed(fmt.Errorf("%w: %w", windows.Errno(code&^facilityWin32Mask), err), "%s", attempt)
	default:
		return fmt.Errorf("%s: HRESULT 0x%08x: %w", attempt, code, err)
	}
}

// createObject makes an object by its name.
func createObject(program string) (*ole.IDispatch, error) {
	unknown, err := oleutil.CreateObject(program)
	if err != nil {
		return nil, comFailed(err, "create %s", program)
	}
	defer unknown.Release()
	object, err := unknown.QueryInterface(ole.IID_IDispatch)
	return object, comFailed(err, "create %s", program)
}

// object returns the object that a property or method gave.
func object(v *ole.VARIANT, err error) (*ole.IDispatch, error) {
	if err != nil {
		return nil, err
	}
	d := v.ToIDispatch()
	if d == nil {
		_ = v.Clear()
		return nil, errors.New("no object")
	}
	return d, nil
}

// property reads a property that is a text or number.
func property[T any](d *ole.IDispatch, name string) (T, error) {
	var zero T
	v, err := oleutil.GetProperty(d, name)
	if err != nil {
		return zero, comFailed(err, "read %s", name)
	}
	defer func() { _ = v.Clear() }()
	value, ok := v.Value().(T)
	if !ok && v.VT != ole.VT_NULL && v.VT != ole.VT_EMPTY {
		return zero, fmt.Errorf("read %s: it is a %T", name, v.Value())
	}
	return value, nil
}
