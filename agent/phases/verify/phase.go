// Package verify proves that the machine is the node that the document describes: phase Verify. Nothing in it changes anything.
package verify

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/capw-dev/cluster-api-provider-windows/agent/apiclient"
	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/kubelet"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/join"
	"github.com/capw-dev/cluster-api-provider-windows/agent/servicelog"
	"github.com/capw-dev/cluster-api-provider-windows/agent/services"
)

// patience is how long the Node is waited for before the status says what is missing; then it is waited for again.
const patience = 20 * time.Second

// mismatchEvent is the ID in the event log of a Node that is not as it registered.
const mismatchEvent = 901

// Phase returns phase Verify.
func Phase() engine.Phase {
	return engine.Phase{Name: "Verify", Steps: []engine.Step{
		{Name: "all services run", Do: servicesRun, Budget: engine.Retry(time.Minute, time.Second, 0)},
		{Name: "the kubelet is healthy", Do: kubeletHealthy, Budget: engine.Retry(30*time.Second, time.Second, 0)},
		{Name: "the Node is as declared", Do: awaitNode, Budget: engine.Retry(time.Minute, time.Second, 0)},
	}}
}

// servicesRun names the first service that does not run. Phase Services and the SCM start them; here they are only looked at.
func servicesRun(ctx context.Context, r *engine.Run) error {
	desired, err := services.Desired(r)
	if err != nil {
		return err
	}
	for _, s := range desired {
		status, err := r.Host.Services.Status(ctx, s.Name)
		switch {
		case errors.Is(err, host.ErrNotFound):
			return codes.New(codes.ServiceNotRunning, "service %s does not exist", s.Name)
		case err != nil:
			return codes.New(codes.ServiceStateUnknown, "looking at service %s: %w", s.Name, err)
		case status.State != host.ServiceRunning:
			why, err := services.Blocked(ctx, r, s)
			if err != nil {
				return codes.New(codes.ServiceStateUnknown, "looking at service %s: %w", s.Name, err)
			}
			if why != "" {
				logr.FromContextOrDiscard(ctx).Info("A service does not run yet", "service", s.Name, "reason", why)
				continue
			}
			return codes.New(codes.ServiceNotRunning, "service %s is %s, its last exit code is %d; it said: %s", s.Name, status.State, status.ExitCode,
				servicelog.Last(ctx, r.Host.Files, s.Name, r.Doc.Secrets()))
		}
	}
	return nil
}

func kubeletHealthy(ctx context.Context, r *engine.Run) error {
	if err := join.Healthy(ctx, r); err != nil {
		return codes.New(codes.HealthzFailed, "%w", err)
	}
	return nil
}

// awaitNode waits until the Node is what the document waits for, as the Node itself sees it.
func awaitNode(ctx context.Context, r *engine.Run) error {
	c, err := apiclient.ForNode(ctx, r.Host)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, apiclient.ErrIdentity):
		return codes.New(codes.NodeUnreadable, "the node has no identity any more: %w", err)
	case err != nil:
		return codes.New(codes.NodeUnreadable, "using the node's identity: %w", err)
	}
	defer c.Close()
	wanted := func(node *corev1.Node) bool {
		ready, _ := kubelet.Ready(node)
		return ready || r.Doc.Boot.WaitFor == "Registered"
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	node, err := c.AwaitNode(waiting, r.Doc.Node.Name, wanted)
	switch {
	case err == nil:
		return report(ctx, r, node)
	case apierrors.IsNotFound(err):
		return codes.New(codes.NodeMissing, "%w", err)
	case node != nil && errors.Is(err, context.DeadlineExceeded):
		_, why := kubelet.Ready(node)
		return codes.New(codes.NodeNotReady, "Node %s is not Ready: %s", node.Name, why)
	default:
		return codes.New(codes.NodeUnreadable, "%w", err)
	}
}

// report tells people what on the Node is not as declared. It is no failure: somebody who may do so has changed it since it
// registered, and for taints that mark a Node as new that is their purpose.
func report(ctx context.Context, r *engine.Run, node *corev1.Node) error {
	differences := kubelet.Differences(node, r.Doc)
	if len(differences) == 0 {
		return nil
	}
	log := logr.FromContextOrDiscard(ctx)
	log.Info("The Node is not as it registered any more", "node", node.Name, "differences", differences)
	err := r.Host.Reporting.Event(ctx, host.EventInformation, mismatchEvent,
		"Node "+node.Name+" is not as it registered any more: "+strings.Join(differences, "; "))
	if err != nil {
		log.Error(err, "Writing to the event log")
	}
	return nil
}
