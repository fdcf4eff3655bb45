package done_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim/faultloop"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/done"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/jointest"
	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/cloudinit/cloudbase"
)

const foreign = "rem cmd\r\necho somebody else's\r\n"

// world is a machine with what a first boot leaves.
func world(inject func(sim.Call) sim.Fault) *jointest.World {
	return jointest.New(jointest.Options{Inject: inject, Machine: func(o *sim.Options) {
		doc := &nodev1.NodeConfiguration{}
		must(json.Unmarshal([]byte(o.Files[layout.Document]), doc))
		script, err := cloudbase.UserData(doc, bootstrapv1.AgentSpec{})
		must(err)
		o.Files[layout.BootstrapKubeconfig] = doc.Join.Token
		o.Files[layout.KubeadmJoin] = doc.Join.Token
		o.Files[layout.DownloadDir+`\kubelet.exe.part`] = "half"
		o.Files[`C:\Windows\Temp\0b6b.cmd`] = string(script)
		o.Files[`C:\Windows\Temp\other.cmd`] = foreign
		o.Files[`C:\Windows\Temp\large.cmd`] = string(make([]byte, 2<<20))
	}})
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func TestNoSecretIsLeftWhereTheSentinelIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		w := world(nil)
		defer w.Close()
		g.Expect(w.Boot(ctx, done.Phase())).To(Succeed())
		g.Expect(findSecret(w)).To(Succeed())
		sentinel, err := w.Machine.ReadFile(layout.Sentinel)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(sentinel)).To(Equal("success"))
		for _, path := range []string{layout.BootstrapKubeconfig, layout.KubeadmJoin, layout.DownloadDir, `C:\Windows\Temp\0b6b.cmd`} {
			g.Expect(w.Machine.Files()).NotTo(ContainElement(HavePrefix(path)))
		}
		kept, err := w.Machine.ReadFile(`C:\Windows\Temp\other.cmd`)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(kept)).To(Equal(foreign))

		raw, err := w.Machine.ReadFile(layout.Document)
		g.Expect(err).NotTo(HaveOccurred())
		doc := &nodev1.NodeConfiguration{}
		g.Expect(json.Unmarshal(raw, doc)).To(Succeed())
		g.Expect(doc.Node).To(Equal(w.Doc.Node))
		g.Expect(doc.Join.CACertHashes).To(Equal(w.Doc.Join.CACertHashes))
		g.Expect(doc.Boot).To(BeZero(), "defaults are not written into the document")
		acl, err := w.Machine.EffectiveACL(layout.Document)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(acl).To(Equal(host.ACLSystem))
	})
}

// Whatever happens at whatever call: where the sentinel is, no secret is, and in the end it is there.
func TestNoFaultLeavesTheSentinelBesideASecret(t *testing.T) {
	scenario := func(ctx context.Context, inject func(sim.Call) sim.Fault) (sim.Snapshot, error) {
		w := world(inject)
		defer w.Close()
		var violation error
		err := faultloop.Drive(ctx, w.Machine, func(ctx context.Context, h *host.Host) error {
			for {
				if _, err := w.Machine.ReadFile(layout.Sentinel); err == nil {
					violation = errors.Join(violation, findSecret(w))
				}
				err := w.Run(ctx, h, done.Phase())
				if coded := (*codes.Error)(nil); !errors.As(err, &coded) || !w.Machine.Lives(h) || ctx.Err() != nil {
					return err
				}
				time.Sleep(time.Second) // the SCM starts the agent again
			}
		})
		return w.Machine.Snapshot(), errors.Join(err, violation, findSecret(w))
	}
	faultloop.Loop(t, scenario, faultloop.Options{Storms: 10, Only: func(c sim.Call) bool { return c.Program == "" }, Ignore: func(key string) bool {
		return strings.HasPrefix(key, "file "+layout.Journal) || strings.HasPrefix(key, "file "+layout.JournalBackup) || strings.HasPrefix(key, "serviceState ") ||
			key == "file "+layout.Document // each life has a CA of its own
	}})
}

// findSecret returns where a secret of the document is on the disk.
func findSecret(w *jointest.World) error {
	for _, path := range w.Machine.Files() {
		content, err := w.Machine.ReadFile(path)
		if err != nil {
			return err
		}
		for _, secret := range w.Doc.Secrets() {
			if bytes.Contains(content, []byte(secret)) {
				return fmt.Errorf("a secret is in %s", path)
			}
		}
		if cloudbase.IsUserData(content) {
			return fmt.Errorf("%s is user data", path)
		}
	}
	return nil
}
