package vsphere

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/capw-dev/cluster-api-provider-windows/infrastructure"
)

func TestAnObjectThatIsNotReportedIsAddedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		w := &watch{wakes: newWakes(), patience: time.Minute, kick: make(chan struct{}, 1), over: make(chan struct{}), objects: map[reference]*tracked{}}
		ref, owner := reference{Type: "VirtualMachine", Value: "vm-1"}, apitypes.NamespacedName{Name: "m"}
		lost := w.track(ref, owner)
		add, remove := w.takeLocked()
		g.Expect(add).To(ConsistOf(ref))
		g.Expect(remove).To(BeEmpty())

		_, _, err := w.vmOf(t.Context(), lost)
		g.Expect(errors.Is(err, infrastructure.ErrUnavailable)).To(BeTrue(), "got %v", err)
		g.Expect(isSessionLost(err)).To(BeFalse())
		again := w.track(ref, owner)
		g.Expect(again).NotTo(BeIdenticalTo(lost))
		add, remove = w.takeLocked()
		g.Expect(add).To(ConsistOf(ref))
		g.Expect(remove).To(ConsistOf(ref))
	})
}

func TestWhatNobodyIsInterestedInIsRemovedWithTheNextAddition(t *testing.T) {
	g := NewWithT(t)
	w := &watch{wakes: newWakes(), kick: make(chan struct{}, 1), objects: map[reference]*tracked{}}
	a, b := apitypes.NamespacedName{Name: "a"}, apitypes.NamespacedName{Name: "b"}
	ref := func(value string) reference { return reference{Type: "VirtualMachine", Value: value} }
	w.track(ref("vm-a"), a)
	w.track(ref("vm-gone"), a)
	w.track(ref("vm-both"), a)
	w.track(ref("vm-both"), b)
	w.takeLocked()
	w.goneLocked(w.objects[ref("vm-gone")])
	w.drop(a)
	w.drop(a) // twice is once
	w.track(ref("vm-b"), b)
	add, remove := w.takeLocked()
	g.Expect(add).To(ConsistOf(ref("vm-b")))
	g.Expect(remove).To(ConsistOf(ref("vm-a"), ref("vm-gone")))
	g.Expect(w.objects).To(And(HaveLen(2), HaveKey(ref("vm-both")), HaveKey(ref("vm-b"))))
	g.Expect(w.idle).To(BeZero())
}
