package cbi

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRunSaysWhatToInstallOnAMachineWithoutVenv(t *testing.T) {
	for name, python := range map[string]string{
		"no Python at all":         "",
		"a Python without venv":    "#!/bin/sh\necho 'Python has no venv module' >&2\nexit 1\n",
		"a Python that is too old": "#!/bin/sh\necho 'Python 3.9 is too old' >&2\nexit 1\n",
	} {
		t.Run(name, func(t *testing.T) {
			bin, home := t.TempDir(), t.TempDir()
			if python != "" {
				if err := os.WriteFile(filepath.Join(bin, "python3"), []byte(python), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", bin)
			t.Setenv("HOME", home)
			_, err := Run(t.Context(), Guest{})
			if err == nil || !strings.Contains(err.Error(), "apt-get install python3 python3-venv") {
				t.Errorf("got %v", err)
			}
			if left, _ := os.ReadDir(home); len(left) > 0 {
				t.Errorf("left %v behind", left)
			}
		})
	}
}

func TestRunMakesAHalfMadeVenvAnew(t *testing.T) {
	python, err := ensureVenv(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The same venv in another home, as it is left by a process that was killed in the middle.
	home := t.TempDir()
	dir := filepath.Dir(filepath.Dir(python))
	half := filepath.Join(home, ".cache", "capw", filepath.Base(dir))
	if err := os.MkdirAll(filepath.Join(half, "lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	t.Setenv("PIP_CACHE_DIR", filepath.Join(filepath.Dir(filepath.Dir(dir)), "pip")) // download nothing twice
	results := make(chan error)
	for range 2 { // and two that want it at the same time
		go func() {
			_, err := Run(t.Context(), Guest{Hostname: "win"})
			results <- err
		}()
	}
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(half, "complete")); err != nil {
		t.Error(err)
	}
}
