package artifacts

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
)

// bufferSize of copies: each write is a call into Windows.
const bufferSize = 1 << 20

// sum returns the SHA-256 sum of a file.
func (g *getter) sum(ctx context.Context, path string) (string, error) {
	file, err := g.Host.Files.Open(ctx, path)
	if err != nil {
		return "", fmt.Errorf("opening %s: %w", path, err)
	}
	defer func() { _ = file.Close() }()
	hash := sha256.New()
	if _, err := io.CopyBuffer(hash, file, make([]byte, bufferSize)); err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// copy copies a file, and refuses one that has not the SHA-256 sum, if one is given.
func (g *getter) copy(ctx context.Context, from, to, sum string) error {
	if err := g.ensureFolder(ctx, layout.Dir(to), host.ACLUsersRead); err != nil {
		return err
	}
	file, err := g.Host.Files.Open(ctx, from)
	if err != nil {
		return codes.New(codes.ArtifactNotPlaced, "opening %s: %w", from, err)
	}
	defer func() { _ = file.Close() }()
	hash := sha256.New()
	if err := create(ctx, g.Host.Files, to, host.ACLSystem, io.TeeReader(file, hash)); err != nil {
		return codes.New(codes.ArtifactNotPlaced, "copying %s: %w", from, err)
	}
	if got := hex.EncodeToString(hash.Sum(nil)); sum != "" && got != sum {
		return codes.New(codes.ArtifactChecksum, "%s has the SHA-256 sum %s, and the document says %s", from, got, sum)
	}
	return nil
}

// create writes a new file; one that is there is replaced.
func create(ctx context.Context, files host.Files, path string, acl host.ACL, content io.Reader) error {
	if err := files.Remove(ctx, path); err != nil {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	out, err := files.Append(ctx, path, acl)
	if err != nil {
		return fmt.Errorf("creating %s: %w", path, err)
	}
	buffered := bufio.NewWriterSize(out, bufferSize)
	_, err = buffered.ReadFrom(content)
	if err == nil {
		err = buffered.Flush()
	}
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// rename moves a file to its place. A program that runs there cannot be replaced, but it can be renamed: it goes on running
// from its new name, which is removed when it has ended and something is put here again.
func (g *getter) rename(ctx context.Context, from, to string) error {
	files := g.Host.Files
	err := files.Rename(ctx, from, to)
	if err == nil {
		return nil
	}
	failure := codes.New(codes.ArtifactNotPlaced, "moving %s to %s: %w", from, to, err)
	if _, err := files.Stat(ctx, to); err != nil {
		return failure
	}
	for i := range 10 {
		aside := fmt.Sprintf("%s.old-capw-%d", to, i)
		if files.Remove(ctx, aside) != nil { // it runs, too
			continue
		}
		if files.Rename(ctx, to, aside) != nil {
			return failure
		}
		if err := files.Rename(ctx, from, to); err != nil {
			return errors.Join(codes.New(codes.ArtifactNotPlaced, "moving %s to %s: %w", from, to, err), files.Rename(ctx, aside, to))
		}
		_ = files.Remove(ctx, aside) // works unless it runs
		return nil
	}
	return failure
}

// ensureFolder makes a folder that is missing. One that is there keeps its access control.
func (g *getter) ensureFolder(ctx context.Context, path string, acl host.ACL) error {
	_, err := g.Host.Files.Stat(ctx, path)
	if errors.Is(err, fs.ErrNotExist) {
		err = g.Host.Files.Mkdir(ctx, path, acl)
	}
	if err != nil {
		return codes.New(codes.ArtifactNotPlaced, "making the folder %s: %w", path, err)
	}
	return nil
}

// traceNew lets reset remove what is made at path: the outermost folder below root that is not there yet, or the file.
// Nothing is remembered twice, and nothing below what is remembered.
func (g *getter) traceNew(ctx context.Context, root, path string) error {
	select { // the journal is written by one at a time; a mutex would not end with the context when that hangs
	case g.journal <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("remembering that %s is new: %w", path, context.Cause(ctx))
	}
	defer func() { <-g.journal }()
	at := root
	for _, part := range append([]string{""}, strings.Split(strings.TrimPrefix(path[len(root):], `\`), `\`)...) {
		at = layout.Join(at, part)
		if slices.ContainsFunc(g.Facts.Traces, func(t engine.Trace) bool { return t.Kind == engine.TraceFile && t.Name == at }) {
			return nil
		}
		_, err := g.Host.Files.Stat(ctx, at)
		switch {
		case err == nil:
			continue
		case !errors.Is(err, fs.ErrNotExist):
			return codes.New(codes.ArtifactNotPlaced, "looking for %s: %w", at, err)
		}
		if err := g.Trace(ctx, engine.Trace{Kind: engine.TraceFile, Name: at}); err != nil {
			return fmt.Errorf("remembering that %s is new: %w", at, err)
		}
		return nil
	}
	return nil
}

// folderSink writes what comes out of an archive below a folder.
type folderSink struct {
	ctx     context.Context //nolint:containedctx // of one archive
	files   host.Files
	root    string
	folders []string
	sizes   map[string]int64
}

// Folder implements artifact.Sink.
func (s *folderSink) Folder(path string) error {
	s.folders = append(s.folders, path)
	return s.files.Mkdir(s.ctx, layout.Join(s.root, path), host.ACLUsersRead)
}

// File implements artifact.Sink.
func (s *folderSink) File(path string, content io.Reader) error {
	counted := &counter{r: content}
	err := create(s.ctx, s.files, layout.Join(s.root, path), host.ACLUsersRead, counted)
	s.sizes[path] = counted.n
	return err
}

type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}
