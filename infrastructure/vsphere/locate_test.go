package vsphere

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/capw-dev/cluster-api-provider-windows/infrastructure"
)

// knownVM returns an operation for m, of whose VM the facts are known, and that VM.
func knownVM(m infrastructure.Machine, facts vmFacts) (*operation, reference) {
	ref := reference{Type: "VirtualMachine", Value: "vm-1"}
	vm := &tracked{ref: ref, owners: map[apitypes.NamespacedName]struct{}{}, known: make(chan struct{}), vm: facts}
	vm.knownLocked()
	w := newWakes()
	return &operation{
		platform: &Platform{wakes: w},
		session:  &session{watch: &watch{wakes: w, objects: map[reference]*tracked{ref: vm}, idle: 1}},
		record:   &record{},
		machine:  m,
	}, ref
}

func TestAVMWithoutOwnerMarkIsForeignAfterAWhileAndOneWithoutConfigurationNever(t *testing.T) {
	m := infrastructure.Machine{Owner: infrastructure.Owner{UID: "uid-1", Namespace: "ns", Name: "m"}, InstanceName: "m"}
	for name, c := range map[string]struct {
		facts   vmFacts
		foreign bool
	}{
		"no owner mark":    {facts: vmFacts{uuid: "b", instanceUUID: instanceUUID("uid-1")}, foreign: true},
		"no configuration": {facts: vmFacts{}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			o, ref := knownVM(m, c.facts)
			_, err := o.examine(t.Context(), ref)
			g.Expect(isA[*notReadyError](err)).To(BeTrue(), "got %v", err)
			o.record.unmarkedSince = time.Now().Add(-time.Hour)
			_, err = o.examine(t.Context(), ref)
			g.Expect(isA[*infrastructure.ForeignInstanceError](err)).To(Equal(c.foreign), "got %v", err)
			g.Expect(isA[*notReadyError](err)).To(Equal(!c.foreign), "got %v", err)
		})
	}
}
