package simkubelet

import (
	"context"
	"fmt"
	"io"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/runner"
)

// Runner is the agent's executable as far as services are started with it: "exec" and "service" of package runner. Its log is
// not rotated. The folder of the log is made.
func Runner(ctx context.Context, p *sim.Process) int {
	o, err := runner.Parse(p.Argv[1:])
	if err != nil {
		fmt.Fprintln(p.Stderr, err) //nolint:errcheck // nobody is left to be told
		return runner.ExitUsage
	}
	if o.LogFile != "" {
		log, err := openLog(ctx, p, o.LogFile)
		if err != nil {
			return runner.ExitNotStarted
		}
		defer log.Close() //nolint:errcheck // a log
		p.Stdout, p.Stderr = log, log
	}
	if o.Mode == runner.Service {
		p.Running()
	}
	code, err := p.Exec(ctx, o.Argv...)
	if err != nil {
		fmt.Fprintln(p.Stderr, err) //nolint:errcheck // a log
		return runner.ExitNotStarted
	}
	return code
}

func openLog(ctx context.Context, p *sim.Process, path string) (io.WriteCloser, error) {
	if err := p.Host.Files.Mkdir(ctx, layout.Dir(path), host.ACLSystem); err != nil {
		return nil, err
	}
	return p.Host.Files.Append(ctx, path, host.ACLSystem)
}

// Idle is a program that does nothing until it is told to end.
func Idle(ctx context.Context, p *sim.Process) int {
	p.Running()
	<-ctx.Done()
	return 0
}

// Containerd is a container runtime as far as somebody looks whether its pipe is there.
func Containerd(ctx context.Context, p *sim.Process) int {
	l, err := p.ListenPipe(layout.CRIPipe)
	if err != nil {
		fmt.Fprintln(p.Stderr, err) //nolint:errcheck // a log
		return 1
	}
	p.Running()
	context.AfterFunc(ctx, func() { l.Close() }) //nolint:errcheck // it ends with the process
	for {
		c, err := l.Accept()
		if err != nil {
			return 0
		}
		c.Close() //nolint:errcheck // nothing is said
	}
}
