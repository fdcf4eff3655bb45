//go:build windows

package winhost

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// features asks the DISM API and enables by dism.exe, whose exit code is as exact and which can be ended with its context.
// https://learn.microsoft.com/windows-hardware/manufacture/desktop/dism/dism-api-functions
type features struct {
	processes host.Processes
	// using: the API is initialized once per process at a time.
	using sync.Mutex
}

func newFeatures(processes host.Processes) *features { return &features{processes: processes} }

const (
	// dismOnlineImage is DISM_ONLINE_IMAGE, the Windows that runs.
	dismOnlineImage = "DISM_{53BFAE52-B167-4E2F-A258-0A37B57FF845}"
	// dismPackageNone is DismPackageNone: the feature is found without its package.
	dismPackageNone = 0
	// dismLogErrors is DismLogErrors.
	dismLogErrors = 0
)

// dismFeatureInfo is the beginning of DismFeatureInfo, the same however the structure is packed.
type dismFeatureInfo struct {
	name  *uint16
	state packageState
}

func (f *features) State(ctx context.Context, name string) (host.FeatureState, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	state, err := f.read(name)
	if err != nil {
		return "", fmt.Errorf("state of feature %s: %w", name, err)
	}
	return state.state(), nil
}

func (f *features) read(name string) (packageState, error) {
	feature, err := windows.UTF16PtrFromString(name)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", host.ErrInvalid, err)
	}
	f.using.Lock()
	defer f.using.Unlock()
	if err := dismCall("DismInitialize", dismLogErrors, 0, 0); err != nil {
		return 0, err
	}
	defer func() { _ = dismCall("DismShutdown") }()
	var session uint32
	err = dismCall("DismOpenSession", uintptr(unsafe.Pointer(utf16Pointer(dismOnlineImage))), 0, 0, uintptr(unsafe.Pointer(&session)))
	if err != nil {
		return 0, err
	}
	defer func() { _ = dismCall("DismCloseSession", uintptr(session)) }()
	var info *dismFeatureInfo
	err = dismCall("DismGetFeatureInfo", uintptr(session), uintptr(unsafe.Pointer(feature)), 0, dismPackageNone,
		uintptr(unsafe.Pointer(&info)))
	if err != nil {
		return 0, err
	}
	defer func() { _ = dismCall("DismDelete", uintptr(unsafe.Pointer(info))) }()
	return info.state, nil
}

func (f *features) Enable(ctx context.Context, name string) (reboot bool, err error) {
	switch state, err := f.State(ctx, name); {
	case err != nil:
		return false, err
	case state == host.FeatureEnabled:
		return false, nil
	case state == host.FeaturePending:
		return true, nil
	}
	return runDism(ctx, f.processes, name)
}

// runDism enables a feature.
func runDism(ctx context.Context, processes host.Processes, name string) (reboot bool, err error) {
	r, err := processes.Run(ctx, host.Command{Argv: append([]string{systemProgram("dism.exe")}, enableFeatureArgs(name)...)})
	if err != nil {
		return false, err
	}
	return enableFeatureResult(name, r)
}

// dismCall calls a function of the DISM API. As callHRESULT.
//
//go:uintptrescapes
func dismCall(name string, args ...uintptr) error {
	err := callHRESULT(proc("dismapi.dll", name), args...)
	if errors.Is(err, hresultError(dismUnknownFeature)) {
		return host.ErrNotFound
	}
	return failed(err, "%s", name)
}
