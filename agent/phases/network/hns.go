package network

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// CleanHNS removes, once per boot, the networks that a container network plug-in made before this boot, or in the image. HNS
// keeps them over a reboot, but not all that belongs to them: pods have no network until they are made anew (projectcalico/
// calico issues 8397 and 12795, kubernetes-sigs/sig-windows-tools issue 378). It must be called before the kubelet starts, and
// before the plug-in does: the adapter below loses its connections for a moment.
func CleanHNS(ctx context.Context, r *engine.Run) error {
	info, err := r.Host.System.Info(ctx)
	if err != nil {
		return codes.New(codes.HostUnreadable, "reading which boot this is: %w", err)
	}
	if r.Facts.CleanedBootID == info.BootID {
		return nil
	}
	networks, err := r.Host.HNS.Networks(ctx)
	if err != nil && !errors.Is(err, host.ErrNotSupported) { // without the feature Containers there is none
		return codes.New(codes.HNSNotCleaned, "listing the networks of containers: %w", err)
	}
	for _, n := range networks {
		if !madeByPlugin(n) {
			continue
		}
		logr.FromContextOrDiscard(ctx).Info("Removing a container network from before this boot", "network", n.Name, "type", n.Type, "id", n.ID)
		if err := r.Host.HNS.DeleteNetwork(ctx, n.ID); err != nil {
			return codes.New(codes.HNSNotCleaned, "removing the network %s (%s, %s): %w", n.Name, n.Type, n.ID, err)
		}
	}
	before := r.Facts.CleanedBootID
	r.Facts.CleanedBootID = info.BootID
	if err := r.Save(ctx); err != nil {
		r.Facts.CleanedBootID = before
		return fmt.Errorf("remembering that container networks are clean: %w", err)
	}
	return nil
}

// madeByPlugin says whether a network is one of a container network plug-in. Windows itself makes networks of type NAT ("nat")
// and ICS ("Default Switch"), people those of Hyper-V (Internal, Private, Transparent), and Antrea a Transparent one, which its
// agent restores.
func madeByPlugin(n host.HNSNetwork) bool {
	windows := slices.ContainsFunc([]string{"nat", "Default Switch"}, func(name string) bool { return strings.EqualFold(n.Name, name) })
	plugin := slices.ContainsFunc([]string{"L2Bridge", "L2Tunnel", "Overlay"}, func(t string) bool { return strings.EqualFold(n.Type, t) })
	return plugin && !windows
}
