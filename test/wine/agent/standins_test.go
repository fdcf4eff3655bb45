//go:build linux

package agent_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
)

// What the other specs rely on: the stand-ins are good enough for the real kubeadm.exe, and strict.
var _ = Describe("Without the agent, the stand-ins", func() {
	It("join by the real kubeadm.exe", func(ctx context.Context) {
		m := newMachine(ctx, "by-kubeadm")
		doc := newDocument(ctx, "by-kubeadm")
		Expect(m.WriteFile(layout.ContainerdConfig, []byte("version = 3\n"))).To(Succeed())
		Expect(m.WriteFile(layout.KubeletDir+`\.keep`, nil)).To(Succeed())
		Expect(m.WriteFile(`C:\join.yaml`, fmt.Appendf(nil, `apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery:
  bootstrapToken: {apiServerEndpoint: "%s", token: "%s", caCertHashes: ["%s"]}
nodeRegistration:
  name: by-kubeadm
  criSocket: %s
  taints: []
`, doc.Join.APIServerEndpoint, doc.Join.Token, doc.Join.CACertHashes[0], layout.CRIEndpoint))).To(Succeed())
		// kubeadm looks for kubelet.exe there; an image has C:\k in it.
		m.must(ctx, "reg", "add", `HKLM\System\CurrentControlSet\Control\Session Manager\Environment`, "/f",
			"/v", "Path", "/t", "REG_EXPAND_SZ", "/d", `%SystemRoot%\system32;%SystemRoot%;%SystemRoot%\system32\WindowsPowerShell\v1.0;`+layout.BinDir)
		m.must(ctx, "sc", "create", "containerd", "binPath=", layout.Containerd+" --run-service", "start=", "auto")
		m.must(ctx, "sc", "create", "kubelet", "start=", "auto", "binPath=", strings.Join([]string{
			layout.Kubelet, "--windows-service", "--config=" + layout.KubeletConfig, "--kubeconfig=" + layout.Kubeconfig,
			"--bootstrap-kubeconfig=" + layout.BootstrapKubeconfig, "--cert-dir=" + layout.KubeletPKIDir,
			"--hostname-override=by-kubeadm", "--node-labels=example.com/a=b", "--node-ip=127.0.0.1",
		}, " "))
		m.must(ctx, "net", "start", "containerd")

		begin := time.Now()
		limited, cancel := context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
		out, err := m.MustSucceed(limited, layout.Kubeadm, "join", "--config", `C:\join.yaml`)
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(ContainSubstring("This node has joined the cluster"))
		AddReportEntry("kubeadm join", time.Since(begin).Round(100*time.Millisecond).String())
		Eventually(func() bool { return ready(node(ctx, "by-kubeadm")) }).Should(BeTrue())
		Expect(node(ctx, "by-kubeadm").Labels).To(HaveKeyWithValue("example.com/a", "b"))
		Expect(node(ctx, "by-kubeadm").Status.NodeInfo.ContainerRuntimeVersion).To(Equal("containerd://2.2.0"))
	}, SpecTimeout(3*time.Minute))

	It("end with what the real ones end with", func(ctx context.Context) {
		m := newMachine(ctx, "strict")
		Expect(m.must(ctx, layout.Kubelet, "--version")).To(Equal("Kubernetes v1.36.3\n"))
		Expect(m.must(ctx, layout.Kubeadm, "version", "-o", "short")).To(Equal("v1.36.3\n"))
		Expect(m.must(ctx, layout.Containerd, "--version")).To(HavePrefix("containerd github.com/containerd/containerd/v2 v2.2.0 "))
		for _, wrong := range []struct{ args, says string }{
			{"--kubeconfig=x --register-schedulable", "unknown flag: --register-schedulable"},
			{"--kubeconfig=x server", `unknown command "server"`},
			{"--kubeconfig=x --node-labels=node-role.kubernetes.io/worker=", "unknown 'kubernetes.io' or 'k8s.io' labels"},
			{`--kubeconfig=x --config=C:\wrong.yaml`, `unknown field "maxPod"`},
			{`--kubeconfig=x --config=C:\right.yaml`, "validate service connection"},
		} {
			Expect(m.WriteFile(`C:\wrong.yaml`, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPod: 1\n"))).To(Succeed())
			Expect(m.WriteFile(`C:\right.yaml`, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncontainerRuntimeEndpoint: "+layout.CRIEndpoint+"\n"))).To(Succeed())
			limited, cancel := context.WithTimeout(ctx, 30*time.Second)
			r, err := m.Run(limited, append([]string{layout.Kubelet}, strings.Split(wrong.args, " ")...)...)
			cancel()
			Expect(err).NotTo(HaveOccurred(), wrong.args)
			Expect(r.ExitCode).To(Equal(1), wrong.args)
			Expect(r.Output).To(ContainSubstring(wrong.says))
		}
		r, err := m.Run(ctx, layout.Containerd, "--config", `C:\none.toml`)
		Expect(err).NotTo(HaveOccurred())
		Expect(r.ExitCode).To(Equal(1))
		Expect(r.Output).To(ContainSubstring(`failed to load TOML from C:\none.toml`))
	}, SpecTimeout(2*time.Minute))
})
