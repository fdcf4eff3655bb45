//go:build windows

package winhost

import (
	"fmt"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/windows"
	winreg "golang.org/x/sys/windows/registry"
)

// Windows has no name for a boot: a counter is there only if prefetching is on, and the time of the boot changes with the
// clock. A key that lives in memory only is made anew after every boot, and the service control manager is started anew: either
// would do on Windows, but a reboot under Wine may leave the first one as it is.
const (
	agentKey = `HKLM\SOFTWARE\capw`
	bootKey  = agentKey + `\boot`
)

// bootID names the boot by when the key was made, which it does if it is not there, and when the service control manager was
// started, in units of 100 ns. It is a name, not a time: the clock may have been wrong. Nobody writes into the key, as that would change it. Unlike a value, it is never there half:
// the first two processes that ask, at the same time, get the same answer.
func bootID() (string, error) {
	parent, err := create(agentKey, winreg.QUERY_VALUE, 0)
	if err != nil {
		return "", err
	}
	closeKey(parent)
	k, err := create(bootKey, winreg.QUERY_VALUE, regOptionVolatile)
	if err != nil {
		return "", err
	}
	defer closeKey(k)
	info, err := k.Stat()
	if err != nil {
		return "", registryError(err, "name the boot")
	}
	started, err := serviceManagerStarted()
	if err != nil {
		return "", err
	}
	return strconv.FormatInt(info.ModTime().UnixNano(), 16) + "-" + strconv.FormatInt(started, 16), nil
}

// serviceManagerStarted returns when services.exe, of which there is one per boot, was started.
func serviceManagerStarted() (int64, error) {
	snapshot, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPPROCESS, 0)
	if err != nil {
		return 0, fmt.Errorf("list processes: %w", err)
	}
	defer windows.CloseHandle(snapshot) //nolint:errcheck // it was only read
	entry := windows.ProcessEntry32{Size: uint32(unsafe.Sizeof(windows.ProcessEntry32{}))}
	for err = windows.Process32First(snapshot, &entry); err == nil; err = windows.Process32Next(snapshot, &entry) {
		if !strings.EqualFold(windows.UTF16ToString(entry.ExeFile[:]), "services.exe") {
			continue
		}
		process, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, entry.ProcessID)
		if err != nil {
			return 0, fmt.Errorf("open the service control manager: %w", err)
		}
		defer windows.CloseHandle(process) //nolint:errcheck // it was only read
		var created, exited, kernel, user windows.Filetime
		if err := windows.GetProcessTimes(process, &created, &exited, &kernel, &user); err != nil {
			return 0, fmt.Errorf("ask when the service control manager was started: %w", err)
		}
		return created.Nanoseconds(), nil
	}
	return 0, fmt.Errorf("find the service control manager: %w", err)
}
