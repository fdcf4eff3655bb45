package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// Program is what an executable does, up to its exit code. It ends soon after its context does, whose cause then says why:
// ErrStop, ErrShutdown, ErrKilled or ErrPowerLost.
type Program func(ctx context.Context, p *Process) int

// Causes of the end of a program's context, beside ErrKilled and ErrPowerLost.
var (
	// ErrStop: the SCM stops the service.
	ErrStop = errors.New("the service is stopped")
	// ErrShutdown: Windows shuts down.
	ErrShutdown = errors.New("the machine shuts down")
)

// ExitKilled is the exit code of a process that was killed.
const ExitKilled = 1

// Process is a process of the machine.
type Process struct {
	// PID differs for every process of a boot.
	PID uint32
	// Argv is the program and its arguments, Dir its working folder, Env its environment, NAME=value.
	Argv []string
	Dir  string
	Env  []string
	// Host is the machine for code that runs in the process: dead when the process is.
	Host *host.Host
	// Stdin, Stdout and Stderr are never nil.
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	m       *Machine
	boot    *boot
	exe     *file       // nil: a handle of Machine.Host
	service *serviceRun // of this process; a child that was started with Exec has its parent's
	main    bool        // it is the process that the SCM started
	cancel  context.CancelCauseFunc
	dead    error // why it is dead; nil: it lives. m.mu guards it.
	gone    chan struct{}
	exit    uint32
	onDeath map[any]func()
}

// newProcess makes a process that lives, and the context of its program. m.mu is held.
func (b *boot) newProcess(ctx context.Context, argv []string) (*Process, context.Context) {
	b.nextPID += 4
	p := &Process{
		PID: b.nextPID, Argv: argv, Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard,
		m: b.m, boot: b, gone: make(chan struct{}), onDeath: map[any]func(){},
	}
	ctx, p.cancel = context.WithCancelCause(ctx)
	p.Host = p.host()
	b.processes[p] = struct{}{}
	return p, ctx
}

// host returns the handle of a process.
func (p *Process) host() *host.Host {
	return &host.Host{
		System: system{p}, Files: files{p}, Processes: processes{p}, Services: services{p}, Registry: registry{p},
		Network: network{p}, HNS: hns{p}, Firewall: firewall{p}, Features: features{p}, Users: users{p},
		Certificates: certificates{p}, Volumes: volumes{p}, Domain: domain{p}, Reporting: reporting{p},
	}
}

// launch prepares a process of a program. m.mu is held. The caller calls run.
func (b *boot) launch(ctx context.Context, argv []string) (*Process, func() int, error) {
	if len(argv) == 0 {
		return nil, nil, fmt.Errorf("start a program: no path: %w", host.ErrInvalid)
	}
	exe, err := b.m.lookup(argv[0])
	if err != nil {
		return nil, nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	if exe.dir {
		return nil, nil, fmt.Errorf("start %s: %w", argv[0], fs.ErrPermission)
	}
	program := b.m.program(argv[0])
	if program == nil {
		return nil, nil, fmt.Errorf("start %s: not a valid Win32 application: %w", argv[0], host.ErrInvalid)
	}
	p, pctx := b.newProcess(ctx, slices.Clone(argv))
	p.exe, p.Dir = exe, systemDrive+`\`
	exe.running++
	b.work.Add(1)
	run := func() int {
		defer b.work.Done()
		code := program(pctx, p)
		p.m.mu.Lock()
		defer p.m.mu.Unlock()
		if p.dead == nil {
			p.exit = uint32(code) //nolint:gosec // exit codes are 32 bits
			p.die(ErrKilled)
		}
		return int(p.exit)
	}
	return p, run, nil
}

// program returns the function of an executable.
func (m *Machine) program(path string) Program {
	var byName Program
	for name, program := range m.opts.Programs {
		switch {
		case fold(name) == fold(path):
			return program
		case fold(name) == fold(base(path)):
			byName = program
		}
	}
	return byName
}

// die ends a process: its handle is dead, what it holds is released, and the SCM notices. m.mu is held.
func (p *Process) die(why error) {
	if p.dead != nil {
		return
	}
	p.dead = why
	delete(p.boot.processes, p)
	if p.exe != nil {
		p.exe.running--
	}
	close(p.gone)
	p.cancel(why)
	for _, release := range p.onDeath {
		release()
	}
	p.onDeath = nil
	if p.service != nil && p.main && !errors.Is(why, ErrPowerLost) {
		p.service.ended(p)
	}
}

// kill ends a process from outside.
func (p *Process) kill() {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	p.killLocked()
}

func (p *Process) killLocked() {
	if p.dead == nil {
		p.exit = ExitKilled
		p.killed()
		p.die(ErrKilled)
	}
}

// killed remembers for the SCM that the process did not end by itself.
func (p *Process) killed() {
	if p.service != nil && p.main {
		p.service.killed = true
	}
}

// stop ends the context of its program.
func (p *Process) stop(why error) { p.cancel(why) }

func (p *Process) deadErr() error {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	return p.dead
}

// within returns a context that ends with the process, too. The caller calls release.
func (p *Process) within(ctx context.Context) (_ context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if p.dead != nil {
		cancel(p.dead)
		return ctx, func() {}
	}
	key := new(byte)
	p.onDeath[key] = func() { cancel(ErrKilled) }
	return ctx, func() {
		p.m.mu.Lock()
		delete(p.onDeath, key)
		p.m.mu.Unlock()
		cancel(nil)
	}
}

// Getenv returns a variable of its environment.
func (p *Process) Getenv(name string) string { return getenv(p.Env, name) }

func getenv(env []string, name string) string {
	for _, e := range slices.Backward(env) {
		if k, v, _ := strings.Cut(e, "="); fold(k) == fold(name) {
			return v
		}
	}
	return ""
}

// Running tells the SCM that the service runs. In a process that is no service, it does nothing.
func (p *Process) Running() {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if p.service != nil && p.dead == nil {
		p.service.running()
	}
}

// IsService says whether the SCM started it, or a parent that it inherited the connection from.
func (p *Process) IsService() bool { return p.service != nil }

// Exec runs another program as a child with the same environment, output and connection to the SCM, and returns its exit
// code. The child's context ends with ctx, and it is killed when p is. It is no host call: no fault is injected.
func (p *Process) Exec(ctx context.Context, argv ...string) (int, error) {
	p.m.mu.Lock()
	if p.dead != nil {
		defer p.m.mu.Unlock()
		return 0, p.dead
	}
	child, run, err := p.boot.launch(ctx, argv)
	if err != nil {
		p.m.mu.Unlock()
		return 0, err
	}
	child.Env, child.Dir, child.service = p.Env, p.Dir, p.service
	child.Stdin, child.Stdout, child.Stderr = p.Stdin, p.Stdout, p.Stderr
	p.adopt(child)
	p.m.mu.Unlock()
	return run(), nil
}

// adopt makes a child die with p, as processes of a job do. m.mu is held.
func (p *Process) adopt(child *Process) {
	p.onDeath[child] = child.killLocked
	child.onDeath[p] = func() { delete(p.onDeath, child) }
}

// processes fills host.Processes.
type processes struct{ p *Process }

func (x processes) Run(ctx context.Context, c host.Command) (host.Result, error) {
	return blocking(ctx, x.p, "Processes.Run", strings.Join(c.Argv, " "), func() (host.Result, error) {
		return x.p.run(ctx, c)
	})
}

func (p *Process) run(ctx context.Context, c host.Command) (host.Result, error) {
	p.m.mu.Lock()
	if p.dead != nil {
		defer p.m.mu.Unlock()
		return host.Result{}, p.dead
	}
	if err := validCommand(c); err != nil {
		p.m.mu.Unlock()
		return host.Result{}, err
	}
	child, run, err := p.boot.launch(ctx, c.Argv)
	if err != nil {
		p.m.mu.Unlock()
		return host.Result{}, err
	}
	var stdout, stderr tail
	child.Stdout, child.Stderr, child.Stdin = &stdout, &stderr, bytes.NewReader(c.Stdin)
	child.Env = mergeEnv(p.m.disk.environment.all(), c.Env)
	if c.Dir != "" {
		child.Dir = c.Dir
	}
	p.adopt(child)
	p.m.mu.Unlock()
	go run()
	select {
	case <-ctx.Done():
		child.kill()
		return host.Result{}, ctx.Err()
	case <-child.gone:
	}
	if err := ctx.Err(); err != nil {
		return host.Result{}, err
	}
	return host.Result{ExitCode: int(child.exit), Stdout: stdout.bytes(), Stderr: stderr.bytes()}, nil
}

func validCommand(c host.Command) error {
	for _, a := range append(slices.Clone(c.Argv), c.Env...) {
		if strings.ContainsRune(a, 0) {
			return fmt.Errorf("start a program: a NUL in %q: %w", a, host.ErrInvalid)
		}
	}
	return nil
}

// mergeEnv returns an environment block, sorted; extra overrides.
func mergeEnv(base map[string]string, extra []string) []string {
	var merged folded[string]
	for k, v := range base {
		merged.set(k, v)
	}
	for _, e := range extra {
		k, v, _ := strings.Cut(e, "=")
		merged.set(k, v)
	}
	out := []string{}
	for _, name := range merged.names() {
		v, _ := merged.get(name)
		out = append(out, name+"="+v)
	}
	return out
}

// tail keeps the end of what is written.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailBytes = 64 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if over := len(t.buf) - tailBytes; over > 0 {
		t.buf = slices.Delete(t.buf, 0, over)
	}
	return len(b), nil
}

func (t *tail) bytes() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.buf)
}
