package cbi

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed" // for requirements.txt
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

//go:embed requirements.txt
var requirements []byte

// checkPython fails unless a venv can be made, and prints what tells venvs apart.
const checkPython = `
import sys
if sys.version_info < (3, 11):
    sys.exit("Python %d.%d is too old" % sys.version_info[:2])
try:
    import ensurepip, venv
except ImportError:
    sys.exit("Python has no venv module")
print(sys.executable, sys.version)
`

// ensureVenv returns the Python of a virtual environment with the pinned requirements. It is made once, by whichever
// process comes first, and made anew when the requirements or the machine's Python change.
func ensureVenv(ctx context.Context) (string, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	identity, err := run(ctx, "python3", "-I", "-c", checkPython)
	if err != nil {
		return "", fmt.Errorf("need Python 3.11 or later with its venv module (Debian: apt-get install python3 python3-venv): %w", err)
	}
	cache := filepath.Join(home, ".cache", "capw")
	dir := filepath.Join(cache, fmt.Sprintf("venv-%.8x", sha256.Sum256(append(identity, requirements...))))
	python := filepath.Join(dir, "bin", "python")
	// A venv cannot be moved into its place, as its path is part of it; so the mark is made last.
	complete := filepath.Join(dir, "complete")
	if _, err := os.Stat(complete); err == nil {
		return python, nil
	}

	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(dir + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(complete); err == nil {
		return python, nil
	} else if !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	fmt.Fprintf(os.Stderr, "installing cloudbase-init into %s (first time only)\n", dir)
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	if _, err := run(ctx, "python3", "-m", "venv", dir); err != nil {
		return "", fmt.Errorf("making %s: %w", dir, err)
	}
	list := filepath.Join(dir, "requirements.txt")
	if err := os.WriteFile(list, requirements, 0o644); err != nil {
		return "", err
	}
	// The list is complete, so nothing else may come along; and nothing is built, so nothing else is needed.
	if _, err := run(ctx, python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input",
		"--no-deps", "--only-binary", ":all:", "--requirement", list); err != nil {
		return "", err
	}
	return python, os.WriteFile(complete, nil, 0o644)
}

// lock waits for the exclusive lock on a file, which the kernel frees at the latest when this process ends.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return func() { _ = f.Close() }, nil
}

// run returns what a command prints; its error holds what it complains about.
func run(ctx context.Context, name string, args ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(stderr.String()+stdout.String()))
	}
	return stdout.Bytes(), nil
}
