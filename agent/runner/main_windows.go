package runner

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
)

// settleTime is how long a console program must live before its service is said to run: one that does not understand its
// arguments then is a start that failed, not a service that broke down.
const settleTime = 500 * time.Millisecond

// Main runs a program as args, from the subcommand on, say, and returns its exit code.
//
// A service is ended by the SCM, and its program ends with this process; ctx is not looked at.
func Main(_ context.Context, args []string) int {
	o, err := Parse(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return ExitUsage
	}
	// A shutdown of Windows reaches all console processes at once. The program shall end by it and we by the program's end,
	// or by the SCM's; Go's default would end us, and by the job the program, first.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	if o.Mode == Service {
		allocConsole()
		if err := svc.Run(o.Name, &service{o}); err != nil {
			fmt.Fprintf(os.Stderr, "run service %s: %v\n", o.Name, err)
			return ExitNotStarted
		}
		return 0
	}
	return execute(o)
}

// execute runs a program that speaks to the SCM itself.
func execute(o Options) int {
	c, err := start(o)
	if err != nil {
		report(o, err)
		return ExitNotStarted
	}
	code := <-c.wait()
	c.sayf("%s ended with exit code %d", o.Argv[0], code)
	c.finish()
	return int(code)
}

// report writes why a program did not start where its output would have been.
func report(o Options, err error) {
	fmt.Fprintln(os.Stderr, err)
	if o.LogFile != "" {
		log := OpenLog(o.LogFile, o.Rotation)
		_, _ = fmt.Fprintf(log, "[capw-node] %v\n", err)
		log.Close()
	}
}

// allocConsole gives this process a console, which the program shares: CTRL_BREAK goes by it. A service has none by itself.
func allocConsole() {
	// It fails where there is one already.
	_, _, _ = windows.NewLazySystemDLL("kernel32.dll").NewProc("AllocConsole").Call()
}

// service is a Windows service that is a console program.
type service struct{ o Options }

// Execute implements svc.Handler.
func (s *service) Execute(_ []string, requests <-chan svc.ChangeRequest, status chan<- svc.Status) (specific bool, code uint32) {
	status <- svc.Status{State: svc.StartPending, WaitHint: 10_000}
	c, err := start(s.o)
	if err != nil {
		report(s.o, err)
		return true, ExitNotStarted
	}
	defer c.finish()
	ended := c.wait()
	select {
	case code := <-ended:
		return s.failed(c, code)
	case <-time.After(settleTime):
	}
	running := svc.Status{State: svc.Running, Accepts: svc.AcceptStop | svc.AcceptShutdown}
	status <- running
	for {
		select {
		case code := <-ended:
			return s.failed(c, code)
		case r := <-requests:
			switch r.Cmd {
			case svc.Stop, svc.Shutdown:
				s.stop(c, ended, status)
				return false, 0
			default: // Interrogate
				status <- running
			}
		}
	}
}

// failed returns how a service ends whose program ended by itself: never well, so that the SCM starts it again.
func (s *service) failed(c *child, code uint32) (bool, uint32) {
	c.sayf("%s ended with exit code %d", s.o.Argv[0], code)
	if code == 0 {
		return false, uint32(windows.ERROR_PROCESS_ABORTED)
	}
	return true, code
}

// stop ends the program.
func (s *service) stop(c *child, ended <-chan uint32, status chan<- svc.Status) {
	grace := s.o.Grace
	if grace == 0 {
		grace = DefaultGrace
	}
	pending := svc.Status{State: svc.StopPending, WaitHint: 5_000}
	status <- pending
	if err := c.interrupt(); err != nil {
		c.sayf("%s cannot be sent CTRL_BREAK, ending it: %v", s.o.Argv[0], err)
		c.kill()
	}
	deadline := time.After(grace)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
			pending.CheckPoint++
			status <- pending
		case <-deadline:
			c.sayf("%s did not end within %s, ending it", s.o.Argv[0], grace)
			c.kill()
			deadline = nil
		}
	}
}
