package hosttest

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/windows/svc"
)

// HelperMain is the helper as a program of Windows, and ends it. args are its own arguments.
func HelperMain(args []string) {
	p := helperProcess{
		args: args, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv, dir: os.Getwd, running: func() {},
		write: func(path, content string) error { return os.WriteFile(path, []byte(content), 0o600) },
	}
	if p.arg(0) != "service" {
		// A context that cannot end would be a deadlock, and so an end.
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		code := help(ctx, p)
		cancel()
		os.Exit(code)
	}
	if err := svc.Run("", &service{p}); err != nil {
		os.Exit(97)
	}
	os.Exit(0)
}

// service is the helper under the SCM.
type service struct{ p helperProcess }

// Execute implements svc.Handler.
func (s *service) Execute(_ []string, requests <-chan svc.ChangeRequest, status chan<- svc.Status) (bool, uint32) {
	status <- svc.Status{State: svc.StartPending}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.p.running = func() { status <- svc.Status{State: svc.Running, Accepts: svc.AcceptStop | svc.AcceptShutdown} }
	ended := make(chan int, 1)
	go func() { ended <- help(ctx, s.p) }()
	for {
		select {
		case code := <-ended:
			return true, uint32(code) //nolint:gosec // small
		case r := <-requests:
			switch r.Cmd {
			case svc.Interrogate:
				status <- r.CurrentStatus
			case svc.Stop, svc.Shutdown:
				status <- svc.Status{State: svc.StopPending}
				cancel()
			}
		}
	}
}
