package guest_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/cloudinit/cloudbase"
	"github.com/capw-dev/cluster-api-provider-windows/test/guest"
)

var _ = Describe("Life of a VM", func() {
	It("stops renewing the Lease at power-off", func(ctx context.Context) {
		dc, name := newDatacenter(ctx, guest.Options{}), newName()
		dc.createVM(ctx, name, bootData(document(name, createToken(ctx, time.Hour))))
		eventuallyReady(ctx, name)

		expectTask(ctx, dc.vm(ctx, name).PowerOff)
		Eventually(ctx, dc.phase(name)).Should(Equal(guest.Stopped))
		expectSilence(ctx, name)
	})

	It("is gone with its VM, whose Node stays", func(ctx context.Context) {
		dc, name := newDatacenter(ctx, guest.Options{}), newName()
		dc.createVM(ctx, name, bootData(document(name, createToken(ctx, time.Hour))))
		n := eventuallyReady(ctx, name)

		Expect(dc.server.DestroyVM(ctx, name)).To(Succeed())
		Eventually(ctx, func() []string { return dc.messages(name) }).Should(ContainElement("Gone: destroyed"))
		Expect(dc.guests.Snapshot()).To(BeEmpty())
		expectSilence(ctx, name)
		Expect(node(ctx, Default, name).UID).To(Equal(n.UID))
	})

	It("runs user data once per instance-id: after a reboot the kubelet goes on with its certificate", func(ctx context.Context) {
		dc, name := newDatacenter(ctx, guest.Options{}), newName()
		token := createToken(ctx, time.Hour)
		dc.createVM(ctx, name, bootData(document(name, token)))
		before := eventuallyReady(ctx, name)
		deleteToken(ctx, token)

		expectTask(ctx, dc.vm(ctx, name).Reset)
		Eventually(ctx, func() guest.State { return dc.state(name) }).Should(And(HaveField("Boots", 2), HaveField("Phase", guest.Running)))
		rebooted := time.Now()
		Eventually(ctx, renewal(ctx, name)).Should(BeTemporally(">", rebooted))
		Expect(node(ctx, Default, name).UID).To(Equal(before.UID))
		Expect(certificateRequests(ctx, name)).To(HaveLen(1))
		Expect(dc.state(name).IPs).To(HaveExactElements(before.Status.Addresses[0].Address))
	})

	It("registers a Node that somebody deleted only when its kubelet starts again, as a kubelet does", func(ctx context.Context) {
		dc, name := newDatacenter(ctx, guest.Options{}), newName()
		dc.createVM(ctx, name, bootData(document(name, createToken(ctx, time.Hour))))
		before := eventuallyReady(ctx, name)

		Expect(kube.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
		Consistently(ctx, func() error {
			_, err := kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			return err
		}).WithTimeout(time.Second).Should(Satisfy(apierrors.IsNotFound))

		expectTask(ctx, dc.vm(ctx, name).PowerOff)
		Eventually(ctx, dc.phase(name)).Should(Equal(guest.Stopped))
		expectTask(ctx, dc.vm(ctx, name).PowerOn)
		Expect(eventuallyReady(ctx, name).UID).NotTo(Equal(before.UID))
	})

	It("goes on with a first boot that a power cut interrupted", func(ctx context.Context) {
		dc, name := newDatacenter(ctx, guest.Options{}), newName()
		token := createToken(ctx, -time.Minute)
		dc.createVM(ctx, name, bootData(document(name, token)))
		Eventually(ctx, func() error { return dc.state(name).Err }).Should(HaveOccurred())
		expectTask(ctx, dc.vm(ctx, name).PowerOff)
		Eventually(ctx, dc.phase(name)).Should(Equal(guest.Stopped))

		id := token[:6]
		Eventually(ctx, func() error { // the token cleaner
			_, err := kube.CoreV1().Secrets(metav1.NamespaceSystem).Get(ctx, "bootstrap-token-"+id, metav1.GetOptions{})
			return err
		}).Should(Satisfy(apierrors.IsNotFound))
		putToken(ctx, token, time.Hour)
		expectTask(ctx, dc.vm(ctx, name).PowerOn)
		eventuallyReady(ctx, name)
		Expect(dc.state(name).Boots).To(Equal(2))
	})

	It("becomes one Node with one certificate however often its power is cut", func(ctx context.Context) {
		dc, name := newDatacenter(ctx, guest.Options{}), newName()
		random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 0))
		dc.createVM(ctx, name, bootData(document(name, createToken(ctx, time.Hour))))
		const cuts = 12
		for range cuts {
			<-time.After(time.Duration(random.Int64N(int64(300 * time.Millisecond))))
			expectTask(ctx, dc.vm(ctx, name).Reset)
		}
		eventuallyReady(ctx, name)
		Eventually(ctx, func() guest.State { return dc.state(name) }).Should(And(
			HaveField("Boots", BeNumerically(">", 1)), HaveField("Phase", guest.Running), HaveField("Err", BeNil()),
		))
		Expect(certificateRequests(ctx, name)).To(HaveLen(1))
		Expect(node(ctx, Default, name).Spec.Taints).To(ContainElement(HaveField("Key", "os")))
	})

	It("does not try a first boot again that has failed", func(ctx context.Context) {
		dc, name := newDatacenter(ctx, guest.Options{}), newName()
		doc := document(name, createToken(ctx, time.Hour))
		doc.Join.CACertHashes = []string{"sha256:" + strings.Repeat("ab", 32)}
		dc.createVM(ctx, name, bootData(doc))
		Eventually(ctx, dc.phase(name)).Should(Equal(guest.Failed))

		expectTask(ctx, dc.vm(ctx, name).Reset)
		Eventually(ctx, func() guest.State { return dc.state(name) }).Should(And(
			HaveField("Boots", 2), HaveField("Phase", guest.Failed), HaveField("Err", failed(codes.CAHashMismatch, "")),
		))
	})

	It("follows a vCenter that was away", func(ctx context.Context) {
		dc := newDatacenter(ctx, guest.Options{})
		stays, goes, comes := newName(), newName(), newName()
		for _, name := range []string{stays, goes} {
			dc.createVM(ctx, name, bootData(document(name, createToken(ctx, time.Hour))))
			Eventually(ctx, dc.phase(name)).Should(Equal(guest.Running))
		}
		dc.server.Stop()
		Eventually(ctx, func() []string { return dc.messages("") }).Should(ContainElement(ContainSubstring("lost the vCenter")))
		Expect(dc.server.DestroyVM(ctx, goes)).To(Succeed())
		Expect(dc.state(goes).Phase).To(Equal(guest.Running))
		dc.createVM(ctx, comes, bootData(document(comes, createToken(ctx, time.Hour))))
		Expect(dc.server.Resume()).To(Succeed())

		eventuallyReady(ctx, comes)
		Eventually(ctx, func() []string { return dc.messages(goes) }).Should(ContainElement("Gone: destroyed"))
		Expect(dc.state(stays)).To(And(HaveField("Phase", guest.Running), HaveField("Boots", 1)))
	})

	It("ignores templates and VMs without user data", func(ctx context.Context) {
		dc, name := newDatacenter(ctx, guest.Options{}), newName()
		Expect(dc.server.CreateForeignVM(ctx, "without")).To(Succeed())
		dc.createVM(ctx, name, bootData(document(name, createToken(ctx, time.Hour))))
		eventuallyReady(ctx, name)
		Expect(dc.guests.Snapshot()).To(HaveExactElements(HaveField("VM", name)))
		Expect(dc.properties(ctx, "without").Guest.IpAddress).To(BeEmpty())
	})

	It("fails to boot when the test wants it, and takes as long as the test wants", func(ctx context.Context) {
		var broken atomic.Bool
		broken.Store(true)
		name := newName()
		dc := newDatacenter(ctx, guest.Options{
			FirstBoot: time.Hour,
			BootDelay: func(vm string) time.Duration {
				Expect(vm).To(Equal(name))
				return time.Millisecond
			},
			FailBoot: func(string) error {
				if broken.Load() {
					return errors.New("INACCESSIBLE_BOOT_DEVICE")
				}
				return nil
			},
		})
		dc.createVM(ctx, name, bootData(document(name, createToken(ctx, time.Hour))))
		Eventually(ctx, dc.phase(name)).Should(Equal(guest.Failed))
		Expect(dc.state(name).Err).To(MatchError(ContainSubstring("INACCESSIBLE_BOOT_DEVICE")))
		Expect(dc.properties(ctx, name).Guest.IpAddress).To(BeEmpty())

		broken.Store(false)
		expectTask(ctx, dc.vm(ctx, name).Reset)
		eventuallyReady(ctx, name)
	})
})

var _ = Describe("Boot data", func() {
	It("records cloud-config of another bootstrap provider: addresses, but no Node", func(ctx context.Context) {
		dc, name := newDatacenter(ctx, guest.Options{}), newName()
		data := []byte("#cloud-config\nruncmd:\n- kubeadm join\n")
		dc.createVM(ctx, name, guestinfo(metadata("i-1", name), data))

		Eventually(ctx, dc.phase(name)).Should(Equal(guest.Foreign))
		Expect(dc.state(name).ForeignData).To(Equal(data))
		Eventually(ctx, func() []string { return dc.state(name).IPs }).Should(HaveLen(1))
		Expect(dc.properties(ctx, name).Guest.IpAddress).To(Equal(dc.state(name).IPs[0]))
		_, err := kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		Expect(err).To(Satisfy(apierrors.IsNotFound))

		expectTask(ctx, dc.vm(ctx, name).Reset)
		Eventually(ctx, func() guest.State { return dc.state(name) }).Should(And(HaveField("Boots", 2), HaveField("Phase", guest.Foreign)))
		Expect(dc.state(name).ForeignData).To(Equal(data))
	})

	DescribeTable("fails the boot when cloudbase-init cannot use it",
		func(ctx context.Context, spoil func(name string, kvs []cloudbase.KeyValue) []cloudbase.KeyValue, problem string) {
			dc, name := newDatacenter(ctx, guest.Options{}), newName()
			dc.createVM(ctx, name, spoil(name, bootData(document(name, createToken(ctx, time.Hour)))))
			Eventually(ctx, dc.phase(name)).Should(Equal(guest.Failed))
			Expect(dc.state(name).Err).To(MatchError(ContainSubstring(problem)))
		},
		Entry("an encoding of another spelling", func(_ string, kvs []cloudbase.KeyValue) []cloudbase.KeyValue {
			return append(kvs, cloudbase.KeyValue{Key: "guestinfo.userdata.encoding", Value: "gz+base64"})
		}, `guestinfo.userdata.encoding "gz+base64"`),
		Entry("no metadata", func(_ string, kvs []cloudbase.KeyValue) []cloudbase.KeyValue {
			return kvs[2:]
		}, "guestinfo.metadata is missing"),
		Entry("a byte order mark", func(name string, _ []cloudbase.KeyValue) []cloudbase.KeyValue {
			return guestinfo(metadata("i-1", name), []byte("\ufeffrem cmd\r\n"))
		}, "the user data is of no format that it knows"),
		Entry("a damaged document", func(name string, _ []cloudbase.KeyValue) []cloudbase.KeyValue {
			data := userData(document(name, "abcdef.0123456789abcdef"))
			return guestinfo(metadata("i-1", name), bytes.Replace(data, []byte("-----END"), []byte("AAAA\r\n-----END"), 1))
		}, string(codes.DocumentInvalid)),
	)

	It("runs a script that is not ours, and makes no Node of it", func(ctx context.Context) {
		dc, name := newDatacenter(ctx, guest.Options{}), newName()
		dc.createVM(ctx, name, guestinfo(metadata("i-1", name), []byte("rem cmd\r\necho hello\r\n")))
		Eventually(ctx, dc.phase(name)).Should(Equal(guest.Foreign))
	})
})

// expectSilence waits until no heartbeat that was under way can arrive, and then for many intervals without one.
func expectSilence(ctx context.Context, name string) {
	GinkgoHelper()
	heartbeats := func(g Gomega) []time.Time {
		n := node(ctx, g, name)
		status := time.Time{}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady {
				status = c.LastHeartbeatTime.Time
			}
		}
		return []time.Time{renewal(ctx, name)(g), status}
	}
	var last []time.Time
	Eventually(ctx, func(g Gomega) bool {
		now := heartbeats(g)
		same := last != nil && now[0].Equal(last[0])
		last = now
		return same
	}).WithPolling(500 * time.Millisecond).Should(BeTrue())
	Consistently(ctx, heartbeats).WithTimeout(1500 * time.Millisecond).Should(Equal(last))
}
