package vsphere

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/capw-dev/cluster-api-provider-windows/infrastructure"
)

func TestTheInstanceUUIDOfAnOwnerNeverChangesBetweenReleases(t *testing.T) {
	NewWithT(t).Expect(instanceUUID("0d9a4b7e-1f7c-4b54-9d0a-3f0f6c1f2a11")).To(Equal("8a2885c7-99a0-5a1a-90f1-da9ec2f8b97b"))
}

func TestAddressesAreThoseThatOthersCanReach(t *testing.T) {
	state := func(address string, s types.NetIpConfigInfoIpAddressStatus) *types.NetIpConfigInfo {
		return &types.NetIpConfigInfo{IpAddress: []types.NetIpConfigInfoIpAddress{{IpAddress: address, State: string(s)}}}
	}
	for name, c := range map[string]struct {
		nics []types.GuestNicInfo
		ip   string
		want []string
	}{
		"none": {},
		"in the order of the guest, each once": {
			nics: []types.GuestNicInfo{{IpAddress: []string{"10.0.0.2", "2001:db8::2"}}, {IpAddress: []string{"10.0.0.1", "10.0.0.2"}}},
			ip:   "10.0.0.2", want: []string{"10.0.0.2", "2001:db8::2", "10.0.0.1"},
		},
		"not those of loopback, link or nonsense": {
			nics: []types.GuestNicInfo{{IpAddress: []string{"127.0.0.1", "::1", "169.254.1.1", "fe80::1", "fe80::1%12", "0.0.0.0", "224.0.0.1", "x", "10.0.0.1"}}},
			want: []string{"10.0.0.1"},
		},
		"not those of adapters for containers": {
			nics: []types.GuestNicInfo{{DeviceConfigId: -1, IpAddress: []string{"172.27.0.1"}}, {DeviceConfigId: 4000, IpAddress: []string{"10.0.0.1"}}},
			want: []string{"10.0.0.1"},
		},
		"those of adapters that belong to no device, when there are no others": {
			nics: []types.GuestNicInfo{{DeviceConfigId: 4000}, {DeviceConfigId: -1, IpAddress: []string{"10.0.0.1"}}},
			want: []string{"10.0.0.1"},
		},
		"not those that another machine has too": {
			nics: []types.GuestNicInfo{{IpAddress: []string{"10.0.0.1"}, IpConfig: state("10.0.0.1", types.NetIpConfigInfoIpAddressStatusDuplicate)}},
		},
		"those that are preferred": {
			nics: []types.GuestNicInfo{{IpAddress: []string{"10.0.0.1"}, IpConfig: state("10.0.0.1", types.NetIpConfigInfoIpAddressStatusPreferred)}},
			want: []string{"10.0.0.1"},
		},
		"the guest's main one, when no adapter is reported": {ip: "10.0.0.9", want: []string{"10.0.0.9"}},
	} {
		t.Run(name, func(t *testing.T) {
			facts := vmFacts{nics: nicAddresses(c.nics), ip: c.ip}
			NewWithT(t).Expect(facts.addresses()).To(Equal(c.want))
		})
	}
}

func TestOnlyChangesThatAreUsedCount(t *testing.T) {
	g := NewWithT(t)
	var f vmFacts
	power := []types.PropertyChange{{Name: "runtime.powerState", Val: types.VirtualMachinePowerStatePoweredOn}}
	g.Expect(f.apply(power)).To(BeTrue())
	g.Expect(f.apply(power)).To(BeFalse())
	g.Expect(f.apply([]types.PropertyChange{{Name: "guest.ipAddress", Val: "fe80::1"}})).To(BeFalse())
	g.Expect(f.apply([]types.PropertyChange{{Name: fmt.Sprintf("config.extraConfig[%q]", markKey), Val: types.OptionValue{Key: markKey, Value: "{}"}}})).To(BeTrue())
	g.Expect(f.apply([]types.PropertyChange{{Name: "runtime.powerState"}})).To(BeTrue(), "a property that is unset")
	g.Expect(f.power).To(BeEmpty())
}

func TestAVMBelongsToWhomItsMarkNames(t *testing.T) {
	owner := infrastructure.Owner{UID: "uid-1", Namespace: "ns", Name: "m", Cluster: "c"}
	marked := func(o infrastructure.Owner) string {
		m, err := markOf(o)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		return m
	}
	stranger := infrastructure.Owner{UID: "uid-2", Namespace: "ns", Name: "other", Cluster: "c"}
	before := infrastructure.Owner{UID: "uid-0", Namespace: "ns", Name: "m", Cluster: "c"}
	for name, c := range map[string]struct {
		facts      vmFacts
		providerID string
		want       ownership
	}{
		"ours":                           {facts: vmFacts{uuid: "b", mark: marked(owner)}, want: ours},
		"ours by its provider ID":        {facts: vmFacts{uuid: "B", mark: marked(owner)}, providerID: "vsphere://b", want: ours},
		"moved":                          {facts: vmFacts{uuid: "b", mark: marked(before)}, providerID: "vsphere://b", want: ours},
		"a namesake's":                   {facts: vmFacts{uuid: "b", mark: marked(before)}, want: foreign},
		"another's":                      {facts: vmFacts{uuid: "b", mark: marked(stranger)}, providerID: "vsphere://b", want: foreign},
		"ours with another BIOS UUID":    {facts: vmFacts{uuid: "x", mark: marked(owner)}, providerID: "vsphere://b", want: altered},
		"a namesake's, not moved":        {facts: vmFacts{uuid: "x", mark: marked(before)}, providerID: "vsphere://b", want: foreign},
		"nobody's":                       {facts: vmFacts{uuid: "b"}, want: foreign},
		"spoilt":                         {facts: vmFacts{uuid: "b", mark: "{"}, want: foreign},
		"being created, or inaccessible": {facts: vmFacts{}, want: unconfigured},
		"ours with its mark removed":     {facts: vmFacts{uuid: "b", instanceUUID: instanceUUID(owner.UID)}, want: unmarked},
		"ours with its mark spoilt":      {facts: vmFacts{uuid: "b", mark: "{", instanceUUID: instanceUUID(owner.UID)}, want: unmarked},
	} {
		t.Run(name, func(t *testing.T) {
			got, why := c.facts.owner(infrastructure.Machine{Owner: owner, ProviderID: c.providerID})
			g := NewWithT(t)
			g.Expect(got).To(Equal(c.want), why)
			if c.want != ours {
				g.Expect(why).NotTo(BeEmpty())
			}
		})
	}
}

func TestAFaultIsDescribedAlongItsWholeChain(t *testing.T) {
	inner := &types.NoPermission{Object: &types.ManagedObjectReference{Type: "Datastore", Value: "datastore-7"}, PrivilegeId: "Datastore.AllocateSpace"}
	outer := &types.CannotCreateFile{}
	outer.FaultMessage = []types.LocalizableMessage{{Message: "No space"}, {Message: "Cannot create file"}}
	outer.FaultCause = &types.LocalizedMethodFault{Fault: inner, LocalizedMessage: "Permission denied."}
	NewWithT(t).Expect(describe(&types.LocalizedMethodFault{Fault: outer, LocalizedMessage: "Cannot create file."})).To(Equal(
		"Cannot create file (CannotCreateFile): No space, caused by Permission denied (NoPermission): grant the privilege Datastore.AllocateSpace on datastore-7"))
}

func TestErrorsOfTheSeamAreNotExplainedAgain(t *testing.T) {
	for _, err := range []error{
		infrastructure.ErrIdentity, infrastructure.ErrUnavailable, &infrastructure.ForeignInstanceError{}, &infrastructure.CreateError{},
		&infrastructure.DeleteError{}, &infrastructure.ConfigError{}, &infrastructure.FailureDomainError{}, &infrastructure.TooLargeError{},
	} {
		NewWithT(t).Expect(isInfrastructure(fmt.Errorf("doing something: %w", err))).To(BeTrue(), "%T", err)
	}
}
