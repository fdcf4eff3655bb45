package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/capw-dev/cluster-api-provider-windows/agent/artifact"
	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// versionTimeout bounds a program that is asked for its version. The first start of a new program is slow while it is scanned.
const versionTimeout = time.Minute

// program is an executable that the document implies.
type program struct {
	name, path string
	// want is the version that it must have; empty: any.
	want string
	// later: files or commands of the document may still bring it; optional: it need not be there at all.
	later, optional bool
}

// programs returns what the document implies.
func programs(doc *nodev1.NodeConfiguration) []program {
	kubernetes := doc.Cluster.KubernetesVersion
	out := []program{{name: "kubelet", path: doc.Kubelet.Path, want: kubernetes}}
	if doc.Join.Method == nodev1.JoinKubeadm {
		out = append(out, program{name: "kubeadm", path: doc.Join.Kubeadm.Path, want: kubernetes})
	}
	out = append(out, program{name: "containerd", path: doc.ContainerRuntime.Path, optional: doc.ContainerRuntime.Management == nodev1.Existing})
	s := doc.Services
	service := func(name string, o nodev1.ServiceOptions, want string) {
		later := len(doc.PreJoinCommands) > 0 || slices.ContainsFunc(doc.Files, func(f nodev1.File) bool { return strings.EqualFold(f.Path, o.Path) })
		out = append(out, program{name: name, path: o.Path, want: want, later: later})
	}
	if s.CNI != nil {
		service("cni", s.CNI.ServiceOptions, "")
	}
	if s.KubeProxy != nil {
		service("kube-proxy", s.KubeProxy.ServiceOptions, kubernetes)
	}
	if s.CSIProxy != nil {
		service("csi-proxy", *s.CSIProxy, "")
	}
	if s.WindowsExporter != nil {
		service("windows_exporter", s.WindowsExporter.ServiceOptions, "")
	}
	if s.CloudNodeManager != nil {
		service("cloud-node-manager", s.CloudNodeManager.ServiceOptions, "")
	}
	for _, a := range s.Additional {
		service(a.Name, a.ServiceOptions, "")
	}
	for i := range out {
		for _, a := range doc.Artifacts { // an artifact may want another version than the cluster's
			if a.Name == out[i].name && a.Version != "" {
				out[i].want = a.Version
			}
		}
	}
	return out
}

// programOf returns the path of a program by its name; empty if the document implies none of that name.
func programOf(doc *nodev1.NodeConfiguration, name string) string {
	for _, p := range programs(doc) {
		if p.name == name {
			return p.path
		}
	}
	return ""
}

// checkPrograms checks that every program is there and of the version wanted, before anything is started, and remembers
// where they are and what they are.
func checkPrograms(ctx context.Context, r *engine.Run) error {
	list := programs(r.Doc)
	versions, failures := make([]string, len(list)), make([]error, len(list))
	var group errgroup.Group
	group.SetLimit(parallel)
	for i, p := range list {
		group.Go(func() error {
			versions[i], failures[i] = checkProgram(ctx, r.Host, p)
			return nil
		})
	}
	_ = group.Wait() // of functions that return no errors
	if err := worst(ctx, failures); err != nil {
		return err
	}
	for i, p := range list {
		remember(&r.Facts.Paths, p.name, p.path)
		if versions[i] != "" {
			remember(&r.Facts.Versions, p.name, versions[i])
		}
	}
	return nil
}

// checkProgram returns the version of a program, or "" if nobody can tell.
func checkProgram(ctx context.Context, h *host.Host, p program) (string, error) {
	info, err := h.Files.Stat(ctx, p.path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && (p.later || p.optional):
		return "", nil
	case errors.Is(err, fs.ErrNotExist), err == nil && info.Dir:
		return "", codes.New(codes.ProgramMissing, "%s: there is no %s", p.name, p.path)
	case err != nil:
		return "", codes.New(codes.ArtifactNotPlaced, "%s: looking for %s: %w", p.name, p.path, err)
	}
	if _, tells := artifact.VersionArgs(p.name); !tells {
		return "", nil
	}
	have, err := versionOf(ctx, h, p.name, p.path)
	switch {
	case err != nil && p.name == "windows_exporter": // nothing depends on its version
		return "", nil
	case err != nil:
		return "", err
	case p.want != "":
		return have, sameVersion(p.name, p.path, have, p.want)
	}
	return have, nil
}

// versionOf asks a program for its version.
func versionOf(ctx context.Context, h *host.Host, name, path string) (string, error) {
	args, _ := artifact.VersionArgs(name)
	bounded, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	result, err := h.Processes.Run(bounded, host.Command{Argv: append([]string{path}, args...)})
	if ctx.Err() != nil {
		return "", fmt.Errorf("asking %s for its version: %w", path, context.Cause(ctx))
	}
	if err != nil {
		return "", codes.New(codes.ProgramUnusable, "asking %s for its version: %w", path, err)
	}
	said := strings.TrimSpace(string(result.Stdout) + string(result.Stderr)) // windows_exporter uses stderr
	version, err := artifact.ParseVersion(name, said)
	if err != nil || result.ExitCode != 0 {
		return "", codes.New(codes.ProgramUnusable, "%s %s ended with exit code %d and said %q", path, strings.Join(args, " "), result.ExitCode, shorten(said))
	}
	return version, nil
}

func shorten(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// remember sets a value in a map of Facts.
func remember(facts *map[string]string, name, value string) {
	if *facts == nil {
		*facts = map[string]string{}
	}
	(*facts)[name] = value
}
