package configure

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"

	"github.com/go-logr/logr"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/containerd"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
)

// imageConfig is where a config.toml that came with the image is kept.
const imageConfig = layout.ContainerdConfig + ".before-capw"

// configureRegistries writes hosts.toml and certificates of each registry. containerd reads them at every pull. Folders of
// registries that the document does not name are left alone: they came with the image.
func configureRegistries(ctx context.Context, r *engine.Run) error {
	if err := traceNew(ctx, r, layout.ContainerdCertsDir); err != nil {
		return err
	}
	if err := ensureFolder(ctx, r, layout.Dir(layout.ContainerdCertsDir), host.ACLUsersRead); err != nil {
		return err
	}
	if err := r.Host.Files.Mkdir(ctx, layout.ContainerdCertsDir, host.ACLSystem); err != nil {
		return codes.New(codes.FileNotWritten, "making the folder %s: %w", layout.ContainerdCertsDir, err)
	}
	for _, registry := range r.Doc.ContainerRuntime.Registries {
		folder, files, err := containerd.Hosts(registry)
		if err != nil {
			return codes.New(codes.RegistryInvalid, "registry %q: %w", registry.Host, err)
		}
		names := slices.Sorted(maps.Keys(files))
		// The file that names the others comes last: a pull meanwhile finds all or nothing.
		names = append(slices.DeleteFunc(names, func(name string) bool { return name == containerd.HostsFile }), containerd.HostsFile)
		for _, name := range names {
			if err := write(ctx, r, layout.Join(layout.ContainerdCertsDir, folder, name), files[name], host.ACLSystem, host.ACLSystem); err != nil {
				return err
			}
		}
	}
	return nil
}

// configureContainerd writes config.toml if it differs. A containerd that runs goes on with what it has read: phase Runtime
// starts it anew.
func configureContainerd(ctx context.Context, r *engine.Run) error {
	content, err := config(r)
	if err != nil {
		return err
	}
	have, err := r.Host.Files.Read(ctx, layout.ContainerdConfig)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return codes.New(codes.FileNotWritten, "reading %s: %w", layout.ContainerdConfig, err)
	case bytes.Equal(have, content):
		return nil
	default:
		if err := keepImageConfig(ctx, r, have); err != nil {
			return err
		}
	}
	// containerd wants root and state for itself; what is in them already keeps its access control, that of layers is theirs.
	for _, folder := range []string{layout.ContainerdRoot, layout.ContainerdState} {
		if err := ensureFolder(ctx, r, folder, host.ACLSystem); err != nil {
			return err
		}
	}
	if err := write(ctx, r, layout.ContainerdConfig, content, host.ACLSystem, host.ACLUsersRead); err != nil {
		return err
	}
	logr.FromContextOrDiscard(ctx).Info("Wrote containerd's configuration", "path", layout.ContainerdConfig, "containerd", r.Facts.Versions["containerd"])
	return nil
}

// keepImageConfig keeps the image's config.toml, once.
func keepImageConfig(ctx context.Context, r *engine.Run, have []byte) error {
	if bytes.HasPrefix(have, []byte(containerd.Mark)) {
		return nil
	}
	if _, err := r.Host.Files.Stat(ctx, imageConfig); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return write(ctx, r, imageConfig, have, host.ACLSystem, host.ACLUsersRead)
}

// config returns config.toml for this node.
func config(r *engine.Run) ([]byte, error) {
	runtime := r.Doc.ContainerRuntime
	pause := runtime.PauseImage
	if pause == "" {
		image, err := containerd.PauseImage(r.Facts.WindowsBuild)
		if err != nil {
			return nil, codes.New(codes.PauseImageUnknown, "%w", err)
		}
		pause = image
	}
	o := containerd.Options{
		Version: r.Facts.Versions["containerd"], PauseImage: pause, HyperVBuilds: runtime.HyperVBuilds, Extra: runtime.ExtraTOML,
		CNIBinDir: layout.CNIBinDir, CNIConfDir: layout.CNIConfDir,
	}
	if cni := r.Doc.Services.CNI; cni != nil {
		o.CNIBinDir, o.CNIConfDir = cmp.Or(cni.BinDir, o.CNIBinDir), cmp.Or(cni.ConfDir, o.CNIConfDir)
	}
	content, err := containerd.Config(o)
	if err != nil {
		return nil, codes.New(codes.RuntimeConfigInvalid, "%w", err)
	}
	return content, nil
}
