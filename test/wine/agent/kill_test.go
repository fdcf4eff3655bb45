//go:build linux

package agent_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// kills is how often the agent is killed, over as many machines as that takes.
const kills = 30

// outcome is what a first boot shall have led to, with what machines differ in replaced.
func (m *machine) outcome(ctx context.Context, doc *nodev1.NodeConfiguration) map[string]string {
	GinkgoHelper()
	neutral := strings.NewReplacer(doc.Node.Name, "NAME", strings.ToUpper(doc.Node.Name), "NAME", m.UUID.String(), "UUID")
	out := map[string]string{"token": fmt.Sprint(m.holding(doc.Join.Token[7:]))}
	n := node(ctx, doc.Node.Name)
	Expect(n).NotTo(BeNil())
	out["node"] = neutral.Replace(fmt.Sprintf("%t %v %v %v %v", ready(n), n.Labels, n.Spec.ProviderID, n.Spec.Taints, n.Status.Addresses))
	for _, service := range append(services(), layout.AgentService) {
		for _, value := range []string{"ImagePath", "Start", "ObjectName"} {
			out[service+" "+value] = neutral.Replace(m.must(ctx, "reg", "query", `HKLM\System\CurrentControlSet\Services\`+service, "/v", value))
		}
	}
	for _, dir := range []string{layout.KubernetesDir, layout.KubeletDir, layout.ContainerdDir, layout.ProgramDir, `C:\run`, `C:\tools`} {
		root := m.Path(dir)
		Expect(filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			name := dir + strings.TrimPrefix(path, root)
			if strings.HasSuffix(name, ".pem") || strings.HasSuffix(name, ".exe.old") {
				out[name] = "there"
				return nil
			}
			content, err := os.ReadFile(path) //nolint:gosec // of the machine
			out[name] = fmt.Sprintf("%x", sha256.Sum256([]byte(neutral.Replace(string(content)))))
			return err
		})).To(Succeed())
	}
	out["document"] = neutral.Replace(string(must(m.ReadFile(layout.Document))))
	return out
}

func must[T any](value T, err error) T {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	return value
}

var _ = It("A first boot whose agent is killed at random moments ends as an undisturbed one", func(ctx context.Context) {
	seed := uint64(GinkgoRandomSeed())
	random := rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // to be repeated
	GinkgoWriter.Printf("seed %d: repeat with -ginkgo.seed\n", seed)

	m := newMachine(ctx, "undisturbed")
	doc := newDocument(ctx, "undisturbed")
	begin := time.Now()
	m.firstBoot(ctx, doc)
	m.awaitDone(ctx, 2*time.Minute)
	took := time.Since(begin)
	want := m.outcome(ctx, doc)
	Expect(want).To(HaveKeyWithValue("token", "[]"))
	Expect(m.Shutdown()).To(Succeed())

	left := kills
	for i := 0; left > 0; i++ {
		name := fmt.Sprintf("killed-%d", i)
		m := newMachine(ctx, name)
		doc := newDocument(ctx, name)
		m.firstBoot(ctx, doc)
		for left > 0 {
			// Up to a sixth of the whole, so that a boot is hit several times.
			select {
			case <-ctx.Done():
				Fail("out of time")
			case <-time.After(time.Duration(random.Int64N(int64(took / 6)))):
			}
			s := m.status()
			if s.State == nodev1.BootDone {
				break
			}
			Expect(s.State).NotTo(Equal(nodev1.BootFailed), "%+v", s)
			for _, pid := range m.agent() {
				GinkgoWriter.Printf("%s: kill in phase %q, step %q\n", name, s.Phase, s.Step)
				Expect(syscall.Kill(pid, syscall.SIGKILL)).To(Succeed())
				left--
			}
			m.restartAgent(ctx, random.IntN(4) == 0)
		}
		m.awaitDone(ctx, 2*time.Minute)
		Expect(m.outcome(ctx, doc)).To(Equal(want), name)
		Expect(m.Shutdown()).To(Succeed())
	}
}, SpecTimeout(10*time.Minute))

// restartAgent does what the service control manager of Windows does by itself, and Wine's does not; or a reboot does it.
func (m *machine) restartAgent(ctx context.Context, reboot bool) {
	GinkgoHelper()
	if reboot {
		Expect(m.Reboot(ctx)).To(Succeed())
	}
	Eventually(func(g Gomega) {
		if len(m.agent()) > 0 {
			return
		}
		limited, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		// It fails while the service database is locked, and when the service runs.
		r, err := m.Run(limited, "sc", "start", layout.AgentService)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(m.agent()).NotTo(BeEmpty(), r.Output)
	}).Should(Succeed())
}
