package resident

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/go-logr/logr"

	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/runner"
	"github.com/capw-dev/cluster-api-provider-windows/agent/services"
)

// quiet is how long a file must not have been written before it may be removed for its size.
const quiet = time.Hour

// pruneLogs removes old logs that programs write into their log folders themselves. What the runner writes it rotates and
// removes itself.
func pruneLogs(ctx context.Context, r *engine.Run, desired []host.Service) {
	for _, s := range desired {
		_, o, ok := runner.Unwrap(s.Argv)
		if !ok || o.LogFile == "" {
			continue
		}
		folders := []string{layout.Dir(o.LogFile)}
		if s.Name == services.CalicoNode {
			folders = append(folders, services.CalicoLogDir)
		}
		for _, folder := range folders {
			if err := pruneFolder(ctx, r.Host.Files, folder, o); err != nil {
				logr.FromContextOrDiscard(ctx).Error(err, "Removing old logs", "folder", folder)
			}
		}
	}
}

func pruneFolder(ctx context.Context, files host.Files, folder string, o runner.Options) error {
	entries, err := files.List(ctx, folder)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	log := layout.Base(o.LogFile)
	entries = slices.DeleteFunc(entries, func(e host.FileInfo) bool {
		_, rotated := runner.RotatedAt(log, e.Name)
		return e.Dir || e.Name == log || rotated
	})
	slices.SortFunc(entries, func(a, b host.FileInfo) int {
		return cmp.Or(b.Modified.Compare(a.Modified), cmp.Compare(a.Name, b.Name))
	})
	limit := int64(o.Rotation.MaxSizeMiB) * int64(o.Rotation.MaxFiles+1) << 20
	var total int64
	var errs []error
	for _, e := range entries {
		total += e.Size
		age := time.Since(e.Modified)
		tooOld := o.Rotation.MaxAgeHours > 0 && age > time.Duration(o.Rotation.MaxAgeHours)*time.Hour
		tooMuch := limit > 0 && total > limit && age > quiet
		if tooOld || tooMuch {
			errs = append(errs, files.Remove(ctx, layout.Join(folder, e.Name)))
		}
	}
	return errors.Join(errs...)
}
