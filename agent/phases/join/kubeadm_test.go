package join_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim/simkubelet"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/join"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/jointest"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// kubeadmIs replaces kubeadm.exe.
func kubeadmIs(program sim.Program) func(*sim.Options) {
	return func(o *sim.Options) { o.Programs[layout.Kubeadm] = program }
}

func says(code int, output string) sim.Program {
	return func(_ context.Context, p *sim.Process) int {
		fmt.Fprint(p.Stderr, output) //nolint:errcheck // a log
		return code
	}
}

func TestWhyKubeadmFailedIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		code   int
		output string
		want   codes.Code
		part   string
	}{
		"a preflight check, as newer ones say it": {
			1, "error: [preflight] Some fatal errors occurred:\n\t[ERROR Port-10250]: Port 10250 is in use\n\t[ERROR CRI]: down\n[preflight] If you know", codes.KubeadmPreflight,
			"[ERROR Port-10250]: Port 10250 is in use; [ERROR CRI]: down",
		},
		"a preflight check, as older ones say it": {2, "[ERROR NumCPU]: too few\n", codes.KubeadmPreflight, "[ERROR NumCPU]"},
		"a configuration that it refuses":         {3, "error: unknown field\n", codes.KubeadmConfigRefused, "unknown field"},
		"anything else":                           {1, "error: couldn't do it with abcdef.0123456789abcdef\nTo see the stack trace of this error", codes.KubeadmFailed, "couldn't do it with <hidden>"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, jointest.Options{Machine: kubeadmIs(says(c.code, c.output)), Doc: func(d *nodev1.NodeConfiguration) {
				byKubeadm(d)
				d.Boot.DeadlineSeconds = 60
			}}, func(ctx context.Context, g Gomega, w *jointest.World) {
				g.Expect(w.Boot(ctx, join.Phase())).To(MatchError(And(ContainSubstring(string(c.want)), ContainSubstring(c.part))))
				log, err := w.Machine.ReadFile(layout.Log("kubeadm"))
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(string(log)).To(And(ContainSubstring(strings.SplitN(c.output, " with ", 2)[0]), Not(ContainSubstring("0123456789abcdef"))))
			})
		})
	}
}

func TestAnAttemptOfKubeadmThatFailedLeavesNothingInTheWayOfTheNext(t *testing.T) {
	attempts := 0
	inWorld(t, jointest.Options{Doc: byKubeadm, Machine: kubeadmIs(func(ctx context.Context, p *sim.Process) int {
		if attempts++; attempts == 1 {
			for _, path := range []string{layout.BootstrapKubeconfig, layout.Kubeconfig, layout.CACertificate} {
				if err := p.Host.Files.Write(ctx, path, []byte("half"), ""); err != nil {
					return 9
				}
			}
			return says(1, "error: broken off\n")(ctx, p)
		}
		return simkubelet.Kubeadm(ctx, p)
	})}, func(ctx context.Context, g Gomega, w *jointest.World) {
		g.Expect(w.Boot(ctx, join.Phase())).To(Succeed())
		g.Expect(w.Codes()).To(Equal([]codes.Code{codes.KubeadmFailed}))
		g.Expect(attempts).To(Equal(2))
		expectMember(g, w)
	})
}

func TestTheFlagsThatKubeadmWroteAreOnTheCommandLineThatRuns(t *testing.T) {
	inWorld(t, jointest.Options{Doc: func(d *nodev1.NodeConfiguration) {
		byKubeadm(d)
		d.Kubelet.ExtraArgs = []string{"--v=4"}
	}, Machine: kubeadmIs(func(ctx context.Context, p *sim.Process) int {
		code := simkubelet.Kubeadm(ctx, p)
		flags := fmt.Appendf(nil, "KUBELET_KUBEADM_ARGS=%q\n", `--max-pods=7 --v=1 --root-dir=\var\lib\kubelet --register-with-taints=x=y:NoSchedule`)
		if err := p.Host.Files.Write(ctx, layout.KubeadmFlags, flags, ""); err != nil {
			return 9
		}
		return code
	})}, func(ctx context.Context, g Gomega, w *jointest.World) {
		g.Expect(w.Boot(ctx, join.Phase())).To(Succeed())
		argv := w.Machine.Services()[layout.KubeletService].Argv
		g.Expect(argv).To(ContainElements("--max-pods=7", "--v=4", "--hostname-override=win-a"))
		g.Expect(argv).NotTo(ContainElement(HavePrefix("--root-dir")))
		g.Expect(argv).NotTo(ContainElement(HavePrefix("--register-with-taints")))
		g.Expect(strings.Count(strings.Join(argv, " "), "--v=")).To(Equal(1))
		expectMember(g, w)
	})
}

func TestFlagsOfKubeadmWithSpacesEndTheFirstBoot(t *testing.T) {
	inWorld(t, jointest.Options{Doc: byKubeadm, Machine: kubeadmIs(func(ctx context.Context, p *sim.Process) int {
		code := simkubelet.Kubeadm(ctx, p)
		if err := p.Host.Files.Write(ctx, layout.KubeadmFlags, []byte(`KUBELET_KUBEADM_ARGS="--x=C:\\Program Files"`), ""); err != nil {
			return 9
		}
		return code
	})}, func(ctx context.Context, g Gomega, w *jointest.World) {
		g.Expect(w.Boot(ctx, join.Phase())).To(MatchError(And(ContainSubstring(string(codes.KubeadmFlagsUnusable)), ContainSubstring("Files"))))
	})
}
