//go:build windows

package winhost

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

const (
	timeZonesKey = currentVersionKey + `\Time Zones`
	timeZoneKey  = `HKLM\SYSTEM\CurrentControlSet\Control\TimeZoneInformation`
)

// ComputerName reads the two values of the host name: the one that the network stack took when Windows began, and the one
// that it will take ("NV" for non-volatile).
func (s *system) ComputerName(ctx context.Context) (now, next string, err error) {
	current, err := s.registry.Get(ctx, tcpipKey, "Hostname")
	if err != nil {
		return "", "", failed(err, "read the computer name")
	}
	pending, err := s.registry.Get(ctx, tcpipKey, "NV Hostname")
	if errors.Is(err, host.ErrNotFound) {
		return current.Text, current.Text, nil
	}
	return current.Text, pending.Text, failed(err, "read the computer name after the next boot")
}

func (s *system) SetComputerName(ctx context.Context, name string) error {
	_, next, err := s.ComputerName(ctx)
	if err != nil || next == name {
		return err
	}
	p, err := windows.UTF16PtrFromString(name)
	if err != nil {
		return failed(err, "set computer name %q", name)
	}
	if s.lenient { // Wine changes the present name at once
		return s.registry.Set(ctx, tcpipKey, "NV Hostname", host.StringValue(name))
	}
	const physicalDNSHostname = 5 // ComputerNamePhysicalDnsHostname
	if _, err := call(proc("kernel32.dll", "SetComputerNameExW"), physicalDNSHostname, uintptr(unsafe.Pointer(p))); err != nil {
		return failed(err, "set computer name %q", name)
	}
	return flushHive(tcpipKey)
}

// dynamicTimeZone is DYNAMIC_TIME_ZONE_INFORMATION.
type dynamicTimeZone struct {
	bias            int32
	standardName    [32]uint16
	standardDate    windows.Systemtime
	standardBias    int32
	daylightName    [32]uint16
	daylightDate    windows.Systemtime
	daylightBias    int32
	keyName         [128]uint16
	dynamicDisabled byte
}

func (s *system) TimeZone(ctx context.Context) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if s.lenient { // Wine has the zone of Linux
		v, err := s.registry.Get(ctx, timeZoneKey, "TimeZoneKeyName")
		return v.Text, err
	}
	var zone dynamicTimeZone
	get := proc("kernel32.dll", "GetDynamicTimeZoneInformation")
	if err := get.Find(); err != nil {
		return "", failed(err, "read the time zone")
	}
	const invalid = 0xffffffff // TIME_ZONE_ID_INVALID
	if r, _, err := get.Call(uintptr(unsafe.Pointer(&zone))); uint32(r) == invalid {
		return "", failed(err, "read the time zone")
	}
	return windows.UTF16ToString(zone.keyName[:]), nil
}

func (s *system) SetTimeZone(ctx context.Context, name string) error {
	current, err := s.TimeZone(ctx)
	if err != nil || current == name {
		return err
	}
	zone, err := s.readTimeZone(ctx, name)
	if err != nil {
		return err
	}
	if s.lenient {
		return s.registry.Set(ctx, timeZoneKey, "TimeZoneKeyName", host.StringValue(name))
	}
	if err := enablePrivileges("SeTimeZonePrivilege"); err != nil {
		return failed(err, "set time zone %q", name)
	}
	if _, err := call(proc("kernel32.dll", "SetDynamicTimeZoneInformation"), uintptr(unsafe.Pointer(&zone))); err != nil {
		return failed(err, "set time zone %q", name)
	}
	broadcastSettingChange("intl")
	return flushHive(timeZoneKey)
}

// readTimeZone reads what Windows knows of a zone: its names, and the value TZI (REG_TZI_FORMAT): bias, standard bias,
// daylight bias, and when standard and daylight time begin.
func (s *system) readTimeZone(ctx context.Context, name string) (dynamicTimeZone, error) {
	var zone dynamicTimeZone
	unknown := fmt.Errorf("set time zone %q: %w: this Windows does not know it", name, host.ErrInvalid)
	if name == "" || strings.ContainsAny(name, "\\\x00") || len(name) >= len(zone.keyName) {
		return zone, unknown
	}
	key := timeZonesKey + `\` + name
	tzi, err := s.registry.Get(ctx, key, "TZI")
	switch {
	case errors.Is(err, host.ErrNotFound):
		return zone, unknown
	case err != nil:
		return zone, err
	}
	rules := struct {
		Bias, StandardBias, DaylightBias int32
		StandardDate, DaylightDate       [8]uint16
	}{}
	if _, err := binary.Decode(tzi.Bytes, binary.LittleEndian, &rules); err != nil {
		return zone, fmt.Errorf("read time zone %q: %w", name, err)
	}
	zone.bias, zone.standardBias, zone.daylightBias = rules.Bias, rules.StandardBias, rules.DaylightBias
	zone.standardDate, zone.daylightDate = systemtime(rules.StandardDate), systemtime(rules.DaylightDate)
	standard, err := s.registry.Get(ctx, key, "Std")
	if ignoreNotFound(err) != nil {
		return zone, err
	}
	daylight, err := s.registry.Get(ctx, key, "Dlt")
	if ignoreNotFound(err) != nil {
		return zone, err
	}
	for _, text := range []struct {
		to   []uint16
		text string
	}{{zone.standardName[:], standard.Text}, {zone.daylightName[:], daylight.Text}, {zone.keyName[:], name}} {
		encoded, err := windows.UTF16FromString(text.text)
		if err != nil {
			return zone, failed(err, "read time zone %q", name)
		}
		copy(text.to[:len(text.to)-1], encoded) // the last one stays NUL
	}
	return zone, nil
}

func systemtime(w [8]uint16) windows.Systemtime {
	return windows.Systemtime{Year: w[0], Month: w[1], DayOfWeek: w[2], Day: w[3], Hour: w[4], Minute: w[5], Second: w[6], Milliseconds: w[7]}
}

func (s *system) Environment(ctx context.Context) (map[string]string, error) {
	names, _, err := s.registry.Names(ctx, environmentKey)
	if err != nil {
		return nil, err
	}
	environment := make(map[string]string, len(names))
	for _, name := range names {
		v, err := s.registry.Get(ctx, environmentKey, name)
		if ignoreNotFound(err) != nil {
			return nil, err
		}
		if v.Type == host.String || v.Type == host.ExpandString {
			environment[name] = v.Text
		}
	}
	return environment, nil
}

func (s *system) SetEnvironment(ctx context.Context, name string, value *string) error {
	if name == "" || strings.ContainsAny(name, "=\x00") {
		return fmt.Errorf("set environment variable %q: %w", name, host.ErrInvalid)
	}
	have, err := s.registry.Get(ctx, environmentKey, name)
	if ignoreNotFound(err) != nil {
		return err
	}
	exists := err == nil
	if value == nil {
		if err := s.registry.Delete(ctx, environmentKey, name); err != nil || !exists {
			return err
		}
	} else {
		want := host.StringValue(*value)
		if have.Type == host.ExpandString || strings.Contains(*value, "%") {
			want.Type = host.ExpandString
		}
		if err := s.registry.Set(ctx, environmentKey, name, want); err != nil || exists && equalValues(have, want) {
			return err
		}
	}
	broadcastSettingChange("Environment")
	return nil
}

// broadcastSettingChange tells programs with a window that a part of the settings has changed. Who does not listen finds it
// when it starts again, so that it is no failure.
func broadcastSettingChange(part string) {
	const (
		broadcast     = 0xffff
		settingChange = 0x001a // WM_SETTINGCHANGE
		abortIfHung   = 0x0002 // SMTO_ABORTIFHUNG
		patience      = 1000   // ms, for each window
	)
	var result uintptr
	_, _ = call(proc("user32.dll", "SendMessageTimeoutW"), broadcast, settingChange, 0, uintptr(unsafe.Pointer(utf16Pointer(part))),
		abortIfHung, patience, uintptr(unsafe.Pointer(&result)))
}
