package hostprep

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
)

// folder of a node.
type folder struct {
	path string
	acl  host.ACL
}

// folders are the node's. Below C:\ everyone may create files by default, and read what there is: a user of the host could
// plant a program that SYSTEM runs, or read the logs of pods (CVE-2024-5321).
func folders() []folder {
	return []folder{
		{layout.BinDir, host.ACLUsersRead},
		{`C:\etc`, host.ACLUsersRead},
		{layout.KubernetesDir, host.ACLSystem},
		{layout.Dir(layout.CACertificate), host.ACLSystem},
		{layout.ManifestDir, host.ACLSystem},
		{layout.CNIConfDir, host.ACLSystem},
		{layout.CNIBinDir, host.ACLUsersRead},
		// Volumes of pods are in it: their processes are ordinary users, who must read tokens and write into an emptyDir.
		{`C:\var`, host.ACLInherited},
		{layout.KubeletDir, host.ACLInherited},
		{layout.KubeletPKIDir, host.ACLSystem},
		{layout.LogDir, host.ACLSystem},
		{`C:\run`, host.ACLUsersRead},
		{layout.Dir(layout.Sentinel), host.ACLUsersRead},
		{layout.ContainerdDir, host.ACLUsersRead},
		{layout.ContainerdCertsDir, host.ACLSystem},
		{layout.ContainerdRoot, host.ACLSystem},
		{layout.ContainerdState, host.ACLSystem},
	}
}

func makeFolders(ctx context.Context, r *engine.Run) error {
	for _, f := range folders() {
		if err := makeFolder(ctx, r, f); err != nil {
			return err
		}
	}
	return nil
}

func makeFolder(ctx context.Context, r *engine.Run, f folder) error {
	have, err := r.Host.Files.Stat(ctx, f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := r.Trace(ctx, engine.Trace{Kind: engine.TraceFile, Name: f.path}); err != nil {
			return fmt.Errorf("remembering that %s is new: %w", f.path, err)
		}
	case err != nil:
		return codes.New(codes.FolderNotMade, "looking for %s: %w", f.path, err)
	case !have.Dir:
		return codes.New(codes.FolderNotMade, "%s is a file, not a folder", f.path)
	}
	if err := r.Host.Files.Mkdir(ctx, f.path, f.acl); err != nil {
		return codes.New(codes.FolderNotMade, "making the folder %s: %w", f.path, err)
	}
	return nil
}
