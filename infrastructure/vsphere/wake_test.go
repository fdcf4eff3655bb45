package vsphere

import (
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capw-dev/cluster-api-provider-windows/infrastructure"
)

func TestAnOwnerIsWokenOnceForAnyNumberOfAlarmsAtTheEarliest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, w, owner := NewWithT(t), newWakes(), types.NamespacedName{Name: "m"}
		for range 1000 {
			w.wakeAfter(owner, time.Minute)
		}
		w.wakeAfter(owner, time.Second)
		time.Sleep(time.Second) // of the bubble's clock
		synctest.Wait()
		woken, ok := w.next()
		g.Expect(ok).To(BeTrue())
		g.Expect(woken).To(Equal(owner))
		time.Sleep(time.Hour)
		synctest.Wait()
		_, ok = w.next()
		g.Expect(ok).To(BeFalse())
		g.Expect(w.alarms).To(BeEmpty())
	})
}

func TestAnOwnerThatIsForgottenIsNotWokenByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, w, owner := NewWithT(t), newWakes(), types.NamespacedName{Name: "m"}
		w.wakeAfter(owner, time.Second)
		w.forget(owner)
		time.Sleep(time.Hour)
		synctest.Wait()
		_, ok := w.next()
		g.Expect(ok).To(BeFalse())
	})
}

func TestAVMThatOthersHoldIsLookedAtMoreAndMoreRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, w, owner := NewWithT(t), newWakes(), infrastructure.Owner{Name: "m"}
		o := &operation{platform: &Platform{wakes: w}, record: &record{}, machine: infrastructure.Machine{Owner: owner}}
		start, looks := time.Now(), 0
		for time.Since(start) < time.Hour {
			o.awaitOthers()
			g.Expect(w.alarms[owner.Key()].due).To(BeTemporally("~", time.Now(), lookAgainDelayMax))
			time.Sleep(time.Until(w.alarms[owner.Key()].due))
			synctest.Wait()
			_, ok := w.next()
			g.Expect(ok).To(BeTrue())
			looks++
		}
		g.Expect(looks).To(BeNumerically("~", 64, 1))
	})
}
