package services

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/go-logr/logr"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
)

// Ensure makes a service what s says, and running. A service that is so already is left alone; one whose program must get
// another command line or environment is stopped, with those that depend on it, which the caller ensures afterwards.
// Errors: codes.ServiceNotRegistered, codes.ServiceNotStopped, codes.ServiceNotStarted.
func Ensure(ctx context.Context, r *engine.Run, s host.Service) error {
	if err := Register(ctx, r, s); err != nil {
		return err
	}
	if err := r.Host.Services.Start(ctx, s.Name); err != nil {
		return codes.New(codes.ServiceNotStarted, "starting service %s, whose log is %s: %w", s.Name, layout.Log(s.Name), err)
	}
	return nil
}

// Register makes a service what s says. It starts none, and stops one only to give its program another command line or
// environment. That happens before the new configuration is stored: after a crash between the two, a service that runs has
// the configuration that is stored.
func Register(ctx context.Context, r *engine.Run, s host.Service) error {
	have, err := r.Host.Services.Get(ctx, s.Name)
	exists := !isNotFound(err)
	if err != nil && exists {
		return codes.New(codes.ServiceNotRegistered, "reading service %s: %w", s.Name, err)
	}
	if err := trace(ctx, r, s.Name, have, exists); err != nil {
		return err
	}
	switch {
	case !exists:
	case s.Equal(have):
		return nil
	case OtherProgram(have, s):
		logr.FromContextOrDiscard(ctx).Info("Stopping a service to give it another configuration", "service", s.Name)
		if err := r.Host.Services.Stop(ctx, s.Name); err != nil {
			return codes.New(codes.ServiceNotStopped, "stopping service %s: %w", s.Name, err)
		}
	}
	if err := r.Host.Services.Apply(ctx, s); err != nil {
		return codes.New(codes.ServiceNotRegistered, "registering service %s: %w", s.Name, err)
	}
	return nil
}

// trace remembers a service before it is made or changed, with the configuration that the image gave it.
func trace(ctx context.Context, r *engine.Run, name string, have host.Service, exists bool) error {
	t := engine.Trace{Kind: engine.TraceService, Name: name}
	if exists {
		raw, err := json.Marshal(have)
		if err != nil {
			return codes.New(codes.Internal, "remembering service %s: %w", name, err)
		}
		t.Before = string(raw)
	}
	if err := r.Trace(ctx, t); err != nil {
		return fmt.Errorf("remembering service %s: %w", name, err)
	}
	return nil
}

// OtherProgram says whether two configurations of a service start its program in different ways.
func OtherProgram(a, b host.Service) bool {
	return !slices.Equal(a.Argv, b.Argv) || !slices.Equal(a.Environment, b.Environment)
}

// Blocked returns why a service cannot start yet, or "". It is for what may take long and shall not keep a node from
// joining: such a service is registered, and the resident starts it later.
func Blocked(ctx context.Context, r *engine.Run, s host.Service) (string, error) {
	exporter := r.Doc.Services.WindowsExporter
	if s.Name != WindowsExporter || exporter == nil || exporter.TLS != "Kubelet" {
		return "", nil
	}
	switch _, err := r.Host.Files.Stat(ctx, layout.KubeletServerCert); {
	case err == nil:
		return "", nil
	case errors.Is(err, fs.ErrNotExist):
		return "the kubelet has no serving certificate yet; somebody must approve its certificate signing request", nil
	default:
		return "", codes.New(codes.ServiceNotStarted, "looking for the serving certificate %s: %w", layout.KubeletServerCert, err)
	}
}

// WriteFile gives a file its content, and says whether it had another one. A file that has it is not touched: programs watch
// their configuration, and would load it again. Its folder is made. Reset removes what was not there before.
func WriteFile(ctx context.Context, r *engine.Run, path string, content []byte) (bool, error) {
	have, err := r.Host.Files.Read(ctx, path)
	if err == nil && bytes.Equal(have, content) {
		return false, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("reading %s: %w", path, err)
	}
	folder := layout.Dir(path)
	missing, err := firstMissing(ctx, r, path)
	if err != nil {
		return false, err
	}
	if missing != "" {
		if err := r.Trace(ctx, engine.Trace{Kind: engine.TraceFile, Name: missing}); err != nil {
			return false, fmt.Errorf("remembering that %s is new: %w", missing, err)
		}
	}
	if missing != "" && missing != path {
		if err := r.Host.Files.Mkdir(ctx, folder, host.ACLSystem); err != nil {
			return false, fmt.Errorf("making %s: %w", folder, err)
		}
	}
	if err := r.Host.Files.Write(ctx, path, content, host.ACLSystem); err != nil {
		return false, fmt.Errorf("writing %s: %w", path, err)
	}
	return true, nil
}

// firstMissing returns the topmost of a path and its folders that does not exist; "" if the path does.
func firstMissing(ctx context.Context, r *engine.Run, path string) (string, error) {
	missing := ""
	for at := path; layout.Dir(at) != at && at != ""; at = layout.Dir(at) {
		switch _, err := r.Host.Files.Stat(ctx, at); {
		case err == nil:
			return missing, nil
		case errors.Is(err, fs.ErrNotExist):
			missing = at
		default:
			return "", fmt.Errorf("looking for %s: %w", at, err)
		}
	}
	return missing, nil
}

func isNotFound(err error) bool { return errors.Is(err, host.ErrNotFound) }
