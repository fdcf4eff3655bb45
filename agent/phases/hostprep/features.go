package hostprep

import (
	"context"
	"errors"

	"github.com/go-logr/logr"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

func enableFeatures(ctx context.Context, r *engine.Run) error {
	for _, name := range r.Doc.OS.Features {
		if err := enableFeature(ctx, r, name); err != nil {
			return err
		}
	}
	return nil
}

func enableFeature(ctx context.Context, r *engine.Run, name string) error {
	n, err := newNeed(ctx, r, "the feature "+name)
	if err != nil {
		return err
	}
	state, err := r.Host.Features.State(ctx, name)
	switch {
	case errors.Is(err, host.ErrNotFound):
		return codes.New(codes.FeatureUnknown, "the feature %s: %w", name, err)
	case err != nil:
		return codes.New(codes.FeatureNotEnabled, "reading the state of the feature %s: %w", name, err)
	case state == host.FeatureEnabled:
		return nil
	case n.met():
		return codes.New(codes.FeatureNotTaken, "the feature %s is %s, although it was enabled before this boot", name, state)
	}
	reboot := state == host.FeaturePending
	if !reboot {
		logr.FromContextOrDiscard(ctx).Info("Enabling a feature; this may take minutes", "feature", name)
		reboot, err = r.Host.Features.Enable(ctx, name)
		if err != nil {
			if errors.Is(err, host.ErrNotFound) {
				return codes.New(codes.FeatureUnknown, "enabling the feature %s: %w", name, err)
			}
			return codes.New(codes.FeatureNotEnabled, "enabling the feature %s: %w", name, err)
		}
	}
	if !reboot {
		return nil
	}
	if err := n.remember(ctx); err != nil {
		return err
	}
	n.request()
	return nil
}
