// Package workdir gives a test environment a folder of its own that does not outlive it.
package workdir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Dir is the folder of one environment. A lock on a file in it is held as long as the environment's process lives; a
// folder whose lock is free was left by a process that was killed, and the next New with its pattern removes it.
type Dir struct {
	// Path is absolute.
	Path string

	lock *os.File
}

const lockName = ".lock"

// New makes the folder path, which must be empty or missing. Without a path it makes a new one in the system's temporary
// folder, named after pattern as os.MkdirTemp does it.
func New(path, pattern string) (*Dir, error) {
	if path == "" {
		sweep(pattern)
		var err error
		if path, err = os.MkdirTemp("", pattern); err != nil {
			return nil, fmt.Errorf("creating folder of the environment: %w", err)
		}
	} else if err := emptyDir(path); err != nil {
		return nil, fmt.Errorf("preparing folder of the environment: %w", err)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("preparing folder of the environment: %w", err)
	}
	lock, err := flock(filepath.Join(path, lockName))
	if err != nil {
		return nil, fmt.Errorf("locking folder of the environment: %w", err)
	}
	return &Dir{Path: path, lock: lock}, nil
}

func emptyDir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s is not empty", path)
	}
	return nil
}

// Close removes the folder, or with keep leaves it for ever.
func (d *Dir) Close(keep bool) error {
	var err error
	if keep {
		// Without the lock file no sweep touches it.
		err = os.Remove(filepath.Join(d.Path, lockName))
	} else {
		err = os.RemoveAll(d.Path)
	}
	_ = d.lock.Close()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing folder of the environment: %w", err)
	}
	return nil
}

// sweep removes what killed environments have left. It is a courtesy: errors do not matter.
func sweep(pattern string) {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), pattern))
	for _, dir := range dirs {
		path := filepath.Join(dir, lockName)
		// A folder that is being made has a lock file that nobody holds for an instant.
		if info, err := os.Stat(path); err != nil || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		if lock, err := flock(path); err == nil {
			_ = os.RemoveAll(dir)
			_ = lock.Close()
		}
	}
}

// flock fails at once if another process holds the lock.
func flock(path string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Clean(path), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
