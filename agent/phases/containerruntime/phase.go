// Package containerruntime is the phase that starts containerd and waits until it answers the kubelet's questions.
package containerruntime

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/capw-dev/cluster-api-provider-windows/agent/artifact"
	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/cri"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/services"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

const (
	// attempt is the time of one start. On a fresh host containerd needs some seconds, most of them until it is scanned.
	attempt = time.Minute
	// question bounds one call of the CRI, pollEvery is the pause between two.
	question  = 5 * time.Second
	pollEvery = 250 * time.Millisecond
	// logTail is how much of containerd's log goes into an error, in bytes.
	logTail = 1500
)

// Phase returns the phase Runtime.
func Phase() engine.Phase {
	return engine.Phase{Name: "Runtime", Steps: []engine.Step{
		{Name: "start containerd", Do: start, When: managed, Budget: engine.Retry(attempt, 2*time.Second, 10*time.Minute)},
		{Name: "wait for containerd", Do: wait, When: existing, Budget: engine.Retry(attempt, 2*time.Second, 10*time.Minute)},
	}}
}

func managed(r *engine.Run) bool { return r.Doc.ContainerRuntime.Management == nodev1.Managed }

func existing(r *engine.Run) bool { return !managed(r) }

// start registers and starts containerd's service and waits until it answers.
func start(ctx context.Context, r *engine.Run) error {
	if err := stopOther(ctx, r); err != nil {
		return err
	}
	if err := ensure(ctx, r); err != nil {
		return err
	}
	version, err := ready(ctx, r)
	if err != nil {
		return err
	}
	if installed := r.Facts.Versions["containerd"]; !same(version, installed) {
		return codes.New(codes.RuntimeOtherVersion, "containerd %s answers on %s, and %s is %s", version, layout.CRIPipe, r.Doc.ContainerRuntime.Path, installed)
	}
	return nil
}

// stopOther stops a containerd that may run with another configuration, or be another program, than what is in place: one
// that the agent has not started since. The sum is remembered after the stop. A power cut in between costs one more stop, and
// a containerd that somebody else starts meanwhile reads the same file.
func stopOther(ctx context.Context, r *engine.Run) error {
	config, err := r.Host.Files.Read(ctx, layout.ContainerdConfig)
	if err != nil {
		return codes.New(codes.RuntimeNotStarted, "reading %s: %w", layout.ContainerdConfig, err)
	}
	digest := sha256.Sum256(config)
	sum := hex.EncodeToString(digest[:])
	if r.Facts.ContainerdConfig == sum {
		return nil
	}
	if err := r.Host.Services.Stop(ctx, layout.ContainerdService); err != nil && !errors.Is(err, host.ErrNotFound) {
		return codes.New(codes.RuntimeNotStarted, "stopping the containerd that runs: %w", err)
	}
	r.Facts.ContainerdConfig = sum
	return r.Save(ctx)
}

// same says whether the version that answers is that of the program; one that cannot be told is taken to be.
func same(answers, installed string) bool {
	if installed == "" {
		return true
	}
	equal, err := artifact.SameVersion(answers, installed)
	return err != nil || equal
}

// wait waits for the image's containerd and remembers its version.
func wait(ctx context.Context, r *engine.Run) error {
	version, err := ready(ctx, r)
	if err != nil {
		return err
	}
	if r.Facts.Versions == nil {
		r.Facts.Versions = map[string]string{}
	}
	r.Facts.Versions["containerd"] = version
	return nil
}

func ensure(ctx context.Context, r *engine.Run) error {
	service, err := services.Containerd(r)
	if err != nil {
		return fmt.Errorf("composing containerd's service: %w", err)
	}
	err = services.Ensure(ctx, r, service)
	if coded := (*codes.Error)(nil); errors.As(err, &coded) {
		return codes.New(codes.RuntimeNotStarted, "%w%s", coded.Err, logEnd(ctx, r.Host))
	}
	return err
}

// ready waits until containerd says that it can run containers, and returns its version. One whose service ends meanwhile is
// not waited for. NetworkReady is not asked for: the pod network comes after the join.
func ready(ctx context.Context, r *engine.Run) (string, error) {
	waiting, cancel := context.WithTimeout(ctx, attempt-question) // to have time left to say why
	defer cancel()
	dial := func(ctx context.Context) (net.Conn, error) {
		return r.Host.Network.DialContext(ctx, "pipe", layout.CRIPipe)
	}
	begin := time.Now()
	var last error
	for {
		name, version, err := ask(waiting, dial)
		if waiting.Err() == nil || last == nil { // else it only says that the time is over
			last = err
		}
		if err == nil {
			logr.FromContextOrDiscard(ctx).Info("The container runtime is ready", "name", name, "version", version, "after", time.Since(begin).Round(time.Millisecond))
			return version, nil
		}
		if died := stopped(ctx, r.Host); died != nil && managed(r) {
			return "", died
		}
		select {
		case <-waiting.Done():
			return "", last
		case <-time.After(pollEvery):
		}
	}
}

func ask(ctx context.Context, dial cri.Dial) (name, version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, question)
	defer cancel()
	name, version, err = cri.Version(ctx, dial)
	if err != nil {
		return "", "", codes.New(codes.RuntimeNotAnswering, "%s: %w", layout.CRIPipe, err)
	}
	conditions, err := cri.Conditions(ctx, dial)
	if err != nil {
		return "", "", codes.New(codes.RuntimeNotAnswering, "%s: %w", layout.CRIPipe, err)
	}
	for _, c := range conditions {
		if c.Type == "RuntimeReady" && !c.Status {
			return "", "", codes.New(codes.RuntimeNotReady, "%s %s: %s: %s", name, version, c.Reason, c.Message)
		}
	}
	return name, version, nil
}

// stopped returns an error if containerd's service has ended; none while nobody can tell.
func stopped(ctx context.Context, h *host.Host) error {
	if status, err := h.Services.Status(ctx, layout.ContainerdService); err == nil && status.State == host.ServiceStopped {
		return codes.New(codes.RuntimeDied, "the service %s has ended with exit code %d%s", layout.ContainerdService, status.ExitCode, logEnd(ctx, h))
	}
	return nil
}

// logEnd returns the end of containerd's log, to be appended to a message; "" if there is none.
func logEnd(ctx context.Context, h *host.Host) string {
	path := layout.Log(layout.ContainerdService)
	info, err := h.Files.Stat(ctx, path)
	if err != nil {
		return ""
	}
	file, err := h.Files.Open(ctx, path)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	if _, err := io.CopyN(io.Discard, file, max(info.Size-logTail, 0)); err != nil {
		return ""
	}
	raw, err := io.ReadAll(io.LimitReader(file, logTail))
	text := strings.TrimSpace(strings.ToValidUTF8(string(raw), ""))
	if err != nil || text == "" {
		return ""
	}
	return "; the end of its log: " + text
}
