//go:build linux

package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf16"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/bootstrap"
	"github.com/capw-dev/cluster-api-provider-windows/test/wine"
)

const kubernetesVersion = "v1.36.3"

// machine is a Wine machine with what an image of image-builder holds.
type machine struct{ *wine.VM }

// newMachine boots one. What it was and said is shown when the spec fails.
func newMachine(ctx context.Context, name string) *machine {
	GinkgoHelper()
	vm, err := wine.NewVM(ctx, wine.Options{Name: name, Log: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	m := &machine{vm}
	DeferCleanup(func(ctx context.Context) {
		if CurrentSpecReport().Failed() {
			m.report(ctx)
		}
		Expect(vm.Shutdown()).To(Succeed())
	})
	for windows, file := range map[string]string{
		layout.Agent:                programs.Launcher,
		`C:\image\capw-node.exe`:    programs.Agent,
		layout.Containerd:           programs.Containerd,
		layout.Kubelet:              programs.Kubelet,
		layout.Kubeadm:              kubeadmExe,
		`C:\k\csi-proxy.exe`:        programs.Generic,
		`C:\k\windows_exporter.exe`: programs.Generic,
		`C:\tools\thing.exe`:        programs.Generic,
		`C:\tools\other.exe`:        programs.Generic,
		`C:\Program Files\VMware\VMware Tools\rpctool.exe`:          programs.Recorder,
		`C:\windows\system32\netsh.exe`:                             programs.Recorder,
		`C:\windows\system32\dism.exe`:                              programs.Recorder,
		`C:\windows\system32\WindowsPowerShell\v1.0\powershell.exe`: programs.Recorder,
	} {
		Expect(vm.Install(file, windows)).To(Succeed())
	}
	// kubeadm asks it for the version of the kernel.
	Expect(vm.WriteFile(`C:\recorded\powershell.out`, []byte("10.0.20348\r\n"))).To(Succeed())
	return m
}

// report shows the machine's status, services, programs and logs; nothing of one that was shut down.
func (m *machine) report(ctx context.Context) {
	running, err := m.Processes("")
	if err != nil {
		return
	}
	var state strings.Builder
	for _, p := range running {
		fmt.Fprintln(&state, p.PID, strings.Join(p.Args, " "))
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, service := range append(services(), layout.AgentService) {
		r, err := m.Run(ctx, "sc", "query", service)
		fmt.Fprintln(&state, r.Output, err)
	}
	AddReportEntry(m.Name+": programs and services", state.String(), ReportEntryVisibilityFailureOrVerbose)
	logs, err := filepath.Glob(filepath.Join(m.Path(layout.LogDir), "*", "*.log"))
	Expect(err).NotTo(HaveOccurred())
	for _, path := range logs {
		content, err := os.ReadFile(path) //nolint:gosec // of the machine
		Expect(err).NotTo(HaveOccurred())
		AddReportEntry(m.Name+": "+filepath.Base(path), string(content[max(0, len(content)-16<<10):]), ReportEntryVisibilityFailureOrVerbose)
	}
	status, err := m.ReadFile(layout.Status)
	AddReportEntry(m.Name+": status", fmt.Sprintf("%s %v", status, err), ReportEntryVisibilityFailureOrVerbose)
}

// newToken makes a bootstrap token, as the controller of WindowsConfigs does.
func newToken(ctx context.Context) string {
	GinkgoHelper()
	token, err := bootstraputil.GenerateBootstrapToken()
	Expect(err).NotTo(HaveOccurred())
	id, secret, _ := strings.Cut(token, ".")
	Expect(cluster.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: bootstraputil.BootstrapTokenSecretName(id)},
		Type:       bootstrapapi.SecretTypeBootstrapToken,
		StringData: map[string]string{
			bootstrapapi.BootstrapTokenIDKey:               id,
			bootstrapapi.BootstrapTokenSecretKey:           secret,
			bootstrapapi.BootstrapTokenExpirationKey:       time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
			bootstrapapi.BootstrapTokenUsageSigningKey:     "true",
			bootstrapapi.BootstrapTokenUsageAuthentication: "true",
			bootstrapapi.BootstrapTokenExtraGroupsKey:      "system:bootstrappers:kubeadm:default-node-token",
		},
	})).To(Succeed())
	return token
}

// newDocument is the document of a node with everything that Wine can show.
func newDocument(ctx context.Context, name string) *nodev1.NodeConfiguration {
	GinkgoHelper()
	hashes, err := bootstrap.CACertHashes(cluster.CA.CertPEM())
	Expect(err).NotTo(HaveOccurred())
	return &nodev1.NodeConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: nodev1.APIVersion, Kind: nodev1.NodeConfigurationKind},
		Cluster:  nodev1.ClusterInfo{Namespace: "default", Name: "workload", KubernetesVersion: kubernetesVersion},
		Node: nodev1.NodeInfo{
			Name:   name,
			Labels: map[string]string{"example.com/pool": "wine", "node.kubernetes.io/instance-type": "vm"},
			Taints: []corev1.Taint{
				{Key: "os", Value: "windows", Effect: corev1.TaintEffectNoSchedule},
				{Key: "node.cluster.x-k8s.io/uninitialized", Effect: corev1.TaintEffectNoSchedule},
			},
			ProviderID: "Auto",
		},
		Join: nodev1.JoinInfo{
			APIServerEndpoint: fmt.Sprintf("%s:%d", cluster.Host, cluster.Port),
			CACertHashes:      hashes,
			Token:             newToken(ctx),
		},
		Services: nodev1.ServicesInfo{
			CSIProxy:        &nodev1.ServiceOptions{},
			WindowsExporter: &nodev1.WindowsExporter{TLS: "None"},
			Additional: []nodev1.AdditionalService{{
				Name: "thing", ServiceOptions: nodev1.ServiceOptions{Path: `C:\tools\thing.exe`},
				Args: []string{"--node", "${NODE_NAME}", `--quoted=a "b" c\`}, DependsOn: []string{"kubelet"},
			}, {
				Name: "other", ServiceOptions: nodev1.ServiceOptions{Path: `C:\tools\other.exe`},
				Args: []string{"--windows-service"}, Kind: "Service",
			}},
		},
		Files: []nodev1.File{{Path: `C:\tools\made\by-document.txt`, Content: []byte("content")}},
		Boot:  nodev1.BootInfo{DeadlineSeconds: 600},
	}
}

// status is what the agent told last; its zero value before it told anything.
func (m *machine) status() nodev1.BootStatus {
	s := nodev1.BootStatus{}
	raw, err := m.ReadFile(layout.Status)
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	if err != nil {
		return nodev1.BootStatus{}
	}
	return s
}

// awaitDone waits for the end of the first boot, and fails as soon as it fails.
func (m *machine) awaitDone(ctx context.Context, timeout time.Duration) nodev1.BootStatus {
	GinkgoHelper()
	var s nodev1.BootStatus
	Eventually(ctx, func() (nodev1.BootState, error) {
		s = m.status()
		if s.State == nodev1.BootFailed {
			return s.State, StopTrying(fmt.Sprintf("the first boot failed: %+v", s))
		}
		return s.State, nil
	}).WithTimeout(timeout).Should(Equal(nodev1.BootDone), func() string { return fmt.Sprintf("last status: %+v", s) })
	return s
}

// node returns the machine's Node, or nil.
func node(ctx context.Context, name string) *corev1.Node {
	GinkgoHelper()
	n := &corev1.Node{}
	err := cluster.Client.Get(ctx, client.ObjectKey{Name: name}, n)
	if apierrors.IsNotFound(err) {
		return nil
	}
	Expect(err).NotTo(HaveOccurred())
	return n
}

func ready(n *corev1.Node) bool {
	if n == nil {
		return false
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// holding returns the files of the machine, its registry among them, that hold a text in the encodings of Windows.
func (m *machine) holding(text string) []string {
	GinkgoHelper()
	var wide bytes.Buffer
	for _, unit := range utf16.Encode([]rune(text)) {
		wide.Write([]byte{byte(unit), byte(unit >> 8)})
	}
	var found []string
	prefix := filepath.Dir(m.Path(`C:\`))
	Expect(filepath.WalkDir(prefix, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path) //nolint:gosec // of the machine
		if err == nil && (bytes.Contains(content, []byte(text)) || bytes.Contains(content, wide.Bytes())) {
			found = append(found, strings.TrimPrefix(path, prefix))
		}
		return err
	})).To(Succeed())
	return found
}

// must runs a program and expects exit code 0.
func (m *machine) must(ctx context.Context, argv ...string) string {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	out, err := m.MustSucceed(ctx, argv...)
	Expect(err).NotTo(HaveOccurred())
	return out
}
