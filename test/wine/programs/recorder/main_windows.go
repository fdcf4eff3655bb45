// Command recorder stands in for programs of Windows that Wine lacks or has as a stub: netsh.exe, dism.exe, powershell.exe,
// rpctool.exe. It records how it was called, prints C:\recorded\<name>.out if there is one, and ends with the exit code in
// C:\recorded\<name>.exit, or 0.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/capw-dev/cluster-api-provider-windows/test/wine/programs/internal/program"
)

func main() {
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, program.Name()+":", err)
		code = 99
	}
	os.Exit(code)
}

func run() (int, error) {
	if err := program.Record(); err != nil {
		return 0, err
	}
	out, err := optional(program.Name() + ".out")
	if err != nil {
		return 0, err
	}
	fmt.Print(out)
	code, err := optional(program.Name() + ".exit")
	if err != nil || code == "" {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(code))
}

func optional(name string) (string, error) {
	content, err := os.ReadFile(filepath.Join(program.Recorded, name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(content), err
}
