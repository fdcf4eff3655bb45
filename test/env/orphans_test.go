package env_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/test/env"
)

// orphanMakerVariable turns the test binary into a program that starts an environment in the folder that is its value,
// prints "ready", and waits to be killed.
const orphanMakerVariable = "CAPW_TEST_ORPHAN_MAKER"

func makeOrphans() {
	_, err := env.Start(context.Background(), env.Options{
		Dir: os.Getenv(orphanMakerVariable), Progress: os.Stderr, NoCAPI: true, NoVCSim: true,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("ready")
	select {}
}

var _ = Describe("Processes of an environment", func() {
	It("die with the process that started them, even if that is killed by SIGKILL", func(ctx context.Context) {
		dir := filepath.Join(GinkgoT().TempDir(), "env")
		parent := exec.Command(os.Args[0])
		parent.Env = append(os.Environ(), orphanMakerVariable+"="+dir)
		parent.Stderr = GinkgoWriter
		out, err := parent.StdoutPipe()
		Expect(err).NotTo(HaveOccurred())
		Expect(parent.Start()).To(Succeed())
		DeferCleanup(func() { _ = parent.Process.Kill() })
		lines := bufio.NewScanner(out)
		Expect(lines.Scan()).To(BeTrue(), "the helper ended early")
		Expect(lines.Text()).To(Equal("ready"))

		Expect(childrenOf(dir)).To(HaveLen(5), "etcd, two API servers, two controller managers")
		Expect(parent.Process.Kill()).To(Succeed())
		Expect(parent.Wait()).NotTo(Succeed())
		Eventually(childrenOf).WithArguments(dir).WithTimeout(10 * time.Second).Should(BeEmpty())
	}, SpecTimeout(5*time.Minute))

	It("are gone after Stop, with their folder", func(ctx context.Context) {
		e, err := env.Start(ctx, env.Options{Progress: GinkgoWriter, NoCAPI: true, NoVCSim: true, NoWorkload: true})
		Expect(err).NotTo(HaveOccurred())
		Expect(childrenOf(e.Dir)).To(HaveLen(3), "etcd, API server, controller manager")
		Expect(e.Stop(ctx)).To(Succeed())
		Expect(childrenOf(e.Dir)).To(BeEmpty())
		Expect(e.Dir).NotTo(BeAnExistingFile())
	}, SpecTimeout(5*time.Minute))

	It("are missed: Stop reports one that had ended by itself, with the end of its log", func(ctx context.Context) {
		e, err := env.Start(ctx, env.Options{Progress: GinkgoWriter, NoCAPI: true, NoVCSim: true, NoWorkload: true})
		Expect(err).NotTo(HaveOccurred())
		server := e.Management.APIServer
		killer, err := os.FindProcess(server.PID())
		Expect(err).NotTo(HaveOccurred())
		Expect(killer.Kill()).To(Succeed())
		Eventually(server.Exited()).Should(BeClosed())
		Expect(server.Err()).To(MatchError(ContainSubstring("management-kube-apiserver: exited unexpectedly: signal: killed")))
		By("keeping the logs of what went wrong, if asked to")
		e.KeepDir()
		Expect(e.Stop(ctx)).To(MatchError(SatisfyAll(
			ContainSubstring("management-kube-apiserver: exited unexpectedly"),
			ContainSubstring("the end of "+server.Log()+":\nI"),
		)))
		Expect(childrenOf(e.Dir)).To(BeEmpty())
		Expect(server.Log()).To(BeARegularFile())
		Expect(os.RemoveAll(e.Dir)).To(Succeed())
	}, SpecTimeout(5*time.Minute))
})

// childrenOf returns the living processes whose command line names the folder dir.
func childrenOf(dir string) []string {
	GinkgoHelper()
	entries, err := os.ReadDir("/proc")
	Expect(err).NotTo(HaveOccurred())
	var found []string
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err != nil || pid == os.Getpid() {
			continue
		}
		// Empty for a zombie, gone for a process that has just ended.
		cmdline, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err == nil && (strings.Contains(string(cmdline), dir+"/")) {
			found = append(found, e.Name()+" "+strings.ReplaceAll(string(cmdline), "\x00", " "))
		}
	}
	return found
}
