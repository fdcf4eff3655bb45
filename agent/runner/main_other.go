//go:build !windows

package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// Main runs a program as args, from the subcommand on, say, and returns its exit code. Outside Windows there is no SCM: only
// Exec works, for tests of what is the same everywhere.
func Main(ctx context.Context, args []string) int {
	o, err := Parse(args)
	if err == nil && o.Mode == Service {
		err = errors.New("there are no Windows services here")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return ExitUsage
	}
	cmd := exec.CommandContext(ctx, o.Argv[0], o.Argv[1:]...) //nolint:gosec // it is what a runner is for
	cmd.Dir = o.Dir
	if o.LogFile != "" {
		log := OpenLog(o.LogFile, o.Rotation)
		defer log.Close()
		cmd.Stdout, cmd.Stderr = log, log
	}
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return ExitNotStarted
	}
	return 0
}
