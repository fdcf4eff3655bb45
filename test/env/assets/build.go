package assets

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// builder builds programs into the cache.
type builder struct {
	cache    string
	progress io.Writer

	root      string // of this repository
	toolchain string // what else a binary depends on: Go version and target
}

// ensure returns the cached executable of p, building it first if needed.
func (b *builder) ensure(ctx context.Context, p program) (string, error) {
	if err := b.prepare(ctx); err != nil {
		return "", err
	}
	dir := filepath.Join(b.root, "hack", "tools", p.module)
	gomod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return "", err
	}
	gosum, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil {
		return "", err
	}
	version, err := pinnedVersion(gomod, p.path)
	if err != nil {
		return "", err
	}
	flags := []string{"-ldflags", linkerFlags(p, version)}
	key := []string{string(gomod), string(gosum), flags[1], b.toolchain}
	if p.windows {
		flags = append(flags, windowsFlags()...)
		key = append(key, "windows")
	}
	out := filepath.Join(b.cache, "bin", p.module+"-"+digest(key...), p.name)
	if exists(out) {
		return out, nil
	}
	unlock, err := Lock(ctx, out+".lock", func() {
		b.sayf("waiting for another process that builds %s %s ...", p.name, version)
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists(out) {
		return out, nil
	}
	start := time.Now()
	b.sayf("building %s %s (first time only, about %s) ...", p.name, version, p.minutes)
	if err := goBuild(ctx, dir, out, p, flags); err != nil {
		return "", err
	}
	b.sayf("built %s in %s", p.name, time.Since(start).Round(time.Second))
	return out, nil
}

// sayf writes a line of progress; who does not want to hear it is not asked again.
func (b *builder) sayf(format string, args ...any) {
	_, _ = fmt.Fprintf(b.progress, format+"\n", args...)
}

func (b *builder) prepare(ctx context.Context) error {
	if b.root != "" {
		return nil
	}
	root, err := Root(ctx)
	if err != nil {
		return err
	}
	// In the tools' folder: its go.mod may choose another toolchain than ours.
	toolchain, err := goCommand(ctx, filepath.Join(root, "hack", "tools", "kubernetes"), nil, "env", "GOVERSION", "GOOS", "GOARCH")
	if err != nil {
		return err
	}
	b.root, b.toolchain = root, string(toolchain)
	return nil
}

// pinnedVersion reads the version of a required module.
func pinnedVersion(gomod []byte, path string) (string, error) {
	f, err := modfile.ParseLax("go.mod", gomod, nil)
	if err != nil {
		return "", fmt.Errorf("reading pins: %w", err)
	}
	for _, r := range f.Require {
		if r.Mod.Path == path {
			return r.Mod.Version, nil
		}
	}
	return "", fmt.Errorf("reading pins: go.mod does not require %s", path)
}

// linkerFlags stamp the version. Without it kube-apiserver reports v0.0.0-master, and Cluster API refuses to run on it.
func linkerFlags(p program, version string) string {
	flags := []string{"-s", "-w"}
	if p.stamp != "" {
		major, minor, _ := strings.Cut(strings.TrimPrefix(semver.MajorMinor(version), "v"), ".")
		for _, variable := range []string{"gitVersion=" + version, "gitMajor=" + major, "gitMinor=" + minor, "gitTreeState=clean"} {
			flags = append(flags, "-X "+p.stamp+"."+variable)
		}
	}
	return strings.Join(flags, " ")
}

// windowsEnv is the environment of builds for Windows.
func windowsEnv() []string { return []string{"GOOS=windows", "GOARCH=amd64"} }

// windowsFlags are those of a release. All builds for Windows have them, because that shares Go's build cache.
func windowsFlags() []string { return []string{"-trimpath"} }

// Build compiles the main package pkg (such as "./test/cmd/vcsim") of this repository into the file out. Go's cache makes
// it cheap to repeat, so it is never skipped: a stale binary of our own would be a trap.
func Build(ctx context.Context, pkg, out string) error {
	return buildOwn(ctx, pkg, out, nil, "build", "-ldflags", "-s -w")
}

// BuildWindows is Build for 64-bit Windows, with the flags of a release.
func BuildWindows(ctx context.Context, pkg, out string) error {
	return buildOwn(ctx, pkg, out, windowsEnv(), append([]string{"build", "-ldflags", "-s -w"}, windowsFlags()...)...)
}

// BuildWindowsTest compiles the test binary of pkg for 64-bit Windows, such that it can remove folders under Wine, too.
// A package without tests is an error.
func BuildWindowsTest(ctx context.Context, pkg, out string) error {
	overlay, err := wineOverlay(ctx)
	if err != nil {
		return fmt.Errorf("building tests of %s: %w", pkg, err)
	}
	return buildOwn(ctx, pkg, out, windowsEnv(), append([]string{"test", "-c", "-ldflags", "-s -w", "-overlay", overlay}, windowsFlags()...)...)
}

// buildOwn runs "go args -o out pkg" and compares nothing: go leaves a file alone that is up to date, which saves linking
// it. The file is per checkout and copied, because another process may build the next state of it at any time.
func buildOwn(ctx context.Context, pkg, out string, env []string, args ...string) error {
	root, err := Root(ctx)
	if err != nil {
		return err
	}
	cache, err := CacheDir()
	if err != nil {
		return err
	}
	kept := filepath.Join(cache, "own", digest(append([]string{root, pkg, args[0]}, env...)...), filepath.Base(out))
	unlock, err := Lock(ctx, kept+".lock", nil)
	if err != nil {
		return err
	}
	defer unlock()
	args = append(args, "-buildvcs=false", "-o", kept, pkg)
	if _, err := goCommand(ctx, root, env, args...); err != nil {
		return fmt.Errorf("building %s: %w", pkg, err)
	}
	if !exists(kept) {
		return fmt.Errorf("building tests of %s: it has none", pkg)
	}
	if err := copyFile(kept, out); err != nil {
		return fmt.Errorf("copying %s: %w", pkg, err)
	}
	return nil
}

// Root returns the folder of this repository. The working directory must be inside it.
func Root(ctx context.Context) (string, error) {
	gomod, err := goCommand(ctx, "", nil, "env", "GOMOD")
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	path := strings.TrimSpace(string(gomod))
	if path == "" || path == os.DevNull {
		return "", errors.New("finding the repository: the working directory is outside of it")
	}
	return filepath.Dir(path), nil
}

// Module is a module in Go's module cache.
type Module struct {
	Dir, Version string
}

// CAPIModule returns the source of Cluster API, at the version that capi-core is built from; its manifests are in there.
func CAPIModule(ctx context.Context) (Module, error) {
	const path = "sigs.k8s.io/cluster-api"
	root, err := Root(ctx)
	if err != nil {
		return Module{}, err
	}
	out, err := goCommand(ctx, filepath.Join(root, "hack", "tools", "capi"), nil, "mod", "download", "-json", path)
	if err != nil {
		return Module{}, fmt.Errorf("finding module %s: %w", path, err)
	}
	var m Module
	if err := json.Unmarshal(out, &m); err != nil {
		return Module{}, fmt.Errorf("finding module %s: %w", path, err)
	}
	return m, nil
}

// goBuild writes the executable under its final name only when it is complete.
func goBuild(ctx context.Context, dir, out string, p program, flags []string) error {
	tmp := fmt.Sprintf("%s.%d.tmp", out, os.Getpid())
	defer func() { _ = os.Remove(tmp) }() // nothing is left of it after success
	var env []string
	if p.windows {
		env = windowsEnv()
	}
	args := append([]string{"build", "-buildvcs=false", "-o", tmp}, flags...)
	if _, err := goCommand(ctx, dir, env, append(args, p.pkg)...); err != nil {
		return err
	}
	return os.Rename(tmp, out)
}

// goCommand runs go in dir ("" for the working directory), with env beside the environment of this process, and returns
// its output.
func goCommand(ctx context.Context, dir string, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	// Pure Go needs no C compiler, and a go.work or go flag of the user must not change what is built.
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS="), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}
