package vsphere

import (
	"context"
	"errors"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	"golang.org/x/sync/singleflight"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/infrastructure"
)

// target is a placement with its names resolved.
type target struct {
	template, folder, pool reference
	// datastore is nil for the template's.
	datastore *reference
	// network edits the first network adapter; nil for the template's network.
	network types.BaseVirtualDeviceConfigSpec
}

// known is what names stand for, until they are looked up anew, because they may stand for something else by then.
type known[T any] struct {
	value    T
	outdated time.Time
}

// inventoryLife is how long names are not looked up again.
const inventoryLife = 5 * time.Minute

// inventory resolves placements and remembers them for a while, or until forget.
type inventory struct {
	client *vim25.Client
	flight singleflight.Group

	mu      sync.Mutex
	targets map[infrav1.VSpherePlacement]known[*target]
	folders map[infrav1.VSpherePlacement]known[reference]

	// settled is true when no clone task runs any more that an earlier process may have started.
	settled atomic.Bool
}

func newInventory(client *vim25.Client) *inventory {
	return &inventory{
		client:  client,
		targets: map[infrav1.VSpherePlacement]known[*target]{},
		folders: map[infrav1.VSpherePlacement]known[reference]{},
	}
}

// lookupError says that a field names something that is not there.
type lookupError struct{ field, value, problem string }

// Error implements error.
func (e *lookupError) Error() string { return fmt.Sprintf("%s %q: %s", e.field, e.value, e.problem) }

// resolve returns the target of p. Errors: *infrastructure.ConfigError for names that the vCenter does not have.
func (i *inventory) resolve(ctx context.Context, p placement) (*target, error) {
	return resolve(ctx, i, i.targets, p, (*lookup).target)
}

// folder returns the VM folder of p, whatever else of p is not there any more. Errors: as resolve.
func (i *inventory) folder(ctx context.Context, p placement) (reference, error) {
	return resolve(ctx, i, i.folders, p.ofFolder(), (*lookup).folder)
}

// resolve answers from what is known, or looks it up.
func resolve[T any](ctx context.Context, i *inventory, all map[infrav1.VSpherePlacement]known[T], p placement, look func(*lookup, context.Context) (T, error)) (T, error) {
	var none T
	i.mu.Lock()
	k, ok := all[p.VSpherePlacement]
	i.mu.Unlock()
	if ok && time.Now().Before(k.outdated) {
		return k.value, nil
	}
	// All who wait share the calls, so these do not end with the one who came first.
	shared := context.WithoutCancel(ctx)
	result := i.flight.DoChan(fmt.Sprintf("%T %q", none, p.VSpherePlacement), func() (any, error) {
		value, err := look(&lookup{inventory: i, place: p.VSpherePlacement}, shared)
		if err != nil {
			return none, err
		}
		i.mu.Lock()
		all[p.VSpherePlacement] = known[T]{value, time.Now().Add(inventoryLife)}
		i.mu.Unlock()
		return value, nil
	})
	select {
	case r := <-result:
		var wrong *lookupError
		if errors.As(r.Err, &wrong) {
			return none, &infrastructure.ConfigError{Field: p.path(wrong.field), Value: wrong.value, Problem: wrong.problem}
		}
		if r.Err != nil {
			return none, r.Err
		}
		return r.Val.(T), nil
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// forget has p resolved anew, because something of it is gone.
func (i *inventory) forget(p placement) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.targets, p.VSpherePlacement)
	delete(i.folders, p.ofFolder().VSpherePlacement)
}

// lookup resolves one placement.
type lookup struct {
	*inventory
	place infrav1.VSpherePlacement

	datacenter     reference
	datacenterPath string
}

// kind is a kind of inventory object that a field names.
type kind struct {
	field  string   // of the placement
	what   string   // for people
	folder string   // of a datacenter, in which relative paths start
	types  []string // of managed objects
}

func (l *lookup) target(ctx context.Context) (*target, error) {
	template, err := l.template(ctx)
	if err != nil {
		return nil, err
	}
	t := &target{template: template.Self}
	if t.folder, err = l.folder(ctx); err != nil {
		return nil, err
	}
	if t.pool, err = l.pool(ctx); err != nil {
		return nil, err
	}
	if l.place.Datastore != "" {
		datastore, err := l.named(ctx, kind{"datastore", "datastore", "datastore", []string{"Datastore"}}, l.place.Datastore)
		if err != nil {
			return nil, err
		}
		t.datastore = &datastore
	}
	if l.place.Network != "" {
		if t.network, err = l.network(ctx, template); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// folder returns the VM folder; without one it is the datacenter's.
func (l *lookup) folder(ctx context.Context) (reference, error) {
	folder := l.place.Folder
	if folder == "" {
		if err := l.findDatacenter(ctx); err != nil {
			return reference{}, err
		}
		folder = path.Join(l.datacenterPath, "vm")
	}
	return l.named(ctx, kind{"folder", "VM folder", "vm", []string{"Folder"}}, folder)
}

func (l *lookup) template(ctx context.Context) (*mo.VirtualMachine, error) {
	if l.place.Template == "" {
		return nil, &lookupError{"template", "", "is required, here or in each failure domain: name the VM template with Windows Server and cloudbase-init"}
	}
	ref, err := l.named(ctx, kind{"template", "VM template", "vm", []string{"VirtualMachine"}}, l.place.Template)
	if err != nil {
		return nil, err
	}
	properties := []string{"config.template"}
	if l.place.Network != "" {
		properties = append(properties, "config.hardware.device")
	}
	vm := &mo.VirtualMachine{}
	if err := property.DefaultCollector(l.client).RetrieveOne(ctx, ref, properties, vm); err != nil {
		return nil, fmt.Errorf("reading template %s: %w", l.place.Template, err)
	}
	if vm.Config == nil || !vm.Config.Template {
		return nil, &lookupError{"template", l.place.Template, "is a VM, not a template: convert it to a template, or name another"}
	}
	vm.Self = ref
	return vm, nil
}

// pool returns the resource pool; a cluster or host stands for its root resource pool.
func (l *lookup) pool(ctx context.Context) (reference, error) {
	pools := kind{"resourcePool", "resource pool or cluster", "host", []string{"ResourcePool", "VirtualApp", "ClusterComputeResource", "ComputeResource"}}
	var ref reference
	if l.place.ResourcePool != "" {
		var err error
		if ref, err = l.named(ctx, pools, l.place.ResourcePool); err != nil {
			return reference{}, err
		}
		if !strings.HasSuffix(ref.Type, "ComputeResource") {
			return ref, nil
		}
	} else {
		if err := l.findDatacenter(ctx); err != nil {
			return reference{}, err
		}
		found, err := l.search(ctx, l.datacenter, []string{"ComputeResource"}, "")
		if err != nil {
			return reference{}, fmt.Errorf("listing clusters: %w", err)
		}
		if len(found) != 1 {
			return reference{}, &lookupError{"resourcePool", "", fmt.Sprintf("is required, because datacenter %s has %d clusters and hosts %q: name one of them, or a resource pool",
				l.datacenterPath, len(found), l.paths(ctx, found))}
		}
		ref = found[0]
	}
	compute := mo.ComputeResource{}
	if err := property.DefaultCollector(l.client).RetrieveOne(ctx, ref, []string{"resourcePool"}, &compute); err != nil {
		return reference{}, fmt.Errorf("reading the root resource pool of %s: %w", ref, err)
	}
	if compute.ResourcePool == nil {
		return reference{}, &lookupError{"resourcePool", l.place.ResourcePool, "has no resource pool that we may see: grant System.View on it"}
	}
	return *compute.ResourcePool, nil
}

// network returns the edit that connects the template's first network adapter to the network.
func (l *lookup) network(ctx context.Context, template *mo.VirtualMachine) (types.BaseVirtualDeviceConfigSpec, error) {
	networks := kind{"network", "network or distributed port group", "network", []string{"Network", "DistributedVirtualPortgroup", "OpaqueNetwork"}}
	ref, err := l.named(ctx, networks, l.place.Network)
	if err != nil {
		return nil, err
	}
	adapters := object.VirtualDeviceList(template.Config.Hardware.Device).SelectByType((*types.VirtualEthernetCard)(nil))
	if len(adapters) == 0 {
		return nil, &lookupError{"template", l.place.Template, "has no network adapter that could be connected to spec.vsphere.network: add one to the template"}
	}
	backing, err := object.NewReference(l.client, ref).(object.NetworkReference).EthernetCardBackingInfo(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading network %s: %w", l.place.Network, err)
	}
	// A fresh device of the template's type: its MAC address must not become the clone's.
	device := reflect.New(reflect.TypeOf(adapters[0]).Elem()).Interface().(types.BaseVirtualDevice)
	from, to := adapters[0].GetVirtualDevice(), device.GetVirtualDevice()
	to.Key, to.ControllerKey, to.UnitNumber, to.Backing = from.Key, from.ControllerKey, from.UnitNumber, backing
	to.Connectable = &types.VirtualDeviceConnectInfo{StartConnected: true, AllowGuestControl: true, Connected: true}
	return &types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationEdit, Device: device}, nil
}

// findDatacenter finds the datacenter once.
func (l *lookup) findDatacenter(ctx context.Context) error {
	if l.datacenterPath != "" {
		return nil
	}
	datacenters := kind{"datacenter", "datacenter", "", []string{"Datacenter"}}
	if l.place.Datacenter != "" {
		ref, err := l.named(ctx, datacenters, l.place.Datacenter)
		if err != nil {
			return err
		}
		l.datacenter = ref
	} else {
		found, err := l.search(ctx, l.client.ServiceContent.RootFolder, datacenters.types, "")
		if err != nil {
			return fmt.Errorf("listing datacenters: %w", err)
		}
		if len(found) != 1 {
			return &lookupError{"datacenter", "", fmt.Sprintf("is required, because the vCenter has %d datacenters %q: name one of them", len(found), l.paths(ctx, found))}
		}
		l.datacenter = found[0]
	}
	var err error
	if l.datacenterPath, err = find.InventoryPath(ctx, l.client, l.datacenter); err != nil {
		return fmt.Errorf("reading the path of the datacenter: %w", err)
	}
	return nil
}

// named finds what a field names: by its path, which is one call, else by its name anywhere in the datacenter.
func (l *lookup) named(ctx context.Context, k kind, value string) (reference, error) {
	root, rootPath := l.client.ServiceContent.RootFolder, "/"
	absolute := value
	if !strings.HasPrefix(value, "/") {
		if k.field != "datacenter" {
			if err := l.findDatacenter(ctx); err != nil {
				return reference{}, err
			}
			root, rootPath = l.datacenter, l.datacenterPath
		}
		absolute = path.Join(rootPath, k.folder, value)
	}
	found, err := object.NewSearchIndex(l.client).FindByInventoryPath(ctx, absolute)
	if err != nil {
		return reference{}, fmt.Errorf("looking for %s: %w", absolute, err)
	}
	if found != nil {
		if ref := found.Reference(); slices.Contains(k.types, ref.Type) {
			return ref, nil
		}
		return reference{}, &lookupError{k.field, value, fmt.Sprintf("is a %s, not a %s: name a %s", found.Reference().Type, k.what, k.what)}
	}
	if strings.Contains(value, "/") {
		return reference{}, &lookupError{k.field, value, fmt.Sprintf("there is no %s %s: correct the path, or grant the user System.View on it", k.what, absolute)}
	}
	same, err := l.search(ctx, root, k.types, value)
	if err != nil {
		return reference{}, fmt.Errorf("looking for %s %s: %w", k.what, value, err)
	}
	switch len(same) {
	case 0:
		return reference{}, &lookupError{k.field, value, fmt.Sprintf("there is no %s of this name in %s: correct it, or grant the user System.View on it", k.what, rootPath)}
	case 1:
		return same[0], nil
	}
	return reference{}, &lookupError{k.field, value, fmt.Sprintf("is ambiguous, there are %q: use one of these paths", l.paths(ctx, same))}
}

// search returns the objects of the kinds anywhere under root, with that name or, when it is empty, all.
func (l *lookup) search(ctx context.Context, root reference, kinds []string, name string) ([]reference, error) {
	v, err := view.NewManager(l.client).CreateContainerView(ctx, root, kinds, true)
	if err != nil {
		return nil, err
	}
	defer func() { _ = v.Destroy(ctx) }() // it ends with the session anyway
	var content []types.ObjectContent
	if err := v.Retrieve(ctx, kinds, []string{"name"}, &content); err != nil {
		return nil, err
	}
	var found []reference
	for _, c := range content {
		if name == "" || slices.ContainsFunc(c.PropSet, func(p types.DynamicProperty) bool { return p.Val == name }) {
			found = append(found, c.Obj)
		}
	}
	return found, nil
}

// paths returns the inventory paths of refs, for people.
func (l *lookup) paths(ctx context.Context, refs []reference) []string {
	paths := make([]string, 0, len(refs))
	for _, ref := range refs {
		p, err := find.InventoryPath(ctx, l.client, ref)
		if err != nil {
			p = ref.Value
		}
		paths = append(paths, p)
	}
	slices.Sort(paths)
	return paths
}
