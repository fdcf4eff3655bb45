// Package configure is the phase that writes what the document says before anything of Kubernetes runs: containerd's
// configuration, files, and the commands that come before the join.
package configure

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// Phase returns the phase Configure.
func Phase() engine.Phase {
	return engine.Phase{Name: "Configure", Steps: []engine.Step{
		{Name: "write files", Do: writeFiles, Budget: engine.Retry(2*time.Minute, time.Second, 5*time.Minute)},
		{Name: "configure registries", Do: configureRegistries, When: managed, Budget: engine.Retry(time.Minute, time.Second, 5*time.Minute)},
		{Name: "configure containerd", Do: configureContainerd, When: managed, Budget: engine.Retry(2*time.Minute, time.Second, 5*time.Minute)},
		// Each command has its own time; all together have that of the first boot.
		{Name: "run commands", Do: runPreJoinCommands, Budget: engine.Retry(24*time.Hour, time.Second, 0)},
	}}
}

func managed(r *engine.Run) bool { return r.Doc.ContainerRuntime.Management == nodev1.Managed }

func runPreJoinCommands(ctx context.Context, r *engine.Run) error {
	return RunCommands(ctx, r, r.Doc.PreJoinCommands, "preJoin")
}

// writeFiles writes the document's files, each with its access control before its content.
func writeFiles(ctx context.Context, r *engine.Run) error {
	for _, f := range r.Doc.Files {
		acl := host.ACLSystem
		if f.ACL == nodev1.ACLUsersRead {
			acl = host.ACLUsersRead
		}
		if err := write(ctx, r, f.Path, f.Content, acl, acl); err != nil {
			return err
		}
	}
	return nil
}

// write writes a file with folders that are missing; one that was not there before is left to reset. Folders that are there
// keep their access control: they may be Windows' own.
func write(ctx context.Context, r *engine.Run, path string, content []byte, acl, folderACL host.ACL) error {
	if err := ensureFolder(ctx, r, layout.Dir(path), folderACL); err != nil {
		return err
	}
	if err := traceNew(ctx, r, path); err != nil {
		return err
	}
	if err := r.Host.Files.Write(ctx, path, content, acl); err != nil {
		return codes.New(codes.FileNotWritten, "writing %s: %w", path, err)
	}
	return nil
}

// ensureFolder makes a folder that is missing.
func ensureFolder(ctx context.Context, r *engine.Run, path string, acl host.ACL) error {
	info, err := r.Host.Files.Stat(ctx, path)
	if err == nil && !info.Dir {
		return codes.New(codes.FileNotWritten, "%s is a file, not a folder", path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = r.Host.Files.Mkdir(ctx, path, acl)
	}
	if err != nil {
		return codes.New(codes.FileNotWritten, "making the folder %s: %w", path, err)
	}
	return nil
}

// traceNew lets reset remove what is made at path, if nothing is there yet.
func traceNew(ctx context.Context, r *engine.Run, path string) error {
	_, err := r.Host.Files.Stat(ctx, path)
	if err == nil {
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return codes.New(codes.FileNotWritten, "looking for %s: %w", path, err)
	}
	if err := r.Trace(ctx, engine.Trace{Kind: engine.TraceFile, Name: path}); err != nil {
		return fmt.Errorf("remembering that %s is new: %w", path, err)
	}
	return nil
}
