//go:build linux

// Package agent_test runs the node agent on Wine machines against a real control plane.
package agent_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/test/env"
	"github.com/capw-dev/cluster-api-provider-windows/test/env/assets"
	"github.com/capw-dev/cluster-api-provider-windows/test/wine"
)

var (
	// cluster is what nodes join.
	cluster *env.Cluster
	// programs are what an image holds.
	programs *wine.Programs
	// kubeadmExe is the real one.
	kubeadmExe string
)

func TestAgent(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "Node agent on Wine")
}

var _ = BeforeSuite(func(ctx context.Context) {
	// All machines share the ports of this Linux, that of the kubelet's health among them: one suite at a time.
	cache, err := assets.CacheDir()
	Expect(err).NotTo(HaveOccurred())
	unlock, err := assets.Lock(ctx, filepath.Join(cache, "wine", "agent.lock"), func() {
		GinkgoWriter.Println("waiting for another run of this suite ...")
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(unlock)

	begin := time.Now()
	environment, err := env.Start(ctx, env.Options{Progress: GinkgoWriter, NoManagement: true, NoVCSim: true})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) { Expect(environment.Stop(ctx)).To(Succeed()) })
	cluster = environment.Workload
	AddReportEntry("control plane", time.Since(begin).Round(100*time.Millisecond).String())

	begin = time.Now()
	a, err := assets.Ensure(ctx, assets.Options{Progress: GinkgoWriter, Windows: true})
	Expect(err).NotTo(HaveOccurred())
	kubeadmExe = a.KubeadmExe
	dir, err := os.MkdirTemp("", "capw-wine-programs-")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, dir)
	programs, err = wine.BuildPrograms(ctx, dir)
	Expect(err).NotTo(HaveOccurred())
	AddReportEntry("programs", time.Since(begin).Round(100*time.Millisecond).String())
}, NodeTimeout(30*time.Minute))
