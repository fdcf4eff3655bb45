package sim

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// system fills host.System.
type system struct{ p *Process }

func (x system) Info(ctx context.Context) (host.Info, error) {
	return locked(ctx, x.p, "System.Info", "", func() (host.Info, error) {
		info := x.p.m.opts.Info
		info.BootID, info.BootTime = x.p.boot.id, x.p.boot.since
		return info, nil
	})
}

func (x system) ComputerName(ctx context.Context) (now, next string, err error) {
	names, err := locked(ctx, x.p, "System.ComputerName", "", func() ([2]string, error) {
		return [2]string{x.p.boot.name, x.p.m.disk.name}, nil
	})
	return names[0], names[1], err
}

func (x system) SetComputerName(ctx context.Context, name string) error {
	return lockedErr(ctx, x.p, "System.SetComputerName", name, func() error {
		label := regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)
		if !label.MatchString(name) || strings.Trim(name, "0123456789") == "" {
			return fmt.Errorf("computer name %q: %w", name, host.ErrInvalid)
		}
		x.p.m.disk.name = name
		return nil
	})
}

func (x system) TimeZone(ctx context.Context) (string, error) {
	return locked(ctx, x.p, "System.TimeZone", "", func() (string, error) { return x.p.m.disk.timeZone, nil })
}

func (x system) SetTimeZone(ctx context.Context, name string) error {
	return lockedErr(ctx, x.p, "System.SetTimeZone", name, func() error {
		known := append([]string{
			"UTC", "GMT Standard Time", "W. Europe Standard Time", "Central Europe Standard Time", "Romance Standard Time",
			"Eastern Standard Time", "Central Standard Time", "Pacific Standard Time", "Tokyo Standard Time", "India Standard Time",
		}, x.p.m.opts.TimeZones...)
		if !slices.Contains(known, name) {
			return fmt.Errorf("time zone %q: %w", name, host.ErrInvalid)
		}
		x.p.m.disk.timeZone = name
		return nil
	})
}

func (x system) Environment(ctx context.Context) (map[string]string, error) {
	return locked(ctx, x.p, "System.Environment", "", func() (map[string]string, error) {
		return x.p.m.disk.environment.all(), nil
	})
}

func (x system) SetEnvironment(ctx context.Context, name string, value *string) error {
	return lockedErr(ctx, x.p, "System.SetEnvironment", name, func() error {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return fmt.Errorf("variable %q: %w", name, host.ErrInvalid)
		}
		if value == nil {
			x.p.m.disk.environment.remove(name)
		} else {
			x.p.m.disk.environment.set(name, *value)
		}
		return nil
	})
}

func (x system) RebootPending(ctx context.Context) (bool, error) {
	return locked(ctx, x.p, "System.RebootPending", "", func() (bool, error) {
		d := &x.p.m.disk
		pending := d.otherPending || d.name != x.p.boot.name || d.domainNext != ""
		for _, f := range d.features.all() {
			pending = pending || f.State == host.FeaturePending
		}
		return pending, nil
	})
}

func (x system) Reboot(ctx context.Context, reason string) error {
	return lockedErr(ctx, x.p, "System.Reboot", reason, func() error {
		x.p.m.record(x.p.boot, Event{Source: "User32", Level: host.EventInformation, ID: 1074, Message: reason})
		x.p.m.requestReboot(x.p.boot)
		return nil
	})
}

// domain fills host.Domain.
type domain struct{ p *Process }

func (x domain) Joined(ctx context.Context) (string, error) {
	return locked(ctx, x.p, "Domain.Joined", "", func() (string, error) { return x.p.m.disk.domain, nil })
}

func (x domain) JoinOffline(ctx context.Context, blob []byte) error {
	return lockedErr(ctx, x.p, "Domain.JoinOffline", "", func() error {
		parse := x.p.m.opts.OfflineDomain
		if parse == nil {
			parse = func(blob []byte) (string, error) {
				if !regexp.MustCompile(`^[A-Za-z0-9.-]+$`).Match(blob) {
					return "", fmt.Errorf("not a blob of djoin: %w", host.ErrInvalid)
				}
				return string(blob), nil
			}
		}
		name, err := parse(blob)
		if err != nil {
			return fmt.Errorf("join offline: %w", err)
		}
		return x.p.m.join(name)
	})
}

func (x domain) Join(ctx context.Context, name, _, username, password string) error {
	return lockedErr(ctx, x.p, "Domain.Join", name, func() error {
		want := x.p.m.opts.DomainPassword
		if name == "" || username == "" || password == "" || want != "" && password != want {
			return fmt.Errorf("join %s as %s: the user name or password is incorrect: %w", name, username, host.ErrInvalid)
		}
		return x.p.m.join(name)
	})
}

func (m *Machine) join(name string) error {
	if fold(m.disk.domain) != fold(name) {
		m.disk.domainNext = name
	}
	return nil
}

// Feature is an optional part of Windows.
type Feature struct {
	State host.FeatureState
	// Reboot: it works only after one.
	Reboot bool
	// Requires are features that it enables, too.
	Requires []string
}

// features fills host.Features.
type features struct{ p *Process }

func (x features) State(ctx context.Context, name string) (host.FeatureState, error) {
	return locked(ctx, x.p, "Features.State", name, func() (host.FeatureState, error) {
		f, ok := x.p.m.disk.features.get(name)
		if !ok {
			return "", fmt.Errorf("feature %s: %w", name, host.ErrNotFound)
		}
		return f.State, nil
	})
}

func (x features) Enable(ctx context.Context, name string) (bool, error) {
	return locked(ctx, x.p, "Features.Enable", name, func() (bool, error) { return x.p.m.enable(name) })
}

func (m *Machine) enable(name string) (bool, error) {
	f, ok := m.disk.features.get(name)
	if !ok {
		return false, fmt.Errorf("feature %s: %w", name, host.ErrNotFound)
	}
	reboot := false
	for _, other := range f.Requires {
		needs, err := m.enable(other)
		if err != nil {
			return false, err
		}
		reboot = reboot || needs
	}
	if f.State == host.FeatureDisabled {
		f.State = host.FeatureEnabled
		if f.Reboot {
			f.State = host.FeaturePending
		}
		m.disk.features.set(name, f)
	}
	return reboot || f.State == host.FeaturePending, nil
}

// users fills host.Users.
type users struct{ p *Process }

func (x users) Get(ctx context.Context, name string) (host.User, error) {
	return locked(ctx, x.p, "Users.Get", name, func() (host.User, error) {
		u, ok := x.p.m.disk.users.get(name)
		if !ok {
			return host.User{}, fmt.Errorf("user %s: %w", name, host.ErrNotFound)
		}
		u.Password, u.Groups = "", slices.Clone(u.Groups)
		u.ProfileDir = systemDrive + `\Users\` + u.Name
		return u, nil
	})
}

func (x users) Apply(ctx context.Context, u host.User) error {
	return lockedErr(ctx, x.p, "Users.Apply", u.Name, func() error { return x.p.m.applyUser(u) })
}

func (m *Machine) applyUser(u host.User) error {
	if u.Name == "" || len(u.Name) > 20 || strings.ContainsAny(u.Name, "\"/\\[]:;|=,+*?<>@") {
		return fmt.Errorf("user %q: %w", u.Name, host.ErrInvalid)
	}
	have, exists := m.disk.users.get(u.Name)
	if exists {
		u.Name = have.Name
	}
	if u.Password == "" {
		u.Password = have.Password
	}
	groups := slices.Clone(have.Groups)
	for _, g := range u.Groups {
		sid, ok := groupSID(g)
		if !ok {
			return fmt.Errorf("user %s: group %q: %w", u.Name, g, host.ErrNotFound)
		}
		if !slices.Contains(groups, sid) {
			groups = append(groups, sid)
		}
	}
	slices.Sort(groups)
	u.Groups = groups
	m.disk.users.set(u.Name, u)
	return nil
}

// groupSID returns the SID of a built-in group by its SID or English name.
func groupSID(group string) (string, bool) {
	builtin := map[string]string{
		"administrators": host.AdministratorsSID, "users": "S-1-5-32-545", "remote desktop users": "S-1-5-32-555",
		"remote management users": "S-1-5-32-580", "hyper-v administrators": "S-1-5-32-578", "event log readers": "S-1-5-32-573",
	}
	if sid, ok := builtin[fold(group)]; ok {
		return sid, true
	}
	for _, sid := range builtin {
		if strings.EqualFold(sid, group) {
			return sid, true
		}
	}
	return "", false
}

func (x users) Delete(ctx context.Context, name string) error {
	return lockedErr(ctx, x.p, "Users.Delete", name, func() error {
		x.p.m.disk.users.remove(name)
		return nil
	})
}

// firewall fills host.Firewall.
type firewall struct{ p *Process }

func (x firewall) Rules(ctx context.Context) ([]string, error) {
	return locked(ctx, x.p, "Firewall.Rules", "", func() ([]string, error) {
		return sorted(x.p.m.disk.firewall.names()), nil
	})
}

func (x firewall) Apply(ctx context.Context, r host.FirewallRule) error {
	return lockedErr(ctx, x.p, "Firewall.Apply", r.Name, func() error {
		if err := validRule(r); err != nil {
			return fmt.Errorf("firewall rule %q: %w: %w", r.Name, err, host.ErrInvalid)
		}
		r.Ports, r.RemoteAddresses = slices.Clone(r.Ports), slices.Clone(r.RemoteAddresses)
		x.p.m.disk.firewall.remove(r.Name)
		x.p.m.disk.firewall.set(r.Name, r)
		return nil
	})
}

func (x firewall) Delete(ctx context.Context, name string) error {
	return lockedErr(ctx, x.p, "Firewall.Delete", name, func() error {
		x.p.m.disk.firewall.remove(name)
		return nil
	})
}

// certificates fills host.Certificates.
type certificates struct{ p *Process }

func (x certificates) Roots(ctx context.Context) ([]string, error) {
	return locked(ctx, x.p, "Certificates.Roots", "", func() ([]string, error) {
		out := []string{}
		for fingerprint := range x.p.m.disk.roots {
			out = append(out, fingerprint)
		}
		return sorted(out), nil
	})
}

func (x certificates) AddRoot(ctx context.Context, der []byte) error {
	return lockedErr(ctx, x.p, "Certificates.AddRoot", "", func() error {
		if _, err := x509.ParseCertificate(der); err != nil {
			return fmt.Errorf("add a root certificate: %w: %w", err, host.ErrInvalid)
		}
		sum := sha256.Sum256(der)
		x.p.m.disk.roots[hex.EncodeToString(sum[:])] = slices.Clone(der)
		return nil
	})
}

func (x certificates) RemoveRoot(ctx context.Context, fingerprint string) error {
	return lockedErr(ctx, x.p, "Certificates.RemoveRoot", fingerprint, func() error {
		delete(x.p.m.disk.roots, fingerprint)
		return nil
	})
}

// volumes fills host.Volumes.
type volumes struct{ p *Process }

func (x volumes) List(ctx context.Context) ([]host.Volume, error) {
	return locked(ctx, x.p, "Volumes.List", "", func() ([]host.Volume, error) {
		out := []host.Volume{}
		for _, root := range x.p.m.disk.volumes.names() {
			v, _ := x.p.m.disk.volumes.get(root)
			described := v.Volume
			described.FreeBytes = v.TotalBytes - v.used
			if v.readOnly {
				described.FreeBytes = 0
			}
			out = append(out, described)
		}
		return out, nil
	})
}
