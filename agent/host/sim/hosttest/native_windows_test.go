package hosttest_test

import (
	"os"
	"testing"

	"golang.org/x/sys/windows"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim/hosttest"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/winhost"
)

// helperArgument is the first argument of the test binary when it is the helper.
const helperArgument = "hosttest-helper"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == helperArgument {
		hosttest.HelperMain(os.Args[2:])
		return
	}
	os.Exit(m.Run())
}

func TestWindowsBehavesAsEveryHost(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	wine := windows.NewLazySystemDLL("ntdll.dll").NewProc("wine_get_version").Find() == nil
	hosttest.Run(t, func(*testing.T) *host.Host {
		return winhost.New(winhost.Options{Lenient: wine})
	}, hosttest.Options{Helper: []string{exe, helperArgument}, Wine: wine})
}
