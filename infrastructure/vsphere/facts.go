package vsphere

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/vim25/types"
	apitypes "k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capw-dev/cluster-api-provider-windows/infrastructure"
)

// markKey is the key of extraConfig that holds the owner mark. The guest cannot read it.
const markKey = "capw.owner"

// mark is the owner mark of a VM.
type mark struct {
	UID       apitypes.UID `json:"uid"`
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	Cluster   string       `json:"cluster"`
}

func markOf(o infrastructure.Owner) (string, error) {
	b, err := json.Marshal(mark{UID: o.UID, Namespace: o.Namespace, Name: o.Name, Cluster: o.Cluster})
	if err != nil {
		return "", fmt.Errorf("encoding the owner mark: %w", err)
	}
	return string(b), nil
}

// instanceUUID is the instance UUID of the VM of an owner: known before the VM is created, and never that of another VM.
func instanceUUID(owner apitypes.UID) string {
	space := uuid.NewSHA1(uuid.NameSpaceDNS, []byte("windowsmachine.infrastructure.cluster.x-k8s.io"))
	return uuid.NewSHA1(space, []byte(owner)).String()
}

// providerID is that of the vSphere cloud provider.
func providerID(biosUUID string) string { return "vsphere://" + strings.ToLower(biosUUID) }

// vmProperties are what is watched of a VM.
func vmProperties() []string {
	return []string{
		"name", "parent", "runtime.powerState", "config.uuid", "config.instanceUuid", fmt.Sprintf("config.extraConfig[%q]", markKey),
		"guest.net", "guest.ipAddress",
	}
}

// vmFacts are what is known of a VM.
type vmFacts struct {
	name, parent       string
	power              types.VirtualMachinePowerState
	uuid, instanceUUID string
	mark               string // empty for none
	nics               []string
	ip                 string
}

// apply takes over changes and returns whether anything that we use changed.
func (f *vmFacts) apply(changes []types.PropertyChange) bool {
	before := *f
	for _, c := range changes {
		switch c.Name {
		case "name":
			f.name, _ = c.Val.(string)
		case "parent":
			parent, _ := c.Val.(reference)
			f.parent = parent.Value
		case "runtime.powerState":
			f.power, _ = c.Val.(types.VirtualMachinePowerState)
		case "config.uuid":
			f.uuid, _ = c.Val.(string)
		case "config.instanceUuid":
			f.instanceUUID, _ = c.Val.(string)
		case "guest.ipAddress":
			f.ip, _ = c.Val.(string)
		case "guest.net":
			nics, _ := c.Val.(types.ArrayOfGuestNicInfo)
			f.nics = nicAddresses(nics.GuestNicInfo)
		default:
			if strings.HasPrefix(c.Name, "config.extraConfig") {
				f.mark = ""
				if o, ok := c.Val.(types.BaseOptionValue); ok {
					f.mark, _ = o.GetOptionValue().Value.(string)
				} else if o, ok := c.Val.(types.OptionValue); ok {
					f.mark, _ = o.Value.(string)
				}
			}
		}
	}
	return before.name != f.name || before.parent != f.parent || before.power != f.power || before.uuid != f.uuid || before.instanceUUID != f.instanceUUID || before.mark != f.mark ||
		!slices.Equal(before.addresses(), f.addresses())
}

// place is where the VM takes a name.
func (f *vmFacts) place() string { return f.parent + "/" + f.name }

// nicAddresses returns the addresses of the VM's own network adapters. Windows also reports adapters that containers use
// inside the guest; they belong to no device of the VM.
func nicAddresses(nics []types.GuestNicInfo) []string {
	var own, all []string
	for _, nic := range nics {
		for _, a := range nic.IpAddress {
			if unusable(nic, a) {
				continue
			}
			all = append(all, a)
			if nic.DeviceConfigId >= 0 {
				own = append(own, a)
			}
		}
	}
	if len(own) > 0 {
		return own
	}
	return all
}

// unusable is true for an address that the guest says nobody should connect to.
func unusable(nic types.GuestNicInfo, address string) bool {
	if nic.IpConfig == nil {
		return false
	}
	for _, c := range nic.IpConfig.IpAddress {
		if c.IpAddress == address {
			switch types.NetIpConfigInfoIpAddressStatus(c.State) {
			case types.NetIpConfigInfoIpAddressStatusDeprecated, types.NetIpConfigInfoIpAddressStatusInvalid,
				types.NetIpConfigInfoIpAddressStatusInaccessible, types.NetIpConfigInfoIpAddressStatusTentative,
				types.NetIpConfigInfoIpAddressStatusDuplicate:
				return true
			}
		}
	}
	return false
}

// addresses returns the IP addresses that others can reach the guest by, as it reported them.
func (f *vmFacts) addresses() []string {
	var out []string
	for _, a := range append(slices.Clone(f.nics), f.ip) {
		ip, err := netip.ParseAddr(a)
		if err != nil || !ip.IsGlobalUnicast() { // loopback, link-local, multicast, unspecified
			continue
		}
		if a := ip.Unmap().WithZone("").String(); !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// machineAddresses are the addresses of an instance in the form of Cluster API.
func (f *vmFacts) machineAddresses(name string) []clusterv1.MachineAddress {
	addresses := []clusterv1.MachineAddress{{Type: clusterv1.MachineHostName, Address: name}}
	for _, a := range f.addresses() {
		addresses = append(addresses, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: a})
	}
	return append(addresses, clusterv1.MachineAddress{Type: clusterv1.MachineInternalDNS, Address: name})
}

// ownership says whose a VM is.
type ownership int

const (
	foreign ownership = iota
	ours
	// unmarked: it has our instance UUID and no owner mark that can be read: it is being created, or somebody spoilt the mark.
	unmarked
	// unconfigured: it says nothing of itself, so that it may be anybody's.
	unconfigured
	// altered: it has our owner mark, but not the BIOS UUID of spec.providerID.
	altered
)

// owner returns whose the VM is for m, and why it is not simply ours.
func (f *vmFacts) owner(m infrastructure.Machine) (ownership, string) {
	if f.uuid == "" {
		return unconfigured, "it has no configuration: it is being created, or its host or datastore cannot be reached"
	}
	var k mark
	if err := json.Unmarshal([]byte(f.mark), &k); err != nil {
		why := fmt.Sprintf("its owner mark %q cannot be read", f.mark)
		if f.mark == "" {
			why = "it has no owner mark"
		}
		if strings.EqualFold(f.instanceUUID, instanceUUID(m.Owner.UID)) {
			return unmarked, why + ", although it has our instance UUID"
		}
		return foreign, why
	}
	other := m.ProviderID != "" && !strings.EqualFold(m.ProviderID, providerID(f.uuid))
	ids := fmt.Sprintf("its provider ID is %s, and spec.providerID is %s", providerID(f.uuid), m.ProviderID)
	moved := m.ProviderID != "" && k.Namespace == m.Owner.Namespace && k.Name == m.Owner.Name && k.Cluster == m.Owner.Cluster
	switch {
	case k.UID == m.Owner.UID && other:
		return altered, "has our owner mark, but " + ids
	case k.UID == m.Owner.UID:
		return ours, ""
	case moved && other:
		return foreign, ids
	case moved:
		return ours, ""
	}
	return foreign, fmt.Sprintf("its owner mark names WindowsMachine %s/%s (UID %s) of Cluster %s", k.Namespace, k.Name, k.UID, k.Cluster)
}

// taskProperties are what is watched of a task.
func taskProperties() []string { return []string{"info.state", "info.error", "info.result"} }

// taskFacts are what is known of a task.
type taskFacts struct {
	state  types.TaskInfoState
	fault  *types.LocalizedMethodFault
	result any
}

func (f *taskFacts) apply(changes []types.PropertyChange) {
	for _, c := range changes {
		switch c.Name {
		case "info.state":
			f.state, _ = c.Val.(types.TaskInfoState)
		case "info.error":
			f.fault = nil
			if e, ok := c.Val.(types.LocalizedMethodFault); ok {
				f.fault = &e
			}
		case "info.result":
			f.result = c.Val
		}
	}
}

func (f *taskFacts) ended() bool {
	return f.state == types.TaskInfoStateSuccess || f.state == types.TaskInfoStateError
}

// madeVM returns the VM that a task that ended well made; the zero value for none.
func (f *taskFacts) madeVM() reference {
	ref, _ := f.result.(reference)
	if f.state != types.TaskInfoStateSuccess || ref.Type != "VirtualMachine" {
		return reference{}
	}
	return ref
}
