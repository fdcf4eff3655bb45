package sim

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

const systemDrive = "C:"

// ErrDiskFull is the error of writes that do not fit on the volume.
var ErrDiskFull = errors.New("there is not enough space on the disk")

// file is a file or folder.
type file struct {
	name     string
	parent   *file // nil: a volume's root, or it was removed
	dir      bool
	children folded[*file]
	content  []byte // never changed in place
	durable  int    // how much of content survives a power cut
	acl      host.ACL
	modified time.Time
	running  int // processes of it
}

// volume is a file system.
type volume struct {
	host.Volume

	root     *file
	readOnly bool
	used     uint64
}

// Volume is a file system that the machine has.
type Volume struct {
	host.Volume

	// Files are paths on it, such as D:\openstack\latest\meta_data.json, and contents.
	Files map[string]string
}

// clean checks a path and returns it without a backslash at the end, except C:\.
func clean(path string) (string, error) {
	rest, ok := strings.CutPrefix(path[min(1, len(path)):], `:`)
	letter := len(path) > 0 && (path[0]|0x20) >= 'a' && (path[0]|0x20) <= 'z'
	if !ok || !letter || !strings.HasPrefix(rest, `\`) || strings.ContainsAny(rest, "/<>:\"|?*\x00") {
		return "", fmt.Errorf("%q is not an absolute Windows path: %w", path, host.ErrInvalid)
	}
	parts := []string{}
	for part := range strings.SplitSeq(rest[1:], `\`) {
		switch {
		case part == "" || part == ".":
		case part == "..":
			parts = parts[:max(0, len(parts)-1)]
		case strings.HasSuffix(part, ".") || strings.HasSuffix(part, " "):
			return "", fmt.Errorf("%q: a name that ends in %q: %w", path, part[len(part)-1:], host.ErrInvalid)
		default:
			parts = append(parts, part)
		}
	}
	return path[:2] + `\` + strings.Join(parts, `\`), nil
}

func base(path string) string { return path[strings.LastIndexByte(path, '\\')+1:] }

// split returns the volume of a path and the names below it.
func (m *Machine) split(path string) (*volume, []string, error) {
	cleaned, err := clean(path)
	if err != nil {
		return nil, nil, err
	}
	v, ok := m.disk.volumes.get(cleaned[:3])
	if !ok {
		return nil, nil, fmt.Errorf("%s: no such drive: %w", path, fs.ErrNotExist)
	}
	if len(cleaned) == 3 {
		return v, nil, nil
	}
	return v, strings.Split(cleaned[3:], `\`), nil
}

// lookup returns what is at a path.
func (m *Machine) lookup(path string) (*file, error) {
	v, names, err := m.split(path)
	if err != nil {
		return nil, err
	}
	f := v.root
	for _, name := range names {
		child, ok := f.children.get(name)
		if !ok {
			return nil, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
		}
		f = child
	}
	return f, nil
}

// parentOf returns the folder that a path is in, and the name in it.
func (m *Machine) parentOf(path string) (*volume, *file, string, error) {
	v, names, err := m.split(path)
	if err != nil {
		return nil, nil, "", err
	}
	if len(names) == 0 {
		return nil, nil, "", fmt.Errorf("%s: a drive: %w", path, fs.ErrPermission)
	}
	if v.readOnly {
		return nil, nil, "", fmt.Errorf("%s: the medium is write protected: %w", path, fs.ErrPermission)
	}
	folder, err := m.lookup(v.Root + strings.Join(names[:len(names)-1], `\`))
	if err != nil {
		return nil, nil, "", fmt.Errorf("%s: its folder: %w", path, err)
	}
	if !folder.dir {
		return nil, nil, "", fmt.Errorf("%s: its folder is a file: %w", path, fs.ErrNotExist)
	}
	return v, folder, names[len(names)-1], nil
}

// put replaces the file at a path.
func (m *Machine) put(path string, content []byte, acl host.ACL) error {
	v, folder, name, err := m.parentOf(path)
	if err != nil {
		return err
	}
	var before uint64
	if have, ok := folder.children.get(name); ok {
		if have.dir || have.running > 0 {
			return fmt.Errorf("%s: it is a folder, or a program that runs: %w", path, fs.ErrPermission)
		}
		name, before = have.name, uint64(len(have.content))
		have.parent = nil
	}
	if v.used-before+uint64(len(content)) > v.TotalBytes {
		return fmt.Errorf("%s: %w", path, ErrDiskFull)
	}
	v.used += uint64(len(content)) - before
	folder.children.set(name, &file{
		name: name, parent: folder, content: slices.Clone(content), durable: len(content), acl: acl, modified: time.Now(),
	})
	return nil
}

// mkdir makes a folder with its parents.
func (m *Machine) mkdir(path string, acl host.ACL) error {
	v, names, err := m.split(path)
	if err != nil {
		return err
	}
	f := v.root
	for i, name := range names {
		child, ok := f.children.get(name)
		switch {
		case ok && !child.dir:
			return fmt.Errorf("%s: %s is a file: %w", path, name, fs.ErrExist)
		case ok:
		case v.readOnly:
			return fmt.Errorf("%s: the medium is write protected: %w", path, fs.ErrPermission)
		default:
			child = &file{name: name, parent: f, dir: true, acl: acl, modified: time.Now()}
			f.children.set(name, child)
		}
		if i == len(names)-1 {
			child.acl = acl
		}
		f = child
	}
	return nil
}

// remove deletes what is at a path, except programs that run and the folders that they are in.
func (m *Machine) remove(path string) error {
	if _, err := m.lookup(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	v, folder, name, err := m.parentOf(path)
	if err != nil {
		return err
	}
	f, _ := folder.children.get(name)
	if !v.removeTree(f) {
		return fmt.Errorf("%s: a program in it runs: %w", path, fs.ErrPermission)
	}
	return nil
}

func (v *volume) removeTree(f *file) bool {
	all := f.running == 0
	for _, name := range f.children.names() {
		child, _ := f.children.get(name)
		all = v.removeTree(child) && all
	}
	if all {
		f.parent.children.remove(f.name)
		f.parent = nil
		v.used -= uint64(len(f.content))
	}
	return all
}

// rename moves what is at a path.
func (m *Machine) rename(from, to string) error {
	source, sourceFolder, sourceName, err := m.parentOf(from)
	if err != nil {
		return err
	}
	f, ok := sourceFolder.children.get(sourceName)
	if !ok {
		return fmt.Errorf("%s: %w", from, fs.ErrNotExist)
	}
	target, folder, name, err := m.parentOf(to)
	if err != nil {
		return err
	}
	for up := folder; up != nil; up = up.parent {
		if up == f {
			return fmt.Errorf("%s: into itself: %w", to, host.ErrInvalid)
		}
	}
	if have, ok := folder.children.get(name); ok && have != f {
		if have.dir || f.dir || have.running > 0 {
			return fmt.Errorf("%s: there is a folder, or a program that runs: %w", to, fs.ErrPermission)
		}
		target.removeTree(have)
	}
	if source != target && (f.dir || f.running > 0) {
		return fmt.Errorf("%s to %s: another volume: %w", from, to, fs.ErrPermission)
	}
	sourceFolder.children.remove(sourceName)
	source.used -= uint64(len(f.content))
	target.used += uint64(len(f.content))
	f.name, f.parent = name, folder
	folder.children.set(name, f)
	return nil
}

// walk calls visit for everything on the volumes, parents first, in order.
func (m *Machine) walk(visit func(path string, f *file)) {
	var down func(path string, f *file)
	down = func(path string, f *file) {
		for _, name := range f.children.names() {
			child, _ := f.children.get(name)
			at := strings.TrimSuffix(path, `\`) + `\` + child.name
			visit(at, child)
			down(at, child)
		}
	}
	for _, root := range m.disk.volumes.names() {
		v, _ := m.disk.volumes.get(root)
		down(v.Root, v.root)
	}
}

// tearFiles is what a power cut does to what was appended and not closed: half of it is lost.
func (m *Machine) tearFiles() {
	for _, root := range m.disk.volumes.names() {
		v, _ := m.disk.volumes.get(root)
		tear(v, v.root)
	}
}

func tear(v *volume, f *file) {
	if !f.dir {
		kept := f.durable + (len(f.content)-f.durable)/2
		v.used -= uint64(len(f.content) - kept) //nolint:gosec // not negative
		f.content, f.durable = f.content[:kept], kept
	}
	for _, child := range f.children.entries {
		tear(v, child.value)
	}
}

// closeFiles makes everything durable that was appended, as Windows does when it shuts down.
func (m *Machine) closeFiles() {
	m.walk(func(_ string, f *file) { f.durable = len(f.content) })
}
