//go:build windows

package winhost

import (
	"context"
	"slices"
	"strings"

	"github.com/go-ole/go-ole"
	"github.com/go-ole/go-ole/oleutil"
	"github.com/google/uuid"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// firewallGroup is the group of the agent's rules, as people see it.
const firewallGroup = "Cluster API Provider Windows"

// firewall uses INetFwPolicy2. Rules are those of firewallGroup; others are never changed, even when they have the same
// name: names are not unique, and the interface deletes by name, so that a rule gets one of its own first.
type firewall struct{}

func newFirewall() *firewall { return &firewall{} }

func (f *firewall) Rules(ctx context.Context) ([]string, error) {
	out := []string{}
	err := withRules(ctx, func(rules *ole.IDispatch) error {
		return eachOwnRule(rules, func(_ *ole.IDispatch, name string) error {
			if base, replaced := ruleName(name); !replaced {
				out = append(out, base)
			}
			return nil
		})
	})
	slices.Sort(out)
	return slices.Compact(out), err
}

// Apply adds the new rule before it takes the old one away, so that what is let in stays so.
func (f *firewall) Apply(ctx context.Context, r host.FirewallRule) error {
	want, err := firewallSettingsOf(r)
	if err != nil {
		return err
	}
	return withRules(ctx, func(rules *ole.IDispatch) error {
		stale, err := ownRules(rules, r.Name)
		if err != nil {
			return err
		}
		defer func() { releaseObjects(stale) }()
		found := -1
		for i, rule := range stale {
			have, err := readRule(rule)
			if err != nil {
				return err
			}
			if have.same(want) {
				found = i
				break
			}
		}
		if found < 0 {
			if err := addRule(rules, want); err != nil {
				return err
			}
		}
		for i, rule := range stale {
			if i == found {
				continue
			}
			if err := removeRule(rules, rule, r.Name); err != nil {
				return err
			}
		}
		return flushHive(tcpipKey) // the rules are in the same hive
	})
}

func (f *firewall) Delete(ctx context.Context, name string) error {
	return withRules(ctx, func(rules *ole.IDispatch) error {
		stale, err := ownRules(rules, name)
		if err != nil {
			return err
		}
		defer func() { releaseObjects(stale) }()
		for _, rule := range stale {
			if err := removeRule(rules, rule, name); err != nil {
				return err
			}
		}
		return flushHive(tcpipKey)
	})
}

// ownRules returns the rules of the agent's group with a name, and those that were about to be removed under it.
func ownRules(rules *ole.IDispatch, name string) ([]*ole.IDispatch, error) {
	found := []*ole.IDispatch{}
	err := eachOwnRule(rules, func(rule *ole.IDispatch, have string) error {
		if base, _ := ruleName(have); strings.EqualFold(base, name) {
			rule.AddRef()
			found = append(found, rule)
		}
		return nil
	})
	if err != nil {
		releaseObjects(found)
		return nil, err
	}
	return found, nil
}

func releaseObjects(objects []*ole.IDispatch) {
	for _, o := range objects {
		o.Release()
	}
}

// withRules calls do with the collection of the firewall's rules.
func withRules(ctx context.Context, do func(rules *ole.IDispatch) error) error {
	return withCOM(ctx, func() error {
		policy, err := createObject("HNetCfg.FwPolicy2")
		if err != nil {
			return err
		}
		defer policy.Release()
		rules, err := object(oleutil.GetProperty(policy, "Rules"))
		if err != nil {
			return comFailed(err, "read the firewall rules")
		}
		defer rules.Release()
		return do(rules)
	})
}

// eachOwnRule calls do with the inbound rules of the agent's group. Changing rules is for after it has returned.
func eachOwnRule(rules *ole.IDispatch, do func(rule *ole.IDispatch, name string) error) error {
	err := oleutil.ForEach(rules, func(v *ole.VARIANT) error {
		defer func() { _ = v.Clear() }()
		rule := v.ToIDispatch()
		group, err := property[string](rule, "Grouping")
		if err != nil || group != firewallGroup {
			return err
		}
		direction, err := property[int32](rule, "Direction")
		if err != nil || direction != firewallInbound {
			return err
		}
		name, err := property[string](rule, "Name")
		if err != nil {
			return err
		}
		return do(rule, name)
	})
	return comFailed(err, "read the firewall rules")
}

func readRule(rule *ole.IDispatch) (s firewallSettings, err error) {
	read(rule, "Name", &s.name, &err)
	read(rule, "ApplicationName", &s.program, &err)
	read(rule, "Protocol", &s.protocol, &err)
	read(rule, "LocalPorts", &s.ports, &err)
	read(rule, "RemoteAddresses", &s.addresses, &err)
	read(rule, "Direction", &s.direction, &err)
	read(rule, "Action", &s.action, &err)
	read(rule, "Profiles", &s.profiles, &err)
	read(rule, "Enabled", &s.enabled, &err)
	return s, err
}

// read reads a property unless something failed before.
func read[T any](d *ole.IDispatch, name string, to *T, err *error) {
	if *err == nil {
		*to, *err = property[T](d, name)
	}
}

func addRule(rules *ole.IDispatch, s firewallSettings) error {
	rule, err := createObject("HNetCfg.FWRule")
	if err != nil {
		return err
	}
	defer rule.Release()
	// The protocol comes before the ports, which are refused without one.
	properties := []struct {
		name  string
		value any
	}{
		{"Name", s.name}, {"Grouping", firewallGroup}, {"Protocol", s.protocol}, {"LocalPorts", s.ports},
		{"RemoteAddresses", s.addresses}, {"Direction", s.direction}, {"Action", s.action}, {"Profiles", s.profiles},
		{"Enabled", s.enabled},
	}
	for _, p := range properties {
		if err := setProperty(rule, p.name, p.value); err != nil {
			return err
		}
	}
	if s.program != "" {
		if err := setProperty(rule, "ApplicationName", s.program); err != nil {
			return err
		}
	}
	_, err = oleutil.CallMethod(rules, "Add", rule)
	return comFailed(err, "add firewall rule %q", s.name)
}

func removeRule(rules, rule *ole.IDispatch, name string) error {
	unique := name + replacedMark + uuid.NewString()
	if err := setProperty(rule, "Name", unique); err != nil {
		return err
	}
	_, err := oleutil.CallMethod(rules, "Remove", unique)
	return comFailed(err, "remove firewall rule %q", name)
}

func setProperty(d *ole.IDispatch, name string, value any) error {
	_, err := oleutil.PutProperty(d, name, value)
	return comFailed(err, "set %s of a firewall rule to %v", name, value)
}
