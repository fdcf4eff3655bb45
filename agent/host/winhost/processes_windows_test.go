//go:build windows

package winhost

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
)

func TestRunReturnsWhatAProgramSays(t *testing.T) {
	g, p := NewWithT(t), newProcesses()
	args := []string{`a b`, `quo"ted`, `C:\dir\`, ``, `%PATH%`, `back\\slash" `}
	result, err := p.Run(t.Context(), host.Command{
		Argv: append([]string{self(t), asProgram, "echo"}, args...),
		Env:  []string{"CAPW_TEST=grüße"},
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.ExitCode).To(Equal(7))
	lines := strings.Split(string(result.Stdout), "\n")
	g.Expect(lines[0]).To(Equal(`["a b" "quo\"ted" "C:\\dir\\" "" "%PATH%" "back\\\\slash\" "]`))
	g.Expect(strings.TrimSpace(lines[1])).To(Equal(os.Getenv("SystemDrive") + `\`))
	g.Expect(strings.TrimSpace(string(result.Stderr))).To(Equal("grüße"))
}

func TestRunKeepsTheEndOfTheOutput(t *testing.T) {
	g := NewWithT(t)
	result, err := newProcesses().Run(t.Context(), host.Command{Argv: []string{self(t), asProgram, "flood"}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.Stdout).To(HaveLen(outputLimit))
	g.Expect(string(result.Stdout)).To(HaveSuffix("x\nthe end"))
}

func TestRunGivesAProgramItsInput(t *testing.T) {
	g := NewWithT(t)
	result, err := newProcesses().Run(t.Context(), host.Command{Argv: []string{self(t), asProgram, "copy"}, Stdin: []byte("hello\n")})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(result.Stdout)).To(Equal("hello"))
}

func TestRunRefusesARelativePath(t *testing.T) {
	g := NewWithT(t)
	_, err := newProcesses().Run(t.Context(), host.Command{Argv: []string{"cmd.exe"}})
	g.Expect(err).To(MatchError(host.ErrInvalid))
	_, err = newProcesses().Run(t.Context(), host.Command{})
	g.Expect(err).To(MatchError(host.ErrInvalid))
	_, err = newProcesses().Run(t.Context(), host.Command{Argv: []string{`C:\no\such.exe`}})
	g.Expect(err).To(MatchError(os.ErrNotExist))
}

// childOf waits until a program's child has said who it is.
func childOf(t *testing.T, pidFile string) uint32 {
	t.Helper()
	var pid int
	NewWithT(t).Eventually(func() (err error) {
		b, err := os.ReadFile(pidFile)
		if err == nil {
			pid, err = strconv.Atoi(string(b))
		}
		return err
	}, 10*time.Second, 20*time.Millisecond).Should(Succeed())
	return uint32(pid)
}

func TestRunKillsAProgramAndItsChildrenWhenTheContextEnds(t *testing.T) {
	g := NewWithT(t)
	pidFile := layout.Join(tempDir(t), "pid")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := newProcesses().Run(ctx, host.Command{Argv: []string{self(t), asProgram, "family", pidFile, "wait"}})
		ended <- err
	}()
	child := childOf(t, pidFile)
	g.Expect(alive(child)).To(BeTrue())
	cancel()
	g.Eventually(ended, 5*time.Second).Should(Receive(MatchError(context.Canceled)))
	g.Eventually(func() bool { return alive(child) }, 5*time.Second, 20*time.Millisecond).Should(BeFalse())
}

func TestRunEndsWithTheProgramAndKillsWhatItLeftBehind(t *testing.T) {
	g := NewWithT(t)
	pidFile := layout.Join(tempDir(t), "pid")
	start := time.Now()
	result, err := newProcesses().Run(t.Context(), host.Command{Argv: []string{self(t), asProgram, "family", pidFile, "leave"}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.ExitCode).To(BeZero())
	g.Expect(time.Since(start)).To(BeNumerically("<", 20*time.Second))
	child := childOf(t, pidFile)
	g.Eventually(func() bool { return alive(child) }, 5*time.Second, 20*time.Millisecond).Should(BeFalse())
}
