package process_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/test/env/process"
)

func shell(name, script string, grace time.Duration) process.Spec {
	return process.Spec{Name: name, Path: "/bin/sh", Args: []string{"-c", script}, GracePeriod: grace}
}

func newRunner(t *testing.T, onExit func(*process.Process)) *process.Runner {
	t.Helper()
	r, err := process.NewRunner(filepath.Join(t.TempDir(), "logs"), onExit)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = r.Close(context.Background()) })
	return r
}

func start(t *testing.T, r *process.Runner, spec process.Spec) *process.Process {
	t.Helper()
	p, err := r.Start(spec)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return p
}

// runs reports whether a process exists and is no zombie: the command line of a zombie is empty.
// It is so for an instant during execve, too.
func runs(pid int) bool {
	cmdline, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return err == nil && len(cmdline) > 0
}

// sleeper runs until SIGTERM and says when it is ready for it.
const sleeper = `trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.02; done`

func TestStopLetsAChildEndInOrder(t *testing.T) {
	g := NewWithT(t)
	p := start(t, newRunner(t, nil), shell("polite", sleeper, time.Minute))
	g.Expect(p.FirstLine(t.Context())).To(Equal("up"))
	g.Expect(p.Stop(t.Context())).To(Succeed())
	g.Expect(p.Exited()).To(BeClosed())
	g.Expect(os.ReadFile(p.Log())).To(BeEquivalentTo("up\nbye\n"))
	g.Expect(p.Stop(t.Context())).To(Succeed(), "again")
}

func TestStopReportsAChildThatFailsOnSIGTERM(t *testing.T) {
	g := NewWithT(t)
	p := start(t, newRunner(t, nil), shell("failing", `trap 'echo cannot >&2; exit 3' TERM; echo up; while :; do sleep 0.02; done`, time.Minute))
	g.Expect(p.FirstLine(t.Context())).To(Equal("up"))
	g.Expect(p.Stop(t.Context())).To(MatchError(SatisfyAll(ContainSubstring("ending on SIGTERM: exit status 3"), HaveSuffix("up\ncannot"))))
}

func TestStopKillsAChildThatIgnoresSIGTERM(t *testing.T) {
	g := NewWithT(t)
	r := newRunner(t, nil)
	p := start(t, r, shell("stubborn", `trap '' TERM; echo up; while :; do sleep 0.02; done`, 50*time.Millisecond))
	g.Expect(p.FirstLine(t.Context())).To(Equal("up"))
	g.Expect(p.Stop(t.Context())).To(MatchError(ContainSubstring("still running 50ms after SIGTERM")))
	g.Expect(p.Exited()).To(BeClosed())
	g.Expect(r.Close(t.Context())).To(Succeed())
}

func TestKillEndsDescendantsToo(t *testing.T) {
	g := NewWithT(t)
	p := start(t, newRunner(t, nil), shell("parent", `sleep 1000 & echo $!; wait`, 0))
	line, err := p.FirstLine(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	pid, err := strconv.Atoi(line)
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(runs).WithArguments(pid).Should(BeTrue())
	g.Expect(p.Kill()).To(Succeed())
	g.Expect(runs(pid)).To(BeFalse())
}

func TestDescendantsEndWithAChildThatEndsByItself(t *testing.T) {
	g := NewWithT(t)
	p := start(t, newRunner(t, nil), shell("parent", `sleep 1000 >/dev/null 2>&1 & echo $!`, 0))
	line, err := p.FirstLine(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	pid, err := strconv.Atoi(line)
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(p.Exited()).WithTimeout(10 * time.Second).Should(BeClosed())
	g.Expect(runs(pid)).To(BeFalse())
}

func TestAnUnexpectedExitIsNoticedAndReportedWithTheEndOfTheLog(t *testing.T) {
	g := NewWithT(t)
	noticed := make(chan *process.Process, 1)
	r := newRunner(t, func(p *process.Process) { noticed <- p })
	p := start(t, r, shell("crasher", `i=0; while [ $i -lt 1000 ]; do i=$((i+1)); echo line $i; done; exit 7`, time.Minute))
	g.Eventually(noticed).WithTimeout(10 * time.Second).Should(Receive(Equal(p)))

	var exit *process.ExitError
	g.Expect(errors.As(p.Err(), &exit)).To(BeTrue())
	g.Expect(exit.Name).To(Equal("crasher"))
	g.Expect(exit.Reason).To(MatchError(ContainSubstring("exit status 7")))
	g.Expect(exit.Tail).To(HaveSuffix("line 1000"))
	g.Expect(exit.Tail).To(HavePrefix("line "), "whole lines only")
	g.Expect(len(exit.Tail)).To(BeNumerically("<=", 4<<10))

	g.Expect(r.Running()).To(BeEmpty())
	g.Expect(r.Close(t.Context())).To(MatchError(ContainSubstring("crasher: exited unexpectedly")))
}

func TestChildrenOutliveTheGoroutineAndThreadThatAskedForThem(t *testing.T) {
	g := NewWithT(t)
	r := newRunner(t, nil)
	started := make(chan *process.Process)
	go func() {
		// A locked goroutine takes its thread along when it ends; children of that thread would be killed by the kernel.
		runtime.LockOSThread()
		p, _ := r.Start(shell("child", sleeper, time.Minute))
		started <- p
	}()
	p := <-started
	g.Expect(p).NotTo(BeNil())
	g.Expect(p.FirstLine(t.Context())).To(Equal("up"))
	g.Consistently(p.Exited()).WithTimeout(300 * time.Millisecond).ShouldNot(BeClosed())
	g.Expect(r.Close(t.Context())).To(Succeed())
}

func TestANameIsUniqueAmongRunningChildrenAndReusableAfterwards(t *testing.T) {
	g := NewWithT(t)
	r := newRunner(t, nil)
	first := start(t, r, shell("same", sleeper, time.Minute))
	g.Expect(first.FirstLine(t.Context())).To(Equal("up"))
	_, err := r.Start(shell("same", sleeper, time.Minute))
	g.Expect(err).To(MatchError("starting same: it is running"))
	g.Expect(first.Kill()).To(Succeed())

	second := start(t, r, shell("same", sleeper, time.Minute))
	g.Expect(second.FirstLine(t.Context())).To(Equal("up"))
	g.Expect(r.Close(t.Context())).To(Succeed())
	log, err := os.ReadFile(second.Log())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(strings.Count(string(log), "up\n")).To(Equal(2), "all runs append to one log")
	_, err = r.Start(shell("late", sleeper, 0))
	g.Expect(err).To(MatchError(ContainSubstring("closed")))
}

func TestAwaitFailsAtOnceWhenTheChildEnds(t *testing.T) {
	g := NewWithT(t)
	p := start(t, newRunner(t, nil), shell("short", `echo wrong flag >&2; exit 1`, 0))
	err := p.Await(t.Context(), time.Hour, func(context.Context) error { return errors.New("connection refused") })
	g.Expect(err).To(MatchError(SatisfyAll(ContainSubstring("ended before it was ready: exit status 1"), HaveSuffix("wrong flag"))))
}

func TestAwaitGivesUpAndTellsWhatWasMissing(t *testing.T) {
	g := NewWithT(t)
	p := start(t, newRunner(t, nil), shell("slow", sleeper, time.Minute))
	err := p.Await(t.Context(), 100*time.Millisecond, func(context.Context) error { return errors.New("etcd not ready") })
	g.Expect(err).To(MatchError(ContainSubstring("etcd not ready")))
}

func TestFirstLineOfAChildThatWritesNone(t *testing.T) {
	g := NewWithT(t)
	p := start(t, newRunner(t, nil), shell("silent", `printf incomplete; exit 0`, 0))
	_, err := p.FirstLine(t.Context())
	g.Expect(err).To(MatchError(ContainSubstring("ended before it wrote a line")))
}

func TestAMissingProgramIsAnError(t *testing.T) {
	_, err := newRunner(t, nil).Start(process.Spec{Name: "missing", Path: "/nonexistent/program"})
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("starting missing")))
}
