// Package infrastructure is the seam between the reconcilers and the platforms that run Windows VMs. A reconciler knows
// this package and never a platform's own types; a platform knows nothing of reconcilers.
package infrastructure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
)

// Owner identifies the WindowsMachine that an instance belongs to. It is written on the instance as its owner mark.
type Owner struct {
	// UID of the WindowsMachine. It changes when clusterctl move recreates the object.
	UID types.UID
	// Namespace and Name of the WindowsMachine.
	Namespace, Name string
	// Cluster is the name of the Cluster.
	Cluster string
}

// Key returns the namespaced name of the WindowsMachine.
func (o Owner) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
}

// Machine is the part of a WindowsMachine that is needed to find its instance.
type Machine struct {
	Owner Owner
	// InstanceName is the name of the VM, the computer and the Node.
	InstanceName string
	// ProviderID is empty until the instance was seen once. With a matching owner mark but another UID it proves that the
	// WindowsMachine was moved from another management cluster.
	ProviderID string
	// ID is the Instance.ID that the platform reported last; empty until the instance was seen once. An instance that is
	// looked for in vain, and was seen under an ID, counts as gone only when the platform says that of the ID.
	ID string
	// FailureDomain is Machine.spec.failureDomain; empty for the default placement.
	FailureDomain string
	// Spec of the WindowsMachine.
	Spec infrav1.WindowsMachineSpec
}

// InstanceSpec is all that is needed to create an instance.
type InstanceSpec struct {
	Machine
	// UserData is what the guest's cloudbase-init consumes, neither compressed nor encoded.
	UserData []byte
}

// Instance is what a platform knows of an instance.
type Instance struct {
	// ID is the platform's identifier; empty while it is not known yet.
	ID string
	// ProviderID as the Node reports it; empty while it is not known yet.
	ProviderID string
	// State is the life-cycle state; InstanceMissing when it does not exist.
	State infrav1.InstanceState
	// Addresses that the platform knows, in the order the guest reports them.
	Addresses []clusterv1.MachineAddress
	// FailureDomain is where it was placed.
	FailureDomain string
	// Interruptible says that the platform may take it away at any time. No vSphere VM is.
	Interruptible bool
	// Message says in one sentence what the platform is doing, when it is doing something.
	Message string
}

// Progress of a deletion.
type Progress struct {
	// Done is true when nothing of the instance is left.
	Done bool
	// Message says in one sentence what the platform is doing, when it is not done.
	Message string
}

// Platform creates and observes instances. Implementations are idempotent: every method may be called at any time, from
// any replica, after any crash. They never block on a platform's task: while one runs they return the state as it is,
// and Changes wakes the reconciler when it ends.
type Platform interface {
	// Ensure returns the instance that belongs to spec.Owner, creating it if it does not exist; the caller has not seen
	// it provisioned yet. It never adopts an instance that carries another owner's mark: *ForeignInstanceError.
	// A failed creation is returned as *CreateError and tried again at a later call.
	// ErrIdentity, *ConfigError, *FailureDomainError, *TooLargeError and *ForeignInstanceError say that nothing was created by
	// this call.
	Ensure(ctx context.Context, spec InstanceSpec) (Instance, error)

	// Observe returns the instance that belongs to m.Owner, or an Instance in state InstanceMissing. It never creates.
	Observe(ctx context.Context, m Machine) (Instance, error)

	// Delete removes the instance and everything created for it, also one that is only being created; a missing instance
	// is success. It never touches an instance that carries another owner's mark.
	Delete(ctx context.Context, m Machine) (Progress, error)

	// Forget drops what the platform remembers of a WindowsMachine that does not exist any more: deleted, moved away, or
	// never more than refused. It never touches an instance, and does nothing for one that the platform does not know.
	Forget(machine types.NamespacedName)

	// Changes yields an event, with only name and namespace, for a WindowsMachine whose instance or task changed. The event
	// carries no state.
	Changes() <-chan event.GenericEvent
}

// ForeignInstanceError says that the wanted name is taken by an instance that is not ours.
type ForeignInstanceError struct {
	// Name and ID of the foreign instance.
	Name, ID string
	// Detail says why it is not ours.
	Detail string
}

// Error implements error.
func (e *ForeignInstanceError) Error() string {
	return fmt.Sprintf("instance %q (%s) exists and does not belong to this WindowsMachine: %s; rename or remove it, or use another folder", e.Name, e.ID, e.Detail)
}

// CreateError is the platform's own account of a failed creation.
type CreateError struct {
	// Message is the platform's message with its fault chain.
	Message string
	// RetryAfter is when the creation may be tried again; zero for the caller's own back-off.
	RetryAfter time.Duration
}

// Error implements error.
func (e *CreateError) Error() string { return e.Message }

// DeleteError is the platform's own account of a failed deletion.
type DeleteError struct {
	// Message is the platform's message with its fault chain.
	Message string
	// RetryAfter is when the deletion may be tried again; zero for the caller's own back-off.
	RetryAfter time.Duration
}

// Error implements error.
func (e *DeleteError) Error() string { return e.Message }

// ConfigError says that the specification names something that the platform does not have or cannot do. Only a changed
// specification or platform cures it.
type ConfigError struct {
	// Field is the path of the field, such as spec.vsphere.template.
	Field string
	// Value is what stands there.
	Value string
	// Problem says what is wrong and what to do.
	Problem string
}

// Error implements error.
func (e *ConfigError) Error() string { return fmt.Sprintf("%s %q: %s", e.Field, e.Value, e.Problem) }

// FailureDomainError says that Machine.spec.failureDomain is not known to the specification.
type FailureDomainError struct {
	// Name is what the Machine asks for.
	Name string
	// Known are the names that the specification has.
	Known []string
}

// Error implements error.
func (e *FailureDomainError) Error() string {
	return fmt.Sprintf("Machine.spec.failureDomain %q is none of spec.vsphere.failureDomains %q: add an entry of that name or choose one of them", e.Name, e.Known)
}

// TooLargeError says that the guest data exceeds what the platform can deliver.
type TooLargeError struct {
	// What is too large, and its encoded size and limit in bytes.
	What        string
	Size, Limit int
}

// Error implements error.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s has %d bytes after gzip and base64, the platform delivers at most %d: make it smaller", e.What, e.Size, e.Limit)
}

// ErrIdentity marks errors of the credentials: the Secret is missing or incomplete, or the platform refuses them.
var ErrIdentity = errors.New("identity unavailable")

// ErrUnavailable marks errors of the connection to the platform.
var ErrUnavailable = errors.New("platform unavailable")

// ErrNotAsked marks errors of a call that failed before the platform was asked for anything, such as a server that cannot
// be reached: that call has changed nothing.
var ErrNotAsked = errors.New("the platform was not asked for anything")
