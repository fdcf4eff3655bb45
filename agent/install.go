package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	kjson "sigs.k8s.io/json"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/status"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// installBackoff spans about three minutes: what can fail while Windows still starts, such as a locked service database,
// is over by then.
func installBackoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 1.7, Jitter: 0.1, Steps: 9, Cap: time.Minute}
}

// Bootstrap installs the agent as a Windows service that makes this machine the node that doc describes, starts the
// service, and returns. To do it again with the same document is harmless; with another one it is refused with code
// AlreadyConfigured. With retry, a first boot that has failed is tried once more.
//
// From the moment it returns the machine can lose power, or be rebooted by anybody: the service goes on.
func (a *Agent) Bootstrap(ctx context.Context, doc *nodev1.NodeConfiguration, retry bool) error {
	log := logr.FromContextOrDiscard(ctx)
	var last error
	err := wait.ExponentialBackoffWithContext(ctx, installBackoff(), func(ctx context.Context) (bool, error) {
		last = a.install(ctx, doc, retry)
		if last == nil {
			return true, nil
		}
		if info, message := codes.Of(last); info.Class != codes.Terminal {
			log.Info("Installing the agent failed, trying again", "code", info.Code, "error", message)
			return false, nil
		}
		return false, last
	})
	if err == nil {
		return nil
	}
	if last != nil {
		err = last
	}
	if info, _ := codes.Of(err); info.Code != codes.AlreadyConfigured { // that machine has its own status
		a.reportFailure(ctx, err, doc.Node.Name, doc.Boot.StatusPort)
	}
	return err
}

// ReportFailure tells the outside that this machine will not become a node, before there is a document.
func (a *Agent) ReportFailure(ctx context.Context, err error) { a.reportFailure(ctx, err, "", "") }

func (a *Agent) reportFailure(ctx context.Context, err error, node, port string) {
	info, message := codes.Of(err)
	now := metav1.Now()
	status.New(a.Host, port).Report(ctx, nodev1.BootStatus{
		APIVersion: nodev1.APIVersion, State: nodev1.BootFailed, Phase: "Preflight", Step: "install the agent", Attempt: 1,
		Code: string(info.Code), Message: message, Node: node, Started: now, Time: now, Agent: a.Version,
	})
}

// install does it once.
func (a *Agent) install(ctx context.Context, doc *nodev1.NodeConfiguration, retry bool) error {
	raw, err := json.Marshal(doc)
	if err != nil {
		return codes.New(codes.Internal, "encoding the node document: %w", err)
	}
	sum := sha256.Sum256(raw)
	digest := hex.EncodeToString(sum[:])

	journal, err := engine.LoadJournal(ctx, a.Host.Files)
	switch {
	case err == nil && journal.Document != digest:
		return codes.New(codes.AlreadyConfigured, "the document of node %s is not the one that this machine was given before", doc.Node.Name)
	case err == nil && (!retry || journal.Failure == nil):
		return a.ensureService(ctx)
	case err == nil:
		journal.Failure, journal.Spent, journal.Reboots, journal.RebootFrom = nil, 0, 0, ""
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, engine.ErrDamaged):
		return err
	default:
		if errors.Is(err, engine.ErrDamaged) {
			logr.FromContextOrDiscard(ctx).Error(err, "Starting anew")
		}
		journal = &engine.Journal{Document: digest, Started: time.Now().UTC().Truncate(time.Second)}
	}
	if err := a.Host.Files.Mkdir(ctx, layout.StateDir, host.ACLSystem); err != nil {
		return codes.New(codes.StateNotWritable, "making %s: %w", layout.StateDir, err)
	}
	if err := a.copySelf(ctx); err != nil {
		return err
	}
	if err := a.Host.Files.Write(ctx, layout.Document, raw, host.ACLSystem); err != nil {
		return codes.New(codes.StateNotWritable, "writing %s: %w", layout.Document, err)
	}
	// The journal is what makes the document count: written before it, a power cut would leave a journal without document.
	if err := engine.SaveJournal(ctx, a.Host.Files, journal); err != nil {
		return err
	}
	return a.ensureService(ctx)
}

// copySelf puts the agent where it stays: media can be ejected, and the download folder is emptied.
func (a *Agent) copySelf(ctx context.Context) error {
	if strings.EqualFold(a.Executable, layout.Agent) {
		return nil
	}
	self, err := a.Host.Files.Read(ctx, a.Executable)
	if err != nil {
		return codes.New(codes.StateNotWritable, "reading the agent itself from %s: %w", a.Executable, err)
	}
	if there, err := a.Host.Files.Read(ctx, layout.Agent); err == nil && bytes.Equal(there, self) {
		return nil
	}
	if err := a.Host.Files.Mkdir(ctx, layout.ProgramDir, host.ACLUsersRead); err != nil {
		return codes.New(codes.StateNotWritable, "making %s: %w", layout.ProgramDir, err)
	}
	// A program that runs cannot be overwritten, but moved out of the way.
	err = a.Host.Files.Rename(ctx, layout.Agent, layout.Agent+".old")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return codes.New(codes.StateNotWritable, "moving another version of the agent away: %w", err)
	}
	if err := a.Host.Files.Write(ctx, layout.Agent, self, host.ACLUsersRead); err != nil {
		return codes.New(codes.StateNotWritable, "writing %s: %w", layout.Agent, err)
	}
	return nil
}

// ensureService registers the agent and starts it.
func (a *Agent) ensureService(ctx context.Context) error {
	s := host.Service{
		Name:        layout.AgentService,
		DisplayName: "Cluster API Provider Windows node agent",
		Description: "Makes this machine a Kubernetes node and keeps its services as declared.",
		Argv:        append([]string{layout.Agent, "run", "--service"}, a.ServiceArgs...),
		Start:       host.StartAuto,
		Restart:     []time.Duration{5 * time.Second, 30 * time.Second, time.Minute},
		ResetAfter:  time.Hour,
	}
	if err := a.Host.Services.Apply(ctx, s); err != nil {
		return codes.New(codes.ServiceNotMade, "registering service %s: %w", s.Name, err)
	}
	if err := a.Host.Services.Start(ctx, s.Name); err != nil {
		return codes.New(codes.ServiceNotMade, "starting service %s: %w", s.Name, err)
	}
	return nil
}

// load reads what Bootstrap left.
func (a *Agent) load(ctx context.Context) (*nodev1.NodeConfiguration, *engine.Journal, error) {
	raw, err := a.Host.Files.Read(ctx, layout.Document)
	if err != nil {
		return nil, nil, codes.New(codes.DocumentInvalid, "reading the node document: %w", err)
	}
	doc := &nodev1.NodeConfiguration{}
	strict, err := kjson.UnmarshalStrict(raw, doc)
	if err := errors.Join(append(strict, err)...); err != nil {
		return nil, nil, codes.New(codes.DocumentInvalid, "decoding %s: %w", layout.Document, err)
	}
	journal, err := engine.LoadJournal(ctx, a.Host.Files)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, engine.ErrDamaged) {
		return nil, nil, err
	}
	if err != nil {
		// Everything can be done again, except to count.
		logr.FromContextOrDiscard(ctx).Error(err, "Starting anew")
		sum := sha256.Sum256(raw)
		journal = &engine.Journal{Document: hex.EncodeToString(sum[:]), Started: time.Now().UTC().Truncate(time.Second)}
	}
	if !journal.PhaseDone("Join") { // the copy that stays after it has no token, which is no valid document
		if err := doc.Validate(); err != nil {
			return nil, nil, codes.New(codes.DocumentInvalid, "%w", err)
		}
	}
	doc.Default()
	return doc, journal, nil
}

// uninstall removes the agent's service and state. The agent itself stays, as it may be part of the image.
func (a *Agent) uninstall(ctx context.Context) error {
	if err := a.Host.Services.Delete(ctx, layout.AgentService); err != nil {
		return fmt.Errorf("deleting service %s: %w", layout.AgentService, err)
	}
	if err := a.Host.Files.Remove(ctx, layout.StateDir); err != nil {
		return fmt.Errorf("removing %s: %w", layout.StateDir, err)
	}
	return nil
}
