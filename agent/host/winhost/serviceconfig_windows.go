//go:build windows

package winhost

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf16"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

const (
	localSystem     = "LocalSystem"
	defaultResetAge = time.Hour
)

// basics are the part of a service's configuration that QueryServiceConfig returns.
type basics struct {
	kind, start, errorControl           uint32
	commandLine, displayName, startName string
	dependsOn                           []string
}

func (s *services) Get(ctx context.Context, name string) (host.Service, error) {
	if err := ctx.Err(); err != nil {
		return host.Service{}, err
	}
	var service host.Service
	err := s.withService(name, windows.SERVICE_QUERY_CONFIG, func(h windows.Handle) (err error) {
		service, err = s.read(ctx, h, name)
		return failed(err, "read the configuration of service %q", name)
	})
	return service, err
}

func (s *services) read(ctx context.Context, h windows.Handle, name string) (host.Service, error) {
	b, err := s.readBasics(ctx, h, name)
	if err != nil {
		return host.Service{}, err
	}
	extra, err := s.readExtras(ctx, h, name)
	if err != nil {
		return host.Service{}, err
	}
	argv, err := windows.DecomposeCommandLine(b.commandLine)
	if err != nil {
		return host.Service{}, err
	}
	service := host.Service{Name: name, DisplayName: b.displayName, Description: extra.description, Argv: argv, Start: host.StartManual,
		DependsOn: b.dependsOn, Restart: extra.recovery.restart, ResetAfter: extra.recovery.resetAfter}
	switch b.start {
	case windows.SERVICE_AUTO_START:
		service.Start = host.StartAuto
		if extra.delayed {
			service.Start = host.StartAutoDelayed
		}
	case windows.SERVICE_DISABLED:
		service.Start = host.StartDisabled
	}
	environment, err := s.registry.Get(ctx, servicesKey+`\`+name, "Environment")
	if err != nil && !errors.Is(err, host.ErrNotFound) {
		return host.Service{}, err
	}
	service.Environment = slices.Sorted(slices.Values(environment.Texts))
	return service, nil
}

func (s *services) Apply(ctx context.Context, want host.Service) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	basics, err := basicsFor(want)
	if err != nil {
		return err
	}
	err = s.withManager(windows.SC_MANAGER_CONNECT|windows.SC_MANAGER_CREATE_SERVICE, func(manager windows.Handle) error {
		h, err := openService(manager, want.Name, windows.SERVICE_ALL_ACCESS)
		if errors.Is(err, host.ErrNotFound) {
			h, err = createService(manager, want.Name, basics)
		}
		if err != nil {
			return err
		}
		defer closeService(h)
		if err := s.changeBasics(ctx, h, want.Name, basics); err != nil {
			return failed(err, "change service %q", want.Name)
		}
		return s.applyExtras(ctx, h, want)
	})
	if err != nil {
		return err
	}
	if err := s.applyEnvironment(ctx, want); err != nil {
		return err
	}
	return flushHive(servicesKey)
}

func basicsFor(want host.Service) (basics, error) {
	b := basics{kind: windows.SERVICE_WIN32_OWN_PROCESS, errorControl: windows.SERVICE_ERROR_NORMAL, displayName: want.DisplayName,
		startName: localSystem, dependsOn: want.DependsOn}
	if b.displayName == "" {
		b.displayName = want.Name
	}
	if len(want.Argv) == 0 {
		return b, fmt.Errorf("service %q: %w: it has no command line", want.Name, host.ErrInvalid)
	}
	b.commandLine = windows.ComposeCommandLine(want.Argv)
	switch want.Start {
	case host.StartAuto, host.StartAutoDelayed:
		b.start = windows.SERVICE_AUTO_START
	case host.StartManual:
		b.start = windows.SERVICE_DEMAND_START
	case host.StartDisabled:
		b.start = windows.SERVICE_DISABLED
	default:
		return b, fmt.Errorf("service %q: %w: start type %q", want.Name, host.ErrInvalid, want.Start)
	}
	for _, text := range slices.Concat([]string{want.Name, want.Description, b.displayName, b.commandLine}, want.DependsOn, want.Environment) {
		if strings.ContainsRune(text, 0) {
			return b, fmt.Errorf("service %q: %w: NUL in %q", want.Name, host.ErrInvalid, text)
		}
	}
	return b, nil
}

func createService(manager windows.Handle, name string, b basics) (windows.Handle, error) {
	h, err := windows.CreateService(manager, utf16Pointer(name), utf16Pointer(b.displayName), windows.SERVICE_ALL_ACCESS, b.kind, b.start,
		b.errorControl, utf16Pointer(b.commandLine), nil, nil, multiString(b.dependsOn), nil, nil)
	if errors.Is(err, windows.ERROR_SERVICE_EXISTS) { // someone was faster
		return openService(manager, name, windows.SERVICE_ALL_ACCESS)
	}
	return h, failed(err, "create service %q", name)
}

// changeBasics leaves alone what is so already.
func (s *services) changeBasics(ctx context.Context, h windows.Handle, name string, want basics) error {
	have, err := s.readBasics(ctx, h, name)
	if err != nil {
		return err
	}
	same := have.kind == want.kind && have.start == want.start && have.errorControl == want.errorControl &&
		have.commandLine == want.commandLine && have.displayName == want.displayName && slices.Equal(have.dependsOn, want.dependsOn)
	sameAccount := strings.EqualFold(have.startName, want.startName)
	if same && sameAccount {
		return nil
	}
	var account, password *uint16
	if !sameAccount {
		account, password = utf16Pointer(want.startName), utf16Pointer("")
	}
	if err := windows.ChangeServiceConfig(h, want.kind, want.start, want.errorControl, utf16Pointer(want.commandLine), nil, nil,
		multiString(want.dependsOn), account, password, utf16Pointer(want.displayName)); err != nil {
		return err
	}
	return s.keepDependencies(ctx, name, want.dependsOn)
}

func (s *services) readBasics(ctx context.Context, h windows.Handle, name string) (basics, error) {
	buffer, err := growing(func(p *byte, size uint32, needed *uint32) error {
		return windows.QueryServiceConfig(h, (*windows.QUERY_SERVICE_CONFIG)(unsafe.Pointer(p)), size, needed)
	})
	if err != nil {
		return basics{}, err
	}
	c := (*windows.QUERY_SERVICE_CONFIG)(unsafe.Pointer(&buffer[0]))
	b := basics{kind: c.ServiceType, start: c.StartType, errorControl: c.ErrorControl,
		commandLine: windows.UTF16PtrToString(c.BinaryPathName), displayName: windows.UTF16PtrToString(c.DisplayName),
		startName: windows.UTF16PtrToString(c.ServiceStartName), dependsOn: multiStringAt(c.Dependencies)}
	if s.lenient && len(b.dependsOn) == 0 {
		b.dependsOn, err = s.keptDependencies(ctx, name)
	}
	return b, err
}

// applyEnvironment sets the variables that the service control manager gives to the process besides those of the machine.
func (s *services) applyEnvironment(ctx context.Context, want host.Service) error {
	key := servicesKey + `\` + want.Name
	if len(want.Environment) == 0 {
		return s.registry.Delete(ctx, key, "Environment")
	}
	return s.registry.Set(ctx, key, "Environment",
		host.Value{Type: host.MultiString, Texts: slices.Sorted(slices.Values(want.Environment))})
}

// growing calls a query until the buffer is large enough.
func growing(query func(p *byte, size uint32, needed *uint32) error) ([]byte, error) {
	size := uint32(1024)
	for {
		buffer := make([]byte, size)
		err := query(&buffer[0], size, &size)
		if err == nil {
			return buffer, nil
		}
		if !errors.Is(err, windows.ERROR_INSUFFICIENT_BUFFER) || size <= uint32(len(buffer)) {
			return nil, err
		}
	}
}

// multiString returns texts as Windows wants lists: each ends with NUL, the list with another one. An empty list is not
// nil, which would mean: as it is.
func multiString(texts []string) *uint16 {
	list := make([]uint16, 0, 2)
	for _, text := range texts {
		list = append(append(list, utf16.Encode([]rune(text))...), 0)
	}
	return &append(list, 0, 0)[0]
}

// multiStringAt reads such a list.
func multiStringAt(p *uint16) []string {
	var texts []string
	for p != nil && *p != 0 {
		text := windows.UTF16PtrToString(p)
		texts = append(texts, text)
		p = (*uint16)(unsafe.Add(unsafe.Pointer(p), 2*(len(utf16.Encode([]rune(text)))+1)))
	}
	return texts
}
