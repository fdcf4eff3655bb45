//go:build windows

package winhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/windows"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
)

// shareAll lets others read, write, rename and delete a file while it is open here: a log that is rotated, a status that is
// read while it is replaced.
const shareAll = windows.FILE_SHARE_READ | windows.FILE_SHARE_WRITE | windows.FILE_SHARE_DELETE

// incomplete ends the name of the file that Write makes before it takes the place of the old one. The name is always the
// same, so that what a power cut left over goes away with the next Write, or Remove, of the file.
const incomplete = ".capw-incomplete"

// files reads through a link that is the last part of a path, as the kubelet's current certificate is one; all else treats
// a link as what it is.
type files struct {
	// writing is held while an incomplete file is being written.
	writing sync.Mutex
}

func newFiles() *files { return &files{} }

func (f *files) Read(ctx context.Context, path string) ([]byte, error) {
	r, err := f.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	content, err := io.ReadAll(r)
	return content, failed(err, "read %s", path)
}

func (*files) Open(ctx context.Context, path string) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f, err := openFile(path, windows.GENERIC_READ, shareAll, "", windows.OPEN_EXISTING, 0)
	if err != nil {
		return nil, failed(err, "open %s", path)
	}
	return f, nil
}

func (f *files) Write(ctx context.Context, path string, content []byte, acl host.ACL) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f.writing.Lock()
	defer f.writing.Unlock()
	temporary := path + incomplete
	// A file that exists keeps its access control when it is opened, so it must not.
	if err := removeOne(temporary); err != nil {
		return failed(err, "remove what an earlier try left of %s", path)
	}
	if err := writeNew(temporary, content, acl); err != nil {
		return errors.Join(failed(err, "write %s", path), removeOne(temporary))
	}
	if err := replace(ctx, temporary, path); err != nil {
		return errors.Join(failed(err, "replace %s", path), removeOne(temporary))
	}
	return nil
}

func (*files) Append(ctx context.Context, path string, acl host.ACL) (io.WriteCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f, err := openFile(path, windows.FILE_APPEND_DATA|windows.SYNCHRONIZE|windows.FILE_READ_ATTRIBUTES, shareAll, acl.SDDL(false),
		windows.OPEN_ALWAYS, windows.FILE_FLAG_OPEN_REPARSE_POINT)
	if err != nil {
		return nil, failed(err, "open %s to append to it", path)
	}
	return &appender{f}, nil
}

// appender makes durable what was written when it is closed.
type appender struct{ *os.File }

func (a *appender) Close() error { return errors.Join(a.Sync(), a.File.Close()) }

func (f *files) Mkdir(ctx context.Context, path string, acl host.ACL) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	info, err := os.Lstat(path)
	switch {
	case err == nil && !info.IsDir():
		return fmt.Errorf("make folder %s: %w: a file or a link is there", path, fs.ErrExist)
	case err == nil:
		if have, err := f.ACL(ctx, path); err != nil || have == acl {
			return err
		}
		return f.SetACL(ctx, path, acl)
	case !errors.Is(err, fs.ErrNotExist):
		return failed(err, "make folder %s", path)
	}
	return failed(makeFolders(path, acl.SDDL(true)), "make folder %s", path)
}

func (*files) Stat(ctx context.Context, path string) (host.FileInfo, error) {
	if err := ctx.Err(); err != nil {
		return host.FileInfo{}, err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return host.FileInfo{}, failed(err, "look at %s", path)
	}
	return describe(info), nil
}

func (*files) List(ctx context.Context, path string) ([]host.FileInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, failed(err, "list %s", path)
	}
	list := make([]host.FileInfo, 0, len(entries))
	for _, entry := range entries {
		info, err := entry.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist): // it was removed meanwhile
		case err != nil:
			return nil, failed(err, "list %s", path)
		default:
			list = append(list, describe(info))
		}
	}
	return list, nil
}

func describe(info fs.FileInfo) host.FileInfo {
	return host.FileInfo{Name: info.Name(), Dir: info.IsDir(), Size: info.Size(), Modified: info.ModTime()}
}

func (*files) Rename(ctx context.Context, from, to string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return failed(replace(ctx, from, to), "rename %s to %s", from, to)
}

// Remove also removes what a power cut in Write left over.
func (f *files) Remove(ctx context.Context, path string) error {
	for _, path := range []string{path + incomplete, path} {
		if err := removeAll(ctx, path); err != nil {
			return failed(err, "remove %s", path)
		}
	}
	err := flushFolder(layout.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return failed(err, "remove %s", path)
}

// removeAll deletes depth first with os.Remove, which deletes a link and never what it points to. (os.RemoveAll needs a
// call that Wine does not have.)
func removeAll(ctx context.Context, path string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	if info.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, entry := range entries {
			if err := removeAll(ctx, layout.Join(path, entry.Name())); err != nil {
				return err
			}
		}
	}
	return whileInUse(ctx, func() error { return removeOne(path) })
}

// removeOne deletes a file or an empty folder, if it is there.
func removeOne(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (*files) SetACL(ctx context.Context, path string, acl host.ACL) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return failed(err, "set access control of %s", path)
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return fmt.Errorf("set access control of %s: %w: it is a link", path, host.ErrInvalid)
	}
	return failed(setDACL(path, acl.SDDL(info.IsDir())), "set access control of %s", path)
}

func (*files) ACL(ctx context.Context, path string) (host.ACL, error) {
	if err := ctx.Err(); err != nil {
		return host.ACLInherited, err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return host.ACLInherited, failed(err, "read access control of %s", path)
	}
	sd, err := windows.GetNamedSecurityInfo(path, windows.SE_FILE_OBJECT, windows.DACL_SECURITY_INFORMATION)
	if err != nil {
		return host.ACLInherited, failed(err, "read access control of %s", path)
	}
	return aclOf(sd.String(), info.IsDir(), asWindowsWrites), nil
}
