package windowsmachine

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/capw-dev/cluster-api-provider-windows/test/apitest"
)

var api *apitest.APIServer

func TestWindowsMachine(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(20 * time.Second)
	SetDefaultEventuallyPollingInterval(10 * time.Millisecond)
	SetDefaultConsistentlyDuration(300 * time.Millisecond)
	SetDefaultConsistentlyPollingInterval(10 * time.Millisecond)
	RunSpecs(t, "WindowsMachine controller")
}

var _ = BeforeSuite(func(context.Context) {
	ctrl.SetLogger(GinkgoLogr)
	var err error
	api, err = apitest.Start(envtest.WebhookInstallOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(api.Stop()).To(Succeed()) })
}, NodeTimeout(2*time.Minute))
