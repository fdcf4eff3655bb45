package guest_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/vim25/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/test/guest"
)

func parseRequest(data []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("no PEM block")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}

var _ = Describe("Join", func() {
	It("B28, B29, B30: becomes a Ready Node with the labels, taints and provider ID of its document", func(ctx context.Context) {
		dc, name := newDatacenter(ctx, guest.Options{}), newName()
		token := createToken(ctx, time.Hour)
		doc := document(name, token)
		doc.Node.Taints = append(doc.Node.Taints, corev1.Taint{Key: "node.cluster.x-k8s.io/uninitialized", Effect: corev1.TaintEffectNoSchedule})
		dc.createVM(ctx, name, bootData(doc))

		n := eventuallyReady(ctx, name)
		vm := dc.properties(ctx, name)
		Expect(n.Spec.ProviderID).To(Equal("vsphere://" + strings.ToLower(vm.Config.Uuid)))
		Expect(n.Labels).To(And(
			HaveKeyWithValue("kubernetes.io/os", "windows"),
			HaveKeyWithValue("kubernetes.io/arch", "amd64"),
			HaveKeyWithValue("kubernetes.io/hostname", name),
			HaveKeyWithValue("node.kubernetes.io/windows-build", "10.0.20348"),
			HaveKeyWithValue("example.com/pool", "frontend"),
		))
		Expect(n.Spec.Taints).To(ContainElements(doc.Node.Taints))
		Expect(condition(n, corev1.NodeMemoryPressure)).To(Equal(corev1.ConditionFalse))
		Expect(condition(n, corev1.NodeDiskPressure)).To(Equal(corev1.ConditionFalse))
		Expect(condition(n, corev1.NodePIDPressure)).To(Equal(corev1.ConditionFalse))
		Expect(n.Status.NodeInfo.KubeletVersion).To(Equal("v1.36.3"))
		Expect(n.Status.NodeInfo.OperatingSystem).To(Equal("windows"))
		Expect(n.Status.Capacity.Cpu().Value()).To(BeEquivalentTo(vm.Config.Hardware.NumCPU))

		By("using the token for nothing but the certificate")
		Expect(certificateRequests(ctx, name)).To(HaveExactElements("system:bootstrap:" + token[:6]))

		By("telling the vCenter the same addresses as the cluster")
		ip := vm.Guest.IpAddress
		Expect(n.Status.Addresses).To(HaveExactElements(
			corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip},
			corev1.NodeAddress{Type: corev1.NodeHostName, Address: name},
		))
		Expect(vm.Guest.HostName).To(Equal(name))
		Expect(vm.Guest.ToolsRunningStatus).To(Equal(string(types.VirtualMachineToolsRunningStatusGuestToolsRunning)))
		Expect(vm.Guest.Net).To(HaveLen(1))
		Expect(vm.Guest.Net[0].IpAddress).To(HaveExactElements(Equal(ip), HavePrefix("fe80::")))
		Expect(vm.Guest.Net[0].MacAddress).NotTo(BeEmpty())

		By("renewing the Lease, which goes when the Node goes")
		first := time.Time{}
		Eventually(ctx, renewal(ctx, name)).Should(Satisfy(func(t time.Time) bool { first = t; return true }))
		Eventually(ctx, renewal(ctx, name)).Should(BeTemporally(">", first))
		lease, err := kube.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(lease.OwnerReferences).To(HaveExactElements(HaveField("UID", n.UID)))

		By("reporting the Node's status again and again")
		heartbeat := func(g Gomega) time.Time {
			n := node(ctx, g, name)
			return n.Status.Conditions[slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == corev1.NodeReady
			})].LastHeartbeatTime.Time
		}
		Eventually(ctx, heartbeat).Should(BeTemporally(">", heartbeat(Default)))

		By("telling the phases of the agent in order")
		Eventually(ctx, dc.phase(name)).Should(Equal(guest.Running))
		phases := []string{}
		for _, m := range dc.messages(name) {
			if p, ok := strings.CutPrefix(m, "Joining: "); ok && !strings.ContainsAny(p, " :,") {
				phases = append(phases, p)
			}
		}
		Expect(slices.Compact(phases)).To(HaveExactElements("Preflight", "Host", "Network", "Artifacts", "Configure", "Runtime", "Join", "Services", "Verify", "Done"))
		Expect(dc.state(name)).To(And(
			HaveField("Phase", guest.Running), HaveField("NodeName", name), HaveField("IPs", []string{ip}),
			HaveField("Err", BeNil()), HaveField("InstanceID", "capw-"+name), HaveField("Boots", 1),
		))
	})

	It("gives each VM addresses of its own", func(ctx context.Context) {
		dc := newDatacenter(ctx, guest.Options{})
		seen := map[string]bool{}
		for range 3 {
			name := newName()
			dc.createVM(ctx, name, bootData(document(name, createToken(ctx, time.Hour))))
			for _, a := range eventuallyReady(ctx, name).Status.Addresses {
				Expect(seen).NotTo(HaveKey(a.Address))
				seen[a.Address] = true
			}
		}
	})

	It("leaves the provider ID to an external cloud provider when the document says None", func(ctx context.Context) {
		dc, name := newDatacenter(ctx, guest.Options{}), newName()
		doc := document(name, createToken(ctx, time.Hour))
		doc.Node.ProviderID = "None"
		dc.createVM(ctx, name, bootData(doc))
		Expect(eventuallyReady(ctx, name).Spec.ProviderID).To(BeEmpty())
	})

	It("gives up on an expired token when its time is over", func(ctx context.Context) {
		dc, name := newDatacenter(ctx, guest.Options{}), newName()
		doc := document(name, createToken(ctx, -time.Minute))
		doc.Boot.DeadlineSeconds = 3
		dc.createVM(ctx, name, bootData(doc))

		Eventually(ctx, dc.phase(name)).Should(Equal(guest.Failed))
		Expect(dc.state(name).Err).To(failed(codes.DeadlineExceeded, "CAPW-0706 TokenUnknown"))
		Expect(dc.messages(name)).To(ContainElement(HavePrefix("Joining: CAPW-0706 TokenUnknown: Join, discover the cluster")))
		Expect(certificateRequests(ctx, name)).To(BeEmpty())
	})

	It("is refused with a token that goes away before the join, and joins once it is there again", func(ctx context.Context) {
		var token string
		dc := newDatacenter(ctx, guest.Options{OnEvent: func(e guest.Event) {
			if e.Message == "Join" { // the guest waits for this function
				deleteToken(ctx, token)
				Eventually(ctx, accepted(ctx)).WithArguments(token).Should(BeFalse())
			}
		}})
		name := newName()
		token = createToken(ctx, time.Hour)
		dc.createVM(ctx, name, bootData(document(name, token)))

		// It depends on whether the signature in cluster-info goes before it is read.
		Eventually(ctx, func() error { return dc.state(name).Err }).Should(Or(failed(codes.TokenUnknown, token[:6]), failed(codes.TokenRefused, "")))
		Expect(dc.state(name).Phase).To(Equal(guest.Joining))

		putToken(ctx, token, time.Hour)
		eventuallyReady(ctx, name)
	})

	It("refuses a cluster whose CA has another key than the pinned one", func(ctx context.Context) {
		dc, name := newDatacenter(ctx, guest.Options{}), newName()
		doc := document(name, createToken(ctx, time.Hour))
		doc.Join.CACertHashes = []string{"sha256:" + strings.Repeat("ab", 32)}
		dc.createVM(ctx, name, bootData(doc))

		Eventually(ctx, dc.phase(name)).Should(Equal(guest.Failed))
		Expect(dc.state(name).Err).To(failed(codes.CAHashMismatch, "sha256:abab"))
		Expect(certificateRequests(ctx, name)).To(BeEmpty())
	})

	It("refuses a cluster-info that was signed with another secret", func(ctx context.Context) {
		dc, name := newDatacenter(ctx, guest.Options{}), newName()
		token := createToken(ctx, time.Hour)
		dc.createVM(ctx, name, bootData(document(name, token[:7]+"0123456789abcdef")))

		Eventually(ctx, dc.phase(name)).Should(Equal(guest.Failed))
		Expect(dc.state(name).Err).To(failed(codes.SignatureInvalid, "was not made with the token's secret"))
	})

	It("refuses a label that a kubelet may not set on its own Node", func(ctx context.Context) {
		dc, name := newDatacenter(ctx, guest.Options{}), newName()
		doc := document(name, createToken(ctx, time.Hour))
		doc.Node.Labels["node-role.kubernetes.io/worker"] = ""
		doc.Node.Labels["node.kubernetes.io/pool"] = "allowed"
		dc.createVM(ctx, name, bootData(doc))

		Eventually(ctx, dc.phase(name)).Should(Equal(guest.Failed))
		Expect(dc.state(name).Err).To(And(
			failed(codes.NodeLabelRefused, `"node-role.kubernetes.io/worker"`),
			HaveField("Message", Not(ContainSubstring("node.kubernetes.io/pool"))),
		))
	})

	It("refuses a Node name that another machine has, and leaves that Node alone", func(ctx context.Context) {
		dc, name := newDatacenter(ctx, guest.Options{}), newName()
		dc.createVM(ctx, name, bootData(document(name, createToken(ctx, time.Hour))))
		first := eventuallyReady(ctx, name)

		dc.createVM(ctx, "other-vm", bootData(document(name, createToken(ctx, time.Hour))))
		Eventually(ctx, dc.phase("other-vm")).Should(Equal(guest.Failed))
		Expect(dc.state("other-vm").Err).To(failed(codes.NodeNameTaken, first.Spec.ProviderID))
		after := node(ctx, Default, name)
		Expect(after.UID).To(Equal(first.UID))
		Expect(after.Spec.ProviderID).To(Equal(first.Spec.ProviderID))
		Eventually(ctx, dc.phase(name)).Should(Equal(guest.Running))
	})

	DescribeTable("becomes the Node of its document whatever name cloudbase-init gives the computer",
		func(ctx context.Context, hostname func(nodeName string) string) {
			dc, name := newDatacenter(ctx, guest.Options{}), newName()
			doc := document(name, createToken(ctx, time.Hour))
			dc.createVM(ctx, name, guestinfo(metadata("i-1", hostname(name)), userData(doc)))

			eventuallyReady(ctx, name)
			Eventually(ctx, func() string { return dc.properties(ctx, name).Guest.HostName }).Should(BeEquivalentTo(dc.state(name).ComputerName))
			Expect(strings.ToLower(dc.state(name).ComputerName)).To(Equal(name))
		},
		Entry("another name", func(string) string { return "w-another" }),
		Entry("upper case", strings.ToUpper),
		Entry("cut after 15 characters", func(n string) string { return n + "-longer" }),
		Entry("none", func(string) string { return "" }),
		Entry("characters that Windows refuses", func(n string) string { return n + "_x" }),
		Entry("digits only", func(string) string { return "123456" }),
	)

	It("fails when the API server is not there", func(ctx context.Context) {
		dc, name := newDatacenter(ctx, guest.Options{}), newName()
		doc := document(name, createToken(ctx, time.Hour))
		doc.Join = nodev1.JoinInfo{APIServerEndpoint: "127.0.0.1:1", CACertHashes: doc.Join.CACertHashes, Token: doc.Join.Token}
		doc.Boot.DeadlineSeconds = 3
		dc.createVM(ctx, name, bootData(doc))
		Eventually(ctx, dc.phase(name)).Should(Equal(guest.Failed))
		Expect(dc.state(name).Err).To(And(
			failed(codes.DeadlineExceeded, "APIServerUnreachable"), HaveField("Phase", "Network"), HaveField("Message", ContainSubstring("connection refused")),
		))
	})
})

// accepted tells whether the API server authenticates a token.
func accepted(ctx context.Context) func(Gomega, string) bool {
	return func(g Gomega, token string) bool {
		config := rest.AnonymousClientConfig(workload.Config)
		config.BearerToken = token
		client, err := kubernetes.NewForConfig(config)
		g.Expect(err).NotTo(HaveOccurred())
		var status int
		client.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).StatusCode(&status)
		return status != http.StatusUnauthorized
	}
}
