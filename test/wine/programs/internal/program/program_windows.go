// Package program is what the stand-ins for Windows programs have in common.
package program

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/windows/svc"
)

// Recorded is the folder in which programs write how they were called, and find what they are to do.
const Recorded = `C:\recorded`

// Call is a line of <Recorded>\<name>.log.
type Call struct {
	Time time.Time `json:"time"`
	PID  int       `json:"pid"`
	Args []string  `json:"args"` // without the program's path
}

// Name is the program's file name without .exe, in lower case.
func Name() string {
	return strings.TrimSuffix(strings.ToLower(filepath.Base(os.Args[0])), ".exe")
}

// Record appends how this program was called to its log.
func Record() error {
	line, err := json.Marshal(Call{Time: time.Now().UTC(), PID: os.Getpid(), Args: os.Args[1:]})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(Recorded, 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(Recorded, Name()+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.Write(append(line, '\n')); err != nil {
		return err
	}
	return f.Close()
}

// Run runs do until it ends, or the program is asked to end, and exits: as the Windows service name if asService is set,
// else as a console program, which CTRL_BREAK and CTRL_C end. do's context ends then. An error of do is exit code 1.
func Run(asService bool, name string, do func(ctx context.Context) error) {
	if !asService {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		err := do(ctx)
		stop()
		exit(err)
	}
	exit(svc.Run(name, handler(do)))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "E", Name()+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

type handler func(ctx context.Context) error

// Execute implements svc.Handler.
func (h handler) Execute(_ []string, requests <-chan svc.ChangeRequest, status chan<- svc.Status) (bool, uint32) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- h(ctx) }()
	status <- svc.Status{State: svc.Running, Accepts: svc.AcceptStop | svc.AcceptShutdown}
	for {
		select {
		case err := <-done:
			if err != nil {
				fmt.Fprintln(os.Stderr, "E", Name()+":", err)
				return true, 1
			}
			return false, 0
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
