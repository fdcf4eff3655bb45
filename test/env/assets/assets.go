// Package assets provides the real programs that a test environment runs: etcd, the Kubernetes control plane, Cluster API.
//
// A program is taken from the folder in $KUBEBUILDER_ASSETS if it is there, else it is built from source, at the version
// that a module below hack/tools pins, into a cache that all checkouts of this user share.
package assets

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Assets are paths of executables.
type Assets struct {
	// Dir holds all of them (as links) under the names that $KUBEBUILDER_ASSETS expects.
	Dir string

	Etcd                  string
	KubeAPIServer         string
	KubeControllerManager string
	Kubectl               string
	Clusterctl            string

	// CAPICore is the manager of the Cluster API core provider.
	CAPICore string

	// KubeadmExe is kubeadm for Windows; only with Options.Windows.
	KubeadmExe string
}

// Options for Ensure.
type Options struct {
	// Progress receives one line when something that takes long starts, and one when it is done. Default: none.
	Progress io.Writer

	// Windows provides also what runs on Windows, which only the tests under Wine need.
	Windows bool
}

// program is one row of the table of things to provide.
type program struct {
	name    string
	module  string // folder below hack/tools whose go.mod pins it
	pkg     string // main package
	path    string // module whose version counts
	stamp   string // package with the version variables, "" for none
	minutes string // what a first build takes on two cores
	windows bool   // runs on Windows, and is provided only if asked for
	set     func(*Assets, string)
}

func programs() []program {
	const (
		k8s      = "k8s.io/kubernetes"
		k8sStamp = "k8s.io/component-base/version"
		capi     = "sigs.k8s.io/cluster-api"
		stamp    = capi + "/version"
	)
	return []program{
		{"kube-apiserver", "kubernetes", k8s + "/cmd/kube-apiserver", k8s, k8sStamp, "3 minutes", false, func(a *Assets, p string) { a.KubeAPIServer = p }},
		{"kube-controller-manager", "kubernetes", k8s + "/cmd/kube-controller-manager", k8s, k8sStamp, "1 minute", false, func(a *Assets, p string) { a.KubeControllerManager = p }},
		{"kubectl", "kubernetes", k8s + "/cmd/kubectl", k8s, k8sStamp, "20 seconds", false, func(a *Assets, p string) { a.Kubectl = p }},
		{"etcd", "etcd", "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3", "", "20 seconds", false, func(a *Assets, p string) { a.Etcd = p }},
		{"capi-core", "capi", capi + "/core", capi, stamp, "1 minute", false, func(a *Assets, p string) { a.CAPICore = p }},
		{"clusterctl", "capi", capi + "/cmd/clusterctl", capi, stamp, "20 seconds", false, func(a *Assets, p string) { a.Clusterctl = p }},
		{"kubeadm.exe", "kubernetes", k8s + "/cmd/kubeadm", k8s, k8sStamp, "3 minutes", true, func(a *Assets, p string) { a.KubeadmExe = p }},
	}
}

// Ensure returns the programs, after building those that are neither given nor cached. Any number of processes may call it
// at the same time: one builds, the others wait.
func Ensure(ctx context.Context, opts Options) (*Assets, error) {
	if opts.Progress == nil {
		opts.Progress = io.Discard
	}
	cache, err := CacheDir()
	if err != nil {
		return nil, err
	}
	b := &builder{cache: cache, progress: opts.Progress}
	given := os.Getenv("KUBEBUILDER_ASSETS")
	a := &Assets{}
	paths := map[string]string{}
	for _, p := range programs() {
		if p.windows && !opts.Windows {
			continue
		}
		path, err := givenProgram(given, p.name)
		if err != nil {
			return nil, err
		}
		if path == "" {
			if path, err = b.ensure(ctx, p); err != nil {
				return nil, fmt.Errorf("building %s: %w", p.name, err)
			}
		}
		p.set(a, path)
		paths[p.name] = path
	}
	if a.Dir, err = linkAll(cache, paths); err != nil {
		return nil, fmt.Errorf("linking programs into one folder: %w", err)
	}
	return a, nil
}

// CacheDir is where things are kept that are expensive to make: $HOME/.cache/capw on Linux.
func CacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache folder: %w", err)
	}
	return filepath.Join(dir, "capw"), nil
}

func givenProgram(dir, name string) (string, error) {
	if dir == "" {
		return "", nil
	}
	// Links are followed, so that a folder made by linkAll leads to itself when it is given back to us.
	path, err := filepath.EvalSymlinks(filepath.Join(dir, name))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", fmt.Errorf("reading KUBEBUILDER_ASSETS: %w", err)
	}
	return path, nil
}

// linkAll makes a folder with a link per program. Its name depends on where the links go, so it never changes.
func linkAll(cache string, paths map[string]string) (string, error) {
	var targets []string
	for _, p := range programs() {
		if path := paths[p.name]; path != "" {
			targets = append(targets, path)
		}
	}
	dir := filepath.Join(cache, "assets", digest(targets...))
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	for name, path := range paths {
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrExist) {
			return "", err
		}
	}
	return dir, nil
}

// digest is short enough for a path and long enough for a handful of cache entries.
func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:8])
}
