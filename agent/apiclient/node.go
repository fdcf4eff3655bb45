package apiclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpproxy"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
)

// ErrIdentity says that the kubelet's kubeconfig is not one that anybody could use.
var ErrIdentity = errors.New("no usable kubeconfig")

// ForNode returns a client with the node's own identity, the one of the kubelet. fs.ErrNotExist if it has none yet.
func ForNode(ctx context.Context, h *host.Host) (*Client, error) {
	identity, err := NodeIdentity(ctx, h.Files)
	if err != nil {
		return nil, err
	}
	identity.Dial = h.Network.DialContext
	if identity.Proxy, err = Proxy(ctx, h.System); err != nil {
		return nil, err
	}
	return New(identity)
}

// NodeIdentity reads the kubelet's kubeconfig, with the certificate that it points to. fs.ErrNotExist, also of the
// certificate, or ErrIdentity if there is none.
func NodeIdentity(ctx context.Context, files host.Files) (Config, error) {
	raw, err := files.Read(ctx, layout.Kubeconfig)
	if err != nil {
		return Config{}, fmt.Errorf("reading %s: %w", layout.Kubeconfig, err)
	}
	kubeconfig, err := clientcmd.Load(raw)
	if err != nil {
		return Config{}, fmt.Errorf("parsing %s: %w: %w", layout.Kubeconfig, ErrIdentity, err)
	}
	cluster, user, err := current(kubeconfig)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w: %w", layout.Kubeconfig, ErrIdentity, err)
	}
	out := Config{
		Server: cluster.Server, CA: cluster.CertificateAuthorityData,
		Certificate: user.ClientCertificateData, Key: user.ClientKeyData,
	}
	for _, file := range []struct {
		path string
		into *[]byte
	}{{cluster.CertificateAuthority, &out.CA}, {user.ClientCertificate, &out.Certificate}, {user.ClientKey, &out.Key}} {
		if file.path == "" {
			continue
		}
		if *file.into, err = files.Read(ctx, file.path); err != nil {
			return Config{}, fmt.Errorf("reading %s, which %s points to: %w", file.path, layout.Kubeconfig, err)
		}
	}
	return out, nil
}

func current(c *clientcmdapi.Config) (*clientcmdapi.Cluster, *clientcmdapi.AuthInfo, error) {
	context := c.Contexts[c.CurrentContext]
	if context == nil {
		return nil, nil, errors.New("it has no current context")
	}
	cluster, user := c.Clusters[context.Cluster], c.AuthInfos[context.AuthInfo]
	if cluster == nil || user == nil {
		return nil, nil, errors.New("the current context names no cluster and user")
	}
	return cluster, user, nil
}

// Proxy returns the proxy that the machine's environment variables ask for. It is the one that the kubelet will use, so that
// the agent finds out if it cannot.
func Proxy(ctx context.Context, system host.System) (func(*http.Request) (*url.URL, error), error) {
	environment, err := system.Environment(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the machine's environment: %w", err)
	}
	var config httpproxy.Config
	for name, value := range environment {
		switch strings.ToUpper(name) {
		case "HTTP_PROXY":
			config.HTTPProxy = value
		case "HTTPS_PROXY":
			config.HTTPSProxy = value
		case "NO_PROXY":
			config.NoProxy = value
		}
	}
	proxy := config.ProxyFunc()
	return func(r *http.Request) (*url.URL, error) { return proxy(r.URL) }, nil
}
