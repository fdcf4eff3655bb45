//go:build windows

package winhost

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/windows"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

const (
	// pollUnsubscribed is the pause between looks at a service that the service control manager tells nothing about: it does
	// not exist yet, or this is no real Windows.
	pollUnsubscribed = time.Second
	// pollSubscribed is the pause where it does; it finds what may have been missed.
	pollSubscribed = 15 * time.Second
)

// snapshot is what is compared to find a change.
type snapshot struct {
	exists bool
	status host.ServiceStatus
}

func (s *services) Changes(ctx context.Context, names []string) (<-chan string, error) {
	changes := make(chan string)
	var watchers sync.WaitGroup
	for _, name := range names {
		// Taken before this returns, so that a change right after is one.
		before, err := s.snapshot(ctx, name)
		if err != nil {
			return nil, err
		}
		watchers.Go(func() { s.watch(ctx, name, before, changes) })
	}
	go func() {
		watchers.Wait()
		close(changes)
	}()
	return changes, nil
}

func (s *services) snapshot(ctx context.Context, name string) (snapshot, error) {
	status, err := s.Status(ctx, name)
	if errors.Is(err, host.ErrNotFound) {
		return snapshot{}, nil
	}
	return snapshot{exists: err == nil, status: status}, err
}

// watch tells the changes of one service until ctx ends.
func (s *services) watch(ctx context.Context, name string, last snapshot, changes chan<- string) {
	var events *subscription
	defer func() { events.close() }()
	for ctx.Err() == nil {
		if events == nil && !s.lenient && !s.deleted(ctx, name) {
			events = s.notifier.subscribe(name) // nil if there is no such service; the next look tries again
		}
		told := false
		select {
		case <-ctx.Done():
			return
		case <-events.told():
			told = true
		case <-time.After(pollInterval(events)):
		}
		// An open handle keeps a deleted service from going away.
		if events != nil && s.deleted(ctx, name) {
			events.close()
			events = nil
		}
		now, err := s.snapshot(ctx, name)
		if err == nil && now == last && !told {
			continue
		}
		last = now
		select {
		case <-ctx.Done():
			return
		case changes <- name:
		}
	}
}

func pollInterval(events *subscription) time.Duration {
	if events == nil {
		return pollUnsubscribed
	}
	return pollSubscribed
}

// deleted says whether a service is gone, or will be when it is closed.
func (s *services) deleted(ctx context.Context, name string) bool {
	key := servicesKey + `\` + name
	if flag, err := s.registry.Get(ctx, key, "DeleteFlag"); err == nil {
		return flag.Number != 0
	}
	_, err := s.registry.Get(ctx, key, "Start")
	return errors.Is(err, host.ErrNotFound)
}

// notifier hands what the service control manager calls back to the subscriptions. Windows keeps a callback's number, not a
// pointer of Go; and a callback of Go is never freed, so there is one.
type notifier struct {
	callback func() uintptr
	mutex    sync.Mutex
	last     uintptr
	wake     map[uintptr]chan struct{}
}

func newNotifier() *notifier {
	n := &notifier{wake: map[uintptr]chan struct{}{}}
	n.callback = sync.OnceValue(func() uintptr {
		return windows.NewCallback(func(_ uint32, id uintptr) uintptr {
			n.mutex.Lock()
			defer n.mutex.Unlock()
			select {
			case n.wake[id] <- struct{}{}:
			default: // it has not looked yet, or is gone
			}
			return 0
		})
	})
	return n
}

// wakeAll has all subscriptions look.
func (n *notifier) wakeAll() {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	for _, wake := range n.wake {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// subscription is one service that the service control manager tells about. A nil one tells nothing.
type subscription struct {
	notifier         *notifier
	id               uintptr
	handle           uintptr
	manager, service windows.Handle
	wake             chan struct{}
}

// subscribe returns nil if Windows does not want to tell, which polling makes up for.
func (n *notifier) subscribe(name string) *subscription {
	manager, err := windows.OpenSCManager(nil, nil, windows.SC_MANAGER_CONNECT)
	if err != nil {
		return nil
	}
	service, err := openService(manager, name, windows.SERVICE_QUERY_STATUS)
	if err != nil {
		closeService(manager)
		return nil
	}
	s := &subscription{notifier: n, manager: manager, service: service, wake: make(chan struct{}, 1)}
	n.mutex.Lock()
	n.last++
	s.id = n.last
	n.wake[s.id] = s.wake
	n.mutex.Unlock()
	if err := windows.SubscribeServiceChangeNotifications(service, windows.SC_EVENT_STATUS_CHANGE, n.callback(), s.id, &s.handle); err != nil {
		s.close()
		return nil
	}
	return s
}

func (s *subscription) told() <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.wake
}

// close waits for a callback that is under way.
func (s *subscription) close() {
	if s == nil {
		return
	}
	if s.handle != 0 {
		_ = windows.UnsubscribeServiceChangeNotifications(s.handle)
	}
	closeService(s.service)
	closeService(s.manager)
	s.notifier.mutex.Lock()
	delete(s.notifier.wake, s.id)
	s.notifier.mutex.Unlock()
}
