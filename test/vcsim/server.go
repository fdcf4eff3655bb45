// Package vcsim runs a simulated vCenter for tests: govmomi's simulator behind an HTTPS server of our own that counts,
// delays, refuses and drops requests, with what the simulator lacks put over it: clones that apply their whole
// specification, a property collector that scales with one long-lived watch, and guards against races of the simulator.
//
// The inventory is one datacenter DC0 with the cluster DC0_C0, the datastores LocalDS_0 and LocalDS_1, the networks
// VM Network and DC0_DVPG0, and the Windows template /DC0/vm/windows-2022. Nothing in it runs.
package vcsim

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/simulator"
	_ "github.com/vmware/govmomi/vapi/simulator" // the REST endpoints
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// Template is the inventory path of the Windows template.
const Template = "/DC0/vm/windows-2022"

// Options of a simulated vCenter. The zero value is usable.
type Options struct {
	// Listen is host:port. Default: a free port of 127.0.0.1.
	Listen string
	// Username and Password that a login needs. Default: administrator@vsphere.local and Pa55w0rd!.
	Username, Password string
	// Delays of the simulated platform; they can be changed later.
	Delays Delays
}

// Delays of the simulated platform.
type Delays struct {
	// Clone is the duration of a clone task before its VM exists.
	Clone time.Duration
	// PowerOn is the duration of the power-on inside a clone task.
	PowerOn time.Duration
	// RoundTrip is added to every request, except to the property collector's long poll.
	RoundTrip time.Duration
}

// Server is a simulated vCenter.
type Server struct {
	// Username and Password that a login needs.
	Username, Password string

	model       *simulator.Model
	inner       *simulator.Server
	certificate tls.Certificate
	address     string
	traffic     *traffic
	delays      atomic.Pointer[Delays]
	cloneHook   atomic.Pointer[CloneHook]
	cloneMu     sync.Mutex
	collectors  collectors

	mu   sync.Mutex
	http *http.Server
}

// Start starts a simulated vCenter.
func Start(o Options) (*Server, error) {
	if o.Username == "" {
		o.Username, o.Password = "administrator@vsphere.local", "Pa55w0rd!"
	}
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	s := &Server{Username: o.Username, Password: o.Password, model: simulator.VPX()}
	s.SetDelays(o.Delays)
	s.model.Host, s.model.Machine, s.model.Datastore = 0, 1, 2
	if err := s.model.Create(); err != nil {
		return nil, fmt.Errorf("creating the inventory: %w", err)
	}
	service := s.model.Service
	service.RegisterEndpoints = true
	service.Listen = &url.URL{Host: "127.0.0.1:0", User: url.UserPassword(o.Username, o.Password)}
	// The simulator's own server stays private: it serves what must not be counted. Users connect to ours.
	s.inner = service.NewServer()
	s.traffic = newTraffic(s, s.inner.Config.Handler)
	s.useCollector()
	s.harden()
	if err := s.makeTemplate(context.Background()); err != nil {
		s.close()
		return nil, fmt.Errorf("creating the template: %w", err)
	}
	var err error
	if s.certificate, err = selfSigned(); err != nil {
		s.close()
		return nil, err
	}
	if err := s.listen(o.Listen); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// Close ends the vCenter and all connections to it.
func (s *Server) Close() {
	s.Stop()
	s.close()
}

func (s *Server) close() {
	s.collectors.cancelAll()
	s.inner.Close()
	s.model.Remove()
}

// Stop makes the vCenter unreachable and ends all sessions; its inventory stays. Resume makes it reachable again.
func (s *Server) Stop() {
	s.mu.Lock()
	if s.http != nil {
		_ = s.http.Close()
		s.http = nil
	}
	s.mu.Unlock()
	s.TerminateSessions()
}

// Resume makes a stopped vCenter reachable again at the same address.
func (s *Server) Resume() error {
	return s.listen(s.address)
}

func (s *Server) listen(address string) error {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	server := &http.Server{
		Handler:           s.traffic,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{s.certificate}, MinVersion: tls.VersionTLS12},
		ErrorLog:          log.New(io.Discard, "", 0), // handshakes of clients that refuse our certificate are part of the tests
		ReadHeaderTimeout: 10 * time.Second,
	}
	s.mu.Lock()
	s.http, s.address = server, listener.Addr().String()
	s.mu.Unlock()
	go func() { _ = server.ServeTLS(listener, "", "") }()
	return nil
}

// Host returns host:port, as spec.vsphere.server takes it.
func (s *Server) Host() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.address
}

// URL returns the SOAP endpoint without credentials.
func (s *Server) URL() string { return "https://" + s.Host() + vim25.Path }

// Thumbprint returns the certificate's SHA-256 thumbprint, as spec.vsphere.thumbprint takes it.
func (s *Server) Thumbprint() string {
	sum := sha256.Sum256(s.certificate.Certificate[0])
	pairs := make([]string, len(sum))
	for i, b := range sum {
		pairs[i] = strings.ToUpper(hex.EncodeToString([]byte{b}))
	}
	return strings.Join(pairs, ":")
}

// CertificatePEM returns the certificate, which is its own CA.
func (s *Server) CertificatePEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.certificate.Certificate[0]})
}

// SetDelays changes the delays of what starts from now on.
func (s *Server) SetDelays(d Delays) { s.delays.Store(&d) }

// Calls returns the requests since the start or the last ResetCalls, by method.
func (s *Server) Calls() Calls { return s.traffic.calls() }

// ResetCalls sets all counts to zero.
func (s *Server) ResetCalls() { s.traffic.reset() }

// OnRequest makes hook decide what happens to each request; nil lets all pass. It must be safe for concurrent use.
func (s *Server) OnRequest(hook RequestHook) {
	if hook == nil {
		s.traffic.hook.Store(nil)
		return
	}
	s.traffic.hook.Store(&hook)
}

// OnClone makes hook take part in each clone task; nil lets all pass. It must be safe for concurrent use.
func (s *Server) OnClone(hook CloneHook) {
	if hook == nil {
		s.cloneHook.Store(nil)
		return
	}
	s.cloneHook.Store(&hook)
}

// Client returns a logged-in client for test code, whose requests are neither counted nor hooked. The caller logs out.
func (s *Server) Client(ctx context.Context) (*govmomi.Client, error) {
	sc := soap.NewClient(s.inner.URL, true)
	sc.UserAgent = testUserAgent
	vc, err := vim25.NewClient(ctx, sc)
	if err != nil {
		return nil, err
	}
	c := &govmomi.Client{Client: vc, SessionManager: session.NewManager(vc)}
	if err := c.Login(ctx, url.UserPassword(s.Username, s.Password)); err != nil {
		return nil, err
	}
	return c, nil
}

// testUserAgent tells sessions of Client from those of users.
const testUserAgent = "vcsim-test"

// with runs f with a logged-in client.
func (s *Server) with(ctx context.Context, f func(*govmomi.Client) error) error {
	c, err := s.Client(ctx)
	if err != nil {
		return err
	}
	err = f(c)
	return errors.Join(err, c.Logout(ctx))
}

// Sessions returns the sessions of users.
func (s *Server) Sessions() []types.UserSession {
	sessions := []types.UserSession{}
	for _, u := range s.sessions() {
		if u.UserAgent != testUserAgent {
			sessions = append(sessions, u)
		}
	}
	return sessions
}

// TerminateSessions ends all sessions of users, as an administrator or an idle timeout would.
func (s *Server) TerminateSessions() {
	ctx := s.context()
	ctx.Session = &simulator.Session{}
	for _, u := range s.Sessions() {
		ctx.Map.SessionManager().TerminateSession(ctx, &types.TerminateSession{SessionId: []string{u.Key}})
	}
	s.collectors.cancelAll()
}

// Watched returns the number of objects that exist and that property collectors with a waiting client report on.
func (s *Server) Watched() int {
	n := 0
	s.collectors.waiting.Range(func(_, pc any) bool {
		n += pc.(*collector).watched()
		return true
	})
	return n
}

func (s *Server) sessions() []types.UserSession {
	// A session's view of the session manager lists all sessions.
	view := simulator.Session{Registry: simulator.NewRegistry(), Map: s.model.Service.Context.Map}
	m, ok := view.Get(s.model.Service.Context.Map.SessionManager().Self).(*simulator.SessionManager)
	if !ok {
		return nil
	}
	return m.SessionList
}

// context returns a context of the simulator that shares no locks with any other.
func (s *Server) context() *simulator.Context {
	c := s.model.Service.Context
	return &simulator.Context{Map: c.Map, Context: c.Context}
}
