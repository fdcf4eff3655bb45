package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"

	"github.com/capw-dev/cluster-api-provider-windows/agent/artifact"
	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

const (
	// parallel downloads: more gain nothing on the link of one node, and its antivirus reads each file anyhow.
	parallel = 3
	// stall is the time without a byte after which a download begins a new connection.
	stall = 30 * time.Second
	// maxFile bounds one file, maxUnpacked and maxEntries what comes out of one archive.
	maxFile     = 4 << 30
	maxUnpacked = 8 << 30
	maxEntries  = 100_000
)

// getter gets artifacts, several at a time.
type getter struct {
	*engine.Run
	client func() (*http.Client, error)
	// volumes that are attached, or why nobody knows.
	volumes    []host.Volume
	volumesErr error
	journal    chan struct{} // holds one who works with the traces
}

// getArtifacts gets every artifact that is not there, or not right. One that fails does not stop the others; all that have
// succeeded are found in place by the next attempt.
func getArtifacts(ctx context.Context, r *engine.Run) error {
	for _, a := range r.Doc.Artifacts {
		if err := check(a); err != nil {
			return codes.New(codes.ArtifactInvalid, "artifact %q: %w", a.Name, err)
		}
	}
	g := &getter{
		Run: r,
		client: sync.OnceValues(func() (*http.Client, error) {
			return artifact.NewClient(r.Host.Network, r.Doc.OS.Proxy, r.Doc.OS.TrustedCAs)
		}),
		journal: make(chan struct{}, 1),
	}
	if slices.ContainsFunc(r.Doc.Artifacts, func(a nodev1.Artifact) bool { return a.Media != "" }) {
		g.volumes, g.volumesErr = r.Host.Volumes.List(ctx)
	}
	failures := make([]error, len(r.Doc.Artifacts))
	var group errgroup.Group
	group.SetLimit(parallel)
	for i, a := range r.Doc.Artifacts {
		group.Go(func() error {
			ctx := logr.NewContext(ctx, logr.FromContextOrDiscard(ctx).WithValues("artifact", a.Name))
			failures[i] = g.get(ctx, i, a)
			return nil
		})
	}
	_ = group.Wait() // of functions that return no errors
	if client, err := g.client(); err == nil {
		client.CloseIdleConnections()
	}
	if err := worst(ctx, failures); err != nil {
		return err
	}
	for _, a := range r.Doc.Artifacts {
		remember(&r.Facts.Paths, a.Name, a.Destination)
	}
	return nil
}

// worst returns the failure that decides: the first terminal one, else the first. All are logged.
func worst(ctx context.Context, failures []error) error {
	failures = slices.DeleteFunc(failures, func(err error) bool { return err == nil })
	if len(failures) == 0 {
		return nil
	}
	for _, err := range failures {
		logr.FromContextOrDiscard(ctx).Info("Not there or not right", "error", err.Error())
	}
	terminal := slices.IndexFunc(failures, func(err error) bool {
		info, _ := codes.Of(err)
		return info.Class == codes.Terminal
	})
	return failures[max(terminal, 0)]
}

// check refuses what no attempt can change.
func check(a nodev1.Artifact) error {
	if !absolute(a.Destination) {
		return fmt.Errorf("destination: %q is no absolute path with a drive", a.Destination)
	}
	if a.Media != "" && (absolute(a.Media) || strings.HasPrefix(a.Media, `\`) || strings.Contains(a.Media, "..") || strings.Contains(a.Media, ":")) {
		return fmt.Errorf("media: %q is no path below the root of a volume", a.Media)
	}
	switch a.Archive {
	case "None", string(artifact.Zip), string(artifact.TarGz):
	default:
		return fmt.Errorf("archive: %q is none of None, Zip and TarGz", a.Archive)
	}
	if a.URL == "" {
		return nil
	}
	u, err := url.Parse(a.URL)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return fmt.Errorf("url: %s is not http:// or https:// with a host", artifact.Redact(a.URL))
	}
	if len(a.SHA256) != 64 || strings.Trim(a.SHA256, "0123456789abcdef") != "" {
		return errors.New("sha256: 64 lower-case hexadecimal digits are required with url")
	}
	return nil
}

func absolute(path string) bool { return len(path) > 3 && path[1] == ':' && path[2] == '\\' }

// get sees to one artifact.
func (g *getter) get(ctx context.Context, index int, a nodev1.Artifact) error {
	log := logr.FromContextOrDiscard(ctx)
	missing := g.present(ctx, a)
	if missing == nil {
		log.Info("Artifact is there", "path", a.Destination)
		return nil
	}
	switch info, _ := codes.Of(missing); info.Code {
	case codes.ArtifactMissing, codes.ArtifactChecksum, codes.ArtifactVersionMismatch, codes.ProgramUnusable:
	default: // nobody knows whether it is there
		return missing
	}
	log.Info("Artifact is needed", "reason", missing.Error())
	if err := g.ensureFolder(ctx, layout.DownloadDir, host.ACLSystem); err != nil {
		return err
	}
	staged := g.stage(index, a)
	found, err := g.fromMedia(ctx, a, staged)
	if err != nil {
		if a.URL == "" {
			return err
		}
		log.Info("Media cannot be used", "error", err.Error())
	}
	if !found {
		if a.URL == "" {
			return missing
		}
		if err := g.download(ctx, a, staged); err != nil {
			return err
		}
	}
	if err := g.place(ctx, a, staged); err != nil {
		return err
	}
	log.Info("Artifact is in place", "path", a.Destination)
	return nil
}

// stage returns where an artifact is put together: on the volume of a plain file, which is only renamed then.
func (g *getter) stage(index int, a nodev1.Artifact) string {
	name := fmt.Sprintf("%d-%s", index, fileName(a.Name))
	if a.Archive == "None" && !strings.EqualFold(a.Destination[:2], layout.DownloadDir[:2]) {
		return layout.Join(layout.Dir(a.Destination), ".capw-"+name)
	}
	return layout.Join(layout.DownloadDir, name)
}

// fileName returns a name for a file from one for people.
func fileName(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", r) {
			return r
		}
		return '_'
	}, name)
}

func (g *getter) download(ctx context.Context, a nodev1.Artifact, staged string) error {
	client, err := g.client()
	if err != nil {
		return codes.New(codes.ArtifactUnreachable, "preparing downloads: %w", err)
	}
	if err := g.ensureFolder(ctx, layout.Dir(staged), host.ACLUsersRead); err != nil {
		return err
	}
	d := &artifact.Downloader{Client: client, Files: g.Host.Files, MaxBytes: maxFile, Stall: stall}
	if err := d.Get(ctx, a.URL, staged, a.SHA256); err != nil {
		return named(a, err)
	}
	return nil
}

// named puts the artifact's name into an error with a code.
func named(a nodev1.Artifact, err error) error {
	if coded := (*codes.Error)(nil); errors.As(err, &coded) {
		return codes.New(coded.Code, "artifact %q: %w", a.Name, coded.Err)
	}
	return fmt.Errorf("artifact %q: %w", a.Name, err)
}

// fromMedia copies an artifact from the first attached medium that has the right one.
func (g *getter) fromMedia(ctx context.Context, a nodev1.Artifact, staged string) (found bool, err error) {
	if a.Media == "" {
		return false, nil
	}
	if g.volumesErr != nil {
		return false, codes.New(codes.ArtifactNotPlaced, "looking for media with %s: %w", a.Media, g.volumesErr)
	}
	var wrong error
	for _, v := range g.volumes {
		if v.Kind != host.VolumeCDROM && v.Kind != host.VolumeRemovable {
			continue
		}
		path := layout.Join(v.Root, a.Media)
		_, err := g.Host.Files.Stat(ctx, path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = g.copy(ctx, path, staged+".media", a.SHA256)
		}
		if err == nil {
			err = g.rename(ctx, staged+".media", staged)
		}
		if err == nil {
			logr.FromContextOrDiscard(ctx).Info("Copied from media", "path", path)
			return true, nil
		}
		wrong = errors.Join(wrong, named(a, err))
	}
	return false, wrong
}
