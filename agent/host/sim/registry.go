package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// registry fills host.Registry.
type registry struct{ p *Process }

// checkKey returns a key without a backslash at its end.
func checkKey(key string) (string, error) {
	key = strings.TrimRight(key, `\`)
	upper := strings.ToUpper(key)
	ok := upper == "HKLM" || upper == "HKU" || strings.HasPrefix(upper, `HKLM\`) || strings.HasPrefix(upper, `HKU\`)
	if !ok || strings.Contains(key, `\\`) {
		return "", fmt.Errorf("registry key %q: %w", key, host.ErrInvalid)
	}
	return key, nil
}

func (x registry) Get(ctx context.Context, key, name string) (host.Value, error) {
	return locked(ctx, x.p, "Registry.Get", key+`\`+name, func() (host.Value, error) {
		key, err := checkKey(key)
		if err != nil {
			return host.Value{}, err
		}
		if values, ok := x.p.m.disk.registry.get(key); ok {
			if v, ok := values.get(name); ok {
				return cloneValue(v), nil
			}
		}
		return host.Value{}, fmt.Errorf(`registry value %s\%s: %w`, key, name, host.ErrNotFound)
	})
}

func (x registry) Set(ctx context.Context, key, name string, v host.Value) error {
	return lockedErr(ctx, x.p, "Registry.Set", key+`\`+name, func() error { return x.p.m.setRegistry(key, name, v) })
}

func (m *Machine) setRegistry(key, name string, v host.Value) error {
	key, err := checkKey(key)
	if err != nil {
		return err
	}
	types := []host.ValueType{host.String, host.ExpandString, host.MultiString, host.DWord, host.QWord, host.Binary}
	if !slices.Contains(types, v.Type) || v.Type == host.DWord && v.Number > 1<<32-1 {
		return fmt.Errorf(`registry value %s\%s: type %q: %w`, key, name, v.Type, host.ErrInvalid)
	}
	for i, r := range key + `\` {
		if r == '\\' {
			if _, ok := m.disk.registry.get(key[:i]); !ok {
				m.disk.registry.set(key[:i], &folded[host.Value]{})
			}
		}
	}
	values, _ := m.disk.registry.get(key)
	values.set(name, cloneValue(v))
	return nil
}

// cloneValue returns a value with only what its type has.
func cloneValue(v host.Value) host.Value {
	out := host.Value{Type: v.Type}
	switch v.Type {
	case host.String, host.ExpandString:
		out.Text = v.Text
	case host.MultiString:
		out.Texts = slices.Clone(v.Texts)
	case host.DWord, host.QWord:
		out.Number = v.Number
	case host.Binary:
		out.Bytes = slices.Clone(v.Bytes)
	}
	return out
}

func (x registry) Delete(ctx context.Context, key, name string) error {
	return lockedErr(ctx, x.p, "Registry.Delete", key+`\`+name, func() error {
		key, err := checkKey(key)
		if err != nil {
			return err
		}
		if values, ok := x.p.m.disk.registry.get(key); ok {
			values.remove(name)
		}
		return nil
	})
}

func (x registry) Names(ctx context.Context, key string) (values, subkeys []string, err error) {
	type both struct{ values, subkeys []string }
	out, err := locked(ctx, x.p, "Registry.Names", key, func() (both, error) {
		key, err := checkKey(key)
		if err != nil {
			return both{}, err
		}
		values, ok := x.p.m.disk.registry.get(key)
		if !ok {
			return both{}, fmt.Errorf("registry key %s: %w", key, host.ErrNotFound)
		}
		out := both{values: sorted(values.names())}
		for _, k := range x.p.m.disk.registry.names() {
			if len(k) > len(key) && fold(k[:len(key)+1]) == fold(key+`\`) && !strings.Contains(k[len(key)+1:], `\`) {
				out.subkeys = append(out.subkeys, k[len(key)+1:])
			}
		}
		slices.Sort(out.subkeys)
		return out, nil
	})
	return out.values, out.subkeys, err
}

func (x registry) DeleteKey(ctx context.Context, key string) error {
	return lockedErr(ctx, x.p, "Registry.DeleteKey", key, func() error {
		key, err := checkKey(key)
		if err != nil {
			return err
		}
		for _, k := range x.p.m.disk.registry.names() {
			if fold(k) == fold(key) || strings.HasPrefix(fold(k), fold(key)+`\`) {
				x.p.m.disk.registry.remove(k)
			}
		}
		return nil
	})
}
