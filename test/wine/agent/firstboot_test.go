//go:build linux

package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/cloudinit/cloudbase"
	"github.com/capw-dev/cluster-api-provider-windows/test/wine"
)

// userDataScript is where cloudbase-init would put the first-boot script.
const userDataScript = `C:\Windows\Temp\userdata.cmd`

// firstBoot does what cloudbase-init does: it writes the user data to a file, runs it with cmd.exe, and removes it.
func (m *machine) firstBoot(ctx context.Context, doc *nodev1.NodeConfiguration) string {
	GinkgoHelper()
	r := m.runUserData(ctx, doc)
	Expect(r.ExitCode).To(BeZero(), r.Output)
	return r.Output
}

func (m *machine) runUserData(ctx context.Context, doc *nodev1.NodeConfiguration) wine.Result {
	GinkgoHelper()
	userData, err := cloudbase.UserData(doc, bootstrapv1.AgentSpec{Source: bootstrapv1.AgentImage})
	Expect(err).NotTo(HaveOccurred())
	Expect(m.WriteFile(userDataScript, userData)).To(Succeed())
	// The agent has put itself there when the script ran before, and only the launcher says --lenient.
	Expect(m.Install(programs.Launcher, layout.Agent)).To(Succeed())
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	r, err := m.Run(ctx, "cmd.exe", "/C", userDataScript)
	Expect(err).NotTo(HaveOccurred())
	Expect(os.Remove(m.Path(userDataScript))).To(Succeed())
	return r
}

// call is one call of a stand-in.
type call struct {
	Time time.Time
	PID  int
	Args []string
}

// calls of a stand-in, the first one first.
func (m *machine) calls(name string) []call {
	raw, err := m.ReadFile(`C:\recorded\` + name + ".log")
	if err != nil {
		return nil
	}
	var out []call
	for line := range strings.Lines(string(raw)) {
		c := call{}
		if json.Unmarshal([]byte(line), &c) == nil { // the last line may be being written
			out = append(out, c)
		}
	}
	return out
}

// agent returns the processes of the agent that run its phases.
func (m *machine) agent() []int {
	GinkgoHelper()
	processes, err := m.Processes("capw-node.exe")
	Expect(err).NotTo(HaveOccurred())
	var pids []int
	for _, p := range processes {
		if slices.Contains(p.Args, "run") {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// services of the document, and those that every node has.
func services() []string {
	return []string{layout.ContainerdService, layout.KubeletService, "csi-proxy", "windows_exporter", "thing", "other"}
}

// images are the programs of the services.
func images() []string {
	return []string{"containerd.exe", "kubelet.exe", "csi-proxy.exe", "windows_exporter.exe", "thing.exe", "other.exe"}
}

// startType returns a service's start type as the registry has it; 2 is automatic.
func (m *machine) startType(ctx context.Context, service string) string {
	GinkgoHelper()
	out := m.must(ctx, "reg", "query", `HKLM\System\CurrentControlSet\Services\`+service, "/v", "Start")
	return regexp.MustCompile(`0x[0-9a-f]+`).FindString(out)
}

var _ = Describe("A first boot", Ordered, func() {
	var (
		m   *machine
		doc *nodev1.NodeConfiguration
	)

	BeforeAll(func(ctx context.Context) {
		m = newMachine(ctx, "first-boot")
		doc = newDocument(ctx, "first-boot")
		begin := time.Now()
		out := m.firstBoot(ctx, doc)
		AddReportEntry("script", fmt.Sprintf("%s\n%s", time.Since(begin).Round(time.Millisecond), out))
		s := m.awaitDone(ctx, 2*time.Minute)
		AddReportEntry("first boot", fmt.Sprintf("%s, phases in ms: %v", time.Since(begin).Round(time.Millisecond), s.Elapsed))
	}, NodeTimeout(4*time.Minute))

	It("ends with a Ready Node that has what the document says from its registration on", func(ctx context.Context) {
		n := node(ctx, "first-boot")
		Expect(ready(n)).To(BeTrue())
		Expect(n.Labels).To(And(
			HaveKeyWithValue("example.com/pool", "wine"),
			HaveKeyWithValue("node.kubernetes.io/instance-type", "vm"),
			HaveKeyWithValue(corev1.LabelOSStable, "windows"),
		))
		Expect(n.Spec.ProviderID).To(Equal("vsphere://" + m.UUID.String()))
		for _, taint := range doc.Node.Taints {
			Expect(n.Spec.Taints).To(ContainElement(HaveField("ToString()", taint.ToString())))
		}
		Expect(n.Status.Addresses).To(ContainElement(HaveField("Type", corev1.NodeInternalIP)))
		for _, managed := range n.ManagedFields {
			if managed.Subresource == "" {
				Expect(managed.Operation).To(Equal(n.ManagedFields[0].Operation), "nobody changed the Node after its registration")
			}
		}
	})

	It("tells Cluster API and everybody that it has succeeded", func() {
		Expect(m.Path(layout.Sentinel)).To(BeARegularFile())
		s := m.status()
		Expect(s.APIVersion).To(Equal(nodev1.APIVersion))
		Expect(s.Node).To(Equal("first-boot"))
		Expect(s.Boots).To(BeEquivalentTo(2), "one reboot, for the feature Containers")
		for _, phase := range []string{"Preflight", "Host", "Network", "Artifacts", "Configure", "Runtime", "Join", "Services", "Verify"} {
			Expect(s.Elapsed).To(HaveKey(phase))
		}
		told := m.calls("rpctool")
		Expect(told).NotTo(BeEmpty())
		Expect(strings.Join(told[len(told)-1].Args, " ")).To(ContainSubstring("guestinfo.capw.status"))
	})

	It("leaves no token on the machine", func(ctx context.Context) {
		_, secret, _ := strings.Cut(doc.Join.Token, ".")
		Eventually(func() []string { return m.holding(secret) }).Should(BeEmpty())
		Expect(m.Path(layout.BootstrapKubeconfig)).NotTo(BeAnExistingFile())
		By("having looked at the registry as it is on disk now, too")
		Expect(m.Reboot(ctx)).To(Succeed())
		Expect(m.holding(secret)).To(BeEmpty())
		Expect(m.holding("first-boot")).NotTo(BeEmpty(), "the search finds what is there")
	})

	It("starts containerd before the kubelet, and that before what depends on it", func() {
		containerd, kubelet, thing := m.calls("containerd"), m.calls("kubelet"), m.calls("thing")
		started := func(c []call) time.Time {
			i := slices.IndexFunc(c, func(c call) bool { return !slices.Contains(c.Args, "--version") })
			Expect(i).NotTo(Equal(-1))
			return c[i].Time
		}
		Expect(started(containerd)).To(BeTemporally("<", started(kubelet)))
		Expect(started(kubelet)).To(BeTemporally("<", started(thing)))
		Expect(thing[0].Args).To(Equal([]string{"--node", "first-boot", `--quoted=a "b" c\`}))
	})

	It("makes services that start by themselves, and comes back from a reboot", func(ctx context.Context) {
		for _, name := range append(services(), layout.AgentService) {
			Expect(m.startType(ctx, name)).To(Equal("0x2"), name)
		}
		before := len(m.calls("kubelet"))
		begin := time.Now()
		Expect(m.Reboot(ctx)).To(Succeed())
		for _, image := range images() {
			Eventually(m.Processes).WithArguments(image).WithTimeout(time.Minute).Should(HaveLen(1), image)
		}
		Eventually(m.agent).Should(HaveLen(1))
		Expect(len(m.calls("kubelet"))).To(BeNumerically(">", before))
		beat := node(ctx, "first-boot").Status.Conditions[0].LastHeartbeatTime
		Eventually(func() bool {
			n := node(ctx, "first-boot")
			return ready(n) && n.Status.Conditions[0].LastHeartbeatTime.After(beat.Time)
		}).Should(BeTrue())
		AddReportEntry("from reboot to Ready", time.Since(begin).Round(time.Millisecond).String())
		Consistently(func() nodev1.BootState { return m.status().State }).WithTimeout(time.Second).Should(Equal(nodev1.BootDone))
	}, SpecTimeout(3*time.Minute))

	It("is kept: the resident restores what was killed, has failed, was stopped and was deleted", func(ctx context.Context) {
		before := map[string][]wine.Process{}
		for _, image := range images() {
			before[image] = must(m.Processes(image))
			Expect(before[image]).To(HaveLen(1), image)
		}
		Expect(m.Kill("kubelet.exe")).To(Equal(1))
		Expect(m.Kill("windows_exporter.exe")).To(Equal(1))
		Expect(m.WriteFile(`C:\recorded\csi-proxy.exit`, []byte("3"))).To(Succeed())
		m.must(ctx, "net", "stop", "thing")
		m.must(ctx, "net", "stop", "other")
		m.must(ctx, "sc", "delete", "other")
		begin := time.Now()
		for _, image := range images() {
			if image == "containerd.exe" {
				continue
			}
			// The resident gives the service control manager, which under Wine does nothing, 90 s to restart what has failed.
			Eventually(m.Processes).WithArguments(image).WithTimeout(3*time.Minute).Should(And(HaveLen(1), Not(Equal(before[image]))), image)
			AddReportEntry("until "+image+" is back", time.Since(begin).Round(time.Second).String())
		}
		Expect(m.Processes("containerd.exe")).To(Equal(before["containerd.exe"]), "what nobody disturbed")
		Expect(m.startType(ctx, "other")).To(Equal("0x2"))
	}, SpecTimeout(4*time.Minute))

	It("is done once: the same user data again changes nothing, another one is refused", func(ctx context.Context) {
		journal, err := m.ReadFile(layout.Journal)
		Expect(err).NotTo(HaveOccurred())
		m.firstBoot(ctx, doc)
		Expect(m.ReadFile(layout.Journal)).To(Equal(journal))

		other := doc.DeepCopy()
		other.Node.Labels["example.com/pool"] = "other"
		r := m.runUserData(ctx, other)
		Expect(r.ExitCode).To(Equal(1))
		Expect(r.Output).To(ContainSubstring("remedy:"))
		Expect(m.status().State).To(Equal(nodev1.BootDone))
	}, SpecTimeout(time.Minute))
})

var _ = It("A machine with another name is renamed, rebooted once, and joins", func(ctx context.Context) {
	m := newMachine(ctx, "image-name")
	doc := newDocument(ctx, "renamed")
	// Wine takes the name from Linux at the next boot, which the agent must cause.
	Expect(m.Rename(ctx, "renamed")).To(Succeed())
	m.firstBoot(ctx, doc)
	s := m.awaitDone(ctx, 2*time.Minute)
	Expect(s.Boots).To(BeEquivalentTo(2), "one reboot for all that needs one")
	Expect(ready(node(ctx, "renamed"))).To(BeTrue())
}, SpecTimeout(4*time.Minute))

var _ = It("With method Kubeadm the real kubeadm.exe joins the machine, and the agent keeps its services", func(ctx context.Context) {
	m := newMachine(ctx, "kubeadm-join")
	doc := newDocument(ctx, "kubeadm-join")
	doc.Join.Method = nodev1.JoinKubeadm
	begin := time.Now()
	m.firstBoot(ctx, doc)
	s := m.awaitDone(ctx, 3*time.Minute)
	AddReportEntry("first boot with kubeadm", fmt.Sprintf("%s, phases in ms: %v", time.Since(begin).Round(time.Millisecond), s.Elapsed))
	n := node(ctx, "kubeadm-join")
	Expect(ready(n)).To(BeTrue())
	Expect(n.Labels).To(HaveKeyWithValue("example.com/pool", "wine"))
	Expect(n.Spec.ProviderID).To(Equal("vsphere://" + m.UUID.String()))
	for _, taint := range doc.Node.Taints {
		Expect(n.Spec.Taints).To(ContainElement(HaveField("ToString()", taint.ToString())))
	}
	_, secret, _ := strings.Cut(doc.Join.Token, ".")
	Expect(m.holding(secret)).To(BeEmpty())
	Expect(m.Path(layout.Sentinel)).To(BeARegularFile())

	By("being Ready again after a reboot")
	Expect(m.Reboot(ctx)).To(Succeed())
	Eventually(m.Processes).WithArguments("kubelet.exe").WithTimeout(time.Minute).Should(HaveLen(1))
}, SpecTimeout(5*time.Minute))
