package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"golang.org/x/sys/windows/svc"

	"github.com/capw-dev/cluster-api-provider-windows/agent/cli"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/winhost"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/runner"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

func environment(executable string) cli.Environment {
	return cli.Environment{
		Executable: executable,
		NewHost: func(lenient bool) (*host.Host, error) {
			return winhost.New(winhost.Options{Lenient: lenient, Log: logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil))}), nil
		},
		RunService: runService,
		Log:        openLog,
		Stdout:     os.Stdout,
		Stderr:     os.Stderr,
	}
}

// openLog logs a service into its own rotated file, and any other command to stderr.
func openLog(service bool) (logr.Logger, io.Closer, error) {
	if !service {
		return logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil)), io.NopCloser(nil), nil
	}
	l := runner.OpenLog(layout.Log(layout.AgentService), nodev1.LogRotation{MaxSizeMiB: 20, MaxFiles: 5, MaxAgeHours: 24 * 30})
	return logr.FromSlogHandler(slog.NewTextHandler(l, nil)), logCloser{l}, nil
}

// logCloser makes an io.Closer of a log.
type logCloser struct{ *runner.Log }

// Close implements io.Closer.
func (c logCloser) Close() error {
	c.Log.Close()
	return nil
}

// runService connects do to the service control manager. It is for processes that the SCM has started: whether that is so is
// said by a flag and not detected, as detection fails in some environments.
func runService(name string, do func(ctx context.Context, ready func()) error) error {
	h := &handler{do: do}
	if err := svc.Run(name, h); err != nil {
		return fmt.Errorf("connecting to the service control manager: %w", err)
	}
	return h.err
}

type handler struct {
	do  func(ctx context.Context, ready func()) error
	err error
}

// Execute implements svc.Handler.
func (h *handler) Execute(_ []string, requests <-chan svc.ChangeRequest, statuses chan<- svc.Status) (specific bool, code uint32) {
	// Networks of containers are removed before it runs; HNS itself may still be starting.
	statuses <- svc.Status{State: svc.StartPending, WaitHint: 180_000}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ready := make(chan struct{}, 1)
	ended := make(chan error, 1)
	go func() { ended <- h.do(ctx, func() { ready <- struct{}{} }) }()
	const accepts = svc.AcceptStop | svc.AcceptShutdown
	for {
		select {
		case <-ready:
			statuses <- svc.Status{State: svc.Running, Accepts: accepts}
		case h.err = <-ended:
			if h.err != nil && ctx.Err() == nil {
				return true, cli.ExitFailed // a failure, for which the SCM starts the service again
			}
			return false, 0
		case r := <-requests:
			switch r.Cmd {
			case svc.Interrogate:
				statuses <- r.CurrentStatus
			case svc.Stop, svc.Shutdown:
				statuses <- svc.Status{State: svc.StopPending}
				cancel()
			}
		}
	}
}
