package e2e

import (
	"context"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/test/env"
	"github.com/capw-dev/cluster-api-provider-windows/test/env/assets"
)

var _ = Describe("The cluster template", func() {
	It("makes manifests that the API server accepts when only what is required is set", func(ctx context.Context) {
		w := newWorld(ctx)
		root, err := assets.Root(ctx)
		Expect(err).NotTo(HaveOccurred())
		generate := command(ctx, testEnv.Assets.Clusterctl, "generate", "cluster", w.cluster, "--target-namespace", w.namespace,
			"--from", filepath.Join(root, "templates", "cluster-template-hosted-control-plane.yaml"), "--kubernetes-version", kubernetesVersion)
		generate.Env = append(generate.Env, "CONTROL_PLANE_KIND="+env.HostedControlPlaneKind().Kind, "CONTROL_PLANE_ENDPOINT_HOST=cp.example.com",
			"VSPHERE_SERVER=vcenter.example.com", "VSPHERE_TEMPLATE=windows-2022")
		manifests, err := generate.Output()
		Expect(err).NotTo(HaveOccurred())
		file := filepath.Join(GinkgoT().TempDir(), "cluster.yaml")
		Expect(os.WriteFile(file, manifests, 0o600)).To(Succeed())
		out, err := command(ctx, testEnv.Assets.Kubectl, "apply", "--dry-run=server", "-f", file).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		Expect(string(out)).NotTo(ContainSubstring("Warning"))
	}, SpecTimeout(time.Minute))
})
