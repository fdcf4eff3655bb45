package guest_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes"

	"github.com/capw-dev/cluster-api-provider-windows/test/env"
)

var (
	// workload is the cluster that the guests join.
	workload *env.Cluster
	// kube has the rights of cluster-admin there.
	kube kubernetes.Interface
)

func TestGuest(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	SetDefaultConsistentlyPollingInterval(50 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "Simulated guest")
}

var _ = BeforeSuite(func(ctx context.Context) {
	e, err := env.Start(ctx, env.Options{Progress: GinkgoWriter, NoCAPI: true, NoManager: true, NoVCSim: true})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) { Expect(e.Stop(ctx)).To(Succeed()) })
	workload = e.Workload
	kube, err = kubernetes.NewForConfig(workload.Config)
	Expect(err).NotTo(HaveOccurred())
}, NodeTimeout(10*time.Minute))
