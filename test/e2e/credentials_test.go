package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/test/guest"
)

var _ = Describe("The credentials Secret", func() {
	It("wakes the Machines that it kept from starting as soon as it is corrected, long before they would be tried again", func(ctx context.Context) {
		startGuests(guest.Options{})
		w := newWorld(ctx)
		w.setPassword(ctx, "mistyped")
		w.createCluster(ctx)
		before := failures(ctx)
		w.createMachineDeployment(ctx, "md", 1)
		Eventually(func(g Gomega) {
			machines := w.machines(ctx)
			g.Expect(machines).To(HaveLen(1))
			ready := conditions.Get(&machines[0], clusterv1.InfrastructureReadyCondition)
			g.Expect(ready).NotTo(BeNil())
			g.Expect(ready.Reason).To(Equal(infrav1.IdentityUnavailableReason))
			g.Expect(ready.Message).To(And(ContainSubstring(w.namespace+"/"+credentials), ContainSubstring("correct")))
		}).WithContext(ctx).Should(Succeed())

		// After eight failures the next retry is 0.2 s * 2^7 = 25.6 s away, or 51.2 s if one more failed meanwhile.
		Eventually(func() float64 { return failures(ctx) - before }).WithContext(ctx).Should(BeNumerically(">=", 8))
		w.setPassword(ctx, testEnv.VCSim.Password)
		Eventually(w.vms).WithArguments(ctx).WithTimeout(15 * time.Second).Should(HaveLen(1))
		w.eventuallyRunning(ctx, "md", 1)
	}, SpecTimeout(5*time.Minute))

	It("outlives the VMs when the whole namespace is deleted, and then everything is gone", func(ctx context.Context) {
		startGuests(guest.Options{})
		w := newWorld(ctx)
		w.createCluster(ctx)
		w.createMachineDeployment(ctx, "md", 3)
		w.eventuallyRunning(ctx, "md", 3)
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
		Expect(w.Delete(ctx, ns)).To(Succeed())
		Eventually(func(g Gomega) {
			err := w.Get(ctx, client.ObjectKeyFromObject(ns), ns)
			g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", ns.Status.Conditions)
		}).WithContext(ctx).Should(Succeed())
		Expect(w.vms(ctx)).To(BeEmpty())
	}, SpecTimeout(5*time.Minute))
})

// setPassword changes the credentials, as a person does.
func (w *world) setPassword(ctx context.Context, password string) {
	GinkgoHelper()
	Expect(w.Patch(ctx, &corev1.Secret{ObjectMeta: w.named(credentials)},
		client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"stringData":{"password":%q}}`, password)))).To(Succeed())
}

// failures is how often reconciling a WindowsMachine has failed, since our manager started.
func failures(ctx context.Context) (count float64) {
	GinkgoHelper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, testEnv.Manager.Diagnostics+"/metrics", http.NoBody)
	Expect(err).NotTo(HaveOccurred())
	resp, err := http.DefaultClient.Do(req)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = resp.Body.Close() }()
	const metric = `controller_runtime_reconcile_errors_total{controller="windowsmachine"} `
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if value, found := strings.CutPrefix(lines.Text(), metric); found {
			count, err = strconv.ParseFloat(value, 64)
			Expect(err).NotTo(HaveOccurred())
			return count
		}
	}
	return 0 // the controller has not started yet
}
