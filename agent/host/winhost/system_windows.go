//go:build windows

package winhost

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

const (
	currentVersionKey = `HKLM\SOFTWARE\Microsoft\Windows NT\CurrentVersion`
	sessionManagerKey = `HKLM\SYSTEM\CurrentControlSet\Control\Session Manager`
	environmentKey    = sessionManagerKey + `\Environment`
	tcpipKey          = servicesKey + `\Tcpip\Parameters`
)

type system struct {
	registry *registry
	lenient  bool
}

func newSystem(r *registry, lenient bool) *system {
	return &system{registry: r, lenient: lenient}
}

func (s *system) Info(ctx context.Context) (host.Info, error) {
	if err := ctx.Err(); err != nil {
		return host.Info{}, err
	}
	const workstation = 1 // VER_NT_WORKSTATION
	version := windows.RtlGetVersion()
	info := host.Info{Build: fmt.Sprintf("%d.%d.%d", version.MajorVersion, version.MinorVersion, version.BuildNumber),
		Server: version.ProductType != workstation, CPUs: int(windows.GetActiveProcessorCount(windows.ALL_PROCESSOR_GROUPS))}
	var errs [7]error
	var revision, product, installation host.Value
	revision, errs[0] = s.registry.Get(ctx, currentVersionKey, "UBR")
	product, errs[1] = s.registry.Get(ctx, currentVersionKey, "ProductName")
	installation, errs[2] = s.registry.Get(ctx, currentVersionKey, "InstallationType")
	info.Revision, info.ProductName, info.InstallationType = uint32(revision.Number), product.Text, installation.Text
	info.Arch, errs[3] = nativeArch()
	info.MemoryBytes, errs[4] = memory()
	info.BootTime, errs[5] = bootTime()
	info.BootID, errs[6] = bootID()
	for _, err := range errs {
		if ignoreNotFound(err) != nil {
			return host.Info{}, err
		}
	}
	table, err := firmwareTable()
	if err != nil {
		return host.Info{}, err
	}
	p, err := parseSMBIOS(table)
	if err != nil {
		return host.Info{}, err
	}
	info.UUID, info.Serial, info.Manufacturer, info.Product = p.uuid, p.serial, p.manufacturer, p.product
	if info.SystemRoot, err = windows.GetSystemWindowsDirectory(); err != nil {
		return host.Info{}, failed(err, "find the Windows folder")
	}
	info.SystemDrive, _, _ = strings.Cut(info.SystemRoot, `\`)
	return info, nil
}

// nativeArch returns the machine's architecture, also to a program that Windows emulates another one for.
func nativeArch() (string, error) {
	var process, native uint16
	if err := windows.IsWow64Process2(windows.CurrentProcess(), &process, &native); err != nil {
		return "", failed(err, "find the architecture")
	}
	switch native { // IMAGE_FILE_MACHINE_*
	case 0x8664:
		return "amd64", nil
	case 0xAA64:
		return "arm64", nil
	default:
		return runtime.GOARCH, nil
	}
}

func memory() (uint64, error) {
	status := struct { // MEMORYSTATUSEX
		length, load                                               uint32
		totalPhysical, availablePhysical, totalPage, availablePage uint64
		totalVirtual, availableVirtual, availableExtended          uint64
	}{}
	status.length = uint32(unsafe.Sizeof(status))
	_, err := call(proc("kernel32.dll", "GlobalMemoryStatusEx"), uintptr(unsafe.Pointer(&status)))
	return status.totalPhysical, failed(err, "read the size of the memory")
}

// bootTime asks the kernel, which corrects it when the clock is set.
func bootTime() (time.Time, error) {
	day := struct { // SYSTEM_TIMEOFDAY_INFORMATION
		boot, current, zoneBias int64
		zone, reserved          uint32
		bootBias, sleepBias     uint64
	}{}
	var size uint32
	err := windows.NtQuerySystemInformation(windows.SystemTimeOfDayInformation, unsafe.Pointer(&day), uint32(unsafe.Sizeof(day)), &size)
	if err != nil {
		return time.Time{}, failed(err, "read the time of the boot")
	}
	boot := windows.Filetime{LowDateTime: uint32(day.boot), HighDateTime: uint32(day.boot >> 32)}
	return time.Unix(0, boot.Nanoseconds()), nil
}

func firmwareTable() ([]byte, error) {
	const rsmb = 'R'<<24 | 'S'<<16 | 'M'<<8 | 'B'
	get := proc("kernel32.dll", "GetSystemFirmwareTable")
	size, err := call(get, rsmb, 0, 0, 0)
	if err != nil {
		return nil, failed(err, "find the SMBIOS table")
	}
	table := make([]byte, size)
	n, err := call(get, rsmb, 0, uintptr(unsafe.Pointer(&table[0])), size)
	if err != nil {
		return nil, failed(err, "read the SMBIOS table")
	}
	return table[:min(n, size)], nil
}

func (s *system) RebootPending(ctx context.Context) (bool, error) {
	for _, key := range []string{
		`HKLM\SOFTWARE\Microsoft\Windows\CurrentVersion\Component Based Servicing\RebootPending`,
		`HKLM\SOFTWARE\Microsoft\Windows\CurrentVersion\WindowsUpdate\Auto Update\RebootRequired`,
	} {
		_, _, err := s.registry.Names(ctx, key)
		if err == nil || !errors.Is(err, host.ErrNotFound) {
			return err == nil, err
		}
	}
	operations, err := s.registry.Get(ctx, sessionManagerKey, "PendingFileRenameOperations")
	if ignoreNotFound(err) != nil {
		return false, err
	}
	if replacesFiles(operations.Texts) {
		return true, nil
	}
	now, next, err := s.ComputerName(ctx)
	return now != next, err
}

// Reboot forces programs to close: nobody is there to be asked.
func (s *system) Reboot(ctx context.Context, reason string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := enablePrivileges("SeShutdownPrivilege"); err != nil {
		return failed(err, "reboot")
	}
	const why = windows.SHTDN_REASON_MAJOR_OPERATINGSYSTEM | windows.SHTDN_REASON_MINOR_RECONFIG | windows.SHTDN_REASON_FLAG_PLANNED
	message, err := windows.UTF16PtrFromString(reason)
	if err != nil {
		return failed(err, "reboot")
	}
	if !s.lenient { // Wine says yes and does nothing
		err = windows.InitiateSystemShutdownEx(nil, message, 0, true, true, why)
		if err == nil || errors.Is(err, windows.ERROR_SHUTDOWN_IN_PROGRESS) || errors.Is(err, windows.ERROR_SHUTDOWN_IS_SCHEDULED) {
			return nil
		}
	}
	forced := windows.ExitWindowsEx(windows.EWX_REBOOT|windows.EWX_FORCE, why)
	if forced == nil {
		return nil
	}
	return failed(errors.Join(err, forced), "reboot")
}
