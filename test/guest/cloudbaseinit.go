package guest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/cloudinit/cloudbase"
)

// cloudbaseInit is the service cloudbase-init with the plugins of image-builder's OVA that matter here, in their order:
// SetHostName, UserData.
func (m *machine) cloudbaseInit(ctx context.Context, p *sim.Process) int {
	p.Running()
	if err := m.runPlugins(ctx, p.Host); err != nil {
		m.fail(ctx, fmt.Errorf("cloudbase-init: %w", err))
		return 1
	}
	return 0
}

func (m *machine) runPlugins(ctx context.Context, h *host.Host) error {
	guestinfo := map[string]string{}
	for _, key := range []string{"metadata", "metadata.encoding", "userdata", "userdata.encoding"} {
		value, err := h.Reporting.GuestInfo(ctx, "guestinfo."+key)
		if err != nil && !errors.Is(err, host.ErrNotFound) {
			return err
		}
		guestinfo["guestinfo."+key] = value
	}
	data, err := readGuestInfo(guestinfo)
	if err != nil {
		return err
	}
	reboot, err := once(ctx, h, data.instanceID, "SetHostNamePlugin", func() (bool, error) { return setHostName(ctx, h, data.localHostname) })
	if err != nil { // is logged, and the next plugin runs
		m.report(ctx, "", fmt.Sprintf("cloudbase-init: %v", err), func(*State) {})
	}
	if reboot {
		return h.System.Reboot(ctx, "cloudbase-init has set the computer name")
	}
	ran := false
	_, err = once(ctx, h, data.instanceID, "UserDataPlugin", func() (bool, error) {
		ran = true
		return false, m.runUserData(ctx, h, data)
	})
	if format, _ := recognise(data.userData); err == nil && !ran && isForeign(format, data.userData) {
		m.report(ctx, Foreign, "user data of this instance ran already", func(*State) {})
	}
	return err
}

// errPluginDone is wrapped by failures after which a plugin counts as executed.
var errPluginDone = errors.New("not tried again")

// once runs a plugin unless it was executed for the instance, and remembers that in the registry. Without an instance ID
// nothing is remembered.
func once(ctx context.Context, h *host.Host, instanceID, plugin string, run func() (reboot bool, err error)) (reboot bool, err error) {
	key := `HKLM\SOFTWARE\Cloudbase Solutions\Cloudbase-Init\` + instanceID + `\Plugins`
	if instanceID != "" {
		executed, err := h.Registry.Get(ctx, key, plugin)
		switch {
		case err == nil && executed.Number == 1:
			return false, nil
		case err != nil && !errors.Is(err, host.ErrNotFound):
			return false, err
		}
	}
	reboot, err = run()
	if instanceID == "" || err != nil && !errors.Is(err, errPluginDone) {
		return reboot, err
	}
	return reboot, errors.Join(err, h.Registry.Set(ctx, key, plugin, host.DWordValue(1)))
}

// setHostName plays the plugin SetHostName: Windows gets the name, if it has another one, with a reboot.
func setHostName(ctx context.Context, h *host.Host, localHostname string) (reboot bool, err error) {
	now, _, err := h.System.ComputerName(ctx)
	if err != nil {
		return false, err
	}
	name, err := computerName(localHostname, now)
	if err != nil || strings.EqualFold(name, now) {
		return false, err
	}
	return true, h.System.SetComputerName(ctx, name)
}

// isForeign says whether user data that cloudbase-init runs is none that starts the agent.
func isForeign(format userDataFormat, userData []byte) bool {
	return format != formatUnknown && (format != formatBatch || !cloudbase.IsUserData(userData))
}

// runUserData plays the plugin UserData.
func (m *machine) runUserData(ctx context.Context, h *host.Host, data bootData) error {
	m.report(ctx, Joining, fmt.Sprintf("cloudbase-init runs the user data of instance %q", data.instanceID), func(s *State) {
		s.InstanceID = data.instanceID
	})
	format, err := recognise(data.userData)
	switch {
	case err != nil:
		return err
	case format == formatUnknown:
		return fmt.Errorf("the user data is of no format that it knows: %w", errPluginDone)
	case isForeign(format, data.userData):
		m.report(ctx, Foreign, fmt.Sprintf("the user data is foreign (%s): no node document, no Node", format), func(s *State) {
			s.ForeignData = data.userData
		})
		return nil
	}
	return runScript(ctx, h, data.userData)
}

// runScript does what the first-boot script comes to in an image that has the agent: see its label "run".
func runScript(ctx context.Context, h *host.Host, script []byte) error {
	path := `C:\Windows\Temp\` + rand.Text() + ".cmd"
	if err := h.Files.Write(ctx, path, script, host.ACLInherited); err != nil {
		return err
	}
	var result host.Result
	for run := range 3 {
		if run > 0 && !pause(ctx, 10*time.Second) {
			return ctx.Err()
		}
		var err error
		if result, err = h.Processes.Run(ctx, host.Command{Argv: []string{layout.Agent, "bootstrap", "--user-data", path}}); err != nil {
			return err
		}
		if result.ExitCode == 0 {
			break
		}
	}
	if err := h.Files.Remove(ctx, path); err != nil {
		return err
	}
	if result.ExitCode != 0 {
		return fmt.Errorf("the script ended with exit code %d: %s: %w", result.ExitCode, strings.TrimSpace(string(result.Stderr)), errPluginDone)
	}
	return nil
}
