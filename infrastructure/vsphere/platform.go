package vsphere

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/capw-dev/cluster-api-provider-windows/infrastructure"
)

// Options of a Platform.
type Options struct {
	// Identities reads credentials. Required.
	Identities Identities
	// OnCall is told of each vCenter call when it ends. It must be fast and safe for concurrent use. Optional.
	OnCall func(Call)
	// UserAgent names us in the vCenter's list of sessions. Default: capw.
	UserAgent string
	// CallTimeout bounds one vCenter call. Default: one minute.
	CallTimeout time.Duration
	// RetryDelay is the time after a failed creation or deletion until the next attempt; it doubles with each failure up
	// to RetryDelayMax. Default: 10 seconds and 5 minutes.
	RetryDelay, RetryDelayMax time.Duration
}

// Call is one vCenter call.
type Call struct {
	// Server as in spec.vsphere.server.
	Server string
	// Method is the name of the SOAP method, such as CloneVM_Task.
	Method string
	// Duration until the answer.
	Duration time.Duration
	// Err is the transport's error or the vCenter's fault.
	Err error
}

// Platform creates and observes VMs on vSphere. It is a manager.Runnable: it works while Start runs.
type Platform struct {
	options Options
	wakes   *wakes
	// spawn hands a goroutine to Start, which ends with it.
	spawn chan func(context.Context)

	mu        sync.Mutex
	endpoints map[endpointKey]*endpoint
	users     map[identityUser]*endpoint
	records   map[types.NamespacedName]*record
	// clones are the clone tasks that records know, and whose they are.
	clones map[cloneKey]types.NamespacedName
}

// cloneKey names a clone task.
type cloneKey struct{ server, task string }

var (
	_ infrastructure.Platform        = &Platform{}
	_ manager.Runnable               = &Platform{}
	_ manager.LeaderElectionRunnable = &Platform{}
)

// New returns a Platform, which works while its Start runs.
func New(o Options) (*Platform, error) {
	if o.Identities == nil {
		return nil, errors.New("vsphere.Options.Identities is required")
	}
	if o.UserAgent == "" {
		o.UserAgent = "capw"
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = time.Minute
	}
	if o.RetryDelay == 0 {
		o.RetryDelay = 10 * time.Second
	}
	if o.RetryDelayMax == 0 {
		o.RetryDelayMax = 5 * time.Minute
	}
	return &Platform{
		options:   o,
		wakes:     newWakes(),
		spawn:     make(chan func(context.Context)),
		endpoints: map[endpointKey]*endpoint{},
		users:     map[identityUser]*endpoint{},
		records:   map[types.NamespacedName]*record{},
		clones:    map[cloneKey]types.NamespacedName{},
	}, nil
}

// Start serves until ctx ends. Then it ends all sessions, and returns when nothing runs any more.
func (p *Platform) Start(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { p.wakes.deliver(ctx) })
	for {
		select {
		case f := <-p.spawn:
			running.Go(func() { f(ctx) })
		case <-ctx.Done():
			return nil
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (p *Platform) NeedLeaderElection() bool { return true }

// Changes implements infrastructure.Platform.
func (p *Platform) Changes() <-chan event.GenericEvent { return p.wakes.out }

// Ensure implements infrastructure.Platform.
func (p *Platform) Ensure(ctx context.Context, spec infrastructure.InstanceSpec) (instance infrastructure.Instance, err error) {
	place, err := placementOf(spec.Machine)
	if err != nil {
		return infrastructure.Instance{}, err
	}
	err = p.operate(ctx, spec.Machine, func(o *operation) error {
		instance, err = o.ensure(ctx, place, spec.UserData)
		return err
	})
	return instance, err
}

// Observe implements infrastructure.Platform.
func (p *Platform) Observe(ctx context.Context, m infrastructure.Machine) (instance infrastructure.Instance, err error) {
	err = p.operate(ctx, m, func(o *operation) error {
		instance, err = o.observe(ctx)
		return err
	})
	return instance, err
}

// Delete implements infrastructure.Platform.
func (p *Platform) Delete(ctx context.Context, m infrastructure.Machine) (progress infrastructure.Progress, err error) {
	err = p.operate(ctx, m, func(o *operation) error {
		progress, err = o.delete(ctx)
		return err
	})
	if err != nil {
		return infrastructure.Progress{}, err
	}
	if progress.Done {
		p.Forget(m.Owner.Key())
	}
	return progress, nil
}

// Forget implements infrastructure.Platform. Sessions that nobody needs any more end, also those that are being tried.
func (p *Platform) Forget(machine types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(machine)
}

// forget is Forget; the caller holds p.mu.
func (p *Platform) forget(owner types.NamespacedName) {
	delete(p.records, owner)
	maps.DeleteFunc(p.clones, func(_ cloneKey, whose types.NamespacedName) bool { return whose == owner })
	p.wakes.forget(owner)
	for _, e := range p.endpoints {
		p.leave(e, owner)
	}
}

// operation is one call for one WindowsMachine over one session.
type operation struct {
	platform *Platform
	session  *session
	record   *record
	machine  infrastructure.Machine
}

// operate runs f over the session for m. Operations for the same WindowsMachine run one after the other. When the session
// turns out to be over, f runs once more over the next one.
func (p *Platform) operate(ctx context.Context, m infrastructure.Machine, f func(*operation) error) error {
	r := p.recordOf(m.Owner)
	select {
	case r.busy <- struct{}{}:
		defer func() { <-r.busy }()
	case <-ctx.Done():
		return fmt.Errorf("waiting for the previous operation on VM %s: %w", m.InstanceName, ctx.Err())
	}
	asked := false
	once := func(o *operation) error {
		asked = true
		return f(o)
	}
	err := p.overSession(ctx, m, r, once)
	if isSessionLost(err) || errors.Is(err, errRetired) {
		err = p.overSession(ctx, m, r, once)
	}
	if err = explain(err, m); err != nil && !asked {
		return &notAskedError{err}
	}
	return err
}

// notAskedError is infrastructure.ErrNotAsked beside what is wrong, without a word of its own.
type notAskedError struct{ error }

func (e *notAskedError) Unwrap() []error { return []error{e.error, infrastructure.ErrNotAsked} }

// overSession runs f once. When it finds the session lost, it returns after nobody else is handed that session any more.
func (p *Platform) overSession(ctx context.Context, m infrastructure.Machine, r *record, f func(*operation) error) error {
	e, err := p.endpointOf(ctx, m)
	if err != nil {
		return err
	}
	s, err := e.await(ctx)
	if err != nil {
		return err
	}
	if err = f(&operation{platform: p, session: s, record: r, machine: m}); !isSessionLost(err) {
		return err
	}
	s.lose(err)
	select {
	case <-s.ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// record is what this process knows of one WindowsMachine beyond what the session's watch reports. Only the operation that
// holds busy uses it.
type record struct {
	busy chan struct{}
	// uid of the WindowsMachine; another one of its name has another record.
	uid types.UID

	// vm is the VM, once it was found or created.
	vm reference
	// candidate is what has our name already, and candidatePlace where it was then.
	candidate      reference
	candidatePlace string
	// task is what the vCenter does for us.
	task *task
	// strays are clone tasks of which one may create our VM although we do not know it; nil when nobody has looked.
	strays []reference
	// uncertain is true when a clone request was sent and its answer is not known.
	uncertain bool
	// unmarkedSince is when our VM was first seen without its owner mark.
	unmarkedSince time.Time

	// deleting is true once Delete was called. Failures before were those of the creation.
	deleting bool
	// destroyed is true once our VM was destroyed by our own task.
	destroyed bool
	failures  int
	failure   string
	retryAt   time.Time
	// awaited counts how often the VM was found busy with what others do, since our last task.
	awaited int
}

func (p *Platform) recordOf(owner infrastructure.Owner) *record {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r, ok := p.records[owner.Key()]; ok {
		if r.uid == owner.UID {
			return r
		}
		p.forget(owner.Key()) // a namesake that is gone
	}
	r := &record{busy: make(chan struct{}, 1), uid: owner.UID}
	p.records[owner.Key()] = r
	return r
}

// failed remembers a failed attempt and returns the time until the next.
func (o *operation) failed(message string) time.Duration {
	r := o.record
	delay := o.platform.options.RetryDelayMax
	if r.failures < 10 { // a shift beyond would overflow
		delay = min(delay, o.platform.options.RetryDelay<<r.failures)
	}
	r.failures++
	r.failure, r.retryAt = message, time.Now().Add(delay)
	o.lookAgain(delay)
	return delay
}

// succeeded forgets failed attempts.
func (o *operation) succeeded() {
	o.record.failures, o.record.failure, o.record.retryAt = 0, "", time.Time{}
}

// untilRetry returns the time until the next attempt, and wakes the reconciler then.
func (o *operation) untilRetry() time.Duration {
	wait := time.Until(o.record.retryAt)
	if wait > 0 {
		o.lookAgain(wait)
	}
	return wait
}

// lookAgain wakes the reconciler after d, for what the watch does not report.
func (o *operation) lookAgain(d time.Duration) { o.platform.wakes.wakeAfter(o.machine.Owner.Key(), d) }

// awaitOthers wakes the reconciler when the VM may be free of what somebody else does with it: soon for a moment's work,
// rarely while a backup holds it for an hour.
func (o *operation) awaitOthers() {
	o.lookAgain(backOff(lookAgainDelay, lookAgainDelayMax, o.record.awaited))
	o.record.awaited++
}
