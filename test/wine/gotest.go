//go:build linux

package wine

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/capw-dev/cluster-api-provider-windows/test/env/assets"
)

// testDir is the working folder of test binaries, with a copy of the package's testdata.
const testDir = `C:\test`

// Test compiles the tests of a package (such as "./agent/host/winhost") for Windows, runs them on the machine and returns
// their exit code. What they say goes to out. Flags are those of a test binary, such as -test.run.
func (vm *VM) Test(ctx context.Context, out io.Writer, pkg string, flags ...string) (int, error) {
	root, err := assets.Root(ctx)
	if err != nil {
		return 0, err
	}
	// Not in the package's folder: two tests of one package may run at the same time.
	tmp, err := os.MkdirTemp("", "capw-winetest-*")
	if err != nil {
		return 0, fmt.Errorf("testing %s: %w", pkg, err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	binary := filepath.Join(tmp, "winetest.exe")
	if err := assets.BuildWindowsTest(ctx, pkg, binary); err != nil {
		return 0, err
	}
	if err := vm.Install(binary, testDir+`\test.exe`); err != nil {
		return 0, err
	}
	testdata := filepath.Join(root, pkg, "testdata")
	if _, err := os.Stat(testdata); err == nil {
		if err := os.CopyFS(vm.Path(testDir+`\testdata`), os.DirFS(testdata)); err != nil {
			return 0, fmt.Errorf("copying testdata of %s: %w", pkg, err)
		}
	}
	cmd := vm.ns.command(ctx, inside+"/prefix/drive_c/test", environment(), append([]string{"/usr/bin/wine", testDir + `\test.exe`}, flags...))
	cmd.Stdout, cmd.Stderr = out, out
	code, err := exitCode(ctx, cmd)
	if err != nil {
		return 0, fmt.Errorf("testing %s: %w", pkg, err)
	}
	return code, nil
}
