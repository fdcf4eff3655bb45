package hostprep

import (
	"context"
	"errors"
	"strings"

	"github.com/go-logr/logr"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// setComputerName gives the computer the node's name. On vSphere cloudbase-init has done so before it runs user data; in
// image-builder's images for AWS and Azure it comes to that only afterwards. Windows compares names without case.
func setComputerName(ctx context.Context, r *engine.Run) error {
	want := r.Doc.Node.Name
	n, err := newNeed(ctx, r, "the computer name "+want)
	if err != nil {
		return err
	}
	now, next, err := r.Host.System.ComputerName(ctx)
	if err != nil {
		return codes.New(codes.HostUnreadable, "reading the computer name: %w", err)
	}
	is, will := strings.EqualFold(now, want), strings.EqualFold(next, want)
	if !is && n.met() {
		return codes.New(codes.ComputerNameNotTaken, "the computer's name is %s, and %s after the next boot, although it was set to %s before this one", now, next, want)
	}
	if !will {
		logr.FromContextOrDiscard(ctx).Info("Renaming the computer", "from", next, "to", want)
		if err := r.Host.System.SetComputerName(ctx, want); err != nil {
			return refused(err, codes.ComputerNameRefused, codes.ComputerNameNotSet, "setting the computer name %s", want)
		}
	}
	if is {
		return nil
	}
	if err := n.remember(ctx); err != nil {
		return err
	}
	n.request()
	return nil
}

// named says whether the computer has the node's name already.
func named(ctx context.Context, r *engine.Run) (bool, error) {
	now, _, err := r.Host.System.ComputerName(ctx)
	if err != nil {
		return false, codes.New(codes.HostUnreadable, "reading the computer name: %w", err)
	}
	return strings.EqualFold(now, r.Doc.Node.Name), nil
}

// refused gives an error one of two codes: terminal if Windows refuses what it was asked for, else retryable.
func refused(err error, terminal, retryable codes.Code, format string, args ...any) error {
	code := retryable
	if errors.Is(err, host.ErrInvalid) || errors.Is(err, host.ErrNotSupported) {
		code = terminal
	}
	return codes.New(code, format+": %w", append(args, err)...)
}
