// Package process runs programs as children that cannot outlive this process.
//
// A Runner starts every child from one operating system thread that lives as long as the Runner. On Linux the kernel
// kills a child when the thread that created it ends (PR_SET_PDEATHSIG), so even SIGKILL of this process leaves no child
// behind; started from an arbitrary goroutine a child would already die when the Go runtime retires that thread.
// On other systems children die with an orderly Close only, or when they see that their standard input, a pipe from this
// process, has ended.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Spec says what to run.
type Spec struct {
	// Name is unique among the running children of a Runner. The output is appended to <log dir>/<Name>.log.
	Name string

	// Path of the executable.
	Path string
	Args []string

	// Env is added to the environment of this process, as NAME=value.
	Env []string

	// GracePeriod is the time between SIGTERM and SIGKILL when the child is stopped. Zero kills at once: right for a
	// program whose data is thrown away.
	GracePeriod time.Duration
}

// Process is a child that was started.
type Process struct {
	spec   Spec
	cmd    *exec.Cmd
	log    string
	first  *firstLine
	exited chan struct{}

	// Valid after exited is closed.
	waitErr  error // the exit status, nil for 0
	groupErr error // a descendant is left

	mu       sync.Mutex
	stopping bool // someone asked for the exit
	killed   bool // by SIGKILL
}

// ExitError reports a child that ended though nobody had asked, or that did not end as it should.
type ExitError struct {
	Name string
	// Reason is what is wrong.
	Reason error
	// Log is the path of the child's output, Tail its end.
	Log, Tail string
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("%s: %v; the end of %s:\n%s", e.Name, e.Reason, e.Log, e.Tail)
}

func (e *ExitError) Unwrap() error { return e.Reason }

// Name returns the name of the Spec.
func (p *Process) Name() string { return p.spec.Name }

// PID returns the process id, which is also the id of the child's process group.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Log returns the path of the child's output.
func (p *Process) Log() string { return p.log }

// Exited is closed when the child and its process group have ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Err returns an *ExitError if the child has ended without being asked to, else nil.
func (p *Process) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running() || p.stopping {
		return nil
	}
	return p.exitError(fmt.Errorf("exited unexpectedly: %w", p.status()))
}

// status returns how the child has ended, never nil.
func (p *Process) status() error {
	if p.waitErr == nil {
		return errors.New("exit status 0")
	}
	return p.waitErr
}

// FirstLine returns the first line that the child writes to its standard output, without the line end.
func (p *Process) FirstLine(ctx context.Context) (string, error) {
	select {
	case <-p.first.done:
		return p.first.String(), nil
	case <-p.exited:
		// Everything written is in the buffer once the child was waited for.
		select {
		case <-p.first.done:
			return p.first.String(), nil
		default:
		}
		return "", p.exitError(errors.New("ended before it wrote a line"))
	case <-ctx.Done():
		return "", p.exitError(fmt.Errorf("waiting for the first line of output: %w", context.Cause(ctx)))
	}
}

// Await calls probe until it succeeds. It gives up when the child ends, and when ctx is done or timeout has passed;
// the error then tells what probe said last, and the end of the log.
func (p *Process) Await(ctx context.Context, timeout time.Duration, probe func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		last := probe(ctx)
		if last == nil {
			return nil
		}
		select {
		case <-p.exited:
			return p.exitError(fmt.Errorf("ended before it was ready: %w", p.status()))
		case <-ctx.Done():
			return p.exitError(fmt.Errorf("not ready: %w (last: %w)", context.Cause(ctx), last))
		case <-tick.C:
		}
	}
}

// Stop ends the child: SIGTERM, and SIGKILL when the grace period has passed or ctx is done. It returns when the child
// and its process group are gone. A child that has a grace period must end in it with status 0, else Stop returns an
// *ExitError. Stopping a child that has ended already returns Err.
func (p *Process) Stop(ctx context.Context) error {
	if p.spec.GracePeriod == 0 {
		return p.Kill()
	}
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	grace := time.NewTimer(p.spec.GracePeriod)
	defer grace.Stop()
	var late error
	select {
	case <-p.exited:
		return p.outcome()
	case <-ctx.Done():
		late = fmt.Errorf("waiting for exit after SIGTERM: %w", context.Cause(ctx))
	case <-grace.C:
		late = fmt.Errorf("still running %s after SIGTERM", p.spec.GracePeriod)
	}
	return errors.Join(p.exitError(late), p.Kill())
}

// Kill ends the child and its process group with SIGKILL and returns when they are gone.
// If the child had ended already without being asked to, Kill returns Err.
func (p *Process) Kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.exited
	return p.outcome()
}

// outcome judges the end of a child that was asked to end.
func (p *Process) outcome() error {
	if err := p.Err(); err != nil {
		return err
	}
	p.mu.Lock()
	killed := p.killed
	p.mu.Unlock()
	switch {
	case p.groupErr != nil:
		return p.exitError(p.groupErr)
	case p.waitErr != nil && !killed:
		return p.exitError(fmt.Errorf("ending on SIGTERM: %w", p.waitErr))
	}
	return nil
}

// signal sends sig and remembers that the exit is wanted: SIGTERM to the child, as a container runtime does, SIGKILL to its
// whole group. A child that has ended is left alone: in time its process id may belong to somebody else.
func (p *Process) signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return nil
	}
	p.stopping = true
	var err error
	if sig == syscall.SIGKILL {
		p.killed = true
		err = syscall.Kill(-p.PID(), sig)
	} else {
		err = p.cmd.Process.Signal(sig)
	}
	if err != nil && !errors.Is(err, syscall.ESRCH) && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("sending %s to %s: %w", sig, p.spec.Name, err)
	}
	return nil
}

func (p *Process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// wait reaps the child and ends its descendants.
func (p *Process) wait(log io.Closer, onExit func(*Process)) {
	p.waitErr = p.cmd.Wait()
	p.groupErr = killGroup(p.PID())
	_ = log.Close()
	p.mu.Lock()
	close(p.exited)
	p.mu.Unlock()
	if onExit != nil {
		onExit(p)
	}
}

// killGroup returns nil when no process of the group runs any more.
func killGroup(pgid int) error {
	deadline := time.Now().Add(5 * time.Second)
	for tick := time.Tick(10 * time.Millisecond); groupAlive(pgid); <-tick {
		if time.Now().After(deadline) {
			return fmt.Errorf("a descendant in process group %d survived SIGKILL", pgid)
		}
		// An error means that the last one has just ended.
		_ = syscall.Kill(-pgid, syscall.SIGKILL)
	}
	return nil
}

func (p *Process) exitError(reason error) *ExitError {
	return &ExitError{Name: p.spec.Name, Reason: reason, Log: p.log, Tail: tail(p.log, 4<<10)}
}

// tail returns the last complete lines of a file, at most max bytes.
func tail(path string, maxBytes int64) string {
	f, err := os.Open(filepath.Clean(path))
	if err != nil {
		return err.Error()
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err.Error()
	}
	from := max(0, info.Size()-maxBytes)
	b, err := io.ReadAll(io.NewSectionReader(f, from, maxBytes))
	if err != nil {
		return err.Error()
	}
	if _, rest, ok := bytes.Cut(b, []byte("\n")); ok && from > 0 {
		b = rest
	}
	return string(bytes.TrimRight(b, "\n"))
}

// firstLine passes everything on to w and keeps the first line.
type firstLine struct {
	w    io.Writer
	line bytes.Buffer
	done chan struct{}
	seen bool
}

func (f *firstLine) Write(b []byte) (int, error) {
	if !f.seen {
		line, _, ended := bytes.Cut(b, []byte("\n"))
		f.line.Write(line)
		if ended {
			f.seen = true
			close(f.done)
		}
	}
	return f.w.Write(b)
}

// String may be called once done is closed.
func (f *firstLine) String() string { return string(bytes.TrimRight(f.line.Bytes(), "\r")) }
