package artifact

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// Errors of Extract that its callers tell apart.
var (
	// ErrUnsafe: the archive holds an entry that is refused, or is damaged.
	ErrUnsafe = errors.New("unsafe archive")
	// ErrTooLarge: more bytes or entries than allowed.
	ErrTooLarge = errors.New("too large")
)

// Kind of an archive.
type Kind string

// Kinds of archives.
const (
	Zip   Kind = "Zip"
	TarGz Kind = "TarGz"
)

// Archive is a file that is unpacked.
type Archive struct {
	Kind Kind
	// Open reads it from its beginning; Size is its length in bytes.
	Open func() (io.ReadCloser, error)
	Size int64
	// Strip removes that many leading folders of each name; an entry that has no more is left out.
	Strip int
	// MaxBytes and MaxEntries bound what comes out of it.
	MaxBytes   int64
	MaxEntries int
}

// Sink takes what an archive holds. Paths are relative, with backslashes, and plain to Windows; folders come before what is
// in them, each once.
type Sink interface {
	Folder(path string) error
	// File reads content to its end; an error of content is to be returned.
	File(path string, content io.Reader) error
}

// Extract unpacks an archive. An archive is not trusted: links, devices, names that leave the destination or mean something
// else to Windows, names twice in any case, and more than MaxBytes or MaxEntries are errors (ErrUnsafe, ErrTooLarge). What
// the sink has got until then is the caller's to throw away.
func Extract(ctx context.Context, a Archive, sink Sink) error {
	x := &extraction{Archive: a, sink: sink, seen: map[string]bool{}, left: a.MaxBytes}
	var err error
	switch a.Kind {
	case Zip:
		err = x.zip(ctx)
	case TarGz:
		err = x.tarGz(ctx)
	default:
		return fmt.Errorf("unpacking: %q is no kind of archive", a.Kind)
	}
	if x.readErr != nil { // the disk's, not the archive's
		return fmt.Errorf("reading the archive: %w", x.readErr)
	}
	return err
}

type extraction struct {
	Archive
	sink    Sink
	seen    map[string]bool // folded path -> it is a folder
	entries int
	left    int64
	readErr error
}

// source is the archive's file. It remembers errors, which packages zip and gzip report like those of a damaged archive.
type source struct {
	io.ReadCloser
	x *extraction
}

func (x *extraction) open() (*source, error) {
	file, err := x.Open()
	if err != nil {
		x.readErr = err
		return nil, err
	}
	return &source{file, x}, nil
}

// Read implements io.Reader.
func (s *source) Read(b []byte) (int, error) {
	n, err := s.ReadCloser.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		s.x.readErr = err
	}
	return n, err
}

func (x *extraction) zip(ctx context.Context) error {
	file := &readerAt{open: x.open}
	defer file.close()
	archive, err := zip.NewReader(file, x.Size)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnsafe, err)
	}
	for _, entry := range archive.File {
		mode := entry.Mode()
		folder := strings.HasSuffix(entry.Name, "/")
		if kind := mode.Type(); kind != 0 && (kind != fs.ModeDir || !folder) {
			return fmt.Errorf("%w: entry %q is neither file nor folder (%s)", ErrUnsafe, entry.Name, mode)
		}
		err := x.entry(ctx, entry.Name, folder, func() (io.ReadCloser, error) { return entry.Open() })
		if err != nil {
			return err
		}
	}
	return nil
}

func (x *extraction) tarGz(ctx context.Context) error {
	file, err := x.open()
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	uncompressed, err := gzip.NewReader(bufio.NewReaderSize(file, bufferSize))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnsafe, err)
	}
	archive := tar.NewReader(uncompressed)
	for {
		head, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return x.drain(uncompressed)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrUnsafe, err)
		}
		switch head.Typeflag {
		case tar.TypeReg, tar.TypeDir:
		case tar.TypeXGlobalHeader:
			continue
		default:
			return fmt.Errorf("%w: entry %q is neither file nor folder (type %q)", ErrUnsafe, head.Name, head.Typeflag)
		}
		err = x.entry(ctx, head.Name, head.Typeflag == tar.TypeDir, func() (io.ReadCloser, error) { return io.NopCloser(archive), nil })
		if err != nil {
			return err
		}
	}
}

// drain reads what stands behind the end of a tar archive, as gzip's checksum comes last.
func (x *extraction) drain(uncompressed io.Reader) error {
	n, err := io.Copy(io.Discard, io.LimitReader(uncompressed, x.left+1))
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnsafe, err)
	case n > x.left:
		return fmt.Errorf("%w: more than %d bytes come out of it", ErrTooLarge, x.MaxBytes)
	}
	return nil
}

// entry hands one entry to the sink.
func (x *extraction) entry(ctx context.Context, name string, folder bool, open func() (io.ReadCloser, error)) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("unpacking %q: %w", name, context.Cause(ctx))
	}
	if x.entries++; x.entries > x.MaxEntries {
		return fmt.Errorf("%w: more than %d entries", ErrTooLarge, x.MaxEntries)
	}
	path, err := entryPath(name, x.Strip)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnsafe, err)
	}
	if path == "" {
		return nil
	}
	if folder {
		return x.folder(path)
	}
	if i := strings.LastIndexByte(path, '\\'); i >= 0 {
		if err := x.folder(path[:i]); err != nil {
			return err
		}
	}
	if _, twice := x.seen[folded(path)]; twice {
		return fmt.Errorf("%w: entry %q is there twice to Windows, which does not tell case", ErrUnsafe, name)
	}
	x.seen[folded(path)] = false
	content, err := open()
	if err != nil {
		return fmt.Errorf("%w: entry %q: %w", ErrUnsafe, name, err)
	}
	defer func() { _ = content.Close() }()
	source := &entryReader{x: x, name: name, r: content}
	if err := x.sink.File(path, source); err != nil {
		if source.err != nil { // not the sink's
			return source.err
		}
		return fmt.Errorf("unpacking %q: %w", name, err)
	}
	return nil
}

// folder makes a folder with its parents, each once.
func (x *extraction) folder(path string) error {
	isFolder, there := x.seen[folded(path)]
	switch {
	case there && isFolder:
		return nil
	case there:
		return fmt.Errorf("%w: %q is a file and a folder to Windows, which does not tell case", ErrUnsafe, path)
	}
	if i := strings.LastIndexByte(path, '\\'); i >= 0 {
		if err := x.folder(path[:i]); err != nil {
			return err
		}
	}
	x.seen[folded(path)] = true
	if err := x.sink.Folder(path); err != nil {
		return fmt.Errorf("unpacking %q: %w", path, err)
	}
	return nil
}

// entryReader counts what comes out, whatever the archive said it would be, and remembers errors of the archive.
type entryReader struct {
	x    *extraction
	name string
	r    io.Reader
	err  error
}

func (e *entryReader) Read(b []byte) (int, error) {
	n, err := e.r.Read(b)
	e.x.left -= int64(n)
	switch {
	case e.x.left < 0:
		e.err = fmt.Errorf("%w: more than %d bytes come out of it", ErrTooLarge, e.x.MaxBytes)
		return 0, e.err
	case err != nil && !errors.Is(err, io.EOF):
		e.err = fmt.Errorf("%w: entry %q: %w", ErrUnsafe, e.name, err)
		return n, e.err
	}
	return n, err //nolint:wrapcheck // io.EOF as it is
}

// readerAt reads at any place of a file that can only be read forward, if need be from its beginning again. A zip file is
// read almost in order: first the directory at its end, then the entries one after the other.
type readerAt struct {
	open func() (*source, error)
	file *source
	at   int64
}

// ReadAt implements io.ReaderAt for one goroutine.
func (r *readerAt) ReadAt(b []byte, offset int64) (int, error) {
	if r.file == nil || offset < r.at {
		r.close()
		file, err := r.open()
		if err != nil {
			return 0, err
		}
		r.file, r.at = file, 0
	}
	if offset > r.at {
		if err := r.skip(offset); err != nil {
			return 0, err
		}
	}
	n, err := io.ReadFull(r.file, b)
	r.at += int64(n)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, err
}

func (r *readerAt) skip(to int64) error {
	if seeker, ok := r.file.ReadCloser.(io.Seeker); ok {
		at, err := seeker.Seek(to, io.SeekStart)
		r.at = at
		return err
	}
	n, err := io.CopyN(io.Discard, r.file, to-r.at)
	r.at += n
	return err
}

func (r *readerAt) close() {
	if r.file != nil {
		_ = r.file.Close()
		r.file = nil
	}
}
