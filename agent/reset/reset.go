// Package reset undoes what the agent did to a machine, by the traces that it kept: the machine is then as its image was,
// apart from features, computer name, network configuration and domain, which a machine keeps, and from the agent itself.
//
// Data of users stays: nothing outside the folders of the node is removed, and volumes that are mounted below the kubelet's
// folder are only taken from there.
package reset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/network"
	"github.com/capw-dev/cluster-api-provider-windows/agent/services"
)

// actTime bounds each act; a service may take as long to stop.
const actTime = 5 * time.Minute

// Options of Run.
type Options struct {
	// Report is told each act and how it went, as it is done. Default: nobody is.
	Report func(act string, err error)
}

// Run undoes the traces in facts, the newest first. The agent's service must be stopped: it would put things back. It goes on
// after failures and returns all of them; to run it again is safe, also when there is nothing left to undo. Without traces it
// touches nothing: whatever node this machine is, the agent has not made it.
func Run(ctx context.Context, h *host.Host, facts *engine.Facts, o Options) error {
	if len(facts.Traces) == 0 {
		return nil
	}
	r := &resetter{host: h, options: o}
	traces := slices.Clone(facts.Traces)
	slices.Reverse(traces)

	stopped := false
	for _, t := range traces {
		if t.Kind == engine.TraceService {
			stopped = true
			r.do(ctx, "stop service "+t.Name, func(ctx context.Context) error { return found(h.Services.Stop(ctx, t.Name)) })
		}
	}
	if stopped {
		r.do(ctx, "end containers", r.endContainers)
	}
	r.do(ctx, "remove networks of containers", r.removeNetworks)
	for _, t := range traces {
		r.do(ctx, describe(t), func(ctx context.Context) error { return r.undo(ctx, t) })
	}
	for _, path := range leftovers() {
		r.do(ctx, "remove "+path, func(ctx context.Context) error { return h.Files.Remove(ctx, path) })
	}
	return errors.Join(r.errs...)
}

// leftovers are what others made for the node; they hold nothing but its state.
func leftovers() []string {
	return []string{
		layout.KubeletDir,    // the kubelet's certificates, and the pods'
		layout.KubernetesDir, // the node's identity
		`C:\var\lib\cni`,     // addresses that pods had: they would be missing after another join
		layout.Dir(services.FlannelSubnetEnv),
		`C:\var\lib\hybrid-overlay-node`,
		layout.Sentinel,
	}
}

type resetter struct {
	host    *host.Host
	options Options
	errs    []error
}

// do does one thing and remembers if it fails.
func (r *resetter) do(ctx context.Context, act string, do func(ctx context.Context) error) {
	err := engine.Bounded(ctx, actTime, act, do)
	if err != nil {
		err = fmt.Errorf("%s: %w", act, err)
		r.errs = append(r.errs, err)
		logr.FromContextOrDiscard(ctx).Error(err, "Resetting")
	}
	if r.options.Report != nil {
		r.options.Report(act, err)
	}
}

// endContainers ends the shims, which outlive containerd. A container ends with the last handle of it, which its shim holds.
func (r *resetter) endContainers(ctx context.Context) error {
	_, err := r.host.Processes.Run(ctx, host.Command{
		Argv: []string{`C:\Windows\System32\taskkill.exe`, "/F", "/T", "/IM", "containerd-shim-runhcs-v1.exe"},
	})
	// Its exit code says whether there was one, in several ways; a shim that lives on holds files, whose removal then fails.
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// removeNetworks removes the networks that plug-ins made, as after a boot.
func (r *resetter) removeNetworks(ctx context.Context) error {
	run := engine.NewRun(r.host, nil, &engine.Facts{}, func(context.Context) error { return nil })
	return network.CleanHNS(ctx, run)
}

func describe(t engine.Trace) string {
	name := t.Name
	if t.Kind == engine.TraceRegistry {
		key, value := engine.SplitRegistryName(t.Name)
		name = fmt.Sprintf("%s, value %q", key, value)
	}
	return fmt.Sprintf("undo %s %s", strings.ToLower(string(t.Kind)), name)
}

func (r *resetter) undo(ctx context.Context, t engine.Trace) error {
	switch t.Kind {
	case engine.TraceService:
		return r.undoService(ctx, t)
	case engine.TraceFile:
		return r.host.Files.Remove(ctx, t.Name)
	case engine.TraceRegistry:
		return r.undoRegistry(ctx, t)
	case engine.TraceEnvironment:
		return r.undoEnvironment(ctx, t)
	case engine.TraceFirewall:
		return r.host.Firewall.Delete(ctx, t.Name)
	case engine.TraceCertificate:
		return r.host.Certificates.RemoveRoot(ctx, t.Name)
	case engine.TraceUser:
		return r.host.Users.Delete(ctx, t.Name)
	case engine.TraceHNSNetwork:
		if err := r.host.HNS.DeleteNetwork(ctx, t.Name); !errors.Is(err, host.ErrNotSupported) {
			return found(err)
		}
		return nil
	default:
		return errors.New("another version of the agent knows what this is")
	}
}

func (r *resetter) undoService(ctx context.Context, t engine.Trace) error {
	if t.Before == "" {
		return r.host.Services.Delete(ctx, t.Name)
	}
	var before host.Service
	if err := json.Unmarshal([]byte(t.Before), &before); err != nil {
		return fmt.Errorf("reading what it was before: %w", err)
	}
	return r.host.Services.Apply(ctx, before)
}

func (r *resetter) undoRegistry(ctx context.Context, t engine.Trace) error {
	key, name := engine.SplitRegistryName(t.Name)
	if t.Before == "" {
		return r.host.Registry.Delete(ctx, key, name)
	}
	var before host.Value
	if err := json.Unmarshal([]byte(t.Before), &before); err != nil {
		return fmt.Errorf("reading what it was before: %w", err)
	}
	return r.host.Registry.Set(ctx, key, name, before)
}

func (r *resetter) undoEnvironment(ctx context.Context, t engine.Trace) error {
	var before *string
	if t.Before != "" {
		if err := json.Unmarshal([]byte(t.Before), &before); err != nil {
			return fmt.Errorf("reading what it was before: %w", err)
		}
	}
	return r.host.System.SetEnvironment(ctx, t.Name, before)
}

// found makes success of an error that says that something is not there.
func found(err error) error {
	if errors.Is(err, host.ErrNotFound) {
		return nil
	}
	return err
}
