// Package e2e tests the whole path of data with everything real that can run on one machine: kube-apiserver, etcd and
// kube-controller-manager for a management and a workload cluster, the Cluster API core manager, our manager as a process
// with the permissions it ships with, clusterctl, a simulated vCenter over SOAP, and guests that join for real.
package e2e

import (
	"context"
	"net/url"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/test/env"
	"github.com/capw-dev/cluster-api-provider-windows/test/guest"
	"github.com/capw-dev/cluster-api-provider-windows/test/vcsim/control"
)

var (
	testEnv *env.Environment
	vcenter *control.Client
)

func TestEndToEnd(t *testing.T) {
	RegisterFailHandler(Fail)
	// One bound for everything that is waited for; a busy CI machine with two processors needs a fraction of it.
	SetDefaultEventuallyTimeout(3 * time.Minute)
	SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "End to end")
}

var _ = BeforeSuite(func(ctx context.Context) {
	var err error
	testEnv, err = env.Start(ctx, env.Options{Progress: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) { Expect(testEnv.Stop(ctx)).To(Succeed()) })
	vcenter = &control.Client{URL: testEnv.VCSim.Control}
}, NodeTimeout(15*time.Minute))

// startGuests runs Windows in every VM of the vCenter until the spec ends.
func startGuests(opts guest.Options) *guest.Simulator {
	GinkgoHelper()
	endpoint, err := url.Parse(testEnv.VCSim.URL)
	Expect(err).NotTo(HaveOccurred())
	endpoint.User = url.UserPassword(testEnv.VCSim.Username, testEnv.VCSim.Password)
	opts.VCenter, opts.Thumbprint = endpoint, testEnv.VCSim.Thumbprint
	if opts.FirstBoot == 0 {
		opts.FirstBoot = 200 * time.Millisecond
	}
	opts.OnEvent = func(e guest.Event) { GinkgoWriter.Println(e) }
	simulator := guest.New(opts)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- simulator.Run(ctx) }()
	DeferCleanup(func() {
		cancel()
		Expect(<-done).To(Succeed())
	})
	return simulator
}
