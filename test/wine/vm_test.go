//go:build linux

package wine_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/test/env/assets"
	"github.com/capw-dev/cluster-api-provider-windows/test/wine"
)

// orphanMakerVariable turns the test binary into a program that boots a machine and waits to be killed.
const orphanMakerVariable = "CAPW_WINE_ORPHAN_MAKER"

func makeOrphans() {
	vm, err := wine.NewVM(context.Background(), wine.Options{Name: "orphan"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(filepath.Dir(filepath.Dir(vm.Path(`C:\`))))
	select {}
}

func boot(ctx context.Context, opts wine.Options) *wine.VM {
	GinkgoHelper()
	opts.Log = GinkgoWriter
	vm, err := wine.NewVM(ctx, opts)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(vm.Shutdown()).To(Succeed()) })
	return vm
}

func run(ctx context.Context, vm *wine.VM, argv ...string) string {
	GinkgoHelper()
	out, err := vm.MustSucceed(ctx, argv...)
	Expect(err).NotTo(HaveOccurred())
	return out
}

var _ = Describe("A machine", func() {
	DescribeTable("is the Windows Server that was asked for", func(ctx context.Context, build int, product string) {
		vm := boot(ctx, wine.Options{Name: "win-abc", Build: build})
		Expect(run(ctx, vm, "cmd", "/c", "ver")).To(ContainSubstring(fmt.Sprintf("10.0.%d", build)))
		Expect(run(ctx, vm, "cmd", "/c", "hostname")).To(ContainSubstring("WIN-ABC"))
		Expect(run(ctx, vm, "reg", "query", `HKLM\Software\Microsoft\Windows NT\CurrentVersion`, "/v", "ProductName")).To(ContainSubstring(product))
	},
		Entry("2019", SpecTimeout(2*time.Minute), 17763, "Windows Server 2019 Datacenter"),
		Entry("2022", SpecTimeout(2*time.Minute), 20348, "Windows Server 2022 Datacenter"),
		Entry("2025", SpecTimeout(2*time.Minute), 26100, "Windows Server 2025 Datacenter"),
	)

	It("has the firmware of a VM of VMware", func(ctx context.Context) {
		id := uuid.MustParse("4237ac1f-0b21-57c3-94ff-3d4f0e6b5a01")
		vm := boot(ctx, wine.Options{UUID: id})
		bios := run(ctx, vm, "reg", "query", `HKLM\HARDWARE\DESCRIPTION\System\BIOS`)
		Expect(bios).To(MatchRegexp(`SystemManufacturer +REG_SZ +VMware, Inc\.`))
		Expect(bios).To(MatchRegexp(`SystemProductName +REG_SZ +VMware7,1`))
		Expect(run(ctx, vm, "reg", "query", `HKLM\SYSTEM\HardwareConfig`)).To(ContainSubstring("{" + id.String() + "}"))
	}, SpecTimeout(time.Minute))

	It("gives back exit code and output of a program, and finds its files whatever their case", func(ctx context.Context) {
		vm := boot(ctx, wine.Options{})
		Expect(vm.WriteFile(`C:\SomeFolder\Say.cmd`, []byte("@echo %1 %2\r\n@echo more>C:\\somefolder\\More.txt\r\n@exit /b 7\r\n"))).To(Succeed())
		Expect(vm.Run(ctx, "cmd", "/c", `C:\somefolder\say.cmd`, "a", "b")).To(Equal(wine.Result{ExitCode: 7, Output: "a b\n"}))
		Expect(vm.ReadFile(`c:\SOMEFOLDER\more.txt`)).To(BeEquivalentTo("more\r\n"))
		_, err := vm.MustSucceed(ctx, "cmd", "/c", `C:\somefolder\say.cmd`, "x", "y")
		Expect(err).To(MatchError(ContainSubstring("exit code 7: x y")))
	}, SpecTimeout(time.Minute))

	It("keeps what it writes, also with slashes as on Linux, off this Linux", func(ctx context.Context) {
		vm := boot(ctx, wine.Options{})
		name := "capw-" + uuid.NewString()
		for _, dir := range []string{"/etc", "/var/lib", "/run", "/tmp", "/usr", "/home"} {
			run(ctx, vm, "cmd", "/c", "mkdir", strings.ReplaceAll(dir, "/", `\`))
			// cmd.exe itself would take the slash for an option.
			Expect(vm.Run(ctx, "reg", "export", `HKLM\Software\Wine`, dir+"/"+name, "/y")).To(HaveField("ExitCode", 0))
			Expect(vm.Path(`C:`+dir+`/`+name)).To(BeARegularFile(), dir)
			Expect(filepath.Join(dir, name)).NotTo(BeAnExistingFile())
		}
	}, SpecTimeout(time.Minute))

	It("has a program of its own where Windows has one, without changing Wine", func(ctx context.Context) {
		vm := boot(ctx, wine.Options{})
		const netsh = `C:\windows\system32\netsh.exe`
		original, err := os.Readlink(vm.Path(netsh))
		Expect(err).NotTo(HaveOccurred())
		before, err := os.Stat(original)
		Expect(err).NotTo(HaveOccurred())
		recorder := filepath.Join(GinkgoT().TempDir(), "recorder.exe")
		Expect(assets.BuildWindows(ctx, "./test/wine/programs/recorder", recorder)).To(Succeed())
		Expect(vm.Install(recorder, netsh)).To(Succeed())
		Expect(vm.WriteFile(`C:\recorded\netsh.exit`, []byte("3"))).To(Succeed())
		Expect(vm.WriteFile(`C:\recorded\netsh.out`, []byte("Ok.\r\n"))).To(Succeed())
		Expect(vm.Run(ctx, "cmd", "/c", "netsh int ipv4 show dynamicport tcp")).To(Equal(wine.Result{ExitCode: 3, Output: "Ok.\n"}))
		Expect(vm.ReadFile(`C:\recorded\netsh.log`)).To(ContainSubstring(`"args":["int","ipv4","show","dynamicport","tcp"]`))
		Expect(os.Stat(original)).To(HaveField("ModTime()", before.ModTime()))
	}, SpecTimeout(2*time.Minute))

	It("starts services by itself after a reboot, and loses nothing by it", func(ctx context.Context) {
		vm := boot(ctx, wine.Options{})
		generic := filepath.Join(GinkgoT().TempDir(), "generic.exe")
		Expect(assets.BuildWindows(ctx, "./test/wine/programs/generic", generic)).To(Succeed())
		Expect(vm.Install(generic, `C:\k\thing.exe`)).To(Succeed())
		run(ctx, vm, "sc", "create", "thing", "binPath=", `C:\k\thing.exe --windows-service --x "a b"`, "start=", "auto")
		run(ctx, vm, "reg", "add", `HKLM\Software\Thing`, "/v", "kept", "/d", "yes")
		Expect(vm.Processes("thing.exe")).To(BeEmpty())

		begin := time.Now()
		Expect(vm.Reboot(ctx)).To(Succeed())
		AddReportEntry("reboot", time.Since(begin).Round(time.Millisecond).String())
		Eventually(vm.Processes).WithArguments("thing.exe").Should(HaveLen(1))
		Eventually(vm.ReadFile).WithArguments(`C:\recorded\thing.log`).Should(ContainSubstring(`"args":["--windows-service","--x","a b"]`))
		Expect(run(ctx, vm, "reg", "query", `HKLM\Software\Thing`)).To(ContainSubstring("yes"))

		By("being killed, and cut off power")
		first, err := vm.Processes("thing.exe")
		Expect(err).NotTo(HaveOccurred())
		Expect(vm.Kill("THING.EXE")).To(Equal(1))
		Eventually(vm.Processes).WithArguments("thing.exe").Should(BeEmpty())
		Expect(vm.PowerCut(ctx)).To(Succeed())
		Eventually(vm.Processes).WithArguments("thing.exe").Should(And(HaveLen(1), Not(Equal(first))))

		By("ending with the exit code that a test wants")
		Expect(vm.WriteFile(`C:\recorded\thing.exit`, []byte("5"))).To(Succeed())
		Eventually(vm.Processes).WithArguments("thing.exe").Should(BeEmpty())
	}, SpecTimeout(3*time.Minute))

	It("kills a program whose time is over, and what is left of the machine stays usable", func(ctx context.Context) {
		vm := boot(ctx, wine.Options{})
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := vm.Run(short, "ping", "-n", "100", "127.0.0.1")
		Expect(err).To(MatchError(context.DeadlineExceeded))
		Eventually(vm.Processes).WithArguments("ping.exe").Should(BeEmpty())
		run(ctx, vm, "cmd", "/c", "ver")
	}, SpecTimeout(time.Minute))
})

var _ = Describe("Of a machine nothing is left", func() {
	// of reports processes and mounts that have to do with the folder of a machine.
	of := func(dir string) []string {
		var found []string
		environments, err := filepath.Glob("/proc/[0-9]*/mountinfo")
		Expect(err).NotTo(HaveOccurred())
		for _, path := range environments {
			// What cannot be read has ended.
			if mounts, err := os.ReadFile(path); err == nil && strings.Contains(string(mounts), dir) {
				found = append(found, path)
			}
		}
		return found
	}

	It("after Shutdown", func(ctx context.Context) {
		vm, err := wine.NewVM(ctx, wine.Options{})
		Expect(err).NotTo(HaveOccurred())
		dir := filepath.Dir(filepath.Dir(vm.Path(`C:\`)))
		Expect(len(of(dir))).To(BeNumerically(">", 2), "wineserver, services.exe, ...")
		begin := time.Now()
		Expect(vm.Shutdown()).To(Succeed())
		AddReportEntry("shutdown", time.Since(begin).Round(time.Millisecond).String())
		Expect(of(dir)).To(BeEmpty())
		Expect(dir).NotTo(BeAnExistingFile())
		Expect(vm.Shutdown()).To(Succeed())
	}, SpecTimeout(time.Minute))

	It("but a folder, which the next one removes, after SIGKILL of the process that made it", func(ctx context.Context) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), orphanMakerVariable+"=yes")
		stdout, err := cmd.StdoutPipe()
		Expect(err).NotTo(HaveOccurred())
		Expect(cmd.Start()).To(Succeed())
		line, err := bufio.NewReader(stdout).ReadString('\n')
		Expect(err).NotTo(HaveOccurred())
		dir := strings.TrimSpace(line)
		Expect(dir).To(BeADirectory(), "%s", line)
		Expect(of(dir)).NotTo(BeEmpty())

		Expect(cmd.Process.Kill()).To(Succeed())
		Expect(cmd.Wait()).To(MatchError("signal: killed"))
		Eventually(of).WithArguments(dir).Should(BeEmpty())
		before := time.Now().Add(-time.Hour)
		Expect(os.Chtimes(filepath.Join(dir, ".lock"), before, before)).To(Succeed())
		boot(ctx, wine.Options{})
		Expect(dir).NotTo(BeAnExistingFile())
	}, SpecTimeout(2*time.Minute))
})

var _ = It("A machine of an unknown build, or with a start that takes too long, is an error", func(ctx context.Context) {
	_, err := wine.NewVM(ctx, wine.Options{Build: 14393})
	Expect(err).To(MatchError("there is no Windows Server of build 14393"))
	late, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	_, err = wine.NewVM(late, wine.Options{})
	Expect(err).To(HaveOccurred())
}, SpecTimeout(time.Minute))
