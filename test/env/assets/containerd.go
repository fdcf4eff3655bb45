package assets

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Containerd returns a real containerd for this system that reads configurations: see hack/tools/containerd. It is built into
// the cache first if needed.
func Containerd(ctx context.Context, progress io.Writer) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	root, err := Root(ctx)
	if err != nil {
		return "", err
	}
	source, err := os.ReadFile(filepath.Join(root, "hack", "tools", "containerd", "main.go"))
	if err != nil {
		return "", fmt.Errorf("building containerd: %w", err)
	}
	b := &builder{cache: cache, progress: progress}
	path, err := b.ensure(ctx, program{
		name:    "containerd-" + digest(string(source)), // main.go is ours, and may change without go.mod
		module:  "containerd",
		pkg:     ".",
		path:    "github.com/containerd/containerd/v2",
		minutes: "1 minute",
	})
	if err != nil {
		return "", fmt.Errorf("building containerd: %w", err)
	}
	return path, nil
}
