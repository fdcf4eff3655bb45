package e2e

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capw-dev/cluster-api-provider-windows/cloudinit/cloudbase"
	"github.com/capw-dev/cluster-api-provider-windows/test/conformance/cbi"
	"github.com/capw-dev/cluster-api-provider-windows/test/vcsim"
)

var _ = Describe("What the manager wrote into a VM", func() {
	It("makes the real cloudbase-init name the computer and run our script once, with a token that the workload cluster knows", func(ctx context.Context) {
		w := newWorld(ctx)
		w.createCluster(ctx)
		w.createMachineDeployment(ctx, "md", 1)
		var vm vcsim.VM
		Eventually(func(g Gomega) {
			vms := w.vms(ctx)
			g.Expect(vms).To(HaveLen(1))
			for _, vm = range vms {
				g.Expect(vm.PowerState).To(Equal("poweredOn"))
			}
		}).WithContext(ctx).Should(Succeed())

		guestInfo := map[string]string{}
		for key, value := range vm.Config {
			if strings.HasPrefix(key, "guestinfo.") {
				guestInfo[key] = value
			}
		}
		Expect(guestInfo).To(And(HaveKeyWithValue("guestinfo.metadata.encoding", "gzip+base64"), HaveKeyWithValue("guestinfo.userdata.encoding", "gzip+base64")))
		report, err := cbi.Run(ctx, cbi.Guest{
			GuestInfo:   guestInfo,
			Hostname:    "WIN-TEMPLATE",
			NICs:        []cbi.NIC{{MAC: "00:50:56:aa:bb:01", Name: "Ethernet0"}},
			PowerCycles: make([]map[string]string, 2),
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(report.Problems()).To(BeEmpty())
		Expect(report.RebootLoop).To(BeFalse())
		Expect(report.Hostname).To(Equal(vm.Name))
		Expect(report.Executions).To(HaveLen(1), "once, over three power-ons")

		By("reading the document from the bytes that cloudbase-init started")
		doc, err := cloudbase.ReadDocument(report.Executions[0].Script)
		Expect(err).NotTo(HaveOccurred())
		Expect(doc.Node.Name).To(Equal(vm.Name))
		Expect(doc.Cluster).To(And(HaveField("Namespace", w.namespace), HaveField("Name", w.cluster), HaveField("KubernetesVersion", kubernetesVersion)))
		Expect(doc.Node.Labels).To(HaveKeyWithValue("example.com/pool", "md"))
		id, _, _ := strings.Cut(doc.Join.Token, ".")
		token := &corev1.Secret{}
		Expect(testEnv.Workload.Client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: bootstraputil.BootstrapTokenSecretName(id)}, token)).To(Succeed())
		Expect(id + "." + string(token.Data[bootstrapapi.BootstrapTokenSecretKey])).To(Equal(doc.Join.Token))
		expiry, err := time.Parse(time.RFC3339, string(token.Data[bootstrapapi.BootstrapTokenExpirationKey]))
		Expect(err).NotTo(HaveOccurred())
		Expect(expiry).To(BeTemporally(">", time.Now().Add(50*time.Minute)), "long enough for a Windows first boot")
	}, SpecTimeout(5*time.Minute))
})
