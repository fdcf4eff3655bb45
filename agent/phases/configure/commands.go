package configure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// outputTail is how much of a command's output goes into the log and into errors, in bytes of each stream.
const outputTail = 2048

// RunCommands runs the document's commands of one list, in order, each once: a command that has ended is remembered under
// label and its index, and skipped when the list is run again. One that a crash or a power cut interrupted runs again.
//
// A command fails when its exit code is not 0, when it cannot be started, or after its TimeoutSeconds, when it is killed
// with its children. With OnFailure Fail that is CommandFailed or CommandTimeout, which are terminal, as nobody knows
// whether the command may be repeated; with Continue it is logged.
func RunCommands(ctx context.Context, r *engine.Run, commands []nodev1.Command, label string) error {
	for i, c := range commands {
		id := fmt.Sprintf("%s/%d", label, i)
		if slices.Contains(r.Facts.RanCommands, id) {
			continue
		}
		log := logr.FromContextOrDiscard(ctx).WithValues("command", c.Name, "id", id)
		err := run(logr.NewContext(ctx, log), r, c, fmt.Sprintf("%s-%d", label, i))
		switch failure := (*codes.Error)(nil); {
		case err == nil:
		case c.OnFailure == "Continue" && errors.As(err, &failure) && (failure.Code == codes.CommandFailed || failure.Code == codes.CommandTimeout):
			log.Info("Command failed; the document says to continue", "error", failure.Err.Error())
		default:
			return err
		}
		r.Facts.RanCommands = append(r.Facts.RanCommands, id)
		if err := r.Save(ctx); err != nil {
			return fmt.Errorf("remembering that command %s has run: %w", id, err)
		}
	}
	return nil
}

// run runs one command.
func run(ctx context.Context, r *engine.Run, c nodev1.Command, id string) error {
	if len(c.Args) > 0 {
		return start(ctx, r, c, c.Args)
	}
	path, content, interpreter, err := script(ctx, r.Host, c, id)
	if err != nil {
		return err
	}
	if err := ensureFolder(ctx, r, layout.Dir(path), host.ACLSystem); err != nil {
		return err
	}
	if err := r.Host.Files.Write(ctx, path, content, host.ACLSystem); err != nil {
		return codes.New(codes.FileNotWritten, "writing the script of command %q: %w", c.Name, err)
	}
	failure := start(ctx, r, c, append(interpreter, path))
	// The script may hold secrets: it goes away also when the time of the step is over.
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := r.Host.Files.Remove(cleanup, path); err != nil && failure == nil {
		return codes.New(codes.FileNotWritten, "removing the script of command %q: %w", c.Name, err)
	}
	return failure
}

// start runs a command line and judges how it ended.
func start(ctx context.Context, r *engine.Run, c nodev1.Command, argv []string) error {
	timeout := time.Duration(c.TimeoutSeconds) * time.Second
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	begin := time.Now()
	result, err := r.Host.Processes.Run(bounded, host.Command{Argv: argv})
	if ctx.Err() != nil { // the time of the step is over, or the agent is stopped: not the command's fault
		return fmt.Errorf("running command %q: %w", c.Name, context.Cause(ctx))
	}
	output := said(result, r.Doc)
	switch {
	case err != nil && bounded.Err() != nil:
		return codes.New(codes.CommandTimeout, "command %q did not end in %s%s", c.Name, timeout, output)
	case err != nil:
		return codes.New(codes.CommandFailed, "command %q cannot be started: %w", c.Name, err)
	case result.ExitCode != 0:
		return codes.New(codes.CommandFailed, "command %q ended with exit code %d%s", c.Name, result.ExitCode, output)
	}
	logr.FromContextOrDiscard(ctx).Info("Command ran", "took", time.Since(begin).Round(time.Millisecond), "output", strings.TrimPrefix(output, ": "))
	return nil
}

// script returns the file of a command's script, its content and the interpreter's command line before it.
func script(ctx context.Context, h *host.Host, c nodev1.Command, id string) (path string, content []byte, interpreter []string, err error) {
	info, err := h.System.Info(ctx)
	if err != nil {
		return "", nil, nil, fmt.Errorf("looking for the interpreter of command %q: %w", c.Name, err)
	}
	system32 := layout.Join(info.SystemRoot, "System32")
	lines := strings.ReplaceAll(strings.ReplaceAll(c.Script, "\r\n", "\n"), "\n", "\r\n")
	ascii := strings.IndexFunc(lines, func(r rune) bool { return r > 0x7f }) < 0
	switch c.Shell {
	case "PowerShell":
		if !ascii {
			lines = "\ufeff" + lines // Windows PowerShell reads a script without a byte order mark in the ANSI code page
		}
		return layout.Join(layout.StateDir, "command-"+id+".ps1"), []byte(lines), []string{
			layout.Join(system32, `WindowsPowerShell\v1.0\powershell.exe`),
			"-NoProfile", "-NonInteractive", "-ExecutionPolicy", "Bypass", "-File",
		}, nil
	default:
		if !ascii {
			lines = "@chcp 65001 >nul\r\n" + lines // cmd.exe reads the rest of a script in the code page that is set
		}
		return layout.Join(layout.StateDir, "command-"+id+".cmd"), []byte(lines), []string{layout.Join(system32, "cmd.exe"), "/d", "/c"}, nil
	}
}

// said returns the end of a command's output, after a colon, without the document's secrets; "" if it said nothing.
func said(result host.Result, doc *nodev1.NodeConfiguration) string {
	var parts []string
	for _, stream := range [][]byte{result.Stderr, result.Stdout} {
		text := strings.ToValidUTF8(string(bytes.TrimSpace(stream)), "?")
		for _, secret := range doc.Secrets() {
			text = strings.ReplaceAll(text, secret, "<hidden>")
		}
		if len(text) > outputTail {
			text = "..." + strings.ToValidUTF8(text[len(text)-outputTail:], "")
		}
		if text != "" {
			parts = append(parts, text)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, "\n")
}
