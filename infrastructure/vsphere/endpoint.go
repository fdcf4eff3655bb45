package vsphere

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capw-dev/cluster-api-provider-windows/infrastructure"
)

// Delays between attempts to connect. A refused login is repeated rarely: vCenter locks accounts.
const (
	steady          = 10 * time.Second // a session that lived so long was none of a series of failures
	lostDelayMax    = 5 * time.Second
	connectDelay    = time.Second
	connectDelayMax = 30 * time.Second
	loginDelay      = time.Minute // vCenter locks an account after 5 refusals within 3 minutes
	loginDelayMax   = 5 * time.Minute
)

// errRetired ends an operation over a session that is not used any more; the next one uses another.
var errRetired = errors.New("the session with vCenter was ended, because its credentials changed or nothing needed it")

// endpointKey is what sessions are shared by.
type endpointKey struct {
	server, thumbprint string
	identity           [sha256.Size]byte
}

// identityUser is a reference to credentials, with the vCenter that they are used for.
type identityUser struct {
	namespace, name, server, thumbprint string
}

// endpoint keeps one session with a vCenter alive. One goroutine, run, connects, serves, and connects again; everyone else
// waits for its result or is told its last error, so that no number of callers makes more than one login.
type endpoint struct {
	platform *Platform
	key      endpointKey
	identity Identity

	started atomic.Bool
	running chan struct{} // closed when run runs
	retired chan struct{} // closed when nobody uses the credentials any more

	mu         sync.Mutex
	session    *session
	err        error         // of the last attempt; nil while the first or a new one is under way
	changed    chan struct{} // closed when session or err change
	interested map[types.NamespacedName]struct{}
}

// endpointOf returns the endpoint for m, with the credentials as they are now.
func (p *Platform) endpointOf(ctx context.Context, m infrastructure.Machine) (*endpoint, error) {
	spec := m.Spec.VSphere
	if spec == nil {
		return nil, &infrastructure.ConfigError{Field: "spec.vsphere", Problem: "is required on this platform: set it"}
	}
	identity, err := p.options.Identities(ctx, m.Owner.Namespace, spec.IdentityRef.Name)
	if err != nil {
		return nil, err
	}
	key := endpointKey{server: spec.Server, thumbprint: spec.Thumbprint, identity: identity.hash()}
	user := identityUser{namespace: m.Owner.Namespace, name: spec.IdentityRef.Name, server: spec.Server, thumbprint: spec.Thumbprint}
	e := p.useEndpoint(key, user, identity, m.Owner.Key())
	select {
	case <-e.running:
	case p.spawn <- e.run: // a no-op when another caller was faster
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: waiting for the platform to start: %w", infrastructure.ErrUnavailable, ctx.Err())
	}
	return e, nil
}

// useEndpoint returns the endpoint for key, for owner, who leaves any other. The one that user used before is retired at once
// when nobody else uses it: its credentials are those of a Secret that changed.
func (p *Platform) useEndpoint(key endpointKey, user identityUser, identity Identity, owner types.NamespacedName) *endpoint {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, ok := p.endpoints[key]
	if !ok {
		e = &endpoint{
			platform: p, key: key, identity: identity,
			running: make(chan struct{}), retired: make(chan struct{}), changed: make(chan struct{}),
			interested: map[types.NamespacedName]struct{}{},
		}
		p.endpoints[key] = e
	}
	e.mu.Lock()
	e.interested[owner] = struct{}{}
	e.mu.Unlock()
	for _, other := range p.endpoints {
		if other != e {
			p.leave(other, owner)
		}
	}
	before := p.users[user]
	p.users[user] = e
	if before == nil || before == e || slices.Contains(slices.Collect(maps.Values(p.users)), before) {
		return e
	}
	p.retire(before)
	return e
}

// retire ends the session of e; the caller holds p.mu.
func (p *Platform) retire(e *endpoint) {
	delete(p.endpoints, e.key)
	maps.DeleteFunc(p.users, func(_ identityUser, used *endpoint) bool { return used == e })
	close(e.retired)
}

// leave ends the interest of owner in e, and e when nobody is left; the caller holds p.mu.
func (p *Platform) leave(e *endpoint, owner types.NamespacedName) {
	e.mu.Lock()
	_, was := e.interested[owner]
	delete(e.interested, owner)
	s, unused := e.session, len(e.interested) == 0
	e.mu.Unlock()
	switch {
	case !was:
	case unused:
		p.retire(e)
	case s != nil:
		s.watch.drop(owner)
	}
}

// run keeps a session until ctx ends or the endpoint is retired.
func (e *endpoint) run(ctx context.Context) {
	if !e.started.CompareAndSwap(false, true) {
		return
	}
	close(e.running)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-e.retired:
			cancel()
		case <-ctx.Done():
		}
	}()
	log := ctrl.LoggerFrom(ctx).WithName("vsphere").WithValues("server", e.key.server)
	var refused, lost int // attempts and sessions in a row
	for again := false; ; again = true {
		s, err := e.connect(ctx)
		var delay time.Duration
		switch {
		case err == nil:
			log.Info("Connected to vCenter", "user", e.identity.Username)
			var lived time.Duration
			lived, err = e.serve(ctx, s, again)
			if refused = 0; lived > steady {
				lost = 0
			}
			if lost > 0 { // one that ends is nothing unusual
				delay = backOff(connectDelay, lostDelayMax, lost)
			}
			lost++
		case isLoginRefused(err):
			delay = backOff(loginDelay, loginDelayMax, refused)
			refused++
		default:
			delay = backOff(connectDelay, connectDelayMax, refused)
			refused++
		}
		if ctx.Err() != nil {
			e.set(nil, errRetired)
			e.wakeInterested()
			return
		}
		log.Info("No session with vCenter", "reason", err.Error(), "nextAttemptIn", delay)
		if delay > 0 {
			e.set(nil, err) // nobody waits that long; who asks meanwhile is woken after it
		}
		if refused == 1 && again {
			e.wakeInterested() // once per outage: to say so, or to come with new credentials
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
		}
	}
}

// serve hands out s until it is lost, and returns how long it lived and why it ended.
func (e *endpoint) serve(ctx context.Context, s *session, again bool) (time.Duration, error) {
	since := time.Now()
	e.set(s, nil)
	if again {
		e.wakeInterested() // they were refused, or know what the last session reported
	}
	err := s.serve(ctx)
	e.set(nil, nil)
	close(s.ended)
	s.close(ctx)
	return time.Since(since), err
}

// backOff doubles initial with each failure, up to most.
func backOff(initial, most time.Duration, failures int) time.Duration {
	if failures > 10 {
		return most
	}
	return min(most, initial<<failures)
}

// await returns the session, or why there is none. It waits while an attempt to connect is under way.
func (e *endpoint) await(ctx context.Context) (*session, error) {
	for {
		e.mu.Lock()
		s, err, changed := e.session, e.err, e.changed
		e.mu.Unlock()
		if s != nil || err != nil {
			return s, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: waiting for the connection to vCenter %s: %w", infrastructure.ErrUnavailable, e.key.server, ctx.Err())
		}
	}
}

func (e *endpoint) set(s *session, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.session, e.err = s, err
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *endpoint) wakeInterested() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for owner := range e.interested {
		e.platform.wakes.wake(owner)
	}
}
