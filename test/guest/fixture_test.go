package guest_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/cloudinit/cloudbase"
	"github.com/capw-dev/cluster-api-provider-windows/test/guest"
	"github.com/capw-dev/cluster-api-provider-windows/test/vcsim"
)

// datacenter is a vCenter with guests in its VMs, for one spec.
type datacenter struct {
	server *vcsim.Server
	client *govmomi.Client
	guests *guest.Simulator

	mu     sync.Mutex
	events []guest.Event
}

// newDatacenter starts a vCenter and the simulation of its guests, both until the end of the spec.
func newDatacenter(ctx context.Context, opts guest.Options) *datacenter {
	server, err := vcsim.Start(vcsim.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(server.Close)
	client, err := server.Client(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(client.Logout)
	dc := &datacenter{server: server, client: client}

	opts.VCenter, err = url.Parse(server.URL())
	Expect(err).NotTo(HaveOccurred())
	opts.VCenter.User = url.UserPassword(server.Username, server.Password)
	opts.Thumbprint = server.Thumbprint()
	if opts.FirstBoot == 0 {
		opts.FirstBoot = 10 * time.Millisecond
	}
	opts.Heartbeat = 100 * time.Millisecond
	hook := opts.OnEvent
	opts.OnEvent = func(e guest.Event) {
		GinkgoWriter.Println(e)
		dc.mu.Lock()
		dc.events = append(dc.events, e)
		dc.mu.Unlock()
		if hook != nil {
			hook(e)
		}
	}
	dc.guests = guest.New(opts)
	run, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- dc.guests.Run(run) }()
	DeferCleanup(func(ctx context.Context) {
		stop()
		Eventually(ctx, done).Should(Receive(BeNil()))
	})
	return dc
}

// messages of the events of a VM, or of the Simulator itself for the empty name.
func (dc *datacenter) messages(vm string) []string {
	dc.mu.Lock()
	defer dc.mu.Unlock()
	var all []string
	for _, e := range dc.events {
		if e.VM == vm {
			all = append(all, string(e.Phase)+": "+e.Message)
		}
	}
	return all
}

// state returns the state of the guest of a VM; the zero State if there is none.
func (dc *datacenter) state(vm string) guest.State {
	for _, s := range dc.guests.Snapshot() {
		if s.VM == vm {
			return s
		}
	}
	return guest.State{}
}

func (dc *datacenter) phase(vm string) func() guest.Phase {
	return func() guest.Phase { return dc.state(vm).Phase }
}

// createVM clones the template into a VM that is powered on with guestinfo.
func (dc *datacenter) createVM(ctx context.Context, name string, guestinfo []cloudbase.KeyValue) {
	finder := find.NewFinder(dc.client.Client)
	template, err := finder.VirtualMachine(ctx, vcsim.Template)
	Expect(err).NotTo(HaveOccurred())
	folder, err := finder.Folder(ctx, "/DC0/vm")
	Expect(err).NotTo(HaveOccurred())
	pool, err := finder.ResourcePool(ctx, "/DC0/host/DC0_C0/Resources")
	Expect(err).NotTo(HaveOccurred())
	ref := pool.Reference()
	config := &types.VirtualMachineConfigSpec{}
	for _, kv := range guestinfo {
		config.ExtraConfig = append(config.ExtraConfig, &types.OptionValue{Key: kv.Key, Value: kv.Value})
	}
	expectTask(ctx, func(ctx context.Context) (*object.Task, error) {
		return template.Clone(ctx, folder, name, types.VirtualMachineCloneSpec{
			PowerOn: true, Config: config, Location: types.VirtualMachineRelocateSpec{Pool: &ref},
		})
	})
}

func (dc *datacenter) vm(ctx context.Context, name string) *object.VirtualMachine {
	vm, err := find.NewFinder(dc.client.Client).VirtualMachine(ctx, "/DC0/vm/"+name)
	Expect(err).NotTo(HaveOccurred())
	return vm
}

// properties reads what the vCenter knows of a VM.
func (dc *datacenter) properties(ctx context.Context, name string) mo.VirtualMachine {
	var vm mo.VirtualMachine
	ref := dc.vm(ctx, name).Reference()
	Expect(dc.client.RetrieveOne(ctx, ref, []string{"guest", "config.uuid", "config.hardware"}, &vm)).To(Succeed())
	return vm
}

func expectTask(ctx context.Context, start func(context.Context) (*object.Task, error)) {
	GinkgoHelper()
	task, err := start(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(task.Wait(ctx)).To(Succeed())
}

// document is the node document of a node that can join, before a spec spoils it.
func document(name, token string) *nodev1.NodeConfiguration {
	certs, err := certutil.ParseCertsPEM(workload.CA.CertPEM())
	Expect(err).NotTo(HaveOccurred())
	sum := sha256.Sum256(certs[0].RawSubjectPublicKeyInfo)
	return &nodev1.NodeConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: nodev1.APIVersion, Kind: nodev1.NodeConfigurationKind},
		Cluster:  nodev1.ClusterInfo{Namespace: "default", Name: "prod", KubernetesVersion: "v1.36.3"},
		Node: nodev1.NodeInfo{
			Name:       name,
			Labels:     map[string]string{"example.com/pool": "frontend"},
			Taints:     []corev1.Taint{{Key: "os", Value: "windows", Effect: corev1.TaintEffectNoSchedule}},
			ProviderID: "Auto",
		},
		Join: nodev1.JoinInfo{
			APIServerEndpoint: strings.TrimPrefix(workload.URL(), "https://"),
			CACertHashes:      []string{"sha256:" + hex.EncodeToString(sum[:])},
			Token:             token,
		},
	}
}

// bootData renders what the infrastructure provider writes: user data of doc, and metadata that fits it.
func bootData(doc *nodev1.NodeConfiguration) []cloudbase.KeyValue {
	metadata, err := cloudbase.Metadata("capw-"+doc.Node.Name, doc.Node.Name)
	Expect(err).NotTo(HaveOccurred())
	return guestinfo(metadata, userData(doc))
}

// metadata renders metadata without any check.
func metadata(instanceID, localHostname string) []byte {
	data, err := json.Marshal(map[string]string{"instance-id": instanceID, "local-hostname": localHostname})
	Expect(err).NotTo(HaveOccurred())
	return data
}

func userData(doc *nodev1.NodeConfiguration) []byte {
	data, err := cloudbase.UserData(doc, bootstrapv1.AgentSpec{})
	Expect(err).NotTo(HaveOccurred())
	return data
}

func guestinfo(metadata, userData []byte) []cloudbase.KeyValue {
	kvs, err := cloudbase.GuestInfo(metadata, userData)
	Expect(err).NotTo(HaveOccurred())
	return kvs
}

// newName returns a node name that no other spec has.
func newName() string { return "w-" + strings.ToLower(rand.Text()[:8]) }

// createToken creates a bootstrap token that expires after ttl.
func createToken(ctx context.Context, ttl time.Duration) string {
	GinkgoHelper()
	token, err := bootstraputil.GenerateBootstrapToken()
	Expect(err).NotTo(HaveOccurred())
	putToken(ctx, token, ttl)
	return token
}

func putToken(ctx context.Context, token string, ttl time.Duration) {
	GinkgoHelper()
	id, secret, _ := strings.Cut(token, ".")
	_, err := kube.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: bootstraputil.BootstrapTokenSecretName(id)},
		Type:       bootstrapapi.SecretTypeBootstrapToken,
		StringData: map[string]string{
			bootstrapapi.BootstrapTokenIDKey:               id,
			bootstrapapi.BootstrapTokenSecretKey:           secret,
			bootstrapapi.BootstrapTokenExpirationKey:       time.Now().Add(ttl).UTC().Format(time.RFC3339),
			bootstrapapi.BootstrapTokenUsageAuthentication: "true",
			bootstrapapi.BootstrapTokenUsageSigningKey:     "true",
			bootstrapapi.BootstrapTokenExtraGroupsKey:      "system:bootstrappers:kubeadm:default-node-token",
		},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

func deleteToken(ctx context.Context, token string) {
	GinkgoHelper()
	id, _, _ := strings.Cut(token, ".")
	Expect(kube.CoreV1().Secrets(metav1.NamespaceSystem).Delete(ctx, bootstraputil.BootstrapTokenSecretName(id), metav1.DeleteOptions{})).To(Succeed())
}

// node reads a Node, which must exist.
func node(ctx context.Context, g Gomega, name string) *corev1.Node {
	n, err := kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	return n
}

func condition(n *corev1.Node, typ corev1.NodeConditionType) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == typ {
			return c.Status
		}
	}
	return ""
}

func eventuallyReady(ctx context.Context, name string) *corev1.Node {
	GinkgoHelper()
	var n *corev1.Node
	Eventually(ctx, func(g Gomega) {
		n = node(ctx, g, name)
		g.Expect(condition(n, corev1.NodeReady)).To(Equal(corev1.ConditionTrue))
	}).Should(Succeed())
	return n
}

// renewal returns when the node's Lease was last renewed.
func renewal(ctx context.Context, name string) func(Gomega) time.Time {
	return func(g Gomega) time.Time {
		lease, err := kube.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(lease.Spec.HolderIdentity).To(HaveValue(Equal(name)))
		return lease.Spec.RenewTime.Time
	}
}

// failed matches the failure of a first boot.
func failed(code codes.Code, message string) gomegatypes.GomegaMatcher {
	return SatisfyAll(BeAssignableToTypeOf(&engine.Failure{}), HaveField("Code", code), HaveField("Message", ContainSubstring(message)))
}

// certificateRequests returns the user of each CertificateSigningRequest for a node's client certificate.
func certificateRequests(ctx context.Context, name string) []string {
	GinkgoHelper()
	list, err := kube.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	var users []string
	for _, r := range list.Items {
		if r.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName {
			continue
		}
		block, err := parseRequest(r.Spec.Request)
		Expect(err).NotTo(HaveOccurred())
		if block.Subject.CommonName == "system:node:"+name {
			users = append(users, r.Spec.Username)
		}
	}
	return users
}
