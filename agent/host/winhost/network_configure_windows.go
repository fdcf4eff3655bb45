//go:build windows

package winhost

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sys/windows"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// searchListValue of tcpipKey is the machine's list of search domains, between commas.
const searchListValue = "SearchList"

// Configure returns when Windows shows the adapter as c says, and has found no other machine with its addresses: an address
// that is in use elsewhere is host.ErrBusy.
func (n *network) Configure(ctx context.Context, index uint32, c host.AdapterConfig) error {
	if err := checkAdapterConfig(c); err != nil {
		return fmt.Errorf("configure network adapter %d: %w", index, err)
	}
	n.configuring.Lock()
	defer n.configuring.Unlock()
	by := configurator{state: func(ctx context.Context) (adapterState, error) { return n.state(ctx, index) }, apply: n.apply}
	if err := by.configure(ctx, c); err != nil {
		return fmt.Errorf("configure network adapter %d: %w", index, err)
	}
	// netsh wrote below this key and below Control\Nsi, which is in the same hive.
	return flushHive(tcpipKey)
}

func (n *network) apply(ctx context.Context, c change) error {
	if c.search != nil {
		if err := n.registry.Set(ctx, tcpipKey, searchListValue, host.StringValue(strings.Join(c.search, ","))); err != nil {
			return err
		}
		notifyResolver()
		return nil
	}
	return n.netsh(ctx, c)
}

// netsh runs it; its output is in the language of Windows, so it is for people.
func (n *network) netsh(ctx context.Context, c change) error {
	r, err := n.processes.Run(ctx, host.Command{Argv: append([]string{systemProgram("netsh.exe")}, c.netsh...)})
	if err != nil {
		return err
	}
	if r.ExitCode != 0 && !c.mayFail {
		return fmt.Errorf("%s: exit code %d: %s", c, r.ExitCode, readable(r.Stdout, r.Stderr))
	}
	return nil
}

// notifyResolver tells the DNS client that its parameters changed. It also looks by itself, later; so nothing is lost
// where it does not listen.
func notifyResolver() {
	manager, err := windows.OpenSCManager(nil, nil, windows.SC_MANAGER_CONNECT)
	if err != nil {
		return
	}
	defer func() { _ = windows.CloseServiceHandle(manager) }()
	// No more access than it takes: that service does not let itself be stopped or changed.
	service, err := windows.OpenService(manager, utf16Pointer("Dnscache"), windows.SERVICE_PAUSE_CONTINUE)
	if err != nil {
		return
	}
	defer func() { _ = windows.CloseServiceHandle(service) }()
	var status windows.SERVICE_STATUS
	_ = windows.ControlService(service, windows.SERVICE_CONTROL_PARAMCHANGE, &status)
}
