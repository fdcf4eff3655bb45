package artifacts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/capw-dev/cluster-api-provider-windows/agent/artifact"
	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// place puts a staged file, or what is in a staged archive, where the document says.
func (g *getter) place(ctx context.Context, a nodev1.Artifact, staged string) error {
	if a.Archive != "None" {
		return g.unpack(ctx, a, staged)
	}
	if err := g.ensureFolder(ctx, layout.Dir(a.Destination), host.ACLUsersRead); err != nil {
		return err
	}
	if err := g.traceNew(ctx, a.Destination, a.Destination); err != nil {
		return err
	}
	if err := g.Host.Files.SetACL(ctx, staged, host.ACLUsersRead); err != nil {
		return codes.New(codes.ArtifactNotPlaced, "setting the access control of %s: %w", staged, err)
	}
	return g.rename(ctx, staged, a.Destination)
}

// unpack unpacks an archive beside its files' places and then renames each file into its place: no program is ever half
// written. Other things in the destination stay. The mark is written last.
func (g *getter) unpack(ctx context.Context, a nodev1.Artifact, staged string) error {
	if err := g.traceNew(ctx, a.Destination, a.Destination); err != nil {
		return err
	}
	if err := g.ensureFolder(ctx, a.Destination, host.ACLUsersRead); err != nil {
		return err
	}
	sum, err := g.sum(ctx, staged)
	if err != nil {
		return codes.New(codes.ArtifactNotPlaced, "artifact %q: %w", a.Name, err)
	}
	temporary := temporaryPath(a)
	if err := g.emptyFolder(ctx, temporary); err != nil {
		return err
	}
	content, err := g.extract(ctx, a, staged, temporary)
	if err != nil {
		return err
	}
	for _, folder := range content.folders {
		if err := g.traceNew(ctx, a.Destination, layout.Join(a.Destination, folder)); err != nil {
			return err
		}
		if err := g.ensureFolder(ctx, layout.Join(a.Destination, folder), host.ACLUsersRead); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(content.sizes)) {
		to := layout.Join(a.Destination, name)
		if err := g.traceNew(ctx, a.Destination, to); err != nil {
			return err
		}
		if err := g.rename(ctx, layout.Join(temporary, name), to); err != nil {
			return err
		}
	}
	raw, err := json.Marshal(mark{SHA256: sum, Files: content.sizes})
	if err != nil {
		return fmt.Errorf("encoding the mark of artifact %q: %w", a.Name, err)
	}
	if err := g.traceNew(ctx, a.Destination, markPath(a)); err != nil {
		return err
	}
	if err := g.Host.Files.Write(ctx, markPath(a), raw, host.ACLUsersRead); err != nil {
		return codes.New(codes.ArtifactNotPlaced, "writing %s: %w", markPath(a), err)
	}
	for _, path := range []string{temporary, staged} {
		if err := g.Host.Files.Remove(ctx, path); err != nil {
			return codes.New(codes.ArtifactNotPlaced, "removing %s: %w", path, err)
		}
	}
	return nil
}

// emptyFolder makes a folder, and empties one that is there: it is not missing at any moment.
func (g *getter) emptyFolder(ctx context.Context, path string) error {
	if err := g.Host.Files.Mkdir(ctx, path, host.ACLUsersRead); err != nil {
		return codes.New(codes.ArtifactNotPlaced, "making the folder %s: %w", path, err)
	}
	content, err := g.Host.Files.List(ctx, path)
	if err != nil {
		return codes.New(codes.ArtifactNotPlaced, "reading the folder %s: %w", path, err)
	}
	for _, f := range content {
		if err := g.Host.Files.Remove(ctx, layout.Join(path, f.Name)); err != nil {
			return codes.New(codes.ArtifactNotPlaced, "removing %s: %w", layout.Join(path, f.Name), err)
		}
	}
	return nil
}

func (g *getter) extract(ctx context.Context, a nodev1.Artifact, staged, into string) (*folderSink, error) {
	info, err := g.Host.Files.Stat(ctx, staged)
	if err != nil {
		return nil, codes.New(codes.ArtifactNotPlaced, "looking for %s: %w", staged, err)
	}
	sink := &folderSink{ctx: ctx, files: g.Host.Files, root: into, sizes: map[string]int64{}}
	err = artifact.Extract(ctx, artifact.Archive{
		Kind: artifact.Kind(a.Archive), Size: info.Size, Strip: int(a.StripComponents), MaxBytes: maxUnpacked, MaxEntries: maxEntries,
		Open: func() (io.ReadCloser, error) { return g.Host.Files.Open(ctx, staged) },
	}, sink)
	switch {
	case err == nil:
		return sink, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("artifact %q: %w", a.Name, err)
	case errors.Is(err, artifact.ErrTooLarge):
		return nil, codes.New(codes.ArtifactTooLarge, "artifact %q: %w", a.Name, err)
	case errors.Is(err, artifact.ErrUnsafe):
		return nil, codes.New(codes.ArtifactUnsafe, "artifact %q: %w", a.Name, err)
	default:
		return nil, codes.New(codes.ArtifactNotPlaced, "artifact %q: %w", a.Name, err)
	}
}
