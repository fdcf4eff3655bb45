package join

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/discovery"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/kubelet"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/servicelog"
	"github.com/capw-dev/cluster-api-provider-windows/agent/services"
)

// patience is how long a step waits before it says what it waits for; then it is tried again.
const patience = 20 * time.Second

// startKubelet makes the kubelet a service with the flags of the document, and starts it.
func startKubelet(ctx context.Context, r *engine.Run) error {
	flags, err := kubelet.Flags(r.Doc, r.Facts.NodeIPs, nil)
	if err != nil {
		return err
	}
	r.Facts.KubeletArgs = flags
	return ensureKubelet(ctx, r)
}

// ensureKubelet makes the service what the facts say, and says why the kubelet ended if it did.
func ensureKubelet(ctx context.Context, r *engine.Run) error {
	service, err := services.Kubelet(r)
	if err != nil {
		return err
	}
	if err := services.Ensure(ctx, r, service); err != nil {
		if last := servicelog.Last(ctx, r.Host.Files, layout.KubeletService, r.Doc.Secrets()); last != "" && ctx.Err() == nil {
			return codes.New(codes.KubeletEnds, "%w; it said: %s", err, last)
		}
		return err
	}
	return nil
}

// checkRuns says that the kubelet has ended, and what it said last. The next attempt starts it.
func checkRuns(ctx context.Context, r *engine.Run) error {
	status, err := r.Host.Services.Status(ctx, layout.KubeletService)
	if err != nil {
		return codes.New(codes.KubeletServiceNotMade, "looking at service %s: %w", layout.KubeletService, err)
	}
	if status.State != host.ServiceStopped {
		return nil
	}
	return codes.New(codes.KubeletEnds, "the kubelet ended with exit code %d; it said: %s", status.ExitCode,
		servicelog.Last(ctx, r.Host.Files, layout.KubeletService, r.Doc.Secrets()))
}

// awaitCertificate waits until the kubelet has the node's identity.
func awaitCertificate(ctx context.Context, r *engine.Run) error {
	if isMember, err := member(ctx, r); isMember || err != nil {
		return err
	}
	if err := ensureKubelet(ctx, r); err != nil {
		return err
	}
	issued, err := until(ctx, patience, func(ctx context.Context) (bool, error) {
		if isMember, err := member(ctx, r); isMember || err != nil {
			return isMember, err
		}
		return false, checkRuns(ctx, r)
	})
	if err == nil && !issued {
		err = codes.New(codes.CertificateNotIssued, "the kubelet runs, but has no client certificate for Node %s yet; it said: %s", r.Doc.Node.Name,
			servicelog.Last(ctx, r.Host.Files, layout.KubeletService, r.Doc.Secrets()))
	}
	return err
}

// awaitHealth waits until the kubelet says that it is healthy.
func awaitHealth(ctx context.Context, r *engine.Run) error {
	if err := ensureKubelet(ctx, r); err != nil {
		return err
	}
	last := context.DeadlineExceeded // of a probe that was cut short
	healthy, err := until(ctx, patience, func(ctx context.Context) (bool, error) {
		probe := Healthy(ctx, r)
		if probe == nil {
			return true, nil
		}
		if ctx.Err() == nil {
			last = probe
		}
		return false, checkRuns(ctx, r)
	})
	if err == nil && !healthy {
		err = codes.New(codes.KubeletUnhealthy, "%w", last)
	}
	return err
}

// Healthy asks the kubelet for its health; nil if that is turned off.
func Healthy(ctx context.Context, r *engine.Run) error {
	raw, err := r.Host.Files.Read(ctx, layout.KubeletConfig)
	if err != nil {
		return fmt.Errorf("reading %s: %w", layout.KubeletConfig, err)
	}
	config, err := kubelet.ParseConfig(raw)
	if err != nil {
		return fmt.Errorf("parsing %s: %w", layout.KubeletConfig, err)
	}
	address := config.Healthz()
	if address == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/healthz", http.NoBody)
	if err != nil {
		return fmt.Errorf("asking for the kubelet's health: %w", err)
	}
	transport := &http.Transport{DialContext: r.Host.Network.DialContext, DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return fmt.Errorf("asking for the kubelet's health: %w", err)
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	if response.StatusCode == http.StatusOK {
		return nil
	}
	answer, err := io.ReadAll(io.LimitReader(response.Body, 200))
	return errors.Join(fmt.Errorf("the kubelet answers %s: %q", response.Status, answer), err)
}

// awaitNode waits until the kubelet has registered its Node, and makes sure that it is this machine's.
func awaitNode(ctx context.Context, r *engine.Run) error {
	uuids, err := systemUUIDs(ctx, r)
	if err != nil {
		return err
	}
	c, err := client(ctx, r, true)
	if err != nil {
		return err
	}
	defer c.Close()
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	node, err := c.AwaitNode(waiting, r.Doc.Node.Name, func(node *corev1.Node) bool { return isOurs(node, uuids) })
	switch {
	case err == nil:
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		return codes.New(codes.NodeIdentityRefused, "%w", err)
	case apierrors.IsNotFound(err):
		return codes.New(codes.NodeNotRegistered, "Node %s does not exist: %w; the kubelet said: %s", r.Doc.Node.Name, err,
			servicelog.Last(ctx, r.Host.Files, layout.KubeletService, r.Doc.Secrets()))
	case node != nil && errors.Is(err, context.DeadlineExceeded):
		return codes.New(codes.NodeNotRegistered, "Node %s exists, but says that it is the machine with system UUID %q", node.Name, node.Status.NodeInfo.SystemUUID)
	default:
		return discovery.Unreachable(r.Doc.Join.APIServerEndpoint, err)
	}
	if want := r.Facts.ProviderID; want != "" && node.Spec.ProviderID != want {
		return codes.New(codes.ProviderIDDiffers, "Node %s has provider ID %q, this machine is %q", node.Name, node.Spec.ProviderID, want)
	}
	logr.FromContextOrDiscard(ctx).Info("The Node is registered", "node", node.Name, "providerID", node.Spec.ProviderID)
	return nil
}

// removeCredentials removes what holds the token, except the document.
func removeCredentials(ctx context.Context, r *engine.Run) error {
	for _, path := range []string{layout.BootstrapKubeconfig, layout.KubeadmJoin} {
		if err := r.Host.Files.Remove(ctx, path); err != nil {
			return codes.New(codes.JoinFilesNotWritten, "removing %s, which holds the token: %w", path, err)
		}
	}
	return nil
}
