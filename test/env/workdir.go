package env

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// workDir is the folder of one environment. A lock on a file in it is held as long as the environment's process lives; a
// folder whose lock is free was left by a process that was killed, and the next start removes it.
type workDir struct {
	path string
	lock *os.File
}

const (
	workDirPattern = "capw-env-*"
	lockName       = ".lock"
)

func newWorkDir(path string) (*workDir, error) {
	if path == "" {
		sweep()
		var err error
		if path, err = os.MkdirTemp("", workDirPattern); err != nil {
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
	return &workDir{path: path, lock: lock}, nil
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

func (d *workDir) close(keep bool) error {
	var err error
	if keep {
		// Without the lock file no sweep touches it.
		err = os.Remove(filepath.Join(d.path, lockName))
	} else {
		err = os.RemoveAll(d.path)
	}
	_ = d.lock.Close()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing folder of the environment: %w", err)
	}
	return nil
}

// sweep removes what killed environments have left. It is a courtesy: errors do not matter.
func sweep() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), workDirPattern))
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
