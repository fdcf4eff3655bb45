package assets

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// removeAllOnWine becomes a file of package testing. Go deletes with FileDispositionInformationEx, and falls back to the
// older way where Windows says that it does not know that; Wine 8 says it in words that Go does not expect. Without it every
// test that has a temporary folder would fail at its end.
const removeAllOnWine = `package testing

import "internal/syscall/windows"

func init() { windows.TestDeleteatFallback = true }
`

// wineOverlay returns the path of a file for go's -overlay flag.
func wineOverlay(ctx context.Context) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	goroot, err := goCommand(ctx, "", nil, "env", "GOROOT")
	if err != nil {
		return "", err
	}
	added := filepath.Join(strings.TrimSpace(string(goroot)), "src", "testing", "wine_windows.go")
	// Named after what is in them: they never change, whoever writes them.
	dir := filepath.Join(cache, "overlay-"+digest(added, removeAllOnWine))
	source, overlay := filepath.Join(dir, "wine_windows.go"), filepath.Join(dir, "overlay.json")
	content, err := json.Marshal(map[string]map[string]string{"Replace": {added: source}})
	if err != nil {
		return "", fmt.Errorf("encoding overlay: %w", err)
	}
	unlock, err := Lock(ctx, dir+".lock", nil)
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists(overlay) {
		return overlay, nil
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", fmt.Errorf("making folder of the overlay: %w", err)
	}
	if err := os.WriteFile(source, []byte(removeAllOnWine), 0o600); err != nil {
		return "", fmt.Errorf("writing overlay: %w", err)
	}
	if err := os.WriteFile(overlay, content, 0o600); err != nil {
		return "", fmt.Errorf("writing overlay: %w", err)
	}
	return overlay, nil
}
