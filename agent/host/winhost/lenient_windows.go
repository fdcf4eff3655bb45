//go:build windows

package winhost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/windows"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// absentKey is where Options.Lenient keeps what something that is not quite Windows does not: values with the state of
// features, the rules of the firewall, the dynamic ports and accounts.
const absentKey = agentKey + `\lenient`

// makeUp makes up for what Wine 8 lacks of the firewall, features, dynamic ports and accounts, by remembering what was asked
// for. What Windows has is used as ever.
func makeUp(h *host.Host) {
	kept := kept{h.Registry}
	h.Firewall = &lenientFirewall{Firewall: h.Firewall, kept: kept}
	h.Features = &lenientFeatures{Features: h.Features, processes: h.Processes, system: h.System, kept: kept}
	h.Network = &lenientNetwork{Network: h.Network, kept: kept}
	h.Users = &lenientUsers{Users: h.Users, kept: kept}
}

// kept are values in the registry, JSON by name.
type kept struct{ registry host.Registry }

// get says whether there is one.
func (k kept) get(ctx context.Context, kind, name string, to any) (bool, error) {
	v, err := k.registry.Get(ctx, absentKey+`\`+kind, name)
	if errors.Is(err, host.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, json.Unmarshal([]byte(v.Text), to)
}

func (k kept) set(ctx context.Context, kind, name string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return k.registry.Set(ctx, absentKey+`\`+kind, name, host.StringValue(string(text)))
}

func (k kept) delete(ctx context.Context, kind, name string) error {
	return k.registry.Delete(ctx, absentKey+`\`+kind, name)
}

type lenientFirewall struct {
	host.Firewall

	kept kept
}

func (f *lenientFirewall) Rules(ctx context.Context) ([]string, error) {
	names, err := f.Firewall.Rules(ctx)
	if !errors.Is(err, host.ErrNotSupported) {
		return names, err
	}
	names, _, err = f.kept.registry.Names(ctx, absentKey+`\Firewall`)
	if errors.Is(err, host.ErrNotFound) {
		return []string{}, nil
	}
	return names, err
}

func (f *lenientFirewall) Apply(ctx context.Context, r host.FirewallRule) error {
	if err := f.Firewall.Apply(ctx, r); !errors.Is(err, host.ErrNotSupported) {
		return err
	}
	return f.kept.set(ctx, "Firewall", r.Name, r)
}

func (f *lenientFirewall) Delete(ctx context.Context, name string) error {
	if err := f.Firewall.Delete(ctx, name); !errors.Is(err, host.ErrNotSupported) {
		return err
	}
	return f.kept.delete(ctx, "Firewall", name)
}

type lenientFeatures struct {
	host.Features

	processes host.Processes
	system    host.System
	kept      kept
}

// keptFeature is one that was enabled.
type keptFeature struct {
	// PendingSince is the boot after which it works; empty when it does at once.
	PendingSince string
}

func (f *lenientFeatures) State(ctx context.Context, name string) (host.FeatureState, error) {
	state, err := f.Features.State(ctx, name)
	if !errors.Is(err, host.ErrNotSupported) {
		return state, err
	}
	enabled := keptFeature{}
	found, err := f.kept.get(ctx, "Features", strings.ToLower(name), &enabled)
	if err != nil || !found {
		return host.FeatureDisabled, err
	}
	info, err := f.system.Info(ctx)
	if err != nil {
		return "", err
	}
	if enabled.PendingSince == info.BootID {
		return host.FeaturePending, nil
	}
	return host.FeatureEnabled, nil
}

func (f *lenientFeatures) Enable(ctx context.Context, name string) (reboot bool, err error) {
	reboot, err = f.Features.Enable(ctx, name)
	if !errors.Is(err, host.ErrNotSupported) {
		return reboot, err
	}
	if state, err := f.State(ctx, name); err != nil || state != host.FeatureDisabled {
		return state == host.FeaturePending, err
	}
	if reboot, err = runDism(ctx, f.processes, name); err != nil {
		return false, err
	}
	enabled := keptFeature{}
	if reboot {
		info, err := f.system.Info(ctx)
		if err != nil {
			return false, err
		}
		enabled.PendingSince = info.BootID
	}
	return reboot, f.kept.set(ctx, "Features", strings.ToLower(name), enabled)
}

type lenientNetwork struct {
	host.Network

	kept kept
}

func (n *lenientNetwork) DynamicPorts(ctx context.Context) (start, count uint16, err error) {
	start, count, err = n.Network.DynamicPorts(ctx)
	if !errors.Is(err, host.ErrNotSupported) {
		return start, count, err
	}
	ports := [2]uint16{49152, 16384} // what Windows begins with
	_, err = n.kept.get(ctx, "Network", "DynamicPorts", &ports)
	return ports[0], ports[1], err
}

func (n *lenientNetwork) SetDynamicPorts(ctx context.Context, start, count uint16) error {
	if err := n.Network.SetDynamicPorts(ctx, start, count); err != nil {
		return err
	}
	return n.kept.set(ctx, "Network", "DynamicPorts", [2]uint16{start, count})
}

// lenientUsers keeps accounts, because those of Wine live and die with a process, and to change one ends it.
type lenientUsers struct {
	host.Users

	kept kept
}

func (u *lenientUsers) Get(ctx context.Context, name string) (host.User, error) {
	user := host.User{}
	found, err := u.kept.get(ctx, "Users", strings.ToLower(name), &user)
	if err != nil || found {
		return user, err
	}
	return u.Users.Get(ctx, name)
}

func (u *lenientUsers) Apply(ctx context.Context, want host.User) error {
	if err := checkUser(want); err != nil {
		return err
	}
	have, err := u.Get(ctx, want.Name)
	if err != nil && !errors.Is(err, host.ErrNotFound) {
		return err
	}
	windowsDir, err := windows.GetSystemWindowsDirectory()
	if err != nil {
		return failed(err, "find the folder of Windows")
	}
	// Not the password, which nobody reads back.
	user := host.User{Name: want.Name, FullName: want.FullName, Groups: have.Groups, Disabled: want.Disabled, ProfileDir: have.ProfileDir}
	if user.FullName == "" {
		user.FullName = have.FullName
	}
	if user.ProfileDir == "" {
		user.ProfileDir = windowsDir[:2] + `\users\` + want.Name
	}
	for _, g := range want.Groups {
		if sid := groupSID(g); sid != "" {
			g = sid
		}
		if !slices.Contains(user.Groups, g) {
			user.Groups = append(user.Groups, g)
		}
	}
	if err := u.kept.set(ctx, "Users", strings.ToLower(want.Name), user); err != nil {
		return fmt.Errorf("remember user %q: %w", want.Name, err)
	}
	return nil
}

func (u *lenientUsers) Delete(ctx context.Context, name string) error {
	if err := u.kept.delete(ctx, "Users", strings.ToLower(name)); err != nil {
		return err
	}
	return u.Users.Delete(ctx, name)
}
