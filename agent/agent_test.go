package agent_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/capw-dev/cluster-api-provider-windows/agent/apiclient/apitest"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim/simagent"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/status"
	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/cloudinit/cloudbase"
)

const (
	// script is where cloudbase-init puts the user data.
	script = `C:\Windows\Temp\2f6e0b6e.cmd`
	// serial is that of VMware, from which the provider ID comes.
	serial     = "VMware-42 37 c2 a9 10 20 30 40-50 60 70 80 90 a0 b0 c0"
	providerID = "vsphere://4237c2a9-1020-3040-5060-708090a0b0c0"
)

// world is a machine and the cluster that it shall join.
type world struct {
	*sim.Machine
	cluster *apitest.Server
	doc     *nodev1.NodeConfiguration
	log     *lockedBuffer
}

// lockedBuffer is a log that several processes write to.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newWorld makes a machine without power, and a cluster. It is called in a bubble.
func newWorld(o sim.Options) *world {
	w := &world{cluster: apitest.New(apitest.Options{}), log: &lockedBuffer{}}
	w.doc = &nodev1.NodeConfiguration{
		Cluster: nodev1.ClusterInfo{Namespace: "default", Name: "prod", KubernetesVersion: "v1.36.3"},
		Node: nodev1.NodeInfo{
			Name: "prod-ki54itvck1", ProviderID: "Auto", Labels: map[string]string{"example.com/pool": "win"},
			Taints: []corev1.Taint{{Key: "os", Value: "windows", Effect: corev1.TaintEffectNoSchedule}, {Key: "node.cluster.x-k8s.io/uninitialized", Effect: corev1.TaintEffectNoSchedule}},
		},
		Join: w.cluster.Join(),
	}
	w.doc.APIVersion, w.doc.Kind = nodev1.APIVersion, nodev1.NodeConfigurationKind
	o.GuestInfo = true
	o.Info = host.Info{Serial: serial, Manufacturer: "VMware, Inc.", Product: "VMware7,1"}
	o.Dial = w.cluster.DialContext
	programs := simagent.Programs(simagent.Options{Log: w.log})
	maps.Copy(programs, o.Programs)
	o.Programs = programs
	o.Services = append(o.Services, simagent.Services()...)
	w.Machine = sim.New(o)
	return w
}

func (w *world) close() {
	w.PowerOff()
	w.cluster.Close()
}

// giveUserData does what cloudbase-init does before it runs a script.
func (w *world) giveUserData(tb testing.TB) {
	tb.Helper()
	data, err := cloudbase.UserData(w.doc, bootstrapv1.AgentSpec{})
	if err != nil {
		tb.Fatal(err)
	}
	w.WriteFile(script, string(data))
}

// runScript is what the script comes to on this image: the agent, and again when it does not end well.
func runScript(ctx context.Context, h *host.Host) (result host.Result, err error) {
	for range 3 {
		result, err = h.Processes.Run(ctx, host.Command{Argv: []string{layout.Agent, "bootstrap", "--user-data", script}})
		if err == nil && result.ExitCode == 0 {
			break
		}
		time.Sleep(10 * time.Second)
	}
	return result, err
}

func (w *world) sentinel() bool {
	_, err := w.ReadFile(layout.Sentinel)
	return err == nil
}

// told is the last status that the hypervisor saw.
func (w *world) told() string { return w.GuestInfo()[status.GuestInfoKey] }

func (w *world) await(done func() bool) bool {
	for range 24 * 3600 {
		if done() {
			return true
		}
		time.Sleep(time.Second)
	}
	return false
}

func TestAMachineBecomesAReadyNodeAndForgetsItsSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		w := newWorld(sim.Options{})
		w.doc.OS.Users = []nodev1.User{{Name: "ops", Password: "S3cret-of-ops!", Groups: []string{host.AdministratorsSID}}}
		w.giveUserData(t)
		w.PowerOn(t.Context())
		defer w.close()
		result, err := runScript(t.Context(), w.Host())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(result.ExitCode).To(Equal(0), "%s%s", result.Stdout, result.Stderr)
		g.Expect(w.await(w.sentinel)).To(BeTrue(), "%s\n%s", w.told(), w.log)
		g.Expect(w.await(func() bool { return strings.Contains(w.told(), `"state":"Done"`) })).To(BeTrue())

		node := w.cluster.Node(w.doc.Node.Name)
		g.Expect(node).NotTo(BeNil())
		g.Expect(node.Spec.ProviderID).To(Equal(providerID))
		g.Expect(node.Spec.Taints).To(ConsistOf(w.doc.Node.Taints))
		g.Expect(node.Labels).To(HaveKeyWithValue("example.com/pool", "win"))
		now, _ := w.ComputerName()
		g.Expect(now).To(Equal(w.doc.Node.Name), "the image had another name")
		g.Expect(w.Boots()).To(BeNumerically(">", 1))
		for _, name := range []string{layout.AgentService, layout.ContainerdService, layout.KubeletService} {
			g.Expect(w.ServiceStatus(name).State).To(Equal(host.ServiceRunning), name)
			g.Expect(w.Services()[name].Start).To(Equal(host.StartAuto), name)
		}

		g.Expect(w.doc.Secrets()).To(HaveLen(3))
		g.Expect(w.secretsLeft()).To(Succeed())
		t.Logf("last status: %s", w.told())
	})
}

// secretsLeft looks for what must be gone, everywhere.
func (w *world) secretsLeft() error {
	secrets := w.doc.Secrets()
	places := map[string]string{"log": w.log.String(), "guestinfo": w.told()}
	for _, path := range w.Files() {
		if content, err := w.ReadFile(path); err == nil && path != script {
			places[path] = string(content)
		}
	}
	for _, e := range w.Events() {
		places["event log"] += e.Message
	}
	for name, s := range w.Services() {
		places["service "+name] = fmt.Sprint(s)
	}
	for place, content := range places {
		for _, secret := range secrets {
			if strings.Contains(content, secret) {
				return fmt.Errorf("%s holds a secret: %.300s", place, content)
			}
		}
	}
	return nil
}

func TestTheServicesComeBackAfterARebootWithoutTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		w := newWorld(sim.Options{})
		w.giveUserData(t)
		w.PowerOn(t.Context())
		defer w.close()
		_, err := runScript(t.Context(), w.Host())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(w.await(func() bool { return strings.Contains(w.told(), `"state":"Done"`) })).To(BeTrue(), "%s\n%s", w.told(), w.log)

		w.cluster.SetDown(true)
		w.Cut()
		w.PowerOn(t.Context())
		g.Expect(w.await(func() bool {
			return w.ServiceStatus(layout.KubeletService).State == host.ServiceRunning && w.ServiceStatus(layout.ContainerdService).State == host.ServiceRunning
		})).To(BeTrue(), "%s", w.log)
	})
}

func TestTheSameUserDataAgainChangesNothingAndOtherUserDataIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		w := newWorld(sim.Options{})
		w.giveUserData(t)
		w.PowerOn(t.Context())
		defer w.close()
		_, err := runScript(t.Context(), w.Host())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(w.await(func() bool { return strings.Contains(w.told(), `"state":"Done"`) })).To(BeTrue(), "%s\n%s", w.told(), w.log)
		told := w.told()

		w.giveUserData(t)
		result, err := runScript(t.Context(), w.Host())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(result.ExitCode).To(Equal(0), "%s", result.Stderr)
		time.Sleep(time.Hour)
		g.Expect(w.told()).To(Equal(told))

		w.doc.Node.Name = "prod-other"
		w.giveUserData(t)
		result, err = runScript(t.Context(), w.Host())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(result.ExitCode).To(Equal(1))
		g.Expect(string(result.Stderr)).To(And(ContainSubstring("CAPW-0008 AlreadyConfigured"), ContainSubstring("remedy:")))
		g.Expect(w.told()).To(Equal(told))
	})
}
