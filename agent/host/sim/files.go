package sim

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// files fills host.Files.
type files struct{ p *Process }

// at returns the file, not folder, at a path.
func (x files) at(path string) (*file, error) {
	f, err := x.p.m.lookup(path)
	if err == nil && f.dir {
		err = fmt.Errorf("%s: it is a folder: %w", path, fs.ErrPermission)
	}
	return f, err
}

func (x files) Read(ctx context.Context, path string) ([]byte, error) {
	return locked(ctx, x.p, "Files.Read", path, func() ([]byte, error) {
		f, err := x.at(path)
		if err != nil {
			return nil, err
		}
		return append([]byte{}, f.content...), nil
	})
}

func (x files) Write(ctx context.Context, path string, content []byte, acl host.ACL) error {
	return lockedErr(ctx, x.p, "Files.Write", path, func() error { return x.p.m.put(path, content, acl) })
}

func (x files) Open(ctx context.Context, path string) (io.ReadCloser, error) {
	return locked(ctx, x.p, "Files.Open", path, func() (io.ReadCloser, error) {
		f, err := x.at(path)
		if err != nil {
			return nil, err
		}
		return &reader{p: x.p, path: path, r: bytes.NewReader(f.content)}, nil
	})
}

func (x files) Append(ctx context.Context, path string, acl host.ACL) (io.WriteCloser, error) {
	return locked(ctx, x.p, "Files.Append", path, func() (io.WriteCloser, error) {
		f, err := x.p.m.lookup(path)
		if err != nil {
			if err := x.p.m.put(path, nil, acl); err != nil {
				return nil, err
			}
			if f, err = x.p.m.lookup(path); err != nil {
				return nil, err
			}
		}
		v, _, _, err := x.p.m.parentOf(path)
		if err != nil {
			return nil, err
		}
		if f.dir || f.running > 0 {
			return nil, fmt.Errorf("%s: it is a folder, or a program that runs: %w", path, fs.ErrPermission)
		}
		w := &appender{p: x.p, path: path, v: v, f: f}
		x.p.onDeath[w] = func() { f.durable = len(f.content) } // Windows closes what a dead process had open
		return w, nil
	})
}

func (x files) Mkdir(ctx context.Context, path string, acl host.ACL) error {
	return lockedErr(ctx, x.p, "Files.Mkdir", path, func() error { return x.p.m.mkdir(path, acl) })
}

func (x files) Stat(ctx context.Context, path string) (host.FileInfo, error) {
	return locked(ctx, x.p, "Files.Stat", path, func() (host.FileInfo, error) {
		f, err := x.p.m.lookup(path)
		if err != nil {
			return host.FileInfo{}, err
		}
		return f.info(), nil
	})
}

func (f *file) info() host.FileInfo {
	return host.FileInfo{Name: f.name, Dir: f.dir, Size: int64(len(f.content)), Modified: f.modified}
}

func (x files) List(ctx context.Context, path string) ([]host.FileInfo, error) {
	return locked(ctx, x.p, "Files.List", path, func() ([]host.FileInfo, error) {
		f, err := x.p.m.lookup(path)
		if err != nil {
			return nil, err
		}
		if !f.dir {
			return nil, fmt.Errorf("%s: it is not a folder: %w", path, host.ErrInvalid)
		}
		out := []host.FileInfo{}
		for _, child := range f.children.entries {
			out = append(out, child.value.info())
		}
		slices.SortFunc(out, func(a, b host.FileInfo) int { return strings.Compare(a.Name, b.Name) })
		return out, nil
	})
}

func (x files) Rename(ctx context.Context, from, to string) error {
	return lockedErr(ctx, x.p, "Files.Rename", from+" -> "+to, func() error { return x.p.m.rename(from, to) })
}

func (x files) Remove(ctx context.Context, path string) error {
	return lockedErr(ctx, x.p, "Files.Remove", path, func() error { return x.p.m.remove(path) })
}

func (x files) SetACL(ctx context.Context, path string, acl host.ACL) error {
	return lockedErr(ctx, x.p, "Files.SetACL", path, func() error {
		f, err := x.p.m.lookup(path)
		if err != nil {
			return err
		}
		f.acl = acl
		return nil
	})
}

func (x files) ACL(ctx context.Context, path string) (host.ACL, error) {
	return locked(ctx, x.p, "Files.ACL", path, func() (host.ACL, error) {
		f, err := x.p.m.lookup(path)
		if err != nil {
			return "", err
		}
		return f.acl, nil
	})
}

// reader reads what the file was when it was opened. As on Windows, its reads and an appender's writes know no context: one
// that hangs, hangs until the process ends.
type reader struct {
	p    *Process
	path string
	r    *bytes.Reader
}

func (r *reader) Read(b []byte) (int, error) {
	return locked(context.Background(), r.p, "File.Read", r.path, func() (int, error) { return r.r.Read(b) })
}

func (r *reader) Close() error { return nil }

// appender writes at the end of a file.
type appender struct {
	p      *Process
	path   string
	v      *volume
	f      *file
	closed bool
}

func (w *appender) Write(b []byte) (int, error) {
	return locked(context.Background(), w.p, "File.Write", w.path, func() (int, error) {
		if w.closed {
			return 0, fmt.Errorf("%s: %w", w.path, fs.ErrClosed)
		}
		if w.v.used+uint64(len(b)) > w.v.TotalBytes {
			return 0, fmt.Errorf("%s: %w", w.path, ErrDiskFull)
		}
		w.f.content = append(w.f.content[:len(w.f.content):len(w.f.content)], b...)
		w.f.modified = time.Now()
		w.v.used += uint64(len(b))
		return len(b), nil
	})
}

func (w *appender) Close() error {
	return lockedErr(context.Background(), w.p, "File.Close", w.path, func() error {
		if w.closed {
			return fmt.Errorf("%s: %w", w.path, fs.ErrClosed)
		}
		w.closed = true
		w.f.durable = len(w.f.content)
		delete(w.p.onDeath, w)
		return nil
	})
}
