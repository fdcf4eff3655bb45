// Package cli is the command line of the node agent.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"

	"github.com/capw-dev/cluster-api-provider-windows/agent"
	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/imagecheck"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/runner"
	"github.com/capw-dev/cluster-api-provider-windows/agent/status"
	"github.com/capw-dev/cluster-api-provider-windows/cloudinit/cloudbase"
	"github.com/capw-dev/cluster-api-provider-windows/version"
)

// Exit codes of the agent. None of them is 1001, 1002 or 1003, to which cloudbase-init gives a meaning.
const (
	// ExitFailed: it did not work, and the message says why.
	ExitFailed = 1
	// ExitUsage: the command line is wrong.
	ExitUsage = 2
	// ExitNotDone: "status" says that the first boot goes on; ExitBootFailed that it has failed.
	ExitNotDone    = 3
	ExitBootFailed = 4
)

// Environment is what the command line gets from the operating system.
type Environment struct {
	// Executable is the path of this program.
	Executable string
	// NewHost returns this machine. lenient is for Wine, which lacks parts of the Windows API.
	NewHost func(lenient bool) (*host.Host, error)
	// RunService runs do as the Windows service name: it is called with the function that reports Running, its context ends
	// when the service shall stop, and its error becomes the service's exit code.
	RunService func(name string, do func(ctx context.Context, ready func()) error) error
	// Log returns the logger of a command; service: for the Windows service, which has no console.
	Log    func(service bool) (logr.Logger, io.Closer, error)
	Stdout io.Writer
	Stderr io.Writer
}

// exitError is an error that has its own exit code, and was told already when err is nil.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

// Main runs a command line and returns the exit code.
func Main(ctx context.Context, env Environment, args []string) int {
	root := newRoot(env)
	root.SetArgs(args)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if own := (*exitError)(nil); errors.As(err, &own) {
		if own.err != nil {
			say(env.Stderr, "capw-node:", own.err)
		}
		return own.code
	}
	say(env.Stderr, "capw-node:", err)
	if coded := (*codes.Error)(nil); errors.As(err, &coded) {
		say(env.Stderr, "remedy:", codes.Lookup(coded.Code).Remedy)
		return ExitFailed
	}
	if strings.Contains(err.Error(), "flag") || strings.Contains(err.Error(), "command") || strings.Contains(err.Error(), "arg(s)") {
		return ExitUsage
	}
	return ExitFailed
}

type options struct {
	Environment
	lenient bool
}

func newRoot(env Environment) *cobra.Command {
	o := &options{Environment: env}
	root := &cobra.Command{
		Use:           "capw-node",
		Short:         "Node agent of Cluster API Provider Windows",
		Long:          "capw-node makes a Windows machine the Kubernetes node that its document describes, and keeps it so.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().BoolVar(&o.lenient, "lenient", false, "accept a Windows that lacks parts of its API, which only Wine does")
	_ = root.PersistentFlags().MarkHidden("lenient")
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(o.bootstrap(), o.run(), o.status(), o.verifyImage(), o.reset(), o.codes(), o.version())
	for _, sub := range []struct{ use, short string }{
		{runner.Exec, "Run a program that is a Windows service itself, and keep its output in a log file"},
		{runner.Service, "Run a console program as a Windows service, and keep its output in a log file"},
	} {
		root.AddCommand(&cobra.Command{
			Use: sub.use + " [flags] -- program [arguments]", Short: sub.short, Hidden: true, DisableFlagParsing: true,
			RunE: func(cmd *cobra.Command, args []string) error {
				if code := runner.Main(cmd.Context(), append([]string{sub.use}, args...)); code != 0 {
					return &exitError{code: code}
				}
				return nil
			},
		})
	}
	return root
}

func (o *options) agent() (*agent.Agent, error) {
	h, err := o.NewHost(o.lenient)
	if err != nil {
		return nil, err
	}
	a := &agent.Agent{Host: h, Executable: o.Executable, Version: version.Get().Version}
	if o.lenient {
		a.ServiceArgs = []string{"--lenient"}
	}
	return a, nil
}

func (o *options) bootstrap() *cobra.Command {
	var userData string
	var retry, wait bool
	cmd := &cobra.Command{
		Use:   "bootstrap --user-data file",
		Short: "Make this machine a node: install the agent as a service, and start it",
		Long: "Reads the node document from the first-boot script, installs the agent as the Windows service capw-node, starts it\n" +
			"and ends; the service does the rest, over reboots. To run it again with the same document is harmless.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, closer, err := o.withLog(cmd.Context(), false)
			if err != nil {
				return err
			}
			defer closeLog(closer)
			a, err := o.agent()
			if err != nil {
				return err
			}
			script, err := a.Host.Files.Read(ctx, userData)
			if err != nil {
				return codes.New(codes.DocumentInvalid, "reading the user data %s: %w", userData, err)
			}
			doc, err := cloudbase.ReadDocument(script)
			if err != nil {
				err = codes.New(codes.DocumentInvalid, "%s: %w", userData, err)
				a.ReportFailure(ctx, err)
				return err
			}
			if err := a.Bootstrap(ctx, doc, retry); err != nil {
				return err
			}
			sayf(o.Stdout, "capw-node: the service makes this machine node %s of cluster %s/%s\n", doc.Node.Name, doc.Cluster.Namespace, doc.Cluster.Name)
			if wait {
				return o.follow(ctx, a.Host)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&userData, "user-data", "", "file with the first-boot script, which holds the node document")
	cmd.Flags().BoolVar(&retry, "retry", false, "try once more when the first boot has failed")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the first boot has ended")
	_ = cmd.MarkFlagRequired("user-data")
	return cmd
}

func (o *options) run() *cobra.Command {
	var service bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Do the first boot, then keep the node's services as declared",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			do := func(ctx context.Context, ready func()) error {
				ctx, closer, err := o.withLog(ctx, service)
				if err != nil {
					return err
				}
				defer closeLog(closer)
				a, err := o.agent()
				if err != nil {
					return err
				}
				if err := a.Run(ctx, ready); err != nil {
					logr.FromContextOrDiscard(ctx).Error(err, "Agent ends")
					return err
				}
				return nil
			}
			if service {
				return o.RunService(layout.AgentService, do)
			}
			return do(cmd.Context(), func() {})
		},
	}
	cmd.Flags().BoolVar(&service, "service", false, "run as the Windows service, as the service control manager starts it")
	return cmd
}

func (o *options) status() *cobra.Command {
	var output string
	var wait bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Tell where the first boot stands; exit code 0 done, 3 not done, 4 failed",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := o.NewHost(o.lenient)
			if err != nil {
				return err
			}
			if wait {
				return o.follow(cmd.Context(), h)
			}
			return o.printStatus(cmd.Context(), h, output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the first boot has ended")
	return cmd
}

func (o *options) verifyImage() *cobra.Command {
	var output string
	opts := imagecheck.Options{}
	cmd := &cobra.Command{
		Use:   "verify-image",
		Short: "Tell what this image lacks to become a node; exit code 1 when it lacks something",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := o.NewHost(o.lenient)
			if err != nil {
				return err
			}
			report := imagecheck.Check(cmd.Context(), h, opts)
			switch output {
			case "json":
				err = report.WriteJSON(o.Stdout)
			case "text":
				err = report.WriteTable(o.Stdout)
			default:
				return &exitError{code: ExitUsage, err: fmt.Errorf("--output %q is neither text nor json", output)}
			}
			if err != nil {
				return err
			}
			if !report.OK() {
				return &exitError{code: ExitFailed}
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	cmd.Flags().StringVar(&opts.KubernetesVersion, "kubernetes-version", "", "version, such as v1.36.3, that the image shall be for")
	return cmd
}

func (o *options) reset() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "reset --yes",
		Short: "Undo what the agent did on this machine",
		Long: "Stops and deletes the node's services, removes its configuration, certificates, networks of containers and the\n" +
			"agent's own service, and restores registry and environment. Drain and delete the Node before.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !yes {
				return &exitError{code: ExitUsage, err: errors.New("reset removes this node's identity and services: say --yes")}
			}
			ctx, closer, err := o.withLog(cmd.Context(), false)
			if err != nil {
				return err
			}
			defer closeLog(closer)
			a, err := o.agent()
			if err != nil {
				return err
			}
			return a.Reset(ctx)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "really do it")
	return cmd
}

func (o *options) codes() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "codes",
		Short: "List the codes of all errors, with meaning and remedy",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			switch output {
			case "text":
				for _, i := range codes.Table() {
					sayf(o.Stdout, "%s %s (%s)\n  %s\n  Remedy: %s\n", i.Code, i.Name, i.Class, i.Meaning, i.Remedy)
				}
			case "markdown":
				sayf(o.Stdout, "%s", codesPage)
				for _, i := range codes.Table() {
					cell := strings.NewReplacer("|", "\\|", "<", "&lt;").Replace
					sayf(o.Stdout, "| %s | `%s` | %s | %s | %s |\n", i.Code, i.Name, i.Class, cell(i.Meaning), cell(i.Remedy))
				}
			default:
				return &exitError{code: ExitUsage, err: fmt.Errorf("--output %q is neither text nor markdown", output)}
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or markdown")
	return cmd
}

// codesPage is the head of docs/codes.md.
const codesPage = `# Codes of the node agent

Logs, statuses and events of a node name every error by one of these codes. A *Retryable* one is tried again until the time of its
step, or of the whole first boot, is over; a *Terminal* one ends the first boot. This page is made by "make docs".

| code | name | class | meaning | remedy |
|---|---|---|---|---|
`

func (o *options) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Tell which build this is",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			say(o.Stdout, version.Get())
			return nil
		},
	}
}

func (o *options) withLog(ctx context.Context, service bool) (context.Context, io.Closer, error) {
	log, closer, err := o.Log(service)
	if err != nil {
		return nil, nil, fmt.Errorf("opening the log: %w", err)
	}
	return logr.NewContext(ctx, log), closer, nil
}

func (o *options) printStatus(ctx context.Context, h *host.Host, output string) error {
	s, err := status.Last(ctx, h.Files)
	if errors.Is(err, fs.ErrNotExist) {
		return &exitError{code: ExitNotDone, err: errors.New("this machine has no first boot: no status was written")}
	}
	if err != nil {
		return err
	}
	switch output {
	case "json":
		raw, err := json.Marshal(s)
		if err != nil {
			return err
		}
		say(o.Stdout, string(raw))
	case "text":
		if err := writeStatus(o.Stdout, s); err != nil {
			return err
		}
	default:
		return &exitError{code: ExitUsage, err: fmt.Errorf("--output %q is neither text nor json", output)}
	}
	return ended(s)
}

// follow prints each new status until the first boot has ended.
func (o *options) follow(ctx context.Context, h *host.Host) error {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	seen := ""
	for {
		s, err := status.Last(ctx, h.Files)
		if err == nil {
			if line := statusLine(s); line != seen {
				say(o.Stdout, line)
				seen = line
			}
			if end := ended(s); end == nil || exitCode(end) == ExitBootFailed {
				return end
			}
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
	}
}

// say writes a line to a console. A console that does not take it leaves nobody to be told.
func say(w io.Writer, what ...any) { _, _ = fmt.Fprintln(w, what...) }

func sayf(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }

func closeLog(c io.Closer) { _ = c.Close() }
