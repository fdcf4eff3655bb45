//go:build windows

package winhost

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/windows"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
)

// openFile opens or creates a file; a new one has the security descriptor from its first moment on.
func openFile(path string, access, share uint32, sddl string, disposition, flags uint32) (*os.File, error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	sa, err := securityAttributes(sddl)
	if err != nil {
		return nil, err
	}
	h, err := windows.CreateFile(name, access, share, sa, disposition, windows.FILE_ATTRIBUTE_NORMAL|flags, 0)
	if err != nil {
		return nil, err
	}
	if flags&windows.FILE_FLAG_OPEN_REPARSE_POINT != 0 {
		if err := refuseLink(h); err != nil {
			_ = windows.CloseHandle(h)
			return nil, err
		}
	}
	return os.NewFile(uintptr(h), path), nil
}

// refuseLink fails for a handle to a link itself.
func refuseLink(h windows.Handle) error {
	var info windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(h, &info); err != nil {
		return err
	}
	if info.FileAttributes&windows.FILE_ATTRIBUTE_REPARSE_POINT != 0 {
		return errors.Join(host.ErrInvalid, errors.New("it is a link"))
	}
	return nil
}

// writeNew makes a file that must not exist, and returns when it is on the disk.
func writeNew(path string, content []byte, acl host.ACL) error {
	f, err := openFile(path, windows.GENERIC_WRITE, 0, acl.SDDL(false), windows.CREATE_NEW, 0)
	if err != nil {
		return err
	}
	if _, err := f.Write(content); err != nil {
		return errors.Join(err, f.Close())
	}
	return errors.Join(f.Sync(), f.Close())
}

// replace renames a file or folder, in place of a file that may be there, and returns when that is on the disk.
func replace(ctx context.Context, from, to string) error {
	fromName, err := windows.UTF16PtrFromString(from)
	if err != nil {
		return err
	}
	toName, err := windows.UTF16PtrFromString(to)
	if err != nil {
		return err
	}
	return whileInUse(ctx, func() error {
		return windows.MoveFileEx(fromName, toName, windows.MOVEFILE_REPLACE_EXISTING|windows.MOVEFILE_WRITE_THROUGH)
	}, windows.ERROR_ACCESS_DENIED) // the answer when a reader has the file open that is to be replaced
}

// whileInUse repeats what fails because someone has a file open for a moment, such as a virus scanner that looks at what was
// just written. also are errors that mean the same here.
func whileInUse(ctx context.Context, do func() error, also ...error) error {
	const patience = 2 * time.Second
	deadline := time.Now().Add(patience)
	for pause := 5 * time.Millisecond; ; pause *= 2 {
		err := do()
		inUse := slices.ContainsFunc(append(also, windows.ERROR_SHARING_VIOLATION, windows.ERROR_LOCK_VIOLATION,
			windows.ERROR_DIR_NOT_EMPTY), func(e error) bool { return errors.Is(err, e) })
		if !inUse || time.Now().Add(pause).After(deadline) {
			return err
		}
		if ended := sleep(ctx, pause); ended != nil {
			return errors.Join(ended, err)
		}
	}
}

// makeFolders makes a folder and the parents that do not exist, all with one security descriptor.
func makeFolders(path, sddl string) error {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return err
	}
	sa, err := securityAttributes(sddl)
	if err != nil {
		return err
	}
	parent := layout.Dir(path)
	err = windows.CreateDirectory(name, sa)
	if errors.Is(err, windows.ERROR_PATH_NOT_FOUND) && parent != "" && parent != path {
		if err := makeFolders(parent, sddl); err != nil {
			return err
		}
		err = windows.CreateDirectory(name, sa)
	}
	if err != nil && !errors.Is(err, windows.ERROR_ALREADY_EXISTS) {
		return err
	}
	return flushFolder(parent)
}

// flushFolder makes durable what was made in or removed from a folder, unless its file system has no such thing. It asks for
// no right that one who may make files there does not have.
func flushFolder(path string) error {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return err
	}
	h, err := windows.CreateFile(name, windows.FILE_WRITE_DATA|windows.SYNCHRONIZE, shareAll, nil, windows.OPEN_EXISTING,
		windows.FILE_FLAG_BACKUP_SEMANTICS, 0)
	if err != nil {
		return err
	}
	defer func() { _ = windows.CloseHandle(h) }()
	err = windows.FlushFileBuffers(h)
	if errors.Is(err, windows.ERROR_INVALID_FUNCTION) || errors.Is(err, windows.ERROR_NOT_SUPPORTED) {
		return nil
	}
	return err
}

// setDACL gives a file or folder an access control of its own, or with an empty SDDL that of the folder above.
func setDACL(path, sddl string) error {
	protection := windows.SECURITY_INFORMATION(windows.PROTECTED_DACL_SECURITY_INFORMATION)
	if sddl == "" {
		// A list with no entry, to which Windows adds what is inherited.
		sddl, protection = "D:", windows.UNPROTECTED_DACL_SECURITY_INFORMATION
	}
	sd, err := windows.SecurityDescriptorFromString(sddl)
	if err != nil {
		return err
	}
	dacl, _, err := sd.DACL()
	if err != nil {
		return err
	}
	return windows.SetNamedSecurityInfo(path, windows.SE_FILE_OBJECT, windows.DACL_SECURITY_INFORMATION|protection, nil, nil, dacl, nil)
}

// asWindowsWrites returns a security descriptor in the form in which Windows writes it.
func asWindowsWrites(sddl string) string {
	sd, err := windows.SecurityDescriptorFromString(sddl)
	if err != nil {
		return ""
	}
	return sd.String()
}
