package vsphere

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/capw-dev/cluster-api-provider-windows/infrastructure"
)

const (
	// gather is how long additions to the watch wait for others, to be sent in one call.
	gather = 30 * time.Millisecond
	// settle is how long the watch waits after a report before it asks for the next, so that one answer carries many changes.
	settle = 100 * time.Millisecond
	// maxRemovals is the number of removals that are sent without an addition.
	maxRemovals = 100
)

// watch knows the state of exactly those VMs and tasks that are tracked. A list view holds them, and one property collector
// reports their changes in one long poll. Additions and removals of many owners travel together.
type watch struct {
	client    *vim25.Client
	wakes     *wakes
	collector *property.Collector
	list      *view.ListView
	kick      chan struct{}
	over      chan struct{} // closed when nothing will be reported any more
	patience  time.Duration // within which an object that was added is reported

	mu      sync.Mutex
	objects map[reference]*tracked
	add     []reference
	remove  []reference // gone
	idle    int         // number of objects without owner, to be removed with the next change
}

// tracked is a VM or task that somebody is interested in. Its fields are guarded by the watch.
type tracked struct {
	ref    reference
	owners map[apitypes.NamespacedName]struct{}
	known  chan struct{} // closed when the first report arrived, or the object is gone
	gone   bool
	vm     vmFacts
	task   taskFacts
}

// newWatch prepares an empty watch; receive and submit run it.
func newWatch(ctx context.Context, client *vim25.Client, wakes *wakes, patience time.Duration) (*watch, error) {
	w := &watch{client: client, wakes: wakes, patience: patience, kick: make(chan struct{}, 1), over: make(chan struct{}), objects: map[reference]*tracked{}}
	var err error
	if w.collector, err = property.DefaultCollector(client).Create(ctx); err != nil {
		return nil, fmt.Errorf("creating a property collector: %w", err)
	}
	if w.list, err = view.NewManager(client).CreateListView(ctx, nil); err != nil {
		return nil, fmt.Errorf("creating a list view: %w", err)
	}
	skip := true
	_, err = w.collector.CreateFilter(ctx, types.CreateFilter{Spec: types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: w.list.Reference(), Skip: &skip, SelectSet: []types.BaseSelectionSpec{w.list.TraversalSpec()}}},
		PropSet: []types.PropertySpec{
			{Type: "VirtualMachine", PathSet: vmProperties()},
			{Type: "Task", PathSet: taskProperties()},
		},
	}})
	if err != nil {
		return nil, fmt.Errorf("creating a property filter: %w", err)
	}
	return w, nil
}

// track returns the object for ref, and has its changes wake owner from now on.
func (w *watch) track(ref reference, owner apitypes.NamespacedName) *tracked {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.trackLocked(ref, owner)
}

func (w *watch) trackLocked(ref reference, owner apitypes.NamespacedName) *tracked {
	o, ok := w.objects[ref]
	if ok && len(o.owners) == 0 {
		w.idle--
	}
	if !ok {
		o = &tracked{ref: ref, owners: map[apitypes.NamespacedName]struct{}{}, known: make(chan struct{})}
		w.objects[ref] = o
		w.add = append(w.add, ref)
		w.kickLocked()
	}
	o.owners[owner] = struct{}{}
	return o
}

// untrack ends the interest of owner in ref.
func (w *watch) untrack(ref reference, owner apitypes.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o, ok := w.objects[ref]; ok {
		w.untrackLocked(o, owner)
	}
}

// drop ends the interest of owner in everything.
func (w *watch) drop(owner apitypes.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.objects {
		w.untrackLocked(o, owner)
	}
}

func (w *watch) untrackLocked(o *tracked, owner apitypes.NamespacedName) {
	if _, ok := o.owners[owner]; !ok {
		return
	}
	if delete(o.owners, owner); len(o.owners) > 0 {
		return
	}
	if o.gone {
		delete(w.objects, o.ref)
		w.remove = append(w.remove, o.ref)
	} else {
		w.idle++ // it stays known until its removal is sent
	}
	if len(w.remove)+w.idle >= maxRemovals {
		w.kickLocked()
	}
}

// discard has o added anew by who tracks it next, because it was never reported. The others who wait for it do the same.
func (w *watch) discard(o *tracked) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.objects[o.ref] != o {
		return
	}
	if len(o.owners) == 0 {
		w.idle--
	}
	delete(w.objects, o.ref)
	w.remove = append(w.remove, o.ref)
	w.kickLocked() // at once: one who is removed and added in one breath may be reported as nothing new
}

// takeLocked returns what the next change shall add and remove.
func (w *watch) takeLocked() (add, remove []reference) {
	add, remove = w.add, w.remove
	for ref, o := range w.objects {
		if w.idle > 0 && len(o.owners) == 0 {
			remove = append(remove, ref)
			delete(w.objects, ref)
			w.idle--
		}
	}
	w.add, w.remove = nil, nil
	return add, remove
}

func (w *watch) kickLocked() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// end releases everyone who waits for a report.
func (w *watch) end() { close(w.over) }

// vmOf waits for the first report on a tracked VM and returns what is known of it, and whether it exists.
func (w *watch) vmOf(ctx context.Context, o *tracked) (facts vmFacts, exists bool, err error) {
	if err := w.first(ctx, o); err != nil {
		return vmFacts{}, false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return o.vm, !o.gone, nil
}

// taskOf returns what is known of a tracked task, and whether it exists; it waits for the first report.
func (w *watch) taskOf(ctx context.Context, o *tracked) (facts taskFacts, exists bool, err error) {
	if err := w.first(ctx, o); err != nil {
		return taskFacts{}, false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return o.task, !o.gone, nil
}

func (w *watch) first(ctx context.Context, o *tracked) error {
	select {
	case <-o.known:
		return nil
	default:
	}
	select {
	case <-o.known:
		return nil
	case <-w.over:
		return &sessionLostError{fmt.Errorf("the session ended before %s was read", o.ref)}
	case <-time.After(w.patience):
		w.discard(o)
		return fmt.Errorf("%w: vCenter did not report %s within %s: check that the user may read it (System.Read)", infrastructure.ErrUnavailable, o.ref, w.patience)
	case <-ctx.Done():
		return fmt.Errorf("%w: reading %s: %w", infrastructure.ErrUnavailable, o.ref, ctx.Err())
	}
}

// submit sends additions and removals until ctx ends or a call fails.
func (w *watch) submit(ctx context.Context) error {
	for {
		select {
		case <-w.kick:
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case <-time.After(gather):
		case <-ctx.Done():
			return ctx.Err()
		}
		w.mu.Lock()
		add, remove := w.takeLocked()
		w.mu.Unlock()
		if len(add)+len(remove) == 0 {
			continue
		}
		if slices.ContainsFunc(add, func(ref reference) bool { return slices.Contains(remove, ref) }) {
			// In one call, nobody would know which comes first.
			if err := w.modify(ctx, nil, remove); err != nil {
				return err
			}
			remove = nil
		}
		if err := w.modify(ctx, add, remove); err != nil {
			return err
		}
	}
}

// modify changes the list. It is tried again when the connection fails: adding or removing twice does no harm.
func (w *watch) modify(ctx context.Context, add, remove []reference) error {
	req := &types.ModifyListView{This: w.list.Reference(), Add: add, Remove: remove}
	res, err := methods.ModifyListView(ctx, w.client, req)
	if err != nil && !isFault(err) && ctx.Err() == nil {
		res, err = methods.ModifyListView(ctx, w.client, req)
	}
	if err != nil {
		return fmt.Errorf("changing what is watched: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ref := range res.Returnval { // does not exist
		if o := w.objects[ref]; o != nil {
			w.goneLocked(o)
		}
	}
	return nil
}

// receive takes reports until ctx ends or a call fails.
func (w *watch) receive(ctx context.Context) error {
	version := ""
	for {
		seconds := int32(longPoll / time.Second)
		res, err := methods.WaitForUpdatesEx(ctx, w.client, &types.WaitForUpdatesEx{
			This: w.collector.Reference(), Version: version, Options: &types.WaitOptions{MaxWaitSeconds: &seconds},
		})
		if err != nil {
			return fmt.Errorf("waiting for changes: %w", err)
		}
		if res.Returnval == nil {
			continue
		}
		version = res.Returnval.Version
		w.apply(res.Returnval)
		if res.Returnval.Truncated != nil && *res.Returnval.Truncated {
			continue
		}
		select {
		case <-time.After(settle):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// apply takes over a report and wakes the owners concerned.
func (w *watch) apply(set *types.UpdateSet) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range set.FilterSet {
		for _, u := range f.ObjectSet {
			o, ok := w.objects[u.Obj]
			if !ok {
				continue // not tracked any more
			}
			if u.Kind == types.ObjectUpdateKindLeave {
				w.goneLocked(o)
				continue
			}
			first := o.knownLocked()
			if u.Obj.Type == "Task" {
				before := o.task
				o.task.apply(u.ChangeSet)
				w.taskChangedLocked(o, before)
				continue
			}
			if o.vm.apply(u.ChangeSet) || first {
				w.wakeLocked(o)
			}
		}
	}
}

// taskChangedLocked wakes the owners of a task that ended. When it made a VM, that is tracked instead, and its first report
// wakes them.
func (w *watch) taskChangedLocked(o *tracked, before taskFacts) {
	if !o.task.ended() || before.ended() {
		return
	}
	if vm := o.task.madeVM(); vm != (reference{}) {
		for owner := range o.owners {
			w.trackLocked(vm, owner)
		}
		return
	}
	w.wakeLocked(o)
}

// knownLocked notes that the object was reported, and returns whether it was the first time.
func (o *tracked) knownLocked() bool {
	select {
	case <-o.known:
		return false
	default:
		close(o.known)
		return true
	}
}

func (w *watch) goneLocked(o *tracked) {
	o.gone = true
	o.knownLocked()
	w.wakeLocked(o)
}

func (w *watch) wakeLocked(o *tracked) {
	for owner := range o.owners {
		w.wakes.wake(owner)
	}
}
