// Package apiclient is the little that the agent asks an API server: a ConfigMap, and its own Node. It exists because the
// typed clients of client-go would make the agent several times as large.
package apiclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// UserAgent is how the agent calls itself.
const UserAgent = "capw-node"

// How long things may take. A watch may take as long as its context.
const (
	handshakeTimeout = 10 * time.Second
	requestTimeout   = 10 * time.Second
)

// Config says which API server it is, and as whom it is asked. Without token and certificate that is nobody.
type Config struct {
	// Server as a URL, such as https://10.0.0.1:6443.
	Server string
	// CA certificates, PEM, that the server's certificate must be signed with.
	CA []byte
	// Insecure: CA is not known yet, and any certificate will do. What the server says must then be verified otherwise.
	Insecure bool
	// Token is a bearer token. Secret.
	Token string
	// Certificate and Key, PEM, of the client.
	Certificate, Key []byte
	// Dial opens connections.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Proxy as in http.Transport; nil: none.
	Proxy func(*http.Request) (*url.URL, error)
}

// Client asks an API server. Close ends it.
type Client struct {
	rest      rest.Interface
	transport *http.Transport
}

// New returns a client. Nothing is sent yet.
func New(c Config) (*Client, error) {
	tlsConfig, err := c.tls()
	if err != nil {
		return nil, err
	}
	// A transport of its own, not one of client-go's: those are kept for ever, and so would be their connections. It has no
	// HTTP/2, which would need health checks to notice a dead connection.
	transport := &http.Transport{
		DialContext: c.Dial, Proxy: c.Proxy, TLSClientConfig: tlsConfig, TLSHandshakeTimeout: handshakeTimeout,
		IdleConnTimeout: time.Minute,
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering the core API: %w", err)
	}
	config := &rest.Config{
		Host: c.Server, APIPath: "/api", BearerToken: c.Token, UserAgent: UserAgent, QPS: -1,
		ContentConfig: rest.ContentConfig{
			GroupVersion:         &corev1.SchemeGroupVersion,
			NegotiatedSerializer: serializer.NewCodecFactory(scheme).WithoutConversion(),
		},
	}
	wrapped, err := rest.HTTPWrappersForConfig(config, transport)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", c.Server, err)
	}
	client, err := rest.RESTClientForConfigAndClient(config, &http.Client{Transport: wrapped})
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", c.Server, err)
	}
	return &Client{rest: client, transport: transport}, nil
}

func (c Config) tls() (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: c.Insecure} //nolint:gosec // see Insecure
	if !c.Insecure {
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(c.CA) {
			return nil, errors.New("the CA of the API server holds no certificate")
		}
	}
	if len(c.Certificate) > 0 {
		pair, err := tls.X509KeyPair(c.Certificate, c.Key)
		if err != nil {
			return nil, fmt.Errorf("reading the client certificate: %w", err)
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}

// Close closes idle connections. Requests under way go on.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// ConfigMap returns a ConfigMap. Errors of the server are those of package apierrors.
func (c *Client) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	out := &corev1.ConfigMap{}
	err := c.rest.Get().Namespace(namespace).Resource("configmaps").Name(name).Timeout(requestTimeout).Do(ctx).Into(out)
	if err != nil {
		return nil, fmt.Errorf("reading ConfigMap %s/%s: %w", namespace, name, err)
	}
	return out, nil
}

// Node returns a Node. Errors of the server are those of package apierrors.
func (c *Client) Node(ctx context.Context, name string) (*corev1.Node, error) {
	out := &corev1.Node{}
	err := c.rest.Get().Resource("nodes").Name(name).Timeout(requestTimeout).Do(ctx).Into(out)
	if err != nil {
		return nil, fmt.Errorf("reading Node %s: %w", name, err)
	}
	return out, nil
}

// WatchNode tells changes of one Node since a resource version, until ctx ends or the caller stops it. The Node authorizer
// lets a node do this with its own Node only, and only with this selector.
func (c *Client) WatchNode(ctx context.Context, name, resourceVersion string) (watch.Interface, error) {
	w, err := c.rest.Get().Resource("nodes").
		Param("watch", "true").
		Param("fieldSelector", "metadata.name="+name).
		Param("resourceVersion", resourceVersion).
		Watch(ctx)
	if err != nil {
		return nil, fmt.Errorf("watching Node %s: %w", name, err)
	}
	return w, nil
}
