package vsphere

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
)

// wakes delivers events to the reconciler. Waking never blocks: an owner that is not delivered yet is not added twice, so
// that a slow reconciler costs memory for each owner once.
type wakes struct {
	out   chan event.GenericEvent
	added chan struct{}

	mu      sync.Mutex
	waiting map[types.NamespacedName]struct{}
	queue   []types.NamespacedName
	alarms  map[types.NamespacedName]alarm
}

// alarm is the next time an owner is woken by the clock.
type alarm struct {
	timer *time.Timer
	due   time.Time
}

func newWakes() *wakes {
	return &wakes{
		out:     make(chan event.GenericEvent),
		added:   make(chan struct{}, 1),
		waiting: map[types.NamespacedName]struct{}{},
		alarms:  map[types.NamespacedName]alarm{},
	}
}

// wake has the reconciler look at owner.
func (w *wakes) wake(owner types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wakeLocked(owner)
}

func (w *wakes) wakeLocked(owner types.NamespacedName) {
	if _, ok := w.waiting[owner]; ok {
		return
	}
	w.waiting[owner] = struct{}{}
	w.queue = append(w.queue, owner)
	select {
	case w.added <- struct{}{}:
	default:
	}
}

// wakeAfter wakes after d, or before: each owner has one alarm, and the earliest counts. Whoever is woken too early asks
// again.
func (w *wakes) wakeAfter(owner types.NamespacedName, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	due := time.Now().Add(d)
	if a, ok := w.alarms[owner]; ok {
		if !due.Before(a.due) {
			return
		}
		a.timer.Stop()
	}
	a := alarm{due: due}
	a.timer = time.AfterFunc(d, func() { w.ring(owner, due) })
	w.alarms[owner] = a
}

// ring wakes owner, unless the alarm that is due was replaced or forgotten.
func (w *wakes) ring(owner types.NamespacedName, due time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.alarms[owner].due.Equal(due) {
		delete(w.alarms, owner)
		w.wakeLocked(owner)
	}
}

// forget drops the alarm of owner.
func (w *wakes) forget(owner types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a, ok := w.alarms[owner]; ok {
		a.timer.Stop()
		delete(w.alarms, owner)
	}
}

// deliver sends events until ctx ends.
func (w *wakes) deliver(ctx context.Context) {
	for {
		owner, ok := w.next()
		if !ok {
			select {
			case <-w.added:
				continue
			case <-ctx.Done():
				return
			}
		}
		select {
		case w.out <- event.GenericEvent{Object: &infrav1.WindowsMachine{ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: owner.Name}}}:
		case <-ctx.Done():
			return
		}
	}
}

func (w *wakes) next() (types.NamespacedName, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return types.NamespacedName{}, false
	}
	owner := w.queue[0]
	w.queue = w.queue[1:]
	delete(w.waiting, owner)
	return owner, true
}
