//go:build !windows

package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/go-logr/logr"

	"github.com/capw-dev/cluster-api-provider-windows/agent/cli"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// environment serves the commands that need no Windows: version, codes, help.
func environment(executable string) cli.Environment {
	errElsewhere := errors.New("this command works on Windows only")
	return cli.Environment{
		Executable: executable,
		NewHost:    func(bool) (*host.Host, error) { return nil, errElsewhere },
		RunService: func(string, func(context.Context, func()) error) error { return errElsewhere },
		Log:        func(bool) (logr.Logger, io.Closer, error) { return logr.Discard(), io.NopCloser(nil), nil },
		Stdout:     os.Stdout,
		Stderr:     os.Stderr,
	}
}
