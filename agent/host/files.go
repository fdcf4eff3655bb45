package host

import (
	"context"
	"io"
	"time"
)

// Files is the file system.
//
// A path that does not exist is fs.ErrNotExist. Links are followed to read, as the kubelet's current certificate is one, and never to
// remove.
type Files interface {
	// Read returns a file's content.
	Read(ctx context.Context, path string) ([]byte, error)
	// Write replaces a file as a whole: a reader, or a power cut, sees the old content or the new one. The folder must
	// exist. The access control is in place before the content is.
	Write(ctx context.Context, path string, content []byte, acl ACL) error
	// Open reads a file from its beginning.
	Open(ctx context.Context, path string) (io.ReadCloser, error)
	// Append opens a file for writing at its end, creating it if there is none. What was written is durable after Close;
	// a power cut before may leave any part of it.
	Append(ctx context.Context, path string, acl ACL) (io.WriteCloser, error)
	// Mkdir makes a folder with its parents. A folder that exists keeps its content and gets the access control; parents
	// that are made get it too, parents that exist keep theirs.
	Mkdir(ctx context.Context, path string, acl ACL) error
	// Stat describes a file or folder.
	Stat(ctx context.Context, path string) (FileInfo, error)
	// List describes what is in a folder, sorted by name.
	List(ctx context.Context, path string) ([]FileInfo, error)
	// Rename moves a file or folder, and replaces a file that stands there.
	Rename(ctx context.Context, from, to string) error
	// Remove deletes a file, or a folder with all in it; a missing one is success. A program that runs cannot be deleted,
	// only renamed.
	Remove(ctx context.Context, path string) error
	// SetACL changes the access control of a file or folder; what a folder holds inherits it.
	SetACL(ctx context.Context, path string, acl ACL) error
	// ACL returns it; ACLInherited when it is none of ours.
	ACL(ctx context.Context, path string) (ACL, error)
}

// ACL says who may do what with a file or folder. All but ACLInherited are protected: nothing is inherited from above.
type ACL string

const (
	// ACLInherited is as the folder above says.
	ACLInherited ACL = ""
	// ACLSystem is SYSTEM and Administrators, full control.
	ACLSystem ACL = "System"
	// ACLUsersRead is as ACLSystem, and Users may read and execute.
	ACLUsersRead ACL = "UsersRead"
)

// SDDL returns the security descriptor for a file, or for a folder that hands it on to what is in it. Empty for
// ACLInherited.
func (a ACL) SDDL(folder bool) string {
	flags := ""
	if folder {
		flags = "OICI"
	}
	full := "(A;" + flags + ";FA;;;SY)(A;" + flags + ";FA;;;BA)"
	switch a {
	case ACLSystem:
		return "D:P" + full
	case ACLUsersRead:
		return "D:P" + full + "(A;" + flags + ";0x1200a9;;;BU)"
	default:
		return ""
	}
}

// FileInfo describes a file or folder.
type FileInfo struct {
	// Name is the last part of its path.
	Name     string
	Dir      bool
	Size     int64
	Modified time.Time
}
