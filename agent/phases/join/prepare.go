package join

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"slices"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/discovery"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/kubelet"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
)

// kubeletPatch is the name that makes kubeadm merge a file into its KubeletConfiguration, before it is written.
const kubeletPatch = "kubeletconfiguration0+merge.yaml"

// prepare leaves nothing of another join: not the image's, not one of this agent that cannot be gone on with.
func prepare(ctx context.Context, r *engine.Run) error {
	isMember, err := member(ctx, r)
	if isMember || err != nil {
		return err
	}
	if r.Doc.Join.Token == "" {
		return codes.New(codes.TokenMissing, "the machine has no certificate for Node %s, and the document no token", r.Doc.Node.Name)
	}
	goOn, err := isHalfDone(ctx, r)
	if err != nil {
		return err
	}
	if !goOn {
		if err := removeJoin(ctx, r); err != nil {
			return err
		}
	}
	return makeFolders(ctx, r)
}

// isHalfDone says whether a kubelet of this agent is in the middle of this very join, which is gone on with.
func isHalfDone(ctx context.Context, r *engine.Run) (bool, error) {
	ours := slices.ContainsFunc(r.Facts.Traces, func(t engine.Trace) bool {
		return t.Kind == engine.TraceService && t.Name == layout.KubeletService
	})
	if !ours || byKubeadm(r) {
		return false, nil
	}
	var files [2][]byte
	for i, path := range []string{caPath(r), layout.BootstrapKubeconfig} {
		content, err := r.Host.Files.Read(ctx, path)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, codes.New(codes.JoinFilesNotWritten, "reading %s: %w", path, err)
		}
		files[i] = content
	}
	ca, have := files[0], files[1]
	want, err := kubelet.BootstrapKubeconfig(r.Doc.Join, ca)
	pinned := discovery.CheckPins(ca, r.Doc.Join.CACertHashes) == nil
	return err == nil && pinned && bytes.Equal(have, want), nil
}

// removeJoin stops the kubelet and removes what makes it a member of a cluster. Images, logs and pods stay.
func removeJoin(ctx context.Context, r *engine.Run) error {
	if err := r.Host.Services.Stop(ctx, layout.KubeletService); err != nil && !errors.Is(err, host.ErrNotFound) {
		return codes.New(codes.KubeletNotStopped, "stopping service %s: %w", layout.KubeletService, err)
	}
	for _, path := range []string{
		layout.Kubeconfig, layout.BootstrapKubeconfig, layout.CACertificate, layout.KubeletPKIDir, layout.KubeletConfig,
		layout.KubeadmFlags, layout.Join(layout.PatchesDir, kubeletPatch), layout.KubeadmJoin,
		layout.Join(layout.KubeletDir, "instance-config.yaml"),
		// The kubelet does not start when what it remembers was made with another policy.
		layout.Join(layout.KubeletDir, "cpu_manager_state"), layout.Join(layout.KubeletDir, "memory_manager_state"),
	} {
		if err := r.Host.Files.Remove(ctx, path); err != nil {
			return codes.New(codes.JoinFilesNotWritten, "removing %s, which a former join left: %w", path, err)
		}
	}
	return nil
}

// makeFolders makes the folders that phase Host has not made, and has reset remove all of them.
func makeFolders(ctx context.Context, r *engine.Run) error {
	for _, path := range []string{layout.KubernetesDir, layout.KubeletDir} {
		if err := r.Trace(ctx, engine.Trace{Kind: engine.TraceFile, Name: path}); err != nil {
			return codes.New(codes.StateNotWritable, "remembering %s for a reset: %w", path, err)
		}
	}
	for _, folder := range []struct {
		path string
		acl  host.ACL
	}{
		{layout.KubernetesDir, host.ACLSystem},
		{layout.Dir(layout.CACertificate), host.ACLSystem},
		{layout.ManifestDir, host.ACLSystem},
		{layout.PatchesDir, host.ACLSystem},
		{layout.KubeletDir, host.ACLInherited}, // volumes of pods are in it, and their processes are users
		{layout.KubeletPKIDir, host.ACLSystem},
	} {
		_, err := r.Host.Files.Stat(ctx, folder.path)
		if errors.Is(err, fs.ErrNotExist) {
			err = r.Host.Files.Mkdir(ctx, folder.path, folder.acl)
		}
		if err != nil {
			return codes.New(codes.JoinFilesNotWritten, "making the folder %s: %w", folder.path, err)
		}
	}
	return nil
}

// write writes a file of the join, which only SYSTEM and Administrators may read, and which goes away with its folder.
func write(ctx context.Context, r *engine.Run, path string, content []byte) error {
	if err := r.Host.Files.Write(ctx, path, content, host.ACLSystem); err != nil {
		return codes.New(codes.JoinFilesNotWritten, "writing %s: %w", path, err)
	}
	return nil
}
