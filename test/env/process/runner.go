package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Runner starts children and ends them. Create it with NewRunner and end it with Close.
type Runner struct {
	logDir string
	onExit func(*Process)
	calls  chan func()

	mu        sync.Mutex
	closed    bool
	processes []*Process
}

// NewRunner returns a Runner whose children write their output below logDir. onExit, if not nil, is called after each exit
// of a child, wanted or not (Process.Err tells), in a goroutine of its own.
func NewRunner(logDir string, onExit func(*Process)) (*Runner, error) {
	if err := os.MkdirAll(logDir, 0o750); err != nil {
		return nil, fmt.Errorf("creating log directory: %w", err)
	}
	r := &Runner{logDir: logDir, onExit: onExit, calls: make(chan func())}
	go r.parent()
	return r, nil
}

// parent is the thread that all children belong to. It never unlocks: when the Runner is closed, the thread ends with the
// goroutine, and the kernel kills what should be left.
func (r *Runner) parent() {
	runtime.LockOSThread()
	for call := range r.calls {
		call()
	}
}

// Start runs a child. It returns when the program has been executed, not when it is ready.
func (r *Runner) Start(spec Spec) (*Process, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, fmt.Errorf("starting %s: the runner is closed", spec.Name)
	}
	r.processes = slices.DeleteFunc(r.processes, func(p *Process) bool {
		// A wanted exit is history; an unwanted one stays until Close reports it.
		return !p.running() && p.Err() == nil
	})
	if slices.ContainsFunc(r.processes, func(p *Process) bool { return p.Name() == spec.Name && p.running() }) {
		return nil, fmt.Errorf("starting %s: it is running", spec.Name)
	}

	path := filepath.Join(r.logDir, spec.Name+".log")
	log, err := os.OpenFile(filepath.Clean(path), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("starting %s: opening its log: %w", spec.Name, err)
	}
	p := &Process{
		spec:   spec,
		log:    path,
		first:  &firstLine{w: log, done: make(chan struct{})},
		exited: make(chan struct{}),
	}
	p.cmd = &exec.Cmd{
		Path:        spec.Path,
		Args:        append([]string{spec.Path}, spec.Args...),
		Env:         append(os.Environ(), spec.Env...),
		Stdout:      p.first,
		Stderr:      log,
		SysProcAttr: sysProcAttr(),
		// A descendant that holds the output open must not keep Wait from returning.
		WaitDelay: time.Second,
	}
	// Nothing is ever written: a child that reads its standard input sees its end when this process ends.
	if _, err := p.cmd.StdinPipe(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", spec.Name, err), log.Close())
	}
	started := make(chan error)
	r.calls <- func() { started <- p.cmd.Start() }
	if err := <-started; err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", spec.Name, err), log.Close())
	}
	r.processes = append(r.processes, p)
	go p.wait(log, r.onExit)
	return p, nil
}

// Running returns the children that have not ended, in the order of their start.
func (r *Runner) Running() []*Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.processes), func(p *Process) bool { return !p.running() })
}

// Close stops the children that are left, the last one first, and ends the Runner. It returns the errors of Stop and of
// every child that had ended without being asked to; with a nil error no child and no descendant in its group is left.
func (r *Runner) Close(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	var errs []error
	for _, p := range slices.Backward(r.processes) {
		errs = append(errs, p.Stop(ctx))
	}
	close(r.calls)
	return errors.Join(errs...)
}
