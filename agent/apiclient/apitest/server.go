// Package apitest is a stand-in for a workload cluster's API server, in memory, as far as a node talks to it while it joins
// and lives: cluster-info, kubelet-config, certificate signing requests, its Node and its Lease. It authenticates and
// authorizes as a cluster made by kubeadm does.
//
// It uses no sockets, so that it works in a bubble of testing/synctest, where New must then be called.
package apitest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// Options are how a cluster is.
type Options struct {
	// Endpoint, host:port. Default: 10.0.0.1:6443.
	Endpoint string
	// Token that may join. Default: abcdef.0123456789abcdef.
	Token string
	// KubeletConfig is the content of ConfigMap kube-system/kubelet-config; "none": there is no such ConfigMap. Default: what
	// kubeadm writes for Linux.
	KubeletConfig string
}

// Server is the API server. Its methods can be called at any time by any goroutine.
type Server struct {
	opts      Options
	http      *http.Server
	listener  *listener
	authority *authority

	mu        sync.Mutex
	tokens    map[string]bool
	signed    bool // cluster-info has signatures
	version   int64
	nodes     map[string]*corev1.Node
	leases    map[string]*coordinationv1.Lease
	requests  map[string]*certificatesv1.CertificateSigningRequest
	decide    func(*certificatesv1.CertificateSigningRequest) Decision
	intercept func(Request) *Answer
	log       []Request
	changed   chan struct{} // closed at the next change of a Node
	down      bool
}

// New starts a cluster. Close ends it.
func New(o Options) *Server {
	if o.Endpoint == "" {
		o.Endpoint = "10.0.0.1:6443"
	}
	if o.Token == "" {
		o.Token = "abcdef.0123456789abcdef"
	}
	if o.KubeletConfig == "" {
		o.KubeletConfig = linuxKubeletConfig
	}
	s := &Server{
		opts: o, authority: newAuthority("kubernetes"), tokens: map[string]bool{o.Token: true}, signed: true,
		listener: &listener{conns: make(chan net.Conn), closed: make(chan struct{})},
		nodes:    map[string]*corev1.Node{}, leases: map[string]*coordinationv1.Lease{},
		requests: map[string]*certificatesv1.CertificateSigningRequest{},
		decide:   func(*certificatesv1.CertificateSigningRequest) Decision { return Approve },
		changed:  make(chan struct{}),
	}
	name, _, err := net.SplitHostPort(o.Endpoint)
	must(err)
	pool := x509.NewCertPool()
	pool.AddCert(s.authority.cert)
	s.http = &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool,
			Certificates: []tls.Certificate{s.authority.serving(name)},
		},
	}
	go s.http.ServeTLS(s.listener, "", "") //nolint:errcheck // it ends by Close
	return s
}

// Close ends the cluster and all connections to it.
func (s *Server) Close() {
	s.http.Close()     //nolint:errcheck // there is nothing to do about it
	s.listener.Close() //nolint:errcheck // it has none
}

// Endpoint returns host:port.
func (s *Server) Endpoint() string { return s.opts.Endpoint }

// Join returns how a node joins this cluster, by method Kubelet.
func (s *Server) Join() nodev1.JoinInfo {
	return nodev1.JoinInfo{
		APIServerEndpoint: s.opts.Endpoint, Token: s.opts.Token, CACertHashes: []string{s.authority.hash()}, Method: nodev1.JoinKubelet,
	}
}

// CA returns the cluster's CA certificate, PEM.
func (s *Server) CA() []byte { return s.authority.pem() }

// DialContext connects to Endpoint, and refuses connections to any other address.
func (s *Server) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	s.mu.Lock()
	down := s.down
	s.mu.Unlock()
	if address != s.opts.Endpoint || down {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	here, there := sim.Pipe(&net.TCPAddr{})
	select {
	case s.listener.conns <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.listener.closed:
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
}

// listener accepts what DialContext makes.
type listener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return &net.TCPAddr{} }

// must ends a test that cannot go on.
func must(err error) {
	if err != nil {
		panic(errors.Join(errors.New("apitest"), err))
	}
}

// linuxKubeletConfig is what kubeadm v1.36 writes to ConfigMap kube-system/kubelet-config.
const linuxKubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
authentication:
  anonymous:
    enabled: false
  webhook:
    cacheTTL: 0s
    enabled: true
  x509:
    clientCAFile: /etc/kubernetes/pki/ca.crt
authorization:
  mode: Webhook
  webhook:
    cacheAuthorizedTTL: 0s
    cacheUnauthorizedTTL: 0s
cgroupDriver: systemd
clusterDNS:
- 10.96.0.10
clusterDomain: cluster.local
containerRuntimeEndpoint: ""
cpuManagerReconcilePeriod: 0s
crashLoopBackOff: {}
evictionPressureTransitionPeriod: 0s
fileCheckFrequency: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
httpCheckFrequency: 0s
imageMaximumGCAge: 0s
imageMinimumGCAge: 0s
kind: KubeletConfiguration
logging:
  flushFrequency: 0
  options:
    json:
      infoBufferSize: "0"
    text:
      infoBufferSize: "0"
  verbosity: 0
memorySwap: {}
nodeStatusReportFrequency: 0s
nodeStatusUpdateFrequency: 0s
resolvConf: /run/systemd/resolve/resolv.conf
rotateCertificates: true
runtimeRequestTimeout: 0s
shutdownGracePeriod: 0s
shutdownGracePeriodCriticalPods: 0s
staticPodPath: /etc/kubernetes/manifests
streamingConnectionIdleTimeout: 0s
syncFrequency: 0s
volumeStatsAggPeriod: 0s
`
