// Command generic stands in for programs that run for as long as the node does: kube-proxy.exe, csi-proxy.exe,
// windows_exporter.exe, and a user's own. It records how it was called and stays, until C:\recorded\<name>.exit appears,
// which holds the exit code. With --version it prints the content of the file beside it that is named <path>.version. With
// --windows-service or -windows-service it is a Windows service.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/capw-dev/cluster-api-provider-windows/test/wine/programs/internal/program"
)

func main() {
	if slices.Contains(os.Args[1:], "--version") {
		version, err := os.ReadFile(os.Args[0] + ".version")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(strings.TrimSpace(string(version)))
		return
	}
	asService := slices.Contains(os.Args[1:], "--windows-service") || slices.Contains(os.Args[1:], "-windows-service")
	program.Run(asService, program.Name(), stay)
}

func stay(ctx context.Context) error {
	if err := program.Record(); err != nil {
		return err
	}
	fmt.Println(program.Name(), "runs")
	order := filepath.Join(program.Recorded, program.Name()+".exit")
	for {
		content, err := os.ReadFile(order)
		switch {
		case err == nil:
			code, err := strconv.Atoi(strings.TrimSpace(string(content)))
			if err != nil {
				return err
			}
			if err := os.Remove(order); err != nil {
				return err
			}
			fmt.Fprintln(os.Stderr, program.Name(), "ends with", code)
			os.Exit(code)
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
		select {
		case <-ctx.Done():
			fmt.Println(program.Name(), "ends as it was told")
			return nil
		case <-time.After(100 * time.Millisecond):
		}
	}
}
