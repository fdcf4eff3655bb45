package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// MachineFinalizer keeps a WindowsMachine until its VM, and all that was created for it, is gone.
const MachineFinalizer = "infrastructure.cluster.x-k8s.io/windowsmachine"

// CredentialsFinalizer keeps the Secret that spec.vsphere.identityRef names for as long as a WindowsMachine may need it to
// remove its VM: also when the whole namespace is deleted, which deletes Secrets first. It is removed with the last
// WindowsMachine that names the Secret. A Secret that is being deleted goes as soon as no VM can depend on it, and no new VM
// is created with it.
const CredentialsFinalizer = "infrastructure.cluster.x-k8s.io/windowsmachine-credentials"

// Conditions of a WindowsMachine, and their reasons.
const (
	// ReadyCondition summarises the other conditions; Cluster API mirrors it to the Machine as InfrastructureReady.
	ReadyCondition = clusterv1.ReadyCondition

	// InstanceProvisionedCondition is true while the instance exists and is powered on.
	InstanceProvisionedCondition = "InstanceProvisioned"

	// DeletingCondition is true while the instance is being removed.
	DeletingCondition = clusterv1.DeletingCondition

	// InstanceProvisionedReason means: the instance exists and is powered on.
	InstanceProvisionedReason = clusterv1.ProvisionedReason
	// WaitingForClusterInfrastructureReason: the Cluster's infrastructure is not provisioned yet, or there is no Cluster yet.
	WaitingForClusterInfrastructureReason = "WaitingForClusterInfrastructureProvisioned"
	// WaitingForBootstrapDataReason: the Machine has no bootstrap data yet.
	WaitingForBootstrapDataReason = "WaitingForBootstrapData"
	// InvalidBootstrapDataReason: the bootstrap Secret is missing, has no key "value", or a format that a Windows guest
	// cannot consume.
	InvalidBootstrapDataReason = "InvalidBootstrapData"
	// BootstrapDataTooLargeReason: the bootstrap data exceeds what the platform can deliver.
	BootstrapDataTooLargeReason = "BootstrapDataTooLarge"
	// InvalidConfigurationReason: the specification names something that the platform does not have or cannot do; the message
	// names field, value and remedy.
	InvalidConfigurationReason = "InvalidConfiguration"
	// FailureDomainNotFoundReason: Machine.spec.failureDomain names no entry of spec.vsphere.failureDomains.
	FailureDomainNotFoundReason = "FailureDomainNotFound"
	// IdentityUnavailableReason: the credentials Secret is missing, incomplete, being deleted, or refused by the platform.
	IdentityUnavailableReason = "IdentityUnavailable"
	// PlatformUnavailableReason: the platform cannot be reached.
	PlatformUnavailableReason = "PlatformUnavailable"
	// InstanceCreatingReason means: the platform works on the creation.
	InstanceCreatingReason = "InstanceCreating"
	// InstanceCreateFailedReason means: the platform refused or failed the creation; the message is the platform's own.
	InstanceCreateFailedReason = "InstanceCreateFailed"
	// ForeignInstanceReason: an instance of the wanted name exists and does not belong to this WindowsMachine.
	ForeignInstanceReason = "ForeignInstance"
	// InstancePoweredOffReason means: the instance exists, but is not powered on.
	InstancePoweredOffReason = "InstancePoweredOff"
	// InstanceMissingReason means: the instance was provisioned once and does not exist any more.
	InstanceMissingReason = "InstanceMissing"
	// InstanceDeletingReason means: the platform works on the deletion.
	InstanceDeletingReason = "InstanceDeleting"
	// InstanceDeleteFailedReason means: the platform refused or failed the deletion; the message is the platform's own.
	InstanceDeleteFailedReason = "InstanceDeleteFailed"
	// ControlPlaneNotSupportedReason: a control plane Machine asks for Windows; Windows nodes are workers only.
	ControlPlaneNotSupportedReason = "ControlPlaneNotSupported"
	// InternalErrorReason: an unexpected error; it is retried with back-off.
	InternalErrorReason = clusterv1.InternalErrorReason
)

// WindowsMachineSpec says on which platform, and how, the instance runs.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="[has(self.vsphere)].filter(x, x).size() == 1",message="exactly one platform must be set: set spec.vsphere"
type WindowsMachineSpec struct {
	// providerID identifies the instance, as vsphere://<BIOS UUID>. The controller sets it; leave it empty.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	ProviderID string `json:"providerID,omitempty"`

	// vsphere makes the instance a VM on VMware vSphere. It is immutable but for thumbprint and identityRef, which say how to
	// reach the vCenter and not what the VM is, and for failureDomains, which are read only when the VM is created.
	// +optional
	VSphere *VSphereSpec `json:"vsphere,omitempty"`
}

// VSphereSpec describes a VM on VMware vSphere.
// +kubebuilder:validation:XValidation:rule="!has(self.numCPUs) || !has(self.numCoresPerSocket) || self.numCPUs % self.numCoresPerSocket == 0",fieldPath=".numCPUs",message="numCPUs must be a multiple of numCoresPerSocket"
// +kubebuilder:validation:XValidation:rule="has(self.template) || (has(self.failureDomains) && self.failureDomains.all(d, has(d.template)))",fieldPath=".template",reason=FieldValueRequired,message="template must be set: here, or in each of failureDomains"
type VSphereSpec struct {
	// server is the vCenter's host name or address, with an optional port: vcenter.example.com or 192.0.2.10:8443.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=260
	// +kubebuilder:validation:XValidation:rule="self.matches('^([[][0-9A-Fa-f:.]+[]]|[A-Za-z0-9.-]+)(:[1-9][0-9]{0,4})?$')",message="server must be a host name or address with an optional port, such as vcenter.example.com, 192.0.2.10:8443 or [2001:db8::1]: without https:// and without a path"
	// +kubebuilder:validation:XValidation:rule="!self.matches(':[0-9]{1,5}$') || int(self.substring(self.lastIndexOf(':') + 1)) <= 65535",message="the port must be at most 65535"
	Server string `json:"server,omitempty"`

	// thumbprint is the SHA-256 thumbprint of the vCenter's certificate, as 32 hexadecimal bytes with colons between them. It
	// pins exactly that certificate: every other is refused, also one that a known CA signed, so a renewed certificate
	// must be written here, and in a new WindowsMachineTemplate. Without it the certificate must be signed by a CA that the manager's system or the
	// identity's ca.crt knows. The connection is always verified.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=95
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9A-Fa-f]{2}:){31}[0-9A-Fa-f]{2}$')",message="thumbprint must be a SHA-256 thumbprint: 32 hexadecimal bytes with colons between them, as openssl x509 -noout -fingerprint -sha256 prints behind the '='"
	Thumbprint string `json:"thumbprint,omitempty"`

	// identityRef names the credentials.
	// +required
	IdentityRef VSphereIdentityReference `json:"identityRef,omitempty,omitzero"`

	// VSpherePlacement says where the VM is created and what it is cloned from.
	VSpherePlacement `json:",inline"`

	// numCPUs is the number of virtual CPUs. Default: the template's.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=768
	NumCPUs int32 `json:"numCPUs,omitempty"`

	// numCoresPerSocket is the number of cores per virtual socket; numCPUs must be a multiple of it. Windows Server
	// editions limit sockets, not cores. Default: the template's.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=768
	NumCoresPerSocket int32 `json:"numCoresPerSocket,omitempty"`

	// memoryMiB is the memory in MiB, a multiple of 4. Default: the template's.
	// +optional
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=25165824
	// +kubebuilder:validation:MultipleOf=4
	MemoryMiB int64 `json:"memoryMiB,omitempty"`

	// failureDomains are the places that Machine.spec.failureDomain may name. Each overrides what differs there.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	FailureDomains []VSphereFailureDomain `json:"failureDomains,omitempty"`
}

// VSphereIdentityReference names a Secret with the credentials.
type VSphereIdentityReference struct {
	// name of a Secret in the same namespace with the keys username and password, and optionally ca.crt: the PEM
	// certificates that sign the vCenter's. A changed Secret is used from the next call on.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`
}

// VSpherePlacement says where a VM is created and what it is cloned from. Names are inventory names or full inventory
// paths such as /DC0/vm/templates/windows-2022; relative paths start at the datacenter's folder of that kind.
type VSpherePlacement struct {
	// datacenter is the name or path of the datacenter. Default: the only one there is.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Datacenter string `json:"datacenter,omitempty"`

	// template is the name or path of the VM template with a generalized (sysprep) Windows Server and cloudbase-init. It must
	// be set here or in every one of failureDomains.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Template string `json:"template,omitempty"`

	// folder is the name or path of the VM folder. Default: the datacenter's VM folder.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Folder string `json:"folder,omitempty"`

	// resourcePool is the name or path of the resource pool; that of a cluster or host means its root resource pool. Default:
	// the root resource pool of the only cluster or host of the datacenter.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	ResourcePool string `json:"resourcePool,omitempty"`

	// datastore is the name or path of the datastore. Default: the template's.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Datastore string `json:"datastore,omitempty"`

	// network is the name or path of the network or distributed port group of the first network adapter, with DHCP.
	// Default: the template's.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Network string `json:"network,omitempty"`
}

// VSphereFailureDomain is one place for VMs; what it leaves empty is taken from the VSphereSpec.
type VSphereFailureDomain struct {
	// name is the value of Machine.spec.failureDomain that chooses this place.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name,omitempty"`

	// VSpherePlacement overrides the placement of the VSphereSpec, field by field.
	VSpherePlacement `json:",inline"`
}

// InstanceState is the life-cycle state of an instance.
// +kubebuilder:validation:Enum=Creating;Running;PoweredOff;Suspended;Missing;Deleting
type InstanceState string

const (
	// InstanceCreating means: the platform creates it.
	InstanceCreating InstanceState = "Creating"
	// InstanceRunning means: it is powered on.
	InstanceRunning InstanceState = "Running"
	// InstancePoweredOff means: it exists and is powered off.
	InstancePoweredOff InstanceState = "PoweredOff"
	// InstanceSuspended means: it exists and is suspended.
	InstanceSuspended InstanceState = "Suspended"
	// InstanceMissing means: it was provisioned once and does not exist any more.
	InstanceMissing InstanceState = "Missing"
	// InstanceDeleting means: the platform removes it.
	InstanceDeleting InstanceState = "Deleting"
)

// WindowsMachineStatus is what the infrastructure controller observed.
// +kubebuilder:validation:MinProperties=1
type WindowsMachineStatus struct {
	// conditions are Ready, InstanceProvisioned, Deleting, Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// initialization reports the start of the instance's life; it is part of the Cluster API contract and is never reset.
	// +optional
	Initialization WindowsMachineInitializationStatus `json:"initialization,omitempty,omitzero"`

	// addresses are the instance's host name and the IP addresses that its guest reported.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	Addresses []clusterv1.MachineAddress `json:"addresses,omitempty"`

	// failureDomain is where the instance was placed.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	FailureDomain string `json:"failureDomain,omitempty"`

	// interruptible is true when the platform may take the instance away at any time (spot instances). Cluster API then
	// labels the Node cluster.x-k8s.io/interruptible. vSphere has no such instances and never sets it.
	// +optional
	Interruptible *bool `json:"interruptible,omitempty"`

	// instance is the platform's view.
	// +optional
	Instance InstanceStatus `json:"instance,omitempty,omitzero"`

	// observedGeneration is the generation that the last error-free reconcile saw.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// WindowsMachineInitializationStatus reports the start of the instance's life.
// +kubebuilder:validation:MinProperties=1
type WindowsMachineInitializationStatus struct {
	// provisioned is true once the instance was created and powered on.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}

// InstanceStatus is the platform's view of the instance.
// +kubebuilder:validation:MinProperties=1
type InstanceStatus struct {
	// name of the VM, which is also the computer name and the name of the Node: at most 15 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	Name string `json:"name,omitempty"`

	// id is the platform's own identifier, for vSphere the managed object reference such as vm-1234.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	ID string `json:"id,omitempty"`

	// state is the life-cycle state.
	// +optional
	State InstanceState `json:"state,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=windowsmachines,scope=Namespaced,categories=cluster-api,shortName=winm
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=`.metadata.labels['cluster\.x-k8s\.io/cluster-name']`,description="Cluster"
// +kubebuilder:printcolumn:name="Instance",type="string",JSONPath=".status.instance.name",description="Name of VM, computer and Node"
// +kubebuilder:printcolumn:name="State",type="string",JSONPath=".status.instance.state",description="Life-cycle state of the instance"
// +kubebuilder:printcolumn:name="Provisioned",type="string",JSONPath=".status.initialization.provisioned",description="Whether the instance was created and powered on"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status",description="Ready condition"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].reason",description="Reason of the Ready condition"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message",description="Message of the Ready condition",priority=10
// +kubebuilder:printcolumn:name="Provider ID",type="string",JSONPath=".spec.providerID",description="Provider ID",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"

// WindowsMachine is one VM that a Windows worker runs on. Usually a MachineDeployment makes it from a
// WindowsMachineTemplate.
type WindowsMachine struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// The rules of change of spec stand here and not at the type, because they must not hold for spec.template.spec of a
	// WindowsMachineTemplate, which the dry runs of a ClusterClass topology change.

	// spec says on which platform, and how, the instance runs.
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(oldSelf.providerID) || (has(self.providerID) && self.providerID == oldSelf.providerID)",fieldPath=".providerID",reason=FieldValueForbidden,message="providerID is immutable once set"
	// +kubebuilder:validation:XValidation:rule="has(self.vsphere) == has(oldSelf.vsphere)",fieldPath=".vsphere",reason=FieldValueForbidden,message="vsphere is immutable but for thumbprint, identityRef and failureDomains: create a new WindowsMachineTemplate and let the MachineDeployment roll over to it"
	// +kubebuilder:validation:XValidation:rule="!has(self.vsphere) || !has(oldSelf.vsphere) || (self.vsphere.server == oldSelf.vsphere.server && (has(self.vsphere.datacenter) ? self.vsphere.datacenter : '') == (has(oldSelf.vsphere.datacenter) ? oldSelf.vsphere.datacenter : '') && (has(self.vsphere.template) ? self.vsphere.template : '') == (has(oldSelf.vsphere.template) ? oldSelf.vsphere.template : '') && (has(self.vsphere.folder) ? self.vsphere.folder : '') == (has(oldSelf.vsphere.folder) ? oldSelf.vsphere.folder : ''))",fieldPath=".vsphere",reason=FieldValueForbidden,message="vsphere is immutable but for thumbprint, identityRef and failureDomains: create a new WindowsMachineTemplate and let the MachineDeployment roll over to it"
	// +kubebuilder:validation:XValidation:rule="!has(self.vsphere) || !has(oldSelf.vsphere) || ((has(self.vsphere.resourcePool) ? self.vsphere.resourcePool : '') == (has(oldSelf.vsphere.resourcePool) ? oldSelf.vsphere.resourcePool : '') && (has(self.vsphere.datastore) ? self.vsphere.datastore : '') == (has(oldSelf.vsphere.datastore) ? oldSelf.vsphere.datastore : '') && (has(self.vsphere.network) ? self.vsphere.network : '') == (has(oldSelf.vsphere.network) ? oldSelf.vsphere.network : ''))",fieldPath=".vsphere",reason=FieldValueForbidden,message="vsphere is immutable but for thumbprint, identityRef and failureDomains: create a new WindowsMachineTemplate and let the MachineDeployment roll over to it"
	// +kubebuilder:validation:XValidation:rule="!has(self.vsphere) || !has(oldSelf.vsphere) || ((has(self.vsphere.numCPUs) ? self.vsphere.numCPUs : 0) == (has(oldSelf.vsphere.numCPUs) ? oldSelf.vsphere.numCPUs : 0) && (has(self.vsphere.numCoresPerSocket) ? self.vsphere.numCoresPerSocket : 0) == (has(oldSelf.vsphere.numCoresPerSocket) ? oldSelf.vsphere.numCoresPerSocket : 0) && (has(self.vsphere.memoryMiB) ? self.vsphere.memoryMiB : 0) == (has(oldSelf.vsphere.memoryMiB) ? oldSelf.vsphere.memoryMiB : 0))",fieldPath=".vsphere",reason=FieldValueForbidden,message="vsphere is immutable but for thumbprint, identityRef and failureDomains: create a new WindowsMachineTemplate and let the MachineDeployment roll over to it"
	Spec WindowsMachineSpec `json:"spec,omitempty,omitzero"`

	// status is what the controller observed.
	// +optional
	Status WindowsMachineStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of this object.
func (m *WindowsMachine) GetConditions() []metav1.Condition { return m.Status.Conditions }

// SetConditions sets the conditions of this object.
func (m *WindowsMachine) SetConditions(conditions []metav1.Condition) {
	m.Status.Conditions = conditions
}

// +kubebuilder:object:root=true

// WindowsMachineList is a list of WindowsMachines.
type WindowsMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the WindowsMachines.
	Items []WindowsMachine `json:"items"`
}
