package runner

import (
	"fmt"
	"io"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// drainTime is how long the end of a program's output is waited for; a grandchild that lives on may hold the pipe for ever.
const drainTime = time.Second

// child is a program that runs, in a job that ends when its last handle is closed: with this process.
type child struct {
	process windows.Handle
	job     windows.Handle
	pid     uint32
	log     *Log          // nil: none
	drained chan struct{} // its output is at its end
}

// start starts the program. It runs no instruction before it is in its job.
func start(o Options) (_ *child, err error) {
	c := &child{drained: make(chan struct{})}
	if c.job, err = newJob(o.LeaveChildren); err != nil {
		return nil, fmt.Errorf("make a job object: %w", err)
	}
	stdin, err := openNUL(windows.GENERIC_READ)
	if err != nil {
		return nil, err
	}
	defer windows.CloseHandle(stdin) //nolint:errcheck // nothing is lost
	stdout, err := c.output(o)
	if err != nil {
		return nil, err
	}
	defer windows.CloseHandle(stdout) //nolint:errcheck // nothing is lost

	info, err := create(o, stdin, stdout)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", o.Argv[0], err)
	}
	defer windows.CloseHandle(info.Thread) //nolint:errcheck // nothing is lost
	c.process, c.pid = info.Process, info.ProcessId
	if err := windows.AssignProcessToJobObject(c.job, c.process); err != nil {
		_ = windows.TerminateProcess(c.process, ExitNotStarted)
		return nil, fmt.Errorf("put %s into its job: %w", o.Argv[0], err)
	}
	if class, ok := priorities()[o.Priority]; ok {
		if err := windows.SetPriorityClass(c.process, class); err != nil {
			c.sayf("%s keeps its priority class: %v", o.Argv[0], err)
		}
	}
	if _, err := windows.ResumeThread(info.Thread); err != nil {
		return nil, fmt.Errorf("start %s: %w", o.Argv[0], err)
	}
	return c, nil
}

func newJob(leaveChildren bool) (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, err
	}
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{}
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	if leaveChildren {
		limits.BasicLimitInformation.LimitFlags |= windows.JOB_OBJECT_LIMIT_SILENT_BREAKAWAY_OK
	}
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	return job, err
}

// output returns the handle that the program writes to.
func (c *child) output(o Options) (windows.Handle, error) {
	if o.LogFile == "" {
		close(c.drained)
		return openNUL(windows.GENERIC_WRITE)
	}
	var read, write windows.Handle
	if err := windows.CreatePipe(&read, &write, nil, 1<<20); err != nil {
		return 0, fmt.Errorf("make a pipe: %w", err)
	}
	if err := windows.SetHandleInformation(write, windows.HANDLE_FLAG_INHERIT, windows.HANDLE_FLAG_INHERIT); err != nil {
		return 0, fmt.Errorf("make a pipe: %w", err)
	}
	c.log = OpenLog(o.LogFile, o.Rotation)
	pipe := os.NewFile(uintptr(read), "pipe")
	go func() {
		defer close(c.drained)
		defer pipe.Close() //nolint:errcheck // it was only read
		_, _ = io.Copy(c.log, pipe)
	}()
	return write, nil
}

func openNUL(access uint32) (windows.Handle, error) {
	name, err := windows.UTF16PtrFromString("NUL")
	if err != nil {
		return 0, err
	}
	inherit := &windows.SecurityAttributes{InheritHandle: 1}
	inherit.Length = uint32(unsafe.Sizeof(*inherit))
	h, err := windows.CreateFile(name, access, windows.FILE_SHARE_READ|windows.FILE_SHARE_WRITE, inherit, windows.OPEN_EXISTING, 0, 0)
	if err != nil {
		return 0, fmt.Errorf("open NUL: %w", err)
	}
	return h, nil
}

// create creates the process, suspended.
func create(o Options, stdin, stdout windows.Handle) (*windows.ProcessInformation, error) {
	application, err := windows.UTF16PtrFromString(o.Argv[0])
	if err != nil {
		return nil, err
	}
	commandLine, err := windows.UTF16PtrFromString(windows.ComposeCommandLine(o.Argv))
	if err != nil {
		return nil, err
	}
	folder := o.Dir
	if folder == "" {
		folder = os.Getenv("SystemDrive") + `\`
	}
	dir, err := windows.UTF16PtrFromString(folder)
	if err != nil {
		return nil, err
	}
	attributes, err := windows.NewProcThreadAttributeList(1)
	if err != nil {
		return nil, err
	}
	defer attributes.Delete()
	handles := []windows.Handle{stdin, stdout}
	if err := attributes.Update(windows.PROC_THREAD_ATTRIBUTE_HANDLE_LIST, unsafe.Pointer(&handles[0]),
		uintptr(len(handles))*unsafe.Sizeof(handles[0])); err != nil {
		return nil, err
	}
	startup := &windows.StartupInfoEx{ProcThreadAttributeList: attributes.List()}
	startup.Cb = uint32(unsafe.Sizeof(*startup))
	startup.Flags = windows.STARTF_USESTDHANDLES
	startup.StdInput, startup.StdOutput, startup.StdErr = stdin, stdout, stdout
	flags := uint32(windows.CREATE_SUSPENDED | windows.EXTENDED_STARTUPINFO_PRESENT)
	if o.Mode == Service {
		flags |= windows.CREATE_NEW_PROCESS_GROUP // so that CTRL_BREAK reaches the program, and not us
	}
	info := &windows.ProcessInformation{}
	return info, windows.CreateProcess(application, commandLine, nil, nil, true, flags, nil, dir, &startup.StartupInfo, info)
}

// wait returns a channel that gives the exit code when the program has ended.
func (c *child) wait() <-chan uint32 {
	ended := make(chan uint32, 1)
	go func() {
		code := uint32(ExitNotStarted)
		_, _ = windows.WaitForSingleObject(c.process, windows.INFINITE)
		_ = windows.GetExitCodeProcess(c.process, &code)
		ended <- code
	}()
	return ended
}

// interrupt asks the program to end.
func (c *child) interrupt() error {
	return windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, c.pid)
}

// kill ends the program, and its children unless they are left alone.
func (c *child) kill() { _ = windows.TerminateJobObject(c.job, 1) }

// sayf writes a line of the runner's own into the program's log.
func (c *child) sayf(format string, args ...any) {
	if c.log != nil {
		_, _ = fmt.Fprintf(c.log, "[capw-node] "+format+"\n", args...)
	}
}

// finish writes the end of the output to the log.
func (c *child) finish() {
	select {
	case <-c.drained:
	case <-time.After(drainTime):
	}
	if c.log != nil {
		c.log.Close()
	}
}
