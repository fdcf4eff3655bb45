package hosttest

import (
	"context"
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega" //nolint:staticcheck // as in tests

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// output runs the helper and returns what it wrote.
func (e *env) output(args ...string) string {
	e.t.Helper()
	result, err := e.Processes.Run(e.ctx, host.Command{Argv: e.helper(args...)})
	e.succeed(err)
	e.Expect(result.ExitCode).To(BeZero(), string(result.Stderr))
	return string(result.Stdout)
}

func (s *suite) processes(t *testing.T) {
	s.run(t, "gives a program its arguments as they are", func(e *env) {
		args := []string{"", "a b", `C:\a b\`, `quote"d`, `\\"`, "ä%PATH%", "^&|<>"}
		e.Expect(strings.Split(e.output(append([]string{"args"}, args...)...), "\n")).To(Equal(append(args, "")))
	})
	s.run(t, "returns exit code and both outputs", func(e *env) {
		result, err := e.Processes.Run(e.ctx, host.Command{Argv: e.helper("exit", "77")})
		e.succeed(err)
		e.Expect(result).To(Equal(host.Result{ExitCode: 77, Stdout: []byte("out"), Stderr: []byte("err")}))
	})
	s.run(t, "gives a program its input, folder and variables", func(e *env) {
		result, err := e.Processes.Run(e.ctx, host.Command{Argv: e.helper("cat"), Stdin: []byte("in\r\nput")})
		e.succeed(err)
		e.Expect(string(result.Stdout)).To(Equal("in\r\nput"))
		result, err = e.Processes.Run(e.ctx, host.Command{Argv: e.helper("dir"), Dir: e.dir})
		e.succeed(err)
		e.Expect(strings.ToLower(string(result.Stdout))).To(Equal(strings.ToLower(e.dir)))
		e.Expect(e.output("dir")).To(HaveSuffix(`:\`), "the default is a drive's root")
		result, err = e.Processes.Run(e.ctx, host.Command{Argv: e.helper("env", "Hosttest"), Env: []string{"HOSTTEST=a=b"}})
		e.succeed(err)
		e.Expect(string(result.Stdout)).To(Equal("a=b"))
	})
	s.run(t, "keeps the last 64 KiB of the output", func(e *env) {
		out := e.output("spew", strconv.Itoa(200<<10))
		e.Expect(out).To(HaveLen(64 << 10))
		e.Expect(out).To(HaveSuffix("end"))
	})
	s.run(t, "kills a program when the context ends", func(e *env) {
		ctx, cancel := context.WithTimeout(e.ctx, 500*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := e.Processes.Run(ctx, host.Command{Argv: e.helper("sleep")})
		e.Expect(err).To(MatchError(context.DeadlineExceeded))
		e.Expect(time.Since(began)).To(BeNumerically("<", 30*time.Second))
	})
	s.run(t, "fails for a program that is not there", func(e *env) {
		_, err := e.Processes.Run(e.ctx, host.Command{Argv: []string{e.dir + `\missing.exe`}})
		e.Expect(err).To(MatchError(fs.ErrNotExist))
		_, err = e.Processes.Run(e.ctx, host.Command{Argv: []string{"missing.exe"}})
		e.Expect(err).To(MatchError(host.ErrInvalid))
		_, err = e.Processes.Run(e.ctx, host.Command{})
		e.Expect(err).To(MatchError(host.ErrInvalid))
	})
	s.run(t, "cannot delete or replace a program that runs, only rename it", func(e *env) {
		exe := e.dir + `\` + e.o.Helper[0][strings.LastIndexByte(e.o.Helper[0], '\\')+1:]
		e.succeed(e.Files.Write(e.ctx, exe, []byte(e.read(e.o.Helper[0])), host.ACLInherited))
		ctx, cancel := context.WithCancel(e.ctx)
		ended := make(chan error, 1)
		started := e.dir + `\started`
		go func() {
			argv := append(append([]string{exe}, e.o.Helper[1:]...), "sleep", started)
			_, err := e.Processes.Run(ctx, host.Command{Argv: argv})
			ended <- err
		}()
		e.Eventually(func() error { _, err := e.Files.Stat(e.ctx, started); return err }, 30*time.Second, 20*time.Millisecond).Should(Succeed())
		limited, stop := context.WithTimeout(e.ctx, time.Second)
		defer stop()
		e.Expect(e.Files.Remove(limited, exe)).NotTo(Succeed())
		e.Expect(e.Files.Write(limited, exe, []byte("x"), host.ACLInherited)).NotTo(Succeed())
		e.succeed(e.Files.Rename(e.ctx, exe, exe+".old"))
		e.succeed(e.Files.Write(e.ctx, exe, []byte("new"), host.ACLInherited))
		cancel()
		e.Expect(errors.Is(<-ended, context.Canceled)).To(BeTrue())
		e.succeed(e.Files.Remove(e.ctx, exe+".old"))
	})
}
