//go:build linux

// Package wine runs Windows machines for tests: Wine prefixes, each with mounts, processes and a host name of its own.
//
// What is true about Windows is true about them for programs, files, sharing violations, the registry, named pipes, TCP and
// most of the service control manager. It is not in this:
//
//   - Wine says yes and does nothing to access control, recovery actions and dependencies of services, links, DISM, netsh and
//     PowerShell: no test of such things proves anything here.
//   - A service whose process was killed is said to run; nobody starts it again.
//   - Starting a service fails with ERROR_SERVICE_DATABASE_LOCKED for some seconds after a boot.
//   - UDP and AF_UNIX of Go do not work; os.RemoveAll does only in test binaries of assets.BuildWindowsTest.
//   - All machines share the network of this Linux, 127.0.0.1 too.
//
// Nothing of a machine is left after Shutdown, nor when the process that made it ends in whatever way; then its folder goes
// when the next machine is made.
package wine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/capw-dev/cluster-api-provider-windows/test/env/workdir"
)

// Options for NewVM. The zero value is a Windows Server 2022 on VMware.
type Options struct {
	// Name is the computer's name, at most 15 letters, digits and hyphens. Default: win-1.
	Name string
	// Build of Windows Server: 17763, 20348 or 26100. Default: 20348.
	Build int
	// UUID of the firmware. Default: a random one.
	UUID uuid.UUID
	// Hosts are names that the machine resolves, with their addresses, beside its own.
	Hosts map[string]string
	// Log receives one line when something takes long, or is strange. Default: none.
	Log io.Writer
}

// bootTimeout bounds a boot, on a machine that is busy with other tests.
const bootTimeout = 2 * time.Minute

// VM is a machine that runs.
type VM struct {
	// Name and UUID as in Options.
	Name string
	UUID uuid.UUID

	dir *workdir.Dir
	ns  *namespace
	log io.Writer

	mu    sync.Mutex
	ended bool
}

// Result is how a program ended.
type Result struct {
	// ExitCode is only the low eight bits of what the program said.
	ExitCode int
	// Output is what it wrote to standard output and standard error, with line ends as in Unix.
	Output string
}

// NewVM makes a machine and boots it. ctx bounds only that; the machine then lives until Shutdown.
func NewVM(ctx context.Context, opts Options) (_ *VM, rerr error) {
	opts.Name = cmp.Or(opts.Name, "win-1")
	opts.Build = cmp.Or(opts.Build, 20348)
	if opts.Log == nil {
		opts.Log = io.Discard
	}
	if opts.UUID == uuid.Nil {
		opts.UUID = uuid.New()
	}
	i := slices.IndexFunc(releases(), func(r release) bool { return r.build == opts.Build })
	if i < 0 {
		return nil, fmt.Errorf("there is no Windows Server of build %d", opts.Build)
	}
	from, err := template(ctx, releases()[i], opts.Log)
	if err != nil {
		return nil, fmt.Errorf("preparing machine %s: %w", opts.Name, err)
	}
	vm := &VM{Name: opts.Name, UUID: opts.UUID, log: opts.Log}
	if vm.dir, err = workdir.New("", "capw-wine-*"); err != nil {
		return nil, err
	}
	defer func() {
		if rerr != nil {
			rerr = fmt.Errorf("booting machine %s: %w", opts.Name, errors.Join(rerr, vm.Shutdown()))
		}
	}()
	if err := layOut(vm.dir.Path, identity{name: opts.Name, uuid: opts.UUID, hosts: opts.Hosts}); err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, "/bin/cp", "--archive", "--reflink=auto", filepath.Join(from, "prefix"), vm.dir.Path).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("copying template: %w: %s", err, out)
	}
	if err := vm.seedRegistry(); err != nil {
		return nil, err
	}
	if vm.ns, err = newNamespace(ctx, vm.dir.Path, opts.Name); err != nil {
		return nil, err
	}
	return vm, vm.boot(ctx)
}

// seedRegistry adds what Windows has of the firmware in the registry, and the kubelet reads there.
func (vm *VM) seedRegistry() (rerr error) {
	f, err := os.OpenFile(filepath.Join(vm.dir.Path, "prefix", "system.reg"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("seeding the registry: %w", err)
	}
	defer func() { rerr = errors.Join(rerr, f.Close()) }()
	_, err = fmt.Fprintf(f, "\n[System\\\\HardwareConfig] 0\n\"LastConfig\"=\"{%s}\"\n", vm.UUID)
	return err
}

// Path returns where a file of drive C: is for this process, whether it exists or not. Windows does not mind the case of
// names, Linux does: it is the file that Windows would find.
func (vm *VM) Path(windows string) string {
	path := filepath.Join(vm.dir.Path, "prefix", "drive_c")
	rest := strings.TrimPrefix(strings.TrimPrefix(strings.ReplaceAll(windows, `\`, "/"), "C:"), "c:")
	for part := range strings.SplitSeq(strings.Trim(rest, "/"), "/") {
		next := filepath.Join(path, part)
		if _, err := os.Lstat(next); err != nil {
			entries, _ := os.ReadDir(path) // without any there is none of this name
			for _, e := range entries {
				if strings.EqualFold(e.Name(), part) {
					next = filepath.Join(path, e.Name())
				}
			}
		}
		path = next
	}
	return path
}

// Install copies a file of this Linux to a path of Windows, with all folders. What is there is replaced, even one of Wine's
// own programs; if it runs, it goes on running.
func (vm *VM) Install(file, windows string) error {
	content, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		return fmt.Errorf("installing %s: %w", windows, err)
	}
	return vm.WriteFile(windows, content)
}

// WriteFile is Install for content.
func (vm *VM) WriteFile(windows string, content []byte) error {
	path := vm.Path(windows)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("writing %s: %w", windows, err)
	}
	// It may be a link to the Wine of this Linux.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("writing %s: %w", windows, err)
	}
	if err := os.WriteFile(path, content, 0o755); err != nil {
		return fmt.Errorf("writing %s: %w", windows, err)
	}
	return nil
}

// ReadFile returns the content of a file of drive C:.
func (vm *VM) ReadFile(windows string) ([]byte, error) {
	return os.ReadFile(filepath.Clean(vm.Path(windows)))
}

// Run runs a program of Windows and waits for its end. The first argument is its path or, for one of Windows' own, its name.
// An exit code is no error. When ctx ends the program is killed.
func (vm *VM) Run(ctx context.Context, argv ...string) (Result, error) {
	var out bytes.Buffer
	cmd := vm.Command(ctx, argv...)
	cmd.Stdout, cmd.Stderr = &out, &out
	code, err := exitCode(ctx, cmd)
	r := Result{ExitCode: code, Output: strings.ReplaceAll(out.String(), "\r\n", "\n")}
	if err != nil {
		return r, fmt.Errorf("running %s on %s: %w; it said: %s", argv[0], vm.Name, err, r.Output)
	}
	return r, nil
}

// exitCode runs cmd. The error is that of ctx when it has ended meanwhile.
func exitCode(ctx context.Context, cmd *exec.Cmd) (int, error) {
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return -1, context.Cause(ctx)
	case err == nil, errors.As(err, &exit), errors.Is(err, exec.ErrWaitDelay):
		return cmd.ProcessState.ExitCode(), nil
	default:
		return -1, err
	}
}

// MustSucceed is Run, with an error for every exit code but 0.
func (vm *VM) MustSucceed(ctx context.Context, argv ...string) (string, error) {
	r, err := vm.Run(ctx, argv...)
	if err == nil && r.ExitCode != 0 {
		err = fmt.Errorf("running %s on %s: exit code %d: %s", argv[0], vm.Name, r.ExitCode, r.Output)
	}
	return r.Output, err
}

// Command returns a command that runs a program of Windows in C:\, for those who want its output while it runs, or give it
// input or variables (appended to Env). When it is killed, so is the program.
func (vm *VM) Command(ctx context.Context, argv ...string) *exec.Cmd {
	return vm.ns.command(ctx, inside+"/prefix/drive_c", environment(), append([]string{"/usr/bin/wine"}, argv...))
}

// boot starts Windows, and with it the services that start automatically.
func (vm *VM) boot(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, bootTimeout, fmt.Errorf("not up after %s", bootTimeout))
	defer cancel()
	begin := time.Now()
	for _, argv := range [][]string{
		{"/usr/bin/wineserver", "-p"}, // else Windows ends when the last program does that is no service
		{"/usr/bin/wine", "cmd", "/c", "ver"},
	} {
		// Without pipes: the services that it starts would hold them.
		if err := vm.ns.command(ctx, inside+"/prefix/drive_c", environment(), argv).Run(); err != nil {
			return fmt.Errorf("starting Windows: %s: %w", strings.Join(argv, " "), cmp.Or(context.Cause(ctx), err))
		}
	}
	if took := time.Since(begin); took > 10*time.Second {
		_, _ = fmt.Fprintf(vm.log, "%s took %s to boot\n", vm.Name, took.Round(100*time.Millisecond))
	}
	return nil
}

// Reboot ends all programs without telling them, and boots: registry and files are as they were. It returns when Windows is
// up; services that start automatically may still be starting.
func (vm *VM) Reboot(ctx context.Context) error {
	for _, flag := range []string{"-k", "-w"} {
		// "-k" says 2 when there is nothing to end.
		_ = vm.ns.command(ctx, inside, environment(), []string{"/usr/bin/wineserver", flag}).Run()
	}
	return vm.powerCycle(ctx)
}

// Rename gives the machine a name that Windows has from the next boot on. Wine takes it from Linux at every boot; the name
// that programs of Windows set is lost.
func (vm *VM) Rename(ctx context.Context, name string) error {
	out, err := vm.ns.command(ctx, "/", environment(), []string{"/bin/hostname", name}).CombinedOutput()
	if err != nil {
		return fmt.Errorf("renaming %s: %w: %s", vm.Name, err, out)
	}
	vm.Name = name
	return nil
}

// PowerCut ends everything at once, and boots. What the registry did not have on disk is lost, as on Windows.
func (vm *VM) PowerCut(ctx context.Context) error { return vm.powerCycle(ctx) }

func (vm *VM) powerCycle(ctx context.Context) error {
	for {
		left, err := vm.ns.processes()
		if err != nil {
			return err
		}
		if len(left) == 0 {
			break
		}
		if err := kill(left); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("turning %s off: %w", vm.Name, context.Cause(ctx))
		case <-time.After(10 * time.Millisecond):
		}
	}
	return vm.boot(ctx)
}

// Processes returns the programs that run with the given name, such as kubelet.exe, or with any name if it is empty.
func (vm *VM) Processes(image string) ([]Process, error) {
	all, err := vm.ns.processes()
	return slices.DeleteFunc(all, func(p Process) bool { return image != "" && !strings.EqualFold(p.Image(), image) }), err
}

// Kill ends the programs that run with the given name at once, and says how many there were. The service control manager
// does not notice: unlike on Windows, it says that the service of a killed process runs.
func (vm *VM) Kill(image string) (int, error) {
	running, err := vm.Processes(image)
	if err != nil {
		return 0, err
	}
	return len(running), kill(running)
}

// Shutdown ends the machine and removes all of it. It may be repeated.
func (vm *VM) Shutdown() error {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	if vm.ended {
		return nil
	}
	vm.ended = true
	if vm.ns != nil {
		vm.ns.close()
	}
	return vm.dir.Close(false)
}

// identity is what machines differ in.
type identity struct {
	name  string
	uuid  uuid.UUID
	hosts map[string]string
}

// layOut makes what boot.sh expects in a machine's folder.
func layOut(dir string, id identity) error {
	hosts := "127.0.0.1 localhost\n127.0.1.1 " + id.name + "\n"
	for name, address := range id.hosts {
		hosts += address + " " + name + "\n"
	}
	files := map[string]string{
		"hosts":                   hosts,
		"home/.keep":              "",
		"tmp/.keep":               "",
		"class/net/.keep":         "",
		"var/lib/dbus/machine-id": strings.ReplaceAll(id.uuid.String(), "-", "") + "\n",
	}
	for name, value := range map[string]string{
		"bios_vendor": "VMware, Inc.", "bios_version": "VMW201.00V.24006586.B64.2406042154", "bios_date": "06/04/2024",
		"sys_vendor": "VMware, Inc.", "product_name": "VMware7,1", "product_version": "None",
		"product_serial": vmwareSerial(id.uuid),
	} {
		files["class/dmi/id/"+name] = value + "\n"
	}
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// vmwareSerial is the UUID as VMware writes it into the serial number.
func vmwareSerial(u uuid.UUID) string {
	return fmt.Sprintf("VMware-% x-% x", u[:8], u[8:])
}
