package vsphere

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/fault"
	vimsession "github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// reference is a managed object reference; the zero value is none.
type reference = types.ManagedObjectReference

// longPoll is how long the vCenter may hold the watch's call when nothing changes. It keeps the session alive.
const longPoll = time.Minute

// logoutTimeout bounds the end of a session.
const logoutTimeout = 5 * time.Second

// session is one login. It ends when it is lost, and is then replaced; nothing in it outlives it.
type session struct {
	server    string
	client    *vim25.Client
	soap      *soap.Client
	watch     *watch
	inventory *inventory

	loseOnce sync.Once
	lost     chan struct{} // closed when it cannot be used any more
	reason   error         // why; readable when lost is closed
	ended    chan struct{} // closed when the endpoint does not hand it out any more
}

// connect logs in and prepares the watch.
func (e *endpoint) connect(ctx context.Context) (*session, error) {
	client, err := newSOAPClient(e.key.server, e.key.thumbprint, e.identity.CABundle)
	if err != nil {
		return nil, err
	}
	client.UserAgent = e.platform.options.UserAgent
	s := &session{server: e.key.server, soap: client, lost: make(chan struct{}), ended: make(chan struct{})}
	calls := &caller{next: client, server: e.key.server, timeout: e.platform.options.CallTimeout, onCall: e.platform.options.OnCall}
	content, err := methods.GetServiceContent(ctx, calls)
	if err != nil {
		client.CloseIdleConnections()
		return nil, err
	}
	s.client = &vim25.Client{Client: client, ServiceContent: content, RoundTripper: calls}
	if err := vimsession.NewManager(s.client).Login(ctx, url.UserPassword(e.identity.Username, e.identity.Password)); err != nil {
		client.CloseIdleConnections()
		return nil, &loginError{user: e.identity.Username, err: err}
	}
	s.inventory = newInventory(s.client)
	if s.watch, err = newWatch(ctx, s.client, e.platform.wakes, e.platform.options.CallTimeout); err != nil {
		s.close(ctx)
		return nil, err
	}
	return s, nil
}

// serve runs the watch until the session is lost or ctx ends, and returns why.
func (s *session) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	for _, loop := range []func(context.Context) error{s.watch.receive, s.watch.submit} {
		running.Go(func() { s.lose(loop(ctx)) })
	}
	select {
	case <-s.lost:
	case <-ctx.Done():
		s.lose(ctx.Err())
	}
	cancel()
	return s.reason
}

// lose declares the session unusable.
func (s *session) lose(reason error) {
	s.loseOnce.Do(func() {
		s.reason = reason
		s.watch.end()
		close(s.lost)
	})
}

// close logs out, also when ctx has ended.
func (s *session) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), logoutTimeout)
	defer cancel()
	_ = vimsession.NewManager(s.client).Logout(ctx) // the session may be over, or the vCenter gone
	s.soap.CloseIdleConnections()
}

// caller is the transport of all calls: it bounds, reports and classifies them.
type caller struct {
	next    soap.RoundTripper
	server  string
	timeout time.Duration
	onCall  func(Call)
}

// RoundTrip implements soap.RoundTripper.
func (c *caller) RoundTrip(ctx context.Context, req, res soap.HasFault) error {
	timeout := c.timeout
	if _, ok := req.(*methods.WaitForUpdatesExBody); ok {
		timeout += longPoll
	}
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	start := time.Now()
	err := c.next.RoundTrip(bounded, req, res)
	if err != nil && ctx.Err() == nil && bounded.Err() != nil {
		err = fmt.Errorf("no answer within %s: %w", timeout, err)
	}
	if c.onCall != nil {
		method := strings.TrimSuffix(reflect.TypeOf(req).Elem().Name(), "Body")
		c.onCall(Call{Server: c.server, Method: method, Duration: time.Since(start), Err: err})
	}
	switch {
	case err == nil:
		return nil
	case fault.Is(err, &types.NotAuthenticated{}):
		return &sessionLostError{err}
	case !isFault(err):
		return &transportError{err}
	}
	return err
}

// transportError says that a call got no answer.
type transportError struct{ error }

// Unwrap returns the transport's error.
func (e *transportError) Unwrap() error { return e.error }

// sessionLostError says that a call failed because the session is over.
type sessionLostError struct{ error }

// Unwrap returns the vCenter's fault.
func (e *sessionLostError) Unwrap() error { return e.error }

func isSessionLost(err error) bool {
	var lost *sessionLostError
	return errors.As(err, &lost)
}

// loginError says that a login failed.
type loginError struct {
	user string
	err  error
}

// Error implements error.
func (e *loginError) Error() string { return fmt.Sprintf("logging in as %s: %v", e.user, e.err) }

// Unwrap returns the cause.
func (e *loginError) Unwrap() error { return e.err }

// isLoginRefused is true when the vCenter does not let this user in with this password.
func isLoginRefused(err error) bool {
	return isA[*loginError](err) && isAny(err, &types.InvalidLogin{}, &types.PasswordExpired{}, &types.NoPermission{})
}

func isNotFound(err error) bool { return err != nil && fault.Is(err, &types.ManagedObjectNotFound{}) }
