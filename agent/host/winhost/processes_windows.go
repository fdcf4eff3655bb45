//go:build windows

package winhost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

const (
	outputLimit = 64 << 10
	// outputDelay is how long output of a program's children is waited for when it has ended itself.
	outputDelay = 2 * time.Second
)

type processes struct{}

func newProcesses() *processes { return &processes{} }

func (p *processes) Run(ctx context.Context, c host.Command) (host.Result, error) {
	if len(c.Argv) == 0 || !filepath.IsAbs(c.Argv[0]) {
		return host.Result{}, fmt.Errorf("run %q: %w: the program's path must be absolute", c.Argv, host.ErrInvalid)
	}
	if err := ctx.Err(); err != nil {
		return host.Result{}, err
	}
	// The machine's variables as they are now, not as they were when this process began.
	env, err := windows.GetCurrentProcessToken().Environ(false)
	if err != nil {
		return host.Result{}, failed(err, "read the environment for %s", c.Argv[0])
	}
	job, err := newJob()
	if err != nil {
		return host.Result{}, failed(err, "make a job for %s", c.Argv[0])
	}
	defer func() { _ = windows.CloseHandle(job) }() // kills what the program left behind

	stdout, stderr := &tail{limit: outputLimit}, &tail{limit: outputLimit}
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = c.Dir, slices.Concat(env, c.Env), stdout, stderr
	if cmd.Dir == "" {
		cmd.Dir = os.Getenv("SystemDrive") + `\`
	}
	if len(c.Stdin) > 0 {
		cmd.Stdin = bytes.NewReader(c.Stdin)
	}
	cmd.WaitDelay = outputDelay
	cmd.Cancel = func() error { return windows.TerminateJobObject(job, 1) }
	// It runs once it is in the job, so that no child of it is outside.
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_SUSPENDED | windows.CREATE_NO_WINDOW}
	if err := cmd.Start(); err != nil {
		return host.Result{}, failed(err, "start %s", c.Argv[0])
	}
	if err := release(cmd.Process, job); err != nil {
		return host.Result{}, errors.Join(failed(err, "start %s", c.Argv[0]), cmd.Process.Kill(), ignoreExit(cmd.Wait()))
	}
	err = cmd.Wait()
	result := host.Result{ExitCode: cmd.ProcessState.ExitCode(), Stdout: stdout.kept, Stderr: stderr.kept}
	if ended := ctx.Err(); ended != nil && !cmd.ProcessState.Success() {
		return result, fmt.Errorf("run %s: %w", c.Argv[0], ended)
	}
	return result, failed(ignoreExit(err), "run %s", c.Argv[0])
}

// ignoreExit drops what is no failure to run: an exit code, and children that keep the output open.
func ignoreExit(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) || errors.Is(err, exec.ErrWaitDelay) {
		return nil
	}
	return err
}

// newJob makes a job whose processes end when its handle is closed, be it because this process ends.
func newJob() (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, err
	}
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{}
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	if _, err := windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits))); err != nil {
		return 0, errors.Join(err, windows.CloseHandle(job))
	}
	return job, nil
}

// release puts a process that was started suspended into a job and lets it run.
func release(p *os.Process, job windows.Handle) error {
	var assigned error
	if err := p.WithHandle(func(h uintptr) { assigned = windows.AssignProcessToJobObject(job, windows.Handle(h)) }); err != nil {
		return err
	}
	if assigned != nil {
		return failed(assigned, "put it into a job")
	}
	thread, err := onlyThread(uint32(p.Pid))
	if err != nil {
		return failed(err, "find its thread")
	}
	defer func() { _ = windows.CloseHandle(thread) }()
	_, err = windows.ResumeThread(thread)
	return failed(err, "resume it")
}

// onlyThread opens the one thread that a suspended process has.
func onlyThread(pid uint32) (windows.Handle, error) {
	snapshot, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = windows.CloseHandle(snapshot) }()
	entry := windows.ThreadEntry32{}
	entry.Size = uint32(unsafe.Sizeof(entry))
	for err = windows.Thread32First(snapshot, &entry); err == nil; err = windows.Thread32Next(snapshot, &entry) {
		if entry.OwnerProcessID == pid {
			return windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, entry.ThreadID)
		}
	}
	return 0, err
}
