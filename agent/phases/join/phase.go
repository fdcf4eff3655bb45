// Package join makes the machine a member of the cluster: phase Join.
//
// With method Kubelet the agent finds the cluster, writes the kubelet's configuration and starts it with the bootstrap token;
// the kubelet then has a certificate issued for itself and registers its Node. With method Kubeadm, kubeadm.exe does that,
// and the agent owns the command line of the kubelet service before and after.
//
// A machine that has the node's certificate already is a member: for it the phase changes nothing.
package join

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/go-logr/logr"

	"github.com/capw-dev/cluster-api-provider-windows/agent/apiclient"
	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/discovery"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/kubelet"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// Phase returns phase Join. Most steps wait for other people's machines and have until the deadline of the first boot.
func Phase() engine.Phase {
	return engine.Phase{Name: "Join", Steps: []engine.Step{
		{Name: "prepare", Do: prepare, Budget: engine.Retry(3*time.Minute, 2*time.Second, 15*time.Minute)},
		{Name: "discover the cluster", Do: discover, Budget: engine.Retry(time.Minute, 2*time.Second, 0)},
		{Name: "check the node name", Do: checkName, Budget: engine.Retry(time.Minute, 2*time.Second, 0)},

		{Name: "configure the kubelet", Do: configure, When: byKubelet, Budget: engine.Retry(3*time.Minute, 2*time.Second, 0)},
		{Name: "write bootstrap credentials", Do: writeBootstrapKubeconfig, When: byKubelet, Budget: engine.Retry(time.Minute, 2*time.Second, 15*time.Minute)},
		{Name: "start the kubelet", Do: startKubelet, When: byKubelet, Budget: engine.Retry(2*time.Minute, 2*time.Second, 0)},

		{Name: "run kubeadm", Do: runKubeadm, When: byKubeadm, Budget: engine.Retry(30*time.Minute, 10*time.Second, 0)},
		{Name: "own the kubelet's command line", Do: ownCommandLine, When: byKubeadm, Budget: engine.Retry(3*time.Minute, 2*time.Second, 0)},

		{Name: "await the client certificate", Do: awaitCertificate, Budget: engine.Retry(2*time.Minute, time.Second, 0)},
		{Name: "await the kubelet's health", Do: awaitHealth, Budget: engine.Retry(time.Minute, time.Second, 0)},
		{Name: "await the Node", Do: awaitNode, Budget: engine.Retry(time.Minute, time.Second, 0)},
		{Name: "remove bootstrap credentials", Do: removeCredentials, Budget: engine.Retry(time.Minute, time.Second, 15*time.Minute)},
	}}
}

func byKubelet(r *engine.Run) bool { return r.Doc.Join.Method != nodev1.JoinKubeadm }

func byKubeadm(r *engine.Run) bool { return r.Doc.Join.Method == nodev1.JoinKubeadm }

// member says whether this machine has the identity of the document's node in the document's cluster. That it cannot be read
// is an error, and no reason to think that there is none.
func member(ctx context.Context, r *engine.Run) (bool, error) {
	identity, err := apiclient.NodeIdentity(ctx, r.Host.Files)
	if err == nil {
		err = discovery.CheckPins(identity.CA, r.Doc.Join.CACertHashes)
		if err == nil {
			err = kubelet.CheckClientCertificate(identity.Certificate, identity.Key, r.Doc.Node.Name, time.Now())
		}
		if err != nil {
			logr.FromContextOrDiscard(ctx).V(1).Info("The kubelet's identity is not this node's", "reason", err.Error())
			return false, nil
		}
		return true, nil
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, apiclient.ErrIdentity) {
		return false, nil
	}
	return false, codes.New(codes.JoinFilesNotWritten, "looking for the kubelet's identity: %w", err)
}

// caPath is where the discovered CA is kept. kubeadm wants to write the kubelet's copy itself, and does not start when there
// is one.
func caPath(r *engine.Run) string {
	if byKubeadm(r) {
		return layout.Join(layout.StateDir, "cluster-ca.crt")
	}
	return layout.CACertificate
}

// connection returns how the API server is reached, as nobody.
func connection(ctx context.Context, r *engine.Run) (apiclient.Config, error) {
	proxy, err := apiclient.Proxy(ctx, r.Host.System)
	if err != nil {
		return apiclient.Config{}, codes.New(codes.EndpointUnreachable, "%w", err)
	}
	return apiclient.Config{Server: discovery.Server(r.Doc.Join), Dial: r.Host.Network.DialContext, Proxy: proxy}, nil
}

// client returns a client with the node's identity, or before it has one with the token.
func client(ctx context.Context, r *engine.Run, isMember bool) (*apiclient.Client, error) {
	if isMember {
		c, err := apiclient.ForNode(ctx, r.Host)
		if err != nil {
			return nil, codes.New(codes.JoinFilesNotWritten, "using the node's identity: %w", err)
		}
		return c, nil
	}
	config, err := connection(ctx, r)
	if err != nil {
		return nil, err
	}
	if config.CA, err = r.Host.Files.Read(ctx, caPath(r)); err != nil {
		return nil, codes.New(codes.JoinFilesNotWritten, "reading %s: %w", caPath(r), err)
	}
	config.Token = r.Doc.Join.Token
	c, err := apiclient.New(config)
	if err != nil {
		return nil, codes.New(codes.JoinFilesNotWritten, "using %s: %w", caPath(r), err)
	}
	return c, nil
}

// until looks every half second until found says so, it fails, or patience is over: then it returns false.
func until(ctx context.Context, patience time.Duration, found func(ctx context.Context) (bool, error)) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for {
		ok, err := found(ctx)
		switch {
		case ctx.Err() != nil && !ok: // found was cut short
			return false, nil
		case err != nil:
			return false, err
		case ok:
			return true, nil
		}
		select {
		case <-ctx.Done():
			return false, nil
		case <-ticker.C:
		}
	}
}
