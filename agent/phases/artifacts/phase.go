// Package artifacts is the phase that sees to it that every file and program that the node needs is there and is the right
// one: found in the image, else on media, else downloaded.
package artifacts

import (
	"context"
	"time"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
)

// Phase returns the phase Artifacts.
func Phase() engine.Phase {
	return engine.Phase{Name: "Artifacts", Steps: []engine.Step{
		{Name: "get artifacts", Do: getArtifacts, When: func(r *engine.Run) bool { return len(r.Doc.Artifacts) > 0 }, Budget: engine.Retry(30*time.Minute, 2*time.Second, 0)},
		{Name: "check programs", Do: checkPrograms, Budget: engine.Retry(2*time.Minute, time.Second, 3*time.Minute)},
		{Name: "remove downloads", Do: removeDownloads, Budget: engine.Retry(time.Minute, time.Second, 2*time.Minute)},
	}}
}

// removeDownloads frees the space of downloads that were begun and are not needed any more.
func removeDownloads(ctx context.Context, r *engine.Run) error {
	if err := r.Host.Files.Remove(ctx, layout.DownloadDir); err != nil {
		return codes.New(codes.ArtifactNotPlaced, "removing %s: %w", layout.DownloadDir, err)
	}
	return nil
}
