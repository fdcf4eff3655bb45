package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim/faultloop"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim/simkubelet"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// cloudbaseInit is the service that runs the user data once, and at the next boot when it did not end.
const cloudbaseInit = `C:\Program Files\Cloudbase Solutions\Cloudbase-Init\cloudbase-init.exe`

const executed = `C:\executed`

func runCloudbaseInit(ctx context.Context, p *sim.Process) int {
	p.Running()
	if _, err := p.Host.Files.Stat(ctx, executed); err == nil {
		return 0
	}
	if _, err := runScript(ctx, p.Host); err != nil {
		return 1
	}
	if err := p.Host.Files.Write(ctx, executed, nil, host.ACLInherited); err != nil {
		return 1
	}
	return 0
}

// life is one machine from its first power-on until the first boot has ended.
func life(tb testing.TB, change func(*nodev1.NodeConfiguration)) faultloop.Scenario {
	tb.Helper()
	return func(ctx context.Context, inject func(sim.Call) sim.Fault) (sim.Snapshot, error) {
		w := newWorld(sim.Options{
			Inject: inject,
			Programs: map[string]sim.Program{
				cloudbaseInit: runCloudbaseInit, `C:\k\csi-proxy.exe`: idle, `C:\k\windows_exporter.exe`: idle, `C:\k\mine.exe`: idle,
			},
			Services: []host.Service{{Name: "cloudbase-init", Argv: []string{cloudbaseInit}, Start: host.StartAuto}},
		})
		defer w.close()
		change(w.doc)
		w.giveUserData(tb)
		err := faultloop.DriveServices(ctx, w.Machine, w.settled)
		if err == nil && w.ended() != "done" {
			err = errors.New(w.ended())
		}
		if err == nil {
			err = w.faults()
		}
		if err != nil {
			err = fmt.Errorf("%w; log:\n%s", err, w.log)
		}
		return w.Snapshot(), err
	}
}

// settled says whether nothing will happen any more: the first boot has ended, and after success the services run.
func (w *world) settled() bool {
	if w.ended() != "done" {
		return w.ended() != ""
	}
	for _, name := range []string{layout.AgentService, layout.ContainerdService, layout.KubeletService} {
		if w.ServiceStatus(name).State != host.ServiceRunning {
			return false
		}
	}
	return true
}

// faults returns what is wrong with a machine whose first boot is done.
func (w *world) faults() error {
	node := w.cluster.Node(w.doc.Node.Name)
	switch {
	case node == nil:
		return errors.New("there is no Node")
	case node.Spec.ProviderID != providerID:
		return fmt.Errorf("the Node's provider ID is %q", node.Spec.ProviderID)
	case len(node.Spec.Taints) != len(w.doc.Node.Taints):
		return fmt.Errorf("the Node's taints are %v", node.Spec.Taints)
	case len(w.cluster.Nodes()) != 1:
		return fmt.Errorf("there are Nodes %v", w.cluster.Nodes())
	case !w.sentinel():
		return errors.New("there is no sentinel")
	}
	return w.secretsLeft()
}

// ended says how the first boot has ended; "" while it goes on.
func (w *world) ended() string {
	raw, err := w.ReadFile(layout.Journal)
	if err != nil {
		return ""
	}
	switch text := string(raw); {
	case strings.Contains(text, `"done":true,"facts"`):
		return "done"
	case strings.Contains(text, `"failure":{`):
		_, failure, _ := strings.Cut(text, `"failure":{`)
		return failure
	default:
		return ""
	}
}

func TestAFaultAtAnyHostCallOfAFirstBootChangesNothingOfItsEnd(t *testing.T) {
	for name, change := range map[string]func(*nodev1.NodeConfiguration){
		"a plain worker": func(*nodev1.NodeConfiguration) {},
		"kubeadm":        func(doc *nodev1.NodeConfiguration) { doc.Join.Method = nodev1.JoinKubeadm },
		"all on the host": func(doc *nodev1.NodeConfiguration) {
			doc.OS = nodev1.OSInfo{
				TimeZone: "UTC", NTPServers: []string{"10.0.0.1"}, Environment: map[string]string{"A": "b"},
				Users:    []nodev1.User{{Name: "ops", Password: "S3cret-of-ops!", Groups: []string{host.AdministratorsSID}, SSHAuthorizedKeys: []string{"ssh-ed25519 AAAA ops"}}},
				Proxy:    nodev1.ProxyInfo{NoProxy: []string{"example.com"}},
				Registry: []nodev1.RegistryValue{{Key: `HKLM\SOFTWARE\x`, Name: "n", Type: "DWord", Value: "7"}},
				Firewall: []nodev1.FirewallRule{{Name: "web", Protocol: "TCP", Ports: []string{"80"}}},
				PageFile: nodev1.PageFile{InitialMiB: 1024, MaximumMiB: 2048},
			}
			doc.Files = []nodev1.File{{Path: `C:\app\secret.txt`, Content: []byte("content")}}
			doc.Services.CSIProxy = &nodev1.ServiceOptions{}
			doc.Services.WindowsExporter = &nodev1.WindowsExporter{TLS: "None"}
			doc.Services.Additional = []nodev1.AdditionalService{{Name: "mine", ServiceOptions: nodev1.ServiceOptions{Path: `C:\k\mine.exe`}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			faultloop.Loop(t, life(t, change), faultloop.Options{
				Same:   1,
				Ignore: differs,
				Only:   func(c sim.Call) bool { return strings.EqualFold(c.Program, layout.Agent) },
			})
		})
	}
}

func idle(ctx context.Context, p *sim.Process) int {
	if len(p.Argv) == 2 && strings.Contains(p.Argv[1], "version") {
		fmt.Fprintln(p.Stdout, "version 1.0.0") //nolint:errcheck // it has nobody else to tell
		return 0
	}
	return simkubelet.Idle(ctx, p)
}

// differs says what is not the same in two lives of the same machine.
func differs(key string) bool {
	for _, part := range []string{
		layout.Journal, layout.JournalBackup, layout.Status, "guestinfo", // times
		layout.KubeletPKIDir,                                                               // keys
		layout.Document, layout.Kubeconfig, layout.CACertificate, `cluster-ca.crt`, script, // the CA of the life's cluster
		layout.LogDir,
	} {
		if strings.Contains(key, part) {
			return true
		}
	}
	return false
}
