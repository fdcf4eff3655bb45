package hosttest

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
)

// helperProcess is the process of a helper, simulated or not.
type helperProcess struct {
	args           []string
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(name string) string
	dir            func() (string, error)
	write          func(path, content string) error
	running        func() // tells the SCM
}

// arg returns an argument; "" for one that there is not.
func (p helperProcess) arg(i int) string {
	if i < len(p.args) {
		return p.args[i]
	}
	return ""
}

// Helper returns the helper as a program of the simulation. argv[skip:] are its own arguments.
func Helper(skip int) sim.Program {
	return func(ctx context.Context, p *sim.Process) int {
		return help(ctx, helperProcess{
			args: p.Argv[min(skip, len(p.Argv)):], stdin: p.Stdin, stdout: p.Stdout, stderr: p.Stderr, getenv: p.Getenv, running: p.Running,
			dir: func() (string, error) { return p.Dir, nil },
			write: func(path, content string) error {
				return p.Host.Files.Write(ctx, path, []byte(content), host.ACLInherited)
			},
		})
	}
}

// help does what its arguments say, and returns the exit code.
func help(ctx context.Context, p helperProcess) int {
	var err error
	switch p.arg(0) {
	case "args": // says its arguments, a line for each
		_, err = io.WriteString(p.stdout, strings.Join(p.args[1:], "\n")+"\n")
	case "exit": // with a code, and something in both outputs
		code, parseErr := strconv.Atoi(p.arg(1))
		if parseErr != nil {
			return 99
		}
		fmt.Fprint(p.stdout, "out") //nolint:errcheck // a lost line fails the test
		fmt.Fprint(p.stderr, "err") //nolint:errcheck // likewise
		return code
	case "cat": // repeats its input
		_, err = io.Copy(p.stdout, p.stdin)
	case "dir": // says its folder
		var dir string
		if dir, err = p.dir(); err == nil {
			_, err = io.WriteString(p.stdout, dir)
		}
	case "env": // says a variable
		_, err = io.WriteString(p.stdout, p.getenv(p.arg(1)))
	case "spew": // writes much
		size, parseErr := strconv.Atoi(p.arg(1))
		if parseErr != nil {
			return 99
		}
		_, err = io.WriteString(p.stdout, strings.Repeat("x", size)+"end")
	case "sleep": // until it is killed; makes a file when it begins
		if p.arg(1) != "" {
			err = p.write(p.arg(1), "")
		}
		if err == nil {
			<-ctx.Done()
		}
	case "service":
		return p.serve(ctx)
	default:
		return 99
	}
	if err != nil {
		return 98
	}
	return 0
}

// serve is a service. Its arguments: a file that it writes its variable HOSTTEST to before it runs, and then, if it shall not
// run until it is stopped, "fail" and an exit code before it runs, or "exit" and one after that.
func (p helperProcess) serve(ctx context.Context) int {
	if err := p.write(p.arg(1), "HOSTTEST="+p.getenv("HOSTTEST")); err != nil {
		return 98
	}
	code, _ := strconv.Atoi(p.arg(3)) // there need not be one
	if p.arg(2) == "fail" {
		return code
	}
	p.running()
	if p.arg(2) != "exit" {
		<-ctx.Done()
	}
	return code
}
