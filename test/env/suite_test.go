package env_test

import (
	"context"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/test/env"
)

// The environment that all specs share, except those about starting and ending one.
var testEnv *env.Environment

func TestMain(m *testing.M) {
	if os.Getenv(orphanMakerVariable) != "" {
		makeOrphans()
		return
	}
	os.Exit(m.Run())
}

func TestEnvironment(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	RunSpecs(t, "Test environment")
}

var _ = BeforeSuite(func(ctx context.Context) {
	begin := time.Now()
	var err error
	testEnv, err = env.Start(ctx, env.Options{Progress: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	AddReportEntry("environment started", time.Since(begin).Round(100*time.Millisecond).String())

	DeferCleanup(func(ctx context.Context) {
		begin := time.Now()
		Expect(testEnv.Stop(ctx)).To(Succeed())
		AddReportEntry("environment stopped", time.Since(begin).Round(100*time.Millisecond).String())
		Expect(testEnv.Dir).NotTo(BeAnExistingFile())
	})
}, NodeTimeout(10*time.Minute))
