//go:build windows

package winhost

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/windows/svc"
)

// The test binary is also the programs and services that the tests start: with one of these as its first argument.
const (
	// asService NAME BEHAVIOUR is a Windows service.
	asService = "as-service"
	// asProgram BEHAVIOUR is a console program.
	asProgram = "as-program"
)

func TestMain(m *testing.M) {
	if strings.HasSuffix(strings.ToLower(os.Args[0]), "rpctool.exe") {
		os.Exit(rpctool(os.Args[1]))
	}
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case asService:
			if err := svc.Run(os.Args[2], &testService{behaviour: os.Args[3]}); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		case asProgram:
			os.Exit(testProgram(os.Args[2], os.Args[3:]))
		}
	}
	os.Exit(m.Run())
}

// testService is a service that does what its command line says.
type testService struct{ behaviour string }

// Execute implements svc.Handler.
func (t *testService) Execute(_ []string, requests <-chan svc.ChangeRequest, status chan<- svc.Status) (bool, uint32) {
	status <- svc.Status{State: svc.StartPending}
	if t.behaviour == "fail" {
		return true, 42
	}
	if t.behaviour == "slow" {
		time.Sleep(300 * time.Millisecond)
	}
	status <- svc.Status{State: svc.Running, Accepts: svc.AcceptStop | svc.AcceptShutdown}
	if t.behaviour == "crash" {
		os.Exit(3)
	}
	for r := range requests {
		switch r.Cmd {
		case svc.Interrogate:
			status <- r.CurrentStatus
		case svc.Stop, svc.Shutdown:
			status <- svc.Status{State: svc.StopPending}
			if t.behaviour == "slow" {
				time.Sleep(300 * time.Millisecond)
			}
			return false, 0
		}
	}
	return false, 0
}

func testProgram(behaviour string, args []string) int {
	switch behaviour {
	case "echo": // what it was given
		fmt.Printf("%q\n", args)
		fmt.Fprintln(os.Stderr, os.Getenv("CAPW_TEST"))
		dir, _ := os.Getwd()
		fmt.Println(dir)
		return 7
	case "flood": // more than is kept
		line := strings.Repeat("x", 1023) + "\n"
		for range 256 {
			fmt.Print(line)
		}
		fmt.Print("the end")
	case "copy":
		var text string
		_, _ = fmt.Scanln(&text)
		fmt.Print(text)
	case "family": // a child that outlives it, which says who it is
		child := exec.Command(os.Args[0], asProgram, "child", args[0]) // without a context: it shall outlive
		child.Stdout = os.Stdout
		if err := child.Start(); err != nil {
			return 1
		}
		if args[1] == "wait" {
			_ = child.Wait()
		}
		for { // leave once it has said so
			if _, err := os.Stat(args[0]); err == nil {
				return 0
			}
			time.Sleep(10 * time.Millisecond)
		}
	case "hold": // until the second file is there
		if err := os.WriteFile(args[0], nil, 0o600); err != nil {
			return 1
		}
		for {
			if _, err := os.Stat(args[1]); err == nil {
				return 0
			}
			time.Sleep(10 * time.Millisecond)
		}
	case "child":
		if err := os.WriteFile(args[0], []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
			return 1
		}
		time.Sleep(time.Minute)
	}
	return 0
}

// rpctool is a hypervisor that knows one variable, in a file beside the program.
func rpctool(request string) int {
	verb, rest, _ := strings.Cut(request, " ")
	key, value, _ := strings.Cut(rest, " ")
	file := strings.TrimSuffix(os.Args[0], "rpctool.exe") + key
	switch {
	case key == "guestinfo.capw.refused":
		fmt.Println("Permission denied")
		return 1
	case verb == "info-set":
		if err := os.WriteFile(file, []byte(value), 0o600); err != nil {
			return 1
		}
		fmt.Println()
		return 0
	case verb == "info-get":
		content, err := os.ReadFile(file)
		if err != nil {
			fmt.Println("No value found")
			return 1
		}
		fmt.Println(string(content))
		return 0
	default:
		fmt.Println("Unknown command")
		return 1
	}
}

func self(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// tempDir is testing's TempDir, which removes with os.RemoveAll and so fails under Wine.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "winhost") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	cleanUp(t, func(ctx context.Context) error { return removeAll(ctx, dir) })
	return dir
}

// cleanUp does something in the end, when the test's own context has ended.
func cleanUp(t *testing.T, do func(ctx context.Context) error) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
		defer cancel()
		if err := do(ctx); err != nil {
			t.Error(err)
		}
	})
}

// lenient says whether this is Wine, where the service control manager lacks parts: only tests may ask.
func lenient() bool { return proc("ntdll.dll", "wine_get_version").Find() == nil }

// unique returns a name that nobody else has. The clock alone is too coarse.
var unique = func() func(prefix string) string {
	var count atomic.Int64
	return func(prefix string) string {
		return fmt.Sprintf("%s-%s-%d", prefix, strconv.FormatInt(time.Now().UnixNano(), 36), count.Add(1))
	}
}()
