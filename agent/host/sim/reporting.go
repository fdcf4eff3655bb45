package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// Event is a record of the event log.
type Event struct {
	// Boot in which it was written.
	Boot int
	// Source is CAPW for those of Reporting.Event.
	Source  string
	Level   host.EventLevel
	ID      uint32
	Message string
}

// reporting fills host.Reporting.
type reporting struct{ p *Process }

// maxEventText is how long a string in the event log can be, in UTF-16 units.
const maxEventText = 31839

func (x reporting) Event(ctx context.Context, level host.EventLevel, id uint32, message string) error {
	return lockedErr(ctx, x.p, "Reporting.Event", message, func() error {
		levels := []host.EventLevel{host.EventInformation, host.EventWarning, host.EventError}
		if !slices.Contains(levels, level) || len(message) > maxEventText {
			return fmt.Errorf("event of level %q with %d characters: %w", level, len(message), host.ErrInvalid)
		}
		x.p.m.record(x.p.boot, Event{Source: "CAPW", Level: level, ID: id, Message: message})
		return nil
	})
}

// record adds an event. m.mu is held.
func (m *Machine) record(b *boot, e Event) {
	e.Boot = b.number
	m.disk.events = append(m.disk.events, e)
}

// systemEvent records what the SCM has to say.
func (m *Machine) systemEvent(b *boot, message string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.boot == b {
		m.record(b, Event{Source: "Service Control Manager", Level: host.EventError, ID: 7000, Message: message})
	}
}

func (x reporting) SetGuestInfo(ctx context.Context, key, value string) error {
	err := lockedErr(ctx, x.p, "Reporting.SetGuestInfo", key, func() error {
		if !x.p.m.opts.GuestInfo {
			return fmt.Errorf("set %s: no hypervisor: %w", key, host.ErrNotSupported)
		}
		x.p.m.disk.guestInfo[key] = value
		return nil
	})
	if err == nil && x.p.m.opts.OnGuestInfo != nil {
		x.p.m.opts.OnGuestInfo(ctx, key, value)
	}
	return err
}

func (x reporting) GuestInfo(ctx context.Context, key string) (string, error) {
	return locked(ctx, x.p, "Reporting.GuestInfo", key, func() (string, error) {
		if !x.p.m.opts.GuestInfo {
			return "", fmt.Errorf("get %s: no hypervisor: %w", key, host.ErrNotSupported)
		}
		value, ok := x.p.m.disk.guestInfo[key]
		if !ok {
			return "", fmt.Errorf("%s: %w", key, host.ErrNotFound)
		}
		return value, nil
	})
}

func (x reporting) SerialLine(ctx context.Context, port, line string) error {
	return lockedErr(ctx, x.p, "Reporting.SerialLine", port, func() error {
		if !slices.ContainsFunc(x.p.m.opts.SerialPorts, func(p string) bool { return strings.EqualFold(p, port) }) {
			return fmt.Errorf("write to %s: no such port: %w", port, host.ErrNotSupported)
		}
		port = strings.ToUpper(port)
		x.p.m.disk.serial[port] = append(x.p.m.disk.serial[port], line)
		return nil
	})
}
