// Command launcher stands where the image would have the node agent. It starts C:\image\capw-node.exe with its own arguments
// and --lenient, because Wine lacks parts of the Windows API, and ends with its exit code.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

func main() {
	//nolint:noctx // it lives as long as the program
	cmd := exec.Command(`C:\image\capw-node.exe`, append([]string{"--lenient"}, os.Args[1:]...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "launcher:", err)
		os.Exit(98)
	}
}
