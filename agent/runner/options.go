// Package runner is the small part of the agent that stands between the service control manager (SCM) and a program: it
// gives the program its log, its priority class and its end.
//
// A program runs in one of two ways.
//
// Below the SCM ("capw-node.exe service"): the runner is the Windows service and the program is an ordinary console program.
// The runner reports Running once the program has started, stops it with CTRL_BREAK, and ends with the program's exit code as
// a service-specific one, so that the SCM's recovery actions start it again. It is the way of all programs that are not bound
// to another one: containerd and windows_exporter, for example, find out whether they are services by asking whether the SCM
// is their parent, which fails below any wrapper, and as services they would write no log that can be rotated.
//
// Beside the SCM ("capw-node.exe exec"): the program is the Windows service itself and the runner only its parent. A child in
// the process tree of a service may speak to the SCM for it. It is the way of the kubelet, which kubeadm and people expect to
// be started with --windows-service, and of others that say so (a service of kind Service).
//
// Either way the program's output goes to a file that is rotated while it runs, program and children end when the runner
// ends (a job object), and nothing that happens to the log stops or slows the program: what cannot be written is dropped and
// counted.
//
// Which way it is belongs to the definition of each service in package services.
package runner

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// Subcommands of the agent that the SCM starts.
const (
	// Exec: the program is the Windows service.
	Exec = "exec"
	// Service: the runner is the Windows service.
	Service = "service"
)

const leaveChildren = "leave-children"

// Exit codes of the runner itself, beyond those that programs use.
const (
	// ExitUsage: its command line is wrong.
	ExitUsage = 64
	// ExitNotStarted: the program could not be started.
	ExitNotStarted = 69
)

// DefaultGrace is how long a console program may take to end after CTRL_BREAK.
const DefaultGrace = 20 * time.Second

// Options are how a program is run.
type Options struct {
	// Mode is Exec or Service.
	Mode string
	// Name of the Windows service. Service only.
	Name string
	// LogFile takes what the program writes to stdout and stderr; empty: nothing does.
	LogFile string
	// Rotation bounds the log; its zero fields mean no bound.
	Rotation nodev1.LogRotation
	// Priority class of the program. Default: Normal.
	Priority nodev1.PriorityClass
	// Grace is how long the program may take to end when the service is stopped. Default: DefaultGrace. Service only.
	Grace time.Duration
	// Dir is its working folder. Default: the folder of the program.
	Dir string
	// LeaveChildren lets the program's children live on when the program or the runner ends, as containerd's shims must: they
	// hold the containers that the next containerd finds again.
	LeaveChildren bool
	// Argv: the program's absolute path and its arguments.
	Argv []string
}

// Command returns the command line that the SCM starts: the agent's path first. Parse reads it back.
func Command(o Options) []string {
	argv := []string{layout.Agent, o.Mode}
	add := func(flag, value string) {
		if value != "" {
			argv = append(argv, "--"+flag, value)
		}
	}
	number := func(flag string, n int32) {
		if n != 0 {
			add(flag, strconv.Itoa(int(n)))
		}
	}
	add("name", o.Name)
	add("log-file", o.LogFile)
	number("max-size-mib", o.Rotation.MaxSizeMiB)
	number("max-files", o.Rotation.MaxFiles)
	number("max-age-hours", o.Rotation.MaxAgeHours)
	add("priority", string(o.Priority))
	if o.Grace != 0 {
		add("grace", o.Grace.String())
	}
	add("dir", o.Dir)
	if o.LeaveChildren {
		argv = append(argv, "--"+leaveChildren)
	}
	return append(append(argv, "--"), o.Argv...)
}

// Parse reads the arguments of the agent from the subcommand on.
func Parse(args []string) (Options, error) {
	if len(args) == 0 || args[0] != Exec && args[0] != Service {
		return Options{}, fmt.Errorf("the first argument must be %s or %s", Exec, Service)
	}
	o := Options{Mode: args[0]}
	rest := args[1:]
	for len(rest) > 0 && rest[0] != "--" {
		flag, value, ok := strings.Cut(rest[0], "=")
		rest = rest[1:]
		if flag == "--"+leaveChildren && !ok {
			o.LeaveChildren = true
			continue
		}
		if !ok {
			if len(rest) == 0 {
				return Options{}, fmt.Errorf("%s has no value", flag)
			}
			value, rest = rest[0], rest[1:]
		}
		if err := o.set(flag, value); err != nil {
			return Options{}, err
		}
	}
	if len(rest) < 2 {
		return Options{}, errors.New("there is no program after --")
	}
	o.Argv = slices.Clone(rest[1:])
	if o.Mode == Service && o.Name == "" {
		return Options{}, errors.New("--name is missing")
	}
	return o, nil
}

func (o *Options) set(flag, value string) (err error) {
	switch flag {
	case "--name":
		o.Name = value
	case "--log-file":
		o.LogFile = value
	case "--max-size-mib":
		o.Rotation.MaxSizeMiB, err = parseNumber(value)
	case "--max-files":
		o.Rotation.MaxFiles, err = parseNumber(value)
	case "--max-age-hours":
		o.Rotation.MaxAgeHours, err = parseNumber(value)
	case "--priority":
		o.Priority = nodev1.PriorityClass(value)
		if _, ok := priorities()[o.Priority]; !ok {
			err = fmt.Errorf("%q is no priority class", value)
		}
	case "--dir":
		o.Dir = value
	case "--grace":
		if o.Grace, err = time.ParseDuration(value); err == nil && o.Grace <= 0 {
			err = errors.New("must be more than nothing")
		}
	default:
		return fmt.Errorf("unknown flag %s", flag)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return nil
}

func parseNumber(s string) (int32, error) {
	n, err := strconv.ParseInt(s, 10, 32)
	if err == nil && n <= 0 {
		err = errors.New("must be more than 0")
	}
	return int32(n), err
}

// priorities are the priority classes as SetPriorityClass takes them.
func priorities() map[nodev1.PriorityClass]uint32 {
	return map[nodev1.PriorityClass]uint32{
		nodev1.PriorityBelowNormal: 0x4000,
		nodev1.PriorityNormal:      0x20,
		nodev1.PriorityAboveNormal: 0x8000,
		nodev1.PriorityHigh:        0x80,
	}
}

// Unwrap returns the program in a command line that Command made, and how it is run. It is false for any other one. The
// agent's file may be in any folder.
func Unwrap(argv []string) (inner []string, o Options, ok bool) {
	if len(argv) < 2 || !strings.EqualFold(path.Base(strings.ReplaceAll(argv[0], `\`, "/")), layout.Base(layout.Agent)) {
		return nil, Options{}, false
	}
	o, err := Parse(argv[1:])
	return o.Argv, o, err == nil
}
