package winhost

import (
	"fmt"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// packageState is DismPackageFeatureState.
// https://learn.microsoft.com/windows-hardware/manufacture/desktop/dism/dismpackagefeaturestate-enumeration
type packageState uint32

const (
	packageInstalled      packageState = 4
	packageInstallPending packageState = 5
)

// state of a feature. One that the next boot disables counts as disabled, so that it is enabled again.
func (s packageState) state() host.FeatureState {
	switch s {
	case packageInstalled:
		return host.FeatureEnabled
	case packageInstallPending:
		return host.FeaturePending
	default:
		return host.FeatureDisabled
	}
}

// Codes of component servicing.
const (
	dismRebootRequired   = 3010       // ERROR_SUCCESS_REBOOT_REQUIRED
	dismUnknownFeature   = 0x800f080c // CBS_E_UNKNOWN_UPDATE
	dismSourceMissing    = 0x800f081f // CBS_E_SOURCE_MISSING
	dismSourceNotInStore = 0x800f0906 // CBS_E_DOWNLOAD_FAILURE
	dismSourceByPolicy   = 0x800f0907 // CBS_E_GROUPPOLICY_DISALLOWED
	dismNotElevated      = 740        // ERROR_ELEVATION_REQUIRED
)

// enableFeatureArgs are the arguments of dism.exe that enable a feature and those it needs, from what is on the machine.
func enableFeatureArgs(name string) []string {
	return []string{"/Online", "/Enable-Feature", "/FeatureName:" + name, "/All", "/NoRestart", "/LimitAccess", "/Quiet"}
}

// enableFeatureResult reads the exit code of dism.exe.
func enableFeatureResult(name string, r host.Result) (reboot bool, err error) {
	switch code := uint32(r.ExitCode); code { //nolint:gosec // a DWORD, however it is held
	case 0:
		return false, nil
	case dismRebootRequired:
		return true, nil
	case dismUnknownFeature:
		return false, fmt.Errorf("feature %s: %w", name, host.ErrNotFound)
	case dismSourceMissing, dismSourceNotInStore, dismSourceByPolicy:
		return false, fmt.Errorf("feature %s: its files were removed from this image: %w: exit code 0x%08x", name, host.ErrNotSupported, code)
	case dismNotElevated:
		return false, fmt.Errorf("feature %s: dism.exe needs an administrator: %w", name, host.ErrInvalid)
	default:
		return false, fmt.Errorf("feature %s: dism.exe: exit code 0x%08x: %s", name, code, readable(r.Stdout, r.Stderr))
	}
}
