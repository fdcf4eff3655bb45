// Package services is the phase Services: the pod network, the services beside containerd and kubelet, and the commands after
// the join.
package services

import (
	"context"
	"time"

	"github.com/go-logr/logr"

	"github.com/capw-dev/cluster-api-provider-windows/agent/cni"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/configure"
	"github.com/capw-dev/cluster-api-provider-windows/agent/services"
)

const (
	// fileTime bounds the writing of configuration files, startTime the start of all services: each may take as long as the
	// SCM gives it.
	fileTime  = 30 * time.Second
	startTime = 5 * time.Minute
	// networkTime is how long the pod network may take: its service waits for the cluster, and making a virtual switch takes
	// up to a minute in which the host loses its connections.
	networkTime = 15 * time.Minute
)

// Phase returns the phase.
func Phase() engine.Phase {
	return engine.Phase{Name: "Services", Steps: []engine.Step{
		{Name: "configure the pod network", Do: cni.Configure, When: hasCNI, Budget: engine.Retry(fileTime, 2*time.Second, 5*time.Minute)},
		{Name: "configure windows_exporter", Do: services.ConfigureExporter, When: hasExporter, Budget: engine.Retry(fileTime, 2*time.Second, 5*time.Minute)},
		{Name: "start services", Do: startOthers, Budget: engine.Retry(startTime, 5*time.Second, 30*time.Minute)},
		{Name: "complete the pod network", Do: cni.Complete, When: hasCNI, Budget: engine.Retry(fileTime, 2*time.Second, networkTime)},
		{Name: "prepare kube-proxy", Do: cni.PrepareKubeProxy, When: waitsForNetwork, Budget: engine.Retry(fileTime, 2*time.Second, networkTime)},
		{Name: "start kube-proxy", Do: startKubeProxy, When: hasKubeProxy, Budget: engine.Retry(startTime, 5*time.Second, 30*time.Minute)},
		{Name: "run the commands after the join", Do: postJoin, When: hasCommands, Budget: engine.Retry(12*time.Hour, 10*time.Second, 0)},
	}}
}

func hasCNI(r *engine.Run) bool       { return r.Doc.Services.CNI != nil }
func hasExporter(r *engine.Run) bool  { return r.Doc.Services.WindowsExporter != nil }
func hasKubeProxy(r *engine.Run) bool { return r.Doc.Services.KubeProxy != nil }
func hasCommands(r *engine.Run) bool  { return len(r.Doc.PostJoinCommands) > 0 }

// waitsForNetwork: a network that appears only with the first pods is the resident's to wait for.
func waitsForNetwork(r *engine.Run) bool { return hasKubeProxy(r) && !cni.Deferred(r.Doc) }

// startOthers makes all services what they shall be and starts them, except those that wait for kube-proxy's configuration.
func startOthers(ctx context.Context, r *engine.Run) error {
	desired, err := services.Desired(r)
	if err != nil {
		return err
	}
	for _, s := range services.Without(desired, services.KubeProxy) {
		why, err := services.Blocked(ctx, r, s)
		switch {
		case err != nil:
			return err
		case why == "":
			err = services.Ensure(ctx, r, s)
		default:
			logr.FromContextOrDiscard(ctx).Info("A service is started later", "service", s.Name, "reason", why)
			err = services.Register(ctx, r, s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// startKubeProxy starts kube-proxy and what depends on it. Where its network is not there yet they are only registered, and
// the resident starts them.
func startKubeProxy(ctx context.Context, r *engine.Run) error {
	desired, err := services.Desired(r)
	if err != nil {
		return err
	}
	ensure := services.Ensure
	if cni.Deferred(r.Doc) {
		if err := cni.PrepareKubeProxy(ctx, r); cni.Waiting(err) {
			logr.FromContextOrDiscard(ctx).Info("kube-proxy is started later", "reason", err.Error())
			ensure = services.Register
		} else if err != nil {
			return err
		}
	}
	for _, s := range services.Only(desired, services.KubeProxy) {
		if err := ensure(ctx, r, s); err != nil {
			return err
		}
	}
	return nil
}

func postJoin(ctx context.Context, r *engine.Run) error {
	return configure.RunCommands(ctx, r, r.Doc.PostJoinCommands, "postJoin")
}
