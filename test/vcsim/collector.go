package vcsim

import (
	"context"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

const (
	// collectInterval is the shortest time between two collections of one collector.
	collectInterval = 20 * time.Millisecond
	// maxObjectUpdates in one answer, as vCenter's default.
	maxObjectUpdates = 100
)

// useCollector puts our property collector over the simulator's, which collects the whole view once per update of any
// object and can deadlock with list views. The simulator makes a collector per session of whatever type is registered.
func (s *Server) useCollector() {
	registry := s.model.Service.Context.Map
	c := &collector{all: &s.collectors}
	c.Self = types.ManagedObjectReference{Type: "PropertyCollector", Value: "propertyCollector"}
	for _, o := range registry.AllReference("PropertyCollector") {
		c.Self = o.Reference()
	}
	registry.Put(c)
}

// collector is a property collector whose cost is that of one collection per interval in which anything changed. Unlike
// the simulator's it checks versions, sends only new members of a modified list view, and merges changes.
type collector struct {
	simulator.PropertyCollector
	all *collectors

	dirty atomic.Bool

	mu      sync.Mutex
	filters []*filter
	wake    context.CancelFunc
	version int
	pending []types.PropertyFilterUpdate
}

// collectors are those with a waiting client, by reference value.
type collectors struct{ waiting sync.Map }

func (c *collectors) cancel(ref string) {
	if pc, ok := c.waiting.Load(ref); ok {
		pc.(*collector).cancelWait()
	}
}

func (c *collectors) cancelAll() {
	c.waiting.Range(func(_, pc any) bool {
		pc.(*collector).cancelWait()
		return true
	})
}

// filter remembers what the client knows.
type filter struct {
	mo.PropertyFilter
	collector *collector
	known     map[types.ManagedObjectReference]map[string]any
}

// DestroyPropertyFilter implements the vim25 method.
func (f *filter) DestroyPropertyFilter(ctx *simulator.Context, req *types.DestroyPropertyFilter) soap.HasFault {
	f.collector.mu.Lock()
	for i, x := range f.collector.filters {
		if x == f {
			f.collector.filters = append(f.collector.filters[:i:i], f.collector.filters[i+1:]...)
			break
		}
	}
	f.collector.mu.Unlock()
	ctx.Session.Remove(ctx, req.This)
	return &methods.DestroyPropertyFilterBody{Res: new(types.DestroyPropertyFilterResponse)}
}

// CreatePropertyCollector implements the vim25 method.
func (c *collector) CreatePropertyCollector(ctx *simulator.Context, _ *types.CreatePropertyCollector) soap.HasFault {
	n := &collector{}
	n.Self.Type = "PropertyCollector"
	for _, o := range ctx.Map.AllReference("PropertyCollector") {
		if root, ok := o.(*collector); ok {
			n.all = root.all
		}
	}
	return &methods.CreatePropertyCollectorBody{Res: &types.CreatePropertyCollectorResponse{Returnval: ctx.Session.Put(n).Reference()}}
}

// DestroyPropertyCollector implements the vim25 method.
func (c *collector) DestroyPropertyCollector(ctx *simulator.Context, req *types.DestroyPropertyCollector) soap.HasFault {
	c.cancelWait()
	c.mu.Lock()
	for _, f := range c.filters {
		ctx.Session.Remove(ctx, f.Self)
	}
	c.filters = nil
	c.mu.Unlock()
	ctx.Map.RemoveHandler(c)
	ctx.Session.Remove(ctx, req.This)
	return &methods.DestroyPropertyCollectorBody{Res: new(types.DestroyPropertyCollectorResponse)}
}

// CreateFilter implements the vim25 method.
func (c *collector) CreateFilter(ctx *simulator.Context, req *types.CreateFilter) soap.HasFault {
	f := &filter{collector: c, known: map[types.ManagedObjectReference]map[string]any{}}
	f.Spec, f.PartialUpdates = req.Spec, req.PartialUpdates
	f.Self.Type = "PropertyFilter"
	// Checks the property paths, as vCenter does.
	if fault := c.retrieve(ctx, f.Spec).Fault_; fault != nil {
		return &methods.CreateFilterBody{Fault_: fault}
	}
	ref := ctx.Session.Put(f).Reference()
	c.mu.Lock()
	c.filters = append(c.filters, f)
	c.mu.Unlock()
	c.dirty.Store(true)
	return &methods.CreateFilterBody{Res: &types.CreateFilterResponse{Returnval: ref}}
}

// CancelWaitForUpdates implements the vim25 method.
func (c *collector) CancelWaitForUpdates(*types.CancelWaitForUpdates) soap.HasFault {
	c.cancelWait()
	return &methods.CancelWaitForUpdatesBody{Res: new(types.CancelWaitForUpdatesResponse)}
}

func (c *collector) cancelWait() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wake != nil {
		c.wake()
	}
}

// watched returns the number of objects that the client knows.
func (c *collector) watched() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, f := range c.filters {
		n += len(f.known)
	}
	return n
}

// PutObject, UpdateObject and RemoveObject implement simulator.RegisterObject.
func (c *collector) PutObject(*simulator.Context, mo.Reference) { c.dirty.Store(true) }

// UpdateObject implements simulator.RegisterObject.
func (c *collector) UpdateObject(*simulator.Context, mo.Reference, []types.PropertyChange) {
	c.dirty.Store(true)
}

// RemoveObject implements simulator.RegisterObject.
func (c *collector) RemoveObject(*simulator.Context, types.ManagedObjectReference) {
	c.dirty.Store(true)
}

func (c *collector) retrieve(ctx *simulator.Context, spec types.PropertyFilterSpec) *methods.RetrievePropertiesExBody {
	return c.RetrievePropertiesEx(ctx, &types.RetrievePropertiesEx{
		This: c.Self, SpecSet: []types.PropertyFilterSpec{spec},
	}).(*methods.RetrievePropertiesExBody)
}

// collect returns what changed since the last collection; the caller holds c.mu.
func (c *collector) collect(ctx *simulator.Context) ([]types.PropertyFilterUpdate, *soap.Fault) {
	var updates []types.PropertyFilterUpdate
	for _, f := range c.filters {
		body := c.retrieve(ctx, f.Spec)
		if body.Fault_ != nil {
			switch body.Fault_.VimFault().(type) {
			case types.ManagedObjectNotFound, *types.ManagedObjectNotFound: // an object went meanwhile; the next collection leaves it out
				c.dirty.Store(true)
				continue
			}
			return nil, body.Fault_
		}
		if set := f.difference(body.Res.Returnval.Objects); len(set) > 0 {
			updates = append(updates, types.PropertyFilterUpdate{Filter: f.Self, ObjectSet: set})
		}
	}
	return updates, nil
}

// difference returns how objects differ from what the client knows, which it knows from now on.
func (f *filter) difference(objects []types.ObjectContent) []types.ObjectUpdate {
	var updates []types.ObjectUpdate
	seen := map[types.ManagedObjectReference]bool{}
	for _, o := range objects {
		seen[o.Obj] = true
		old, known := f.known[o.Obj]
		now := make(map[string]any, len(o.PropSet))
		u := types.ObjectUpdate{Kind: types.ObjectUpdateKindModify, Obj: o.Obj, MissingSet: o.MissingSet}
		if !known {
			u.Kind = types.ObjectUpdateKindEnter
		}
		for _, p := range o.PropSet {
			now[p.Name] = p.Val
			if v, ok := old[p.Name]; !ok || !reflect.DeepEqual(v, p.Val) {
				u.ChangeSet = append(u.ChangeSet, types.PropertyChange{Name: p.Name, Op: types.PropertyChangeOpAssign, Val: p.Val})
			}
		}
		for name := range old {
			if _, ok := now[name]; !ok {
				u.ChangeSet = append(u.ChangeSet, types.PropertyChange{Name: name, Op: types.PropertyChangeOpAssign})
			}
		}
		f.known[o.Obj] = now
		if !known || len(u.ChangeSet) > 0 {
			updates = append(updates, u)
		}
	}
	for ref := range f.known {
		if !seen[ref] {
			delete(f.known, ref)
			updates = append(updates, types.ObjectUpdate{Kind: types.ObjectUpdateKindLeave, Obj: ref})
		}
	}
	return updates
}

// answer takes up to limit object updates from what is pending; the caller holds c.mu.
func (c *collector) answer(limit int) *types.UpdateSet {
	c.version++
	set := &types.UpdateSet{Version: strconv.Itoa(c.version)}
	for len(c.pending) > 0 && limit > 0 {
		f := &c.pending[0]
		n := min(limit, len(f.ObjectSet))
		set.FilterSet = append(set.FilterSet, types.PropertyFilterUpdate{Filter: f.Filter, ObjectSet: f.ObjectSet[:n]})
		f.ObjectSet = f.ObjectSet[n:]
		limit -= n
		if len(f.ObjectSet) == 0 {
			c.pending = c.pending[1:]
		}
	}
	if len(c.pending) > 0 {
		set.Truncated = types.NewBool(true)
	}
	return set
}

// WaitForUpdatesEx implements the vim25 method.
func (c *collector) WaitForUpdatesEx(ctx *simulator.Context, req *types.WaitForUpdatesEx) soap.HasFault {
	wait, cancel := context.WithCancel(context.Background())
	defer cancel()
	limit, once := maxObjectUpdates, false
	if o := req.Options; o != nil {
		if o.MaxWaitSeconds != nil {
			once = *o.MaxWaitSeconds <= 0
			wait, cancel = context.WithTimeout(wait, time.Duration(*o.MaxWaitSeconds)*time.Second)
			defer cancel()
		}
		if o.MaxObjectUpdates > 0 {
			limit = min(limit, int(o.MaxObjectUpdates))
		}
	}
	fault := c.begin(ctx, req.Version, cancel)
	if fault != nil {
		return &methods.WaitForUpdatesExBody{Fault_: simulator.Fault("", fault)}
	}
	if c.all != nil {
		c.all.waiting.Store(req.This.Value, c)
		defer c.all.waiting.Delete(req.This.Value)
	}
	ticker := time.NewTicker(collectInterval)
	defer ticker.Stop()
	for {
		set, fault := c.poll(ctx, limit, req.Version == "")
		switch {
		case fault != nil:
			return &methods.WaitForUpdatesExBody{Fault_: fault}
		case set != nil || once:
			return &methods.WaitForUpdatesExBody{Res: &types.WaitForUpdatesExResponse{Returnval: set}}
		}
		select {
		case <-ticker.C:
		case <-wait.Done():
			if wait.Err() == context.Canceled {
				return &methods.WaitForUpdatesExBody{Fault_: simulator.Fault("", new(types.RequestCanceled))}
			}
			return &methods.WaitForUpdatesExBody{Res: new(types.WaitForUpdatesExResponse)}
		}
	}
}

// begin prepares a wait from version on.
func (c *collector) begin(ctx *simulator.Context, version string, cancel context.CancelFunc) types.BaseMethodFault {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wake = cancel
	switch version {
	case "":
		for _, f := range c.filters {
			f.known = map[types.ManagedObjectReference]map[string]any{}
		}
		c.pending = nil
		ctx.Map.AddHandler(c)
		c.dirty.Store(true)
	case strconv.Itoa(c.version):
	default:
		return new(types.InvalidCollectorVersion)
	}
	return nil
}

// poll returns an answer if there is something to answer; a first answer may be empty, to hand out a version.
func (c *collector) poll(ctx *simulator.Context, limit int, first bool) (*types.UpdateSet, *soap.Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) == 0 && c.dirty.Swap(false) {
		var fault *soap.Fault
		if c.pending, fault = c.collect(ctx); fault != nil {
			return nil, fault
		}
	}
	if len(c.pending) == 0 && !first {
		return nil, nil
	}
	return c.answer(limit), nil
}
