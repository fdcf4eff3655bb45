// Package done hands the node over: phase Done. It removes what only the first boot needed, secrets above all, and tells
// Cluster API of the success.
package done

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/cloudinit/cloudbase"
)

// Phase returns phase Done. Each step leaves nothing that a later one needs, and the sentinel comes last: where it is, no
// secret of the first boot is left on the disk.
func Phase() engine.Phase {
	return engine.Phase{Name: "Done", Steps: []engine.Step{
		{Name: "remove what the first boot needed", Do: removeLeftovers, Budget: engine.Retry(5*time.Minute, 2*time.Second, 0)},
		{Name: "remove copies of the user data", Do: removeUserData, Budget: engine.Retry(time.Minute, 2*time.Second, 0)},
		{Name: "scrub the document", Do: scrubDocument, Budget: engine.Retry(time.Minute, 2*time.Second, 0)},
		{Name: "tell Cluster API", Do: writeSentinel, Budget: engine.Retry(time.Minute, 2*time.Second, 0)},
	}}
}

func removeLeftovers(ctx context.Context, r *engine.Run) error {
	for _, path := range []string{
		layout.BootstrapKubeconfig,
		layout.KubeadmJoin,
		layout.DownloadDir,
	} {
		if err := r.Host.Files.Remove(ctx, path); err != nil {
			return codes.New(codes.SecretsNotRemoved, "removing %s: %w", path, err)
		}
	}
	return nil
}

// scrubDocument takes the secrets out of the document on the disk. A step that is repeated finds none and changes nothing.
func scrubDocument(ctx context.Context, r *engine.Run) error {
	have, err := r.Host.Files.Read(ctx, layout.Document)
	if err != nil {
		return codes.New(codes.SecretsNotRemoved, "reading %s: %w", layout.Document, err)
	}
	// As its author wrote it: r.Doc has defaults, which a later agent may want to change.
	doc := &nodev1.NodeConfiguration{}
	if err := json.Unmarshal(have, doc); err != nil {
		return codes.New(codes.SecretsNotRemoved, "parsing %s: %w", layout.Document, err)
	}
	doc.Scrub()
	want, err := json.Marshal(doc)
	if err != nil {
		return codes.New(codes.SecretsNotRemoved, "encoding the document: %w", err)
	}
	if bytes.Equal(have, want) {
		return nil
	}
	if err := r.Host.Files.Write(ctx, layout.Document, want, host.ACLSystem); err != nil {
		return codes.New(codes.SecretsNotRemoved, "writing %s: %w", layout.Document, err)
	}
	return nil
}

// maxUserData is more than any platform hands over.
const maxUserData = 1 << 20

// removeUserData removes copies of the first-boot script, which holds the document. cloudbase-init runs a script from a
// temporary file and removes it when the script ends, which it does not live to see when the machine reboots before that.
// What cannot be removed in some tries is reported and left: the folders belong to others, and the token in the script is of no
// use to anybody once the node has joined.
func removeUserData(ctx context.Context, r *engine.Run) error {
	for _, folder := range []string{`C:\Windows\Temp`, `C:\Users\cloudbase-init\AppData\Local\Temp`} {
		err := wait.ExponentialBackoffWithContext(ctx, wait.Backoff{Duration: time.Second, Factor: 2, Steps: 3}, func(ctx context.Context) (bool, error) {
			err := removeCopies(ctx, r.Host.Files, folder)
			if err != nil {
				logr.FromContextOrDiscard(ctx).Error(err, "Removing copies of the user data", "folder", folder)
			}
			return err == nil, nil
		})
		if err != nil && ctx.Err() != nil {
			return codes.New(codes.SecretsNotRemoved, "removing copies of the user data from %s: %w", folder, err)
		}
	}
	return nil
}

func removeCopies(ctx context.Context, files host.Files, folder string) error {
	found, err := files.List(ctx, folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range found {
		if f.Dir || f.Size > maxUserData || !strings.EqualFold(path.Ext(f.Name), ".cmd") {
			continue
		}
		file := layout.Join(folder, f.Name)
		content, err := files.Read(ctx, file)
		if err == nil && cloudbase.IsUserData(content) {
			err = files.Remove(ctx, file)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// writeSentinel writes the file that Cluster API's bootstrap contract names.
func writeSentinel(ctx context.Context, r *engine.Run) error {
	if err := r.Trace(ctx, engine.Trace{Kind: engine.TraceFile, Name: layout.Sentinel}); err != nil {
		return codes.New(codes.SentinelNotWritten, "remembering %s for a reset: %w", layout.Sentinel, err)
	}
	folder := layout.Dir(layout.Sentinel)
	_, err := r.Host.Files.Stat(ctx, folder)
	if errors.Is(err, fs.ErrNotExist) {
		err = r.Host.Files.Mkdir(ctx, folder, host.ACLUsersRead)
	}
	if err != nil {
		return codes.New(codes.SentinelNotWritten, "making the folder %s: %w", folder, err)
	}
	if err := r.Host.Files.Write(ctx, layout.Sentinel, []byte("success"), host.ACLUsersRead); err != nil {
		return codes.New(codes.SentinelNotWritten, "writing %s: %w", layout.Sentinel, err)
	}
	return nil
}
