package windowsmachine

import (
	"context"
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/infrastructure"
)

// cloud is what a platform manages: it outlives the manager. Its VMs are created and deleted by tasks that take their time,
// like those of a real one, unless the test holds them.
type cloud struct {
	mu        sync.Mutex
	vms       []*vm
	serial    int
	platforms []*fakePlatform
	calls     []call
	// forgotten counts the calls of Forget by the WindowsMachine's name.
	forgotten map[string]int
	// holding keeps creations and deletions from ending.
	holding bool
	// fail is asked before each call; an error is returned instead of doing it.
	fail func(op string, m infrastructure.Machine) error
	// step is told before and after each call has had its effect; an error cuts the call off there.
	step func(place string) error
}

// call is one call of a Platform's method.
type call struct {
	op string
	m  infrastructure.Machine
}

// vm is one VM with its owner mark.
type vm struct {
	name          string
	owner         infrastructure.Owner
	instance      infrastructure.Instance
	userData      string
	failureDomain string
}

// fakePlatform is the platform of one manager. It behaves as infrastructure.Platform documents.
type fakePlatform struct {
	cloud   *cloud
	changes chan event.GenericEvent
}

var _ infrastructure.Platform = &fakePlatform{}

// platform returns a new platform over the cloud, as a manager that starts does.
func (c *cloud) platform() *fakePlatform {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &fakePlatform{c, make(chan event.GenericEvent, 1000)}
	c.platforms = append(c.platforms, p)
	return p
}

func (p *fakePlatform) Forget(machine types.NamespacedName) {
	p.cloud.mu.Lock()
	defer p.cloud.mu.Unlock()
	if p.cloud.forgotten == nil {
		p.cloud.forgotten = map[string]int{}
	}
	p.cloud.forgotten[machine.Name]++
}

// forgets is how often the platform was told to forget a WindowsMachine.
func (c *cloud) forgets(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.forgotten[name]
}

func (p *fakePlatform) Changes() <-chan event.GenericEvent { return p.changes }

func (p *fakePlatform) Ensure(ctx context.Context, spec infrastructure.InstanceSpec) (i infrastructure.Instance, err error) {
	err = p.cloud.do(ctx, "Ensure", spec.Machine, func(c *cloud) error {
		v := c.find(spec.Machine)
		if v == nil {
			if other := c.named(spec.InstanceName); other != nil {
				return &infrastructure.ForeignInstanceError{Name: other.name, ID: other.instance.ID, Detail: "its owner mark names " + other.owner.Name}
			}
			v = c.create(spec)
		}
		i = v.instance
		return nil
	})
	return i, err
}

func (p *fakePlatform) Observe(ctx context.Context, m infrastructure.Machine) (i infrastructure.Instance, err error) {
	err = p.cloud.do(ctx, "Observe", m, func(c *cloud) error {
		i = infrastructure.Instance{State: infrav1.InstanceMissing}
		if v := c.find(m); v != nil {
			i = v.instance
		}
		return nil
	})
	return i, err
}

func (p *fakePlatform) Delete(ctx context.Context, m infrastructure.Machine) (progress infrastructure.Progress, err error) {
	err = p.cloud.do(ctx, "Delete", m, func(c *cloud) error {
		v := c.find(m)
		if v == nil {
			progress = infrastructure.Progress{Done: true}
			return nil
		}
		if v.instance.State != infrav1.InstanceDeleting {
			v.instance.State = infrav1.InstanceDeleting
			c.task(func() { c.vms = slices.DeleteFunc(c.vms, func(o *vm) bool { return o == v }) }, v.owner)
		}
		progress = infrastructure.Progress{Message: "Powering off and removing " + v.name}
		return nil
	})
	return progress, err
}

// do records a call, lets the test's faults at it, and runs it.
func (c *cloud) do(ctx context.Context, op string, m infrastructure.Machine, effect func(*cloud) error) error {
	c.mu.Lock()
	c.calls = append(c.calls, call{op, m})
	fail, step := c.fail, c.step
	c.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if fail != nil {
		if err := fail(op, m); err != nil {
			return err
		}
	}
	if step != nil {
		if err := step("before " + op); err != nil {
			return err
		}
	}
	c.mu.Lock()
	err := effect(c)
	c.mu.Unlock()
	if err == nil && step != nil {
		err = step("after " + op)
	}
	return err
}

// create starts the task that creates a VM. Its identifiers are known only when the task ends.
func (c *cloud) create(spec infrastructure.InstanceSpec) *vm {
	c.serial++
	serial := c.serial
	v := &vm{name: spec.InstanceName, owner: spec.Owner, userData: string(spec.UserData), failureDomain: spec.FailureDomain}
	v.instance = infrastructure.Instance{State: infrav1.InstanceCreating, Message: fmt.Sprintf("Cloning %s: 40%%", v.name)}
	c.vms = append(c.vms, v)
	c.task(func() {
		if v.instance.State == infrav1.InstanceCreating {
			v.instance = infrastructure.Instance{
				ID:            fmt.Sprintf("vm-%d", serial),
				ProviderID:    fmt.Sprintf("vsphere://42000000-0000-0000-0000-%012d", serial),
				State:         infrav1.InstanceRunning,
				FailureDomain: spec.FailureDomain,
			}
		}
	}, v.owner)
	return v
}

// task ends with effect, and then wakes the owner; at once or when the test releases it.
func (c *cloud) task(effect func(), owner infrastructure.Owner) {
	if c.holding {
		return
	}
	go func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		effect()
		c.wake(owner)
	}()
}

// change changes the VM of a WindowsMachine as a person at the platform would, and wakes its owner.
func (c *cloud) change(name string, effect func(*vm)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range c.vms {
		if v.owner.Name == name {
			effect(v)
			c.wake(v.owner)
		}
	}
}

// destroy removes the VM of a WindowsMachine behind our back.
func (c *cloud) destroy(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, v := range c.vms {
		if v.owner.Name == name {
			c.vms = slices.Delete(c.vms, i, i+1)
			c.wake(v.owner)
			return
		}
	}
}

// wake tells every manager that the instance of owner changed.
func (c *cloud) wake(owner infrastructure.Owner) {
	for _, p := range c.platforms {
		select {
		case p.changes <- event.GenericEvent{Object: &infrav1.WindowsMachine{ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: owner.Name}}}:
		default: // a manager that is dead reads no more
		}
	}
}

// find returns the VM that belongs to m. One with another UID in its mark belongs to m when m knows its provider ID: m was
// moved here from another management cluster.
func (c *cloud) find(m infrastructure.Machine) *vm {
	for _, v := range c.vms {
		switch {
		case v.owner.UID == m.Owner.UID:
			return v
		case m.ProviderID != "" && v.instance.ProviderID == m.ProviderID && v.owner.Key() == m.Owner.Key():
			v.owner = m.Owner
			return v
		}
	}
	return nil
}

func (c *cloud) named(name string) *vm {
	for _, v := range c.vms {
		if v.name == name {
			return v
		}
	}
	return nil
}

// set changes the faults of the cloud.
func (c *cloud) set(change func(*cloud)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}

// callsOf returns the calls of an operation for a WindowsMachine.
func (c *cloud) callsOf(op, name string) (found []call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range c.calls {
		if call.op == op && call.m.Owner.Name == name {
			found = append(found, call)
		}
	}
	return found
}

// count is how often the platform was called for a WindowsMachine.
func (c *cloud) count(name string) int {
	return len(c.callsOf("Ensure", name)) + len(c.callsOf("Observe", name)) + len(c.callsOf("Delete", name))
}

// vmsOf returns copies of the VMs that carry the mark of a WindowsMachine.
func (c *cloud) vmsOf(name string) (found []vm) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range c.vms {
		if v.owner.Name == name {
			found = append(found, *v)
		}
	}
	return found
}

// created is the number of VMs that were ever created.
func (c *cloud) created() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.serial
}

// addVM adds a running VM that carries the mark of another owner.
func (c *cloud) addVM(name string, owner types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.vms = append(c.vms, &vm{name: name, owner: infrastructure.Owner{UID: owner, Name: "somebody-else"},
		instance: infrastructure.Instance{ID: "vm-foreign", ProviderID: "vsphere://foreign", State: infrav1.InstanceRunning}})
}

// reports are addresses as a guest reports them.
func reports(ips ...string) []clusterv1.MachineAddress {
	var all []clusterv1.MachineAddress
	for _, ip := range ips {
		all = append(all, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: ip})
	}
	return all
}
