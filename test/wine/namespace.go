//go:build linux

package wine

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

//go:embed boot.sh
var bootScript string

// inside is where a machine's folder is for what runs in it.
const inside = "/mnt"

// namespace is a set of processes with mounts, process ids and a host name of their own.
type namespace struct {
	init   *exec.Cmd
	stdin  io.Closer
	stderr *bytes.Buffer
	ended  chan struct{}
}

// newNamespace starts process 1 of a machine whose folder is dir.
func newNamespace(ctx context.Context, dir, name string) (_ *namespace, rerr error) {
	n := &namespace{stderr: &bytes.Buffer{}, ended: make(chan struct{})}
	n.init = exec.Command("/bin/sh", "-c", bootScript, "boot.sh", dir, name) //nolint:noctx // lives until close
	n.init.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	n.init.Stderr = n.stderr
	n.init.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		// Also SIGKILL of this process ends the machine, even if something else holds the other end of its standard input.
		Pdeathsig: syscall.SIGKILL,
		Setpgid:   true,
	}
	stdin, err := n.init.StdinPipe()
	if err != nil {
		return nil, err
	}
	n.stdin = stdin
	stdout, err := n.init.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := n.start(); err != nil {
		return nil, fmt.Errorf("creating namespaces (root with CAP_SYS_ADMIN is needed): %w", err)
	}
	defer func() {
		if rerr != nil {
			n.close()
		}
	}()
	stop := context.AfterFunc(ctx, n.close)
	defer stop()
	ready := make([]byte, len("ready\n"))
	if _, err := io.ReadFull(stdout, ready); err != nil {
		n.close()
		return nil, fmt.Errorf("setting up namespaces (root with CAP_SYS_ADMIN is needed): %w: %s", err, bytes.TrimSpace(n.stderr.Bytes()))
	}
	return n, nil
}

// start runs process 1 from a thread that lives as long as it: the kernel kills it when its parent thread ends.
func (n *namespace) start() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		err := n.init.Start()
		started <- err
		if err != nil {
			return
		}
		_ = n.init.Wait() // it is killed, in the end
		close(n.ended)
	}()
	return <-started
}

// close ends all processes and returns when they are gone.
func (n *namespace) close() {
	_ = n.init.Process.Kill() // an error says that it has ended
	<-n.ended
}

// command returns a command that runs argv in dir, a path of the namespace. When it is killed, so is argv's process.
func (n *namespace) command(ctx context.Context, dir string, env, argv []string) *exec.Cmd {
	args := []string{
		"--target=" + strconv.Itoa(n.init.Process.Pid), "--mount", "--uts", "--ipc", "--pid", "--",
		"/bin/sh", "-c", `cd "$0" && exec /usr/bin/setpriv --pdeathsig KILL -- "$@"`, dir,
	}
	cmd := exec.CommandContext(ctx, "/usr/bin/nsenter", append(args, argv...)...)
	cmd.Env = env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// A service that was started meanwhile may hold the output open.
	cmd.WaitDelay = time.Second
	return cmd
}

// Process is a process of a machine.
type Process struct {
	// PID as this Linux counts, not as the machine's Windows does.
	PID int
	// Args of the process, the first is its program.
	Args []string
}

// Image is the name of the process's program, such as kubelet.exe.
func (p Process) Image() string {
	return p.Args[0][strings.LastIndexAny(p.Args[0], `\/`)+1:]
}

// processes returns those of the namespace, without process 1.
func (n *namespace) processes() ([]Process, error) {
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", n.init.Process.Pid))
	if err != nil {
		return nil, fmt.Errorf("the machine is off: %w", err)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var out []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == n.init.Process.Pid {
			continue
		}
		// What cannot be read has ended; a zombie has no arguments.
		if ns, err := os.Readlink(filepath.Join("/proc", e.Name(), "ns/pid")); err != nil || ns != own {
			continue
		}
		cmdline, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || len(cmdline) == 0 {
			continue
		}
		out = append(out, Process{PID: pid, Args: strings.Split(strings.TrimRight(string(cmdline), "\x00"), "\x00")})
	}
	return out, nil
}

// kill ends processes of the namespace at once; those that have ended meanwhile are no error.
func kill(processes []Process) error {
	var errs []error
	for _, p := range processes {
		if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, fmt.Errorf("killing %v: %w", p.Args, err))
		}
	}
	return errors.Join(errs...)
}
