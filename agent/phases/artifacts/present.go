package artifacts

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"strings"

	"github.com/capw-dev/cluster-api-provider-windows/agent/artifact"
	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// present returns nil if an artifact is there and right, else why not: the error if it cannot be had from elsewhere.
//
// A file is right if its checksum is the document's, or without one if it is a program of the version wanted, or else if it
// exists. The content of an archive is right if the agent has unpacked that archive and its files are still there; an image
// that brings the content brings no such mark, so there the version decides, or if the archive cannot be had from elsewhere
// that there is something.
func (g *getter) present(ctx context.Context, a nodev1.Artifact) error {
	info, err := g.Host.Files.Stat(ctx, a.Destination)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return codes.New(codes.ArtifactMissing, "artifact %q: %s is not there", a.Name, a.Destination)
	case err != nil:
		return codes.New(codes.ArtifactNotPlaced, "artifact %q: looking for %s: %w", a.Name, a.Destination, err)
	case info.Dir && a.Archive == "None":
		return codes.New(codes.ArtifactInvalid, "artifact %q: destination %s is a folder", a.Name, a.Destination)
	case !info.Dir && a.Archive != "None":
		return codes.New(codes.ArtifactInvalid, "artifact %q: destination %s of an archive is a file", a.Name, a.Destination)
	case a.Archive == "None" && a.SHA256 != "":
		return g.rightSum(ctx, a)
	case a.Archive == "None":
		return g.rightVersion(ctx, a, a.Destination)
	}

	marked := g.rightMark(ctx, a)
	temporary := temporaryPath(a)
	if marked == nil {
		if err := g.Host.Files.Remove(ctx, temporary); err != nil {
			return codes.New(codes.ArtifactNotPlaced, "removing %s: %w", temporary, err)
		}
		return nil
	}
	switch _, err := g.Host.Files.Stat(ctx, temporary); {
	case err == nil: // whatever the version of the program, other files may be missing
		return codes.New(codes.ArtifactMissing, "artifact %q: unpacking into %s was interrupted", a.Name, a.Destination)
	case !errors.Is(err, fs.ErrNotExist):
		return codes.New(codes.ArtifactNotPlaced, "artifact %q: looking for %s: %w", a.Name, temporary, err)
	}
	if program := programOf(g.Doc, a.Name); a.Version != "" && program != "" && below(program, a.Destination) {
		return g.rightVersion(ctx, a, program)
	}
	if a.URL != "" || a.Media != "" {
		return marked
	}
	content, err := g.Host.Files.List(ctx, a.Destination)
	if err != nil {
		return codes.New(codes.ArtifactNotPlaced, "artifact %q: reading %s: %w", a.Name, a.Destination, err)
	}
	if len(content) == 0 {
		return codes.New(codes.ArtifactMissing, "artifact %q: %s is empty", a.Name, a.Destination)
	}
	return nil
}

func (g *getter) rightSum(ctx context.Context, a nodev1.Artifact) error {
	sum, err := g.sum(ctx, a.Destination)
	if err != nil {
		return codes.New(codes.ArtifactNotPlaced, "artifact %q: %w", a.Name, err)
	}
	if sum != a.SHA256 {
		return codes.New(codes.ArtifactChecksum, "artifact %q: %s has the SHA-256 sum %s, and the document says %s", a.Name, a.Destination, sum, a.SHA256)
	}
	return nil
}

// rightVersion judges a program that is known to tell its version.
func (g *getter) rightVersion(ctx context.Context, a nodev1.Artifact, path string) error {
	if _, tells := artifact.VersionArgs(a.Name); !tells || a.Version == "" {
		return nil
	}
	have, err := versionOf(ctx, g.Host, a.Name, path)
	if err != nil {
		return err
	}
	return sameVersion(a.Name, path, have, a.Version)
}

// mark is written when an archive has been unpacked as a whole.
type mark struct {
	// SHA256 of the archive.
	SHA256 string `json:"sha256"`
	// Files and their sizes, relative to the destination.
	Files map[string]int64 `json:"files"`
}

func markPath(a nodev1.Artifact) string {
	return layout.Join(a.Destination, ".capw-"+fileName(a.Name)+".json")
}

// temporaryPath is the folder that an archive is unpacked into. While it is there, the unpacking is not done.
func temporaryPath(a nodev1.Artifact) string {
	return layout.Join(a.Destination, ".capw-"+fileName(a.Name)+".tmp")
}

// rightMark says whether the agent has unpacked the archive here, and nothing has been taken away since.
func (g *getter) rightMark(ctx context.Context, a nodev1.Artifact) error {
	raw, err := g.Host.Files.Read(ctx, markPath(a))
	if errors.Is(err, fs.ErrNotExist) {
		return codes.New(codes.ArtifactMissing, "artifact %q has not been unpacked into %s", a.Name, a.Destination)
	}
	if err != nil {
		return codes.New(codes.ArtifactNotPlaced, "artifact %q: reading %s: %w", a.Name, markPath(a), err)
	}
	var m mark
	if err := json.Unmarshal(raw, &m); err != nil {
		return codes.New(codes.ArtifactMissing, "artifact %q: reading %s: %w", a.Name, markPath(a), err)
	}
	if a.SHA256 != "" && m.SHA256 != a.SHA256 {
		return codes.New(codes.ArtifactChecksum, "artifact %q: %s holds the archive with the SHA-256 sum %s, and the document says %s", a.Name, a.Destination, m.SHA256, a.SHA256)
	}
	for name, size := range m.Files {
		path := layout.Join(a.Destination, name)
		info, err := g.Host.Files.Stat(ctx, path)
		switch {
		case errors.Is(err, fs.ErrNotExist), err == nil && (info.Dir || info.Size != size):
			return codes.New(codes.ArtifactMissing, "artifact %q: %s is not there any more, or has been changed", a.Name, path)
		case err != nil:
			return codes.New(codes.ArtifactNotPlaced, "artifact %q: looking for %s: %w", a.Name, path, err)
		}
	}
	return nil
}

// below says whether path is in folder.
func below(path, folder string) bool {
	folder = strings.TrimSuffix(folder, `\`) + `\`
	return len(path) > len(folder) && strings.EqualFold(path[:len(folder)], folder)
}

func sameVersion(name, path, have, want string) error {
	same, err := artifact.SameVersion(have, want)
	if err != nil {
		return codes.New(codes.ArtifactInvalid, "%s: %w", name, err)
	}
	if !same {
		return codes.New(codes.ArtifactVersionMismatch, "%s at %s is %s, and the document wants %s", name, path, have, want)
	}
	return nil
}
