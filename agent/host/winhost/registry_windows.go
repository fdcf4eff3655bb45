//go:build windows

package winhost

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
	winreg "golang.org/x/sys/windows/registry"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// Options of RegCreateKeyExW and RegOpenKeyExW.
const (
	regOptionVolatile      = 1
	regOptionBackupRestore = 4
)

type registry struct{}

func newRegistry() *registry { return &registry{} }

func (r *registry) Get(ctx context.Context, key, name string) (host.Value, error) {
	if err := ctx.Err(); err != nil {
		return host.Value{}, err
	}
	k, err := open(key, winreg.QUERY_VALUE)
	if err != nil {
		return host.Value{}, err
	}
	defer closeKey(k)
	v, err := getValue(k, name)
	return v, registryError(err, "read value %q of %s", name, key)
}

func (r *registry) Set(ctx context.Context, key, name string, v host.Value) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	k, err := create(key, winreg.QUERY_VALUE|winreg.SET_VALUE, 0)
	if err != nil {
		return err
	}
	defer closeKey(k)
	// The flush below comes in any case: an equal value may be the one of a try that did not live to see it.
	if old, err := getValue(k, name); err != nil || !equalValues(old, v) {
		if err := setValue(k, name, v); err != nil {
			return registryError(err, "set value %q of %s", name, key)
		}
	}
	return flush(k, key)
}

func (r *registry) Delete(ctx context.Context, key, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	k, err := open(key, winreg.QUERY_VALUE|winreg.SET_VALUE)
	switch {
	case errors.Is(err, host.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	defer closeKey(k)
	if err := k.DeleteValue(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return registryError(err, "delete value %q of %s", name, key)
	}
	return flush(k, key)
}

func (r *registry) Names(ctx context.Context, key string) (values, subkeys []string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	k, err := open(key, winreg.QUERY_VALUE|winreg.ENUMERATE_SUB_KEYS)
	if err != nil {
		return nil, nil, err
	}
	defer closeKey(k)
	if values, err = k.ReadValueNames(0); err != nil {
		return nil, nil, registryError(err, "list the values of %s", key)
	}
	if subkeys, err = k.ReadSubKeyNames(0); err != nil {
		return nil, nil, registryError(err, "list the keys below %s", key)
	}
	slices.Sort(values)
	slices.Sort(subkeys)
	return values, subkeys, nil
}

func (r *registry) DeleteKey(ctx context.Context, key string) error {
	parent, name, found := cutLast(key)
	if !found {
		return fmt.Errorf("delete registry key %s: %w", key, host.ErrInvalid)
	}
	_, subkeys, err := r.Names(ctx, key)
	switch {
	case errors.Is(err, host.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	for _, subkey := range subkeys {
		if err := r.DeleteKey(ctx, key+`\`+subkey); err != nil {
			return err
		}
	}
	// RegDeleteKey asks for the right to delete at the key itself, not at the parent's handle.
	k, err := open(parent, winreg.QUERY_VALUE|winreg.ENUMERATE_SUB_KEYS)
	if err != nil {
		return err
	}
	defer closeKey(k)
	if err := winreg.DeleteKey(k, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return registryError(err, "delete registry key %s", key)
	}
	return flush(k, parent)
}

// open opens a key that exists.
func open(key string, access uint32) (winreg.Key, error) {
	return withBackupRights(key, func(root winreg.Key, path *uint16, options uint32) (windows.Handle, error) {
		var h windows.Handle
		err := windows.RegOpenKeyEx(windows.Handle(root), path, options, access|winreg.WOW64_64KEY, &h)
		return h, err
	})
}

// create opens a key, and makes it with its parents.
func create(key string, access, kind uint32) (winreg.Key, error) {
	return withBackupRights(key, func(root winreg.Key, path *uint16, options uint32) (windows.Handle, error) {
		var h windows.Handle
		err := callStatus(proc("advapi32.dll", "RegCreateKeyExW"), uintptr(root), uintptr(unsafe.Pointer(path)), 0, 0,
			uintptr(options|kind), uintptr(access|winreg.WOW64_64KEY), 0, uintptr(unsafe.Pointer(&h)), 0)
		return h, err
	})
}

// withBackupRights opens a key; if that is denied, again with the rights to back up and restore, which pass over the access
// control of keys that belong to TrustedInstaller.
func withBackupRights(key string, do func(root winreg.Key, path *uint16, options uint32) (windows.Handle, error)) (winreg.Key, error) {
	root, path, err := splitKey(key)
	if err != nil {
		return 0, err
	}
	h, err := do(root, path, 0)
	if errors.Is(err, windows.ERROR_ACCESS_DENIED) {
		if err := enablePrivileges("SeBackupPrivilege", "SeRestorePrivilege"); err != nil {
			return 0, registryError(err, "open registry key %s", key)
		}
		h, err = do(root, path, regOptionBackupRestore)
	}
	return winreg.Key(h), registryError(err, "open registry key %s", key)
}

func splitKey(key string) (winreg.Key, *uint16, error) {
	root, path, _ := strings.Cut(key, `\`)
	p, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return 0, nil, fmt.Errorf("registry key %q: %w", key, host.ErrInvalid)
	}
	switch strings.ToUpper(root) {
	case "HKLM":
		return winreg.LOCAL_MACHINE, p, nil
	case "HKU":
		return winreg.USERS, p, nil
	default:
		return 0, nil, fmt.Errorf(`registry key %q is not below HKLM\ or HKU\: %w`, key, host.ErrInvalid)
	}
}

func getValue(k winreg.Key, name string) (host.Value, error) {
	_, kind, err := k.GetValue(name, nil)
	if err != nil {
		return host.Value{}, err
	}
	v := host.Value{}
	switch kind {
	case winreg.SZ, winreg.EXPAND_SZ:
		v.Type = host.String
		if kind == winreg.EXPAND_SZ {
			v.Type = host.ExpandString
		}
		v.Text, _, err = k.GetStringValue(name)
	case winreg.MULTI_SZ:
		v.Type = host.MultiString
		v.Texts, _, err = k.GetStringsValue(name)
	case winreg.DWORD, winreg.QWORD:
		v.Type = host.DWord
		if kind == winreg.QWORD {
			v.Type = host.QWord
		}
		v.Number, _, err = k.GetIntegerValue(name)
	default:
		v.Type = host.Binary
		v.Bytes, err = rawValue(k, name)
	}
	return v, err
}

// rawValue reads a value of any type as bytes.
func rawValue(k winreg.Key, name string) ([]byte, error) {
	size := 64
	for {
		b := make([]byte, size)
		n, _, err := k.GetValue(name, b)
		switch {
		case err == nil:
			return b[:n], nil
		case errors.Is(err, winreg.ErrShortBuffer):
			size = max(n, 2*size)
		default:
			return nil, err
		}
	}
}

func setValue(k winreg.Key, name string, v host.Value) error {
	switch v.Type {
	case host.String:
		return k.SetStringValue(name, v.Text)
	case host.ExpandString:
		return k.SetExpandStringValue(name, v.Text)
	case host.MultiString:
		return k.SetStringsValue(name, v.Texts)
	case host.DWord:
		if v.Number > 1<<32-1 {
			return fmt.Errorf("%d has more than 32 bits: %w", v.Number, host.ErrInvalid)
		}
		return k.SetDWordValue(name, uint32(v.Number))
	case host.QWord:
		return k.SetQWordValue(name, v.Number)
	case host.Binary:
		return k.SetBinaryValue(name, v.Bytes)
	default:
		return fmt.Errorf("type %q: %w", v.Type, host.ErrInvalid)
	}
}

func equalValues(a, b host.Value) bool {
	return a.Type == b.Type && a.Text == b.Text && slices.Equal(a.Texts, b.Texts) && a.Number == b.Number &&
		slices.Equal(a.Bytes, b.Bytes)
}

// flush makes durable what changed in a key's hive; Windows itself does it some seconds later.
func flush(k winreg.Key, key string) error {
	return registryError(callStatus(proc("advapi32.dll", "RegFlushKey"), uintptr(k)), "write registry key %s to disk", key)
}

// flushHive does it for the hive of a key below HKLM\ that something else, such as the service control manager, changed.
func flushHive(key string) error {
	k, err := open(key, winreg.QUERY_VALUE)
	if err != nil {
		return err
	}
	defer closeKey(k)
	return flush(k, key)
}

func closeKey(k winreg.Key) { _ = k.Close() }

// registryError is failed for the registry, where the codes for files mean keys and values.
func registryError(err error, format string, args ...any) error {
	if errors.Is(err, syscall.ERROR_FILE_NOT_FOUND) || errors.Is(err, syscall.ERROR_PATH_NOT_FOUND) ||
		errors.Is(err, windows.ERROR_KEY_DELETED) {
		return fmt.Errorf("%s: %w: %w", fmt.Sprintf(format, args...), host.ErrNotFound, err)
	}
	return failed(err, format, args...)
}

// cutLast cuts off what follows the last backslash.
func cutLast(path string) (before, last string, found bool) {
	i := strings.LastIndexByte(path, '\\')
	if i < 0 {
		return path, "", false
	}
	return path[:i], path[i+1:], true
}
