//go:build windows

package winhost

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

const (
	eventSource    = "CAPW"
	eventSourceKey = servicesKey + `\EventLog\Application\` + eventSource
	// eventMessages hold "%1" as the text of every event: the first of 1 to 1000, the second, a part of .NET, of all.
	eventMessages = `%SystemRoot%\System32\EventCreate.exe;%SystemRoot%\Microsoft.NET\Framework64\v4.0.30319\EventLogMessages.dll`
	// eventLimit is the longest text of an event (ReportEventW), in UTF-16 units.
	eventLimit = 31_839
)

type reporting struct {
	registry  *registry
	processes *processes
}

func newReporting(r *registry, p *processes) *reporting { return &reporting{registry: r, processes: p} }

func (r *reporting) Event(ctx context.Context, level host.EventLevel, id uint32, message string) error {
	kind := uint16(windows.EVENTLOG_INFORMATION_TYPE)
	switch level {
	case host.EventWarning:
		kind = windows.EVENTLOG_WARNING_TYPE
	case host.EventError:
		kind = windows.EVENTLOG_ERROR_TYPE
	}
	if err := r.ensureEventSource(ctx); err != nil {
		return err
	}
	text, err := windows.UTF16FromString(strings.ReplaceAll(message, "\x00", ""))
	if err != nil {
		return failed(err, "write event %d", id)
	}
	if len(text) > eventLimit {
		text = append(text[:eventLimit-1], 0)
	}
	log, err := windows.RegisterEventSource(nil, utf16Pointer(eventSource))
	if err != nil {
		return failed(err, "open the event log")
	}
	defer func() { _ = windows.DeregisterEventSource(log) }()
	texts := &text[0]
	return failed(windows.ReportEvent(log, kind, 0, id, 0, 1, 0, &texts, nil), "write event %d", id)
}

// ensureEventSource registers the source, without which events appear without their text.
func (r *reporting) ensureEventSource(ctx context.Context) error {
	if have, err := r.registry.Get(ctx, eventSourceKey, "EventMessageFile"); err == nil && have.Text == eventMessages {
		return nil
	}
	const allTypes = windows.EVENTLOG_ERROR_TYPE | windows.EVENTLOG_WARNING_TYPE | windows.EVENTLOG_INFORMATION_TYPE
	if err := r.registry.Set(ctx, eventSourceKey, "TypesSupported", host.DWordValue(allTypes)); err != nil {
		return err
	}
	return r.registry.Set(ctx, eventSourceKey, "EventMessageFile", host.Value{Type: host.ExpandString, Text: eventMessages})
}

func (r *reporting) SetGuestInfo(ctx context.Context, key, value string) error {
	request, err := guestInfoSet(key, value)
	if err != nil {
		return err
	}
	result, err := r.guestRPC(ctx, request)
	if err == nil && result.ExitCode != 0 {
		err = fmt.Errorf("exit code %d: %s", result.ExitCode, output(result))
	}
	return failed(err, "set %s", key)
}

func (r *reporting) GuestInfo(ctx context.Context, key string) (string, error) {
	request, err := guestInfoGet(key)
	if err != nil {
		return "", err
	}
	result, err := r.guestRPC(ctx, request)
	switch {
	case err != nil:
	case result.ExitCode != 0 && noSuchGuestInfo(output(result)):
		err = host.ErrNotFound
	case result.ExitCode != 0:
		err = fmt.Errorf("exit code %d: %s", result.ExitCode, output(result))
	}
	if err != nil {
		return "", failed(err, "read %s", key)
	}
	return strings.TrimRight(string(result.Stdout), "\r\n"), nil
}

// guestRPC sends a request to the hypervisor through a program of VMware Tools.
func (r *reporting) guestRPC(ctx context.Context, request string) (host.Result, error) {
	for _, folder := range r.toolsFolders(ctx) {
		for _, argv := range [][]string{{folder + `\rpctool.exe`, request}, {folder + `\vmtoolsd.exe`, "--cmd", request}} {
			if _, err := os.Stat(argv[0]); err == nil {
				return r.processes.Run(ctx, host.Command{Argv: argv})
			}
		}
	}
	return host.Result{}, fmt.Errorf("%w: VMware Tools are not installed", host.ErrNotSupported)
}

func (r *reporting) toolsFolders(ctx context.Context) []string {
	var folders []string
	if installed, err := r.registry.Get(ctx, `HKLM\SOFTWARE\VMware, Inc.\VMware Tools`, "InstallPath"); err == nil && installed.Text != "" {
		folders = append(folders, strings.TrimRight(installed.Text, `\`))
	}
	return append(folders, os.Getenv("ProgramFiles")+`\VMware\VMware Tools`)
}

func output(r host.Result) string {
	return strings.TrimSpace(string(r.Stderr) + " " + string(r.Stdout))
}

// SerialLine does not wait for a reader for long: a port that nobody has connected takes nothing.
func (*reporting) SerialLine(ctx context.Context, port, line string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !isSerialPort(port) {
		return fmt.Errorf("serial port %q: %w", port, host.ErrInvalid)
	}
	h, err := windows.CreateFile(utf16Pointer(`\\.\`+port), windows.GENERIC_READ|windows.GENERIC_WRITE, 0, nil, windows.OPEN_EXISTING, 0, 0)
	switch {
	case errors.Is(err, windows.ERROR_FILE_NOT_FOUND):
		return fmt.Errorf("open serial port %s: %w: %w", port, host.ErrNotSupported, err)
	case errors.Is(err, windows.ERROR_ACCESS_DENIED): // another program has it
		return fmt.Errorf("open serial port %s: %w: %w", port, host.ErrBusy, err)
	case err != nil:
		return failed(err, "open serial port %s", port)
	}
	defer func() { _ = windows.CloseHandle(h) }()
	return failed(writeSerial(h, []byte(line+"\r\n")), "write to serial port %s", port)
}

// writeSerial sets 115200 baud, 8 bits, no parity, one stop bit, no flow control, and writes.
func writeSerial(h windows.Handle, b []byte) error {
	const (
		binaryMode = 1    // fBinary, the only one that Windows has
		patience   = 2000 // ms
	)
	dcb := windows.DCB{BaudRate: 115200, Flags: binaryMode, ByteSize: 8}
	dcb.DCBlength = uint32(unsafe.Sizeof(dcb))
	if err := windows.SetCommState(h, &dcb); err != nil {
		return err
	}
	if err := windows.SetCommTimeouts(h, &windows.CommTimeouts{WriteTotalTimeoutConstant: patience}); err != nil {
		return err
	}
	var n uint32
	if err := windows.WriteFile(h, b, &n, nil); err != nil {
		return err
	}
	if int(n) < len(b) {
		return fmt.Errorf("it took %d of %d bytes", n, len(b))
	}
	return nil
}

// isSerialPort: COM1 to COM256.
func isSerialPort(port string) bool {
	number, found := strings.CutPrefix(strings.ToUpper(port), "COM")
	return found && len(number) > 0 && len(number) <= 3 && strings.Trim(number, "0123456789") == "" && number[0] != '0'
}
