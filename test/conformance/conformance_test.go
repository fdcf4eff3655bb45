// Package conformance lets programs that are not ours consume what we make.
package conformance

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeadmv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	kubeadmcloudinit "sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/cloudinit"

	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/cloudinit/cloudbase"
	"github.com/capw-dev/cluster-api-provider-windows/test/conformance/cbi"
)

const (
	instanceID = "6f2c0f6e-5d0b-4d5e-9a3c-2f1f3f0b9f11"
	nodeName   = "prod-0a1b2c3d4e"
)

// shellScript is how cloudbase-init must start our script: by cmd.exe, from a file of its own.
var shellScript = regexp.MustCompile(`^cmd\.exe /c C:\\Users\\cloudbase-init\\AppData\\Local\\Temp\\[0-9a-f-]{36}\.cmd$`)

func TestCloudbaseInitRunsOurScriptExactlyOnceUnderItsFinalName(t *testing.T) {
	someURL := bootstrapv1.AgentSpec{URL: "https://example.com:8443/~a/b?c=d;e,f@g#$-+_/capw-node.exe", SHA256: strings.Repeat("0a", 32)}
	trap := bootstrapv1.AgentSpec{URL: "https://example.com/Content-Type:multipart/powershell/capw-node.exe", SHA256: strings.Repeat("0a", 32)}
	large := document()
	for i := range 900 { // all different, so they do not get smaller
		sum := sha256.Sum256(fmt.Append(nil, i))
		large.Join.CACertHashes = append(large.Join.CACertHashes, "sha256:"+hex.EncodeToString(sum[:]))
	}

	for name, tc := range map[string]struct {
		doc     *nodev1.NodeConfiguration
		agent   bootstrapv1.AgentSpec
		convert func([]byte) []byte
	}{
		"as it is made":                           {doc: document()},
		"with LF line ends":                       {doc: document(), convert: toLF},
		"with an agent from the image":            {doc: document(), agent: bootstrapv1.AgentSpec{Source: bootstrapv1.AgentImage}},
		"with an agent from media":                {doc: document(), agent: bootstrapv1.AgentSpec{Source: bootstrapv1.AgentMedia}},
		"with an agent from a URL":                {doc: document(), agent: someURL},
		"with words in the URL that mean formats": {doc: document(), agent: trap},
		"with a document near the size limit":     {doc: large},
		"compressed by another provider":          {doc: document(), convert: compress},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			script, err := cloudbase.UserData(tc.doc, tc.agent)
			g.Expect(err).NotTo(HaveOccurred())
			want, sent := script, script
			if tc.convert != nil {
				sent = tc.convert(script)
			}
			if !bytes.HasPrefix(sent, []byte{0x1f, 0x8b}) {
				want = sent
			}

			report := boot(t, cbi.Guest{
				GuestInfo:   guestInfo(t, instanceID, sent),
				Hostname:    "WIN-TEMPLATE",
				PowerCycles: make([]map[string]string, 2),
			})

			g.Expect(report.Executions).To(HaveLen(1), "only our script, and once")
			run := report.Executions[0]
			g.Expect(run.CommandLine).To(MatchRegexp(shellScript.String()))
			g.Expect(run.Script).To(Equal(want), "the bytes in the file that is started")
			g.Expect(cloudbase.ReadDocument(run.Script)).To(Equal(tc.doc), "the document that the agent will read")
			g.Expect(report.Files).NotTo(HaveKey(run.ScriptPath), "the token does not stay on the disk")

			g.Expect(report.Renames).To(Equal([]cbi.Rename{{Boot: 1, Name: nodeName}}))
			g.Expect(run.Boot).To(Equal(2), "not before the computer has its name")
			g.Expect(report.Hostname).To(Equal(nodeName))
			g.Expect(report.Reboots).To(Equal([]int{1}), "one reboot, for the name")
			g.Expect(report.Boots).To(Equal(4), "two, and the two power cycles")
			g.Expect(report.Problems()).To(BeEmpty())
		})
	}
}

func TestCloudbaseInitDoesNotRebootAComputerThatHasItsName(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	report := boot(t, cbi.Guest{GuestInfo: guestInfo(t, instanceID, userData(t)), Hostname: strings.ToUpper(nodeName)})

	g.Expect(report.Boots).To(Equal(1))
	g.Expect(report.Renames).To(BeEmpty())
	g.Expect(bootsOf(report)).To(Equal([]int{1}))
}

func TestCloudbaseInitActsOnTheExitCodesThatTheAgentReliesOn(t *testing.T) {
	for name, tc := range map[string]struct {
		exitCodes []int
		wantRuns  []int // the first boot is for the name
		reboots   []int
		loops     bool
	}{
		"0 is done":                               {exitCodes: []int{0}, wantRuns: []int{2}, reboots: []int{1}},
		"1 is done, too":                          {exitCodes: []int{1}, wantRuns: []int{2}, reboots: []int{1}},
		"a missing agent is done, too":            {exitCodes: []int{cloudbase.ExitAgentMissing}, wantRuns: []int{2}, reboots: []int{1}},
		"a folder that fails is done, too":        {exitCodes: []int{cloudbase.ExitNoFolder}, wantRuns: []int{2}, reboots: []int{1}},
		"a download that fails is done, too":      {exitCodes: []int{cloudbase.ExitDownloadFailed}, wantRuns: []int{2}, reboots: []int{1}},
		"a wrong checksum is done, too":           {exitCodes: []int{cloudbase.ExitChecksumMismatch}, wantRuns: []int{2}, reboots: []int{1}},
		"a crash of the agent is done, too":       {exitCodes: []int{-1073741819}, wantRuns: []int{2}, reboots: []int{1}},
		"3010 is done, too":                       {exitCodes: []int{3010}, wantRuns: []int{2}, reboots: []int{1}},
		"1001 reboots and is done":                {exitCodes: []int{1001}, wantRuns: []int{2}, reboots: []int{1, 2}},
		"1002 runs again at the next boot":        {exitCodes: []int{1002, 0}, wantRuns: []int{2, 3}, reboots: []int{1}},
		"1003 reboots and runs again":             {exitCodes: []int{1003, 0}, wantRuns: []int{2, 3}, reboots: []int{1, 2}},
		"1003 for ever is a reboot loop for ever": {exitCodes: []int{1003}, wantRuns: []int{2, 3, 4, 5, 6}, reboots: []int{1, 2, 3, 4, 5, 6}, loops: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			report := boot(t, cbi.Guest{
				GuestInfo:   guestInfo(t, instanceID, userData(t)),
				Hostname:    "WIN-TEMPLATE",
				Rules:       []cbi.Rule{{Match: "^cmd.exe", ExitCodes: tc.exitCodes}},
				PowerCycles: make([]map[string]string, 2),
			})
			g.Expect(bootsOf(report)).To(Equal(tc.wantRuns))
			g.Expect(report.Reboots).To(Equal(tc.reboots))
			g.Expect(report.RebootLoop).To(Equal(tc.loops))
		})
	}
}

func TestCloudbaseInitRemembersOurScriptByItsInstanceID(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	first, second := guestInfo(t, "first", userData(t)), guestInfo(t, "second", userData(t))
	report := boot(t, cbi.Guest{
		GuestInfo:   first,
		Hostname:    nodeName,
		PowerCycles: []map[string]string{nil, second, nil, first},
	})
	g.Expect(bootsOf(report)).To(Equal([]int{1, 3}), "once for each instance ID, and not again when one comes back")
	g.Expect(report.Reboots).To(BeEmpty())
}

func TestCloudbaseInitRunsTheDataOfAnotherBootstrapProviderThroughOurGuestInfo(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	// What Cluster API's own kubeadm provider makes of a KubeadmConfig.
	cloudConfig, err := kubeadmcloudinit.NewNode(&kubeadmcloudinit.NodeInput{
		BaseUserData: kubeadmcloudinit.BaseUserData{
			PreKubeadmCommands:  []string{`powershell -File C:\k\prepare.ps1`},
			PostKubeadmCommands: []string{"echo joined"},
			AdditionalFiles: []kubeadmv1.File{{
				Path: `C:\k\prepare.ps1`, Content: "Write-Output 'prepare'\n", Permissions: "0644",
			}},
		},
		JoinConfiguration: "apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\n",
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cloudbase.IsUserData(cloudConfig)).To(BeFalse())

	report := boot(t, cbi.Guest{
		GuestInfo:   guestInfo(t, instanceID, cloudConfig),
		Hostname:    "WIN-TEMPLATE",
		PowerCycles: make([]map[string]string, 1),
	})

	g.Expect(report.Hostname).To(Equal(nodeName))
	g.Expect(report.Executions).To(HaveLen(1), "runcmd is one script")
	g.Expect(strings.Split(strings.TrimSpace(string(report.Executions[0].Script)), "\r\n")).To(Equal([]string{
		"rem cmd",
		`powershell -File C:\k\prepare.ps1`,
		"kubeadm join --config /run/kubeadm/kubeadm-join-config.yaml  && echo success > /run/cluster-api/bootstrap-success.complete",
		"echo joined",
	}))
	g.Expect(string(report.Files[`C:\k\prepare.ps1`])).To(Equal("Write-Output 'prepare'\n"))
	g.Expect(string(report.Files[`C:\run\kubeadm\kubeadm-join-config.yaml`])).To(ContainSubstring("kind: JoinConfiguration"))
	g.Expect(report.Files).To(HaveKey(`C:\run\cluster-api\placeholder`))
	g.Expect(report.Problems()).To(BeEmpty())
}

// document returns that of a plain worker.
func document() *nodev1.NodeConfiguration {
	return &nodev1.NodeConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: nodev1.APIVersion, Kind: nodev1.NodeConfigurationKind},
		Cluster:  nodev1.ClusterInfo{Namespace: "default", Name: "prod", KubernetesVersion: "v1.36.3"},
		Node: nodev1.NodeInfo{
			Name:       nodeName,
			Labels:     map[string]string{"example.com/pool": "win"},
			Taints:     []corev1.Taint{{Key: "os", Value: "windows", Effect: corev1.TaintEffectNoSchedule}},
			ProviderID: "Auto",
		},
		Join: nodev1.JoinInfo{
			APIServerEndpoint: "prod.example.com:6443",
			CACertHashes:      []string{"sha256:" + strings.Repeat("0123456789abcdef", 4)},
			Token:             "abcdef.0123456789abcdef",
		},
	}
}

// userData returns the script of a plain worker.
func userData(t *testing.T) []byte {
	t.Helper()
	script, err := cloudbase.UserData(document(), bootstrapv1.AgentSpec{})
	if err != nil {
		t.Fatal(err)
	}
	return script
}

// guestInfo returns what a platform writes into the VM's extraConfig.
func guestInfo(t *testing.T, instanceID string, userData []byte) map[string]string {
	t.Helper()
	metadata, err := cloudbase.Metadata(instanceID, nodeName)
	if err != nil {
		t.Fatal(err)
	}
	all, err := cloudbase.GuestInfo(metadata, userData)
	if err != nil {
		t.Fatal(err)
	}
	extraConfig := map[string]string{}
	for _, kv := range all {
		extraConfig[kv.Key] = kv.Value
	}
	return extraConfig
}

// boot returns what the real cloudbase-init makes of a guest.
func boot(t *testing.T, guest cbi.Guest) *cbi.Report {
	t.Helper()
	guest.NICs = []cbi.NIC{{MAC: "00:50:56:aa:bb:01", Name: "Ethernet0"}}
	report, err := cbi.Run(t.Context(), guest)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, entry := range report.Log {
				t.Logf("boot %d %s %s: %s", entry.Boot, entry.Level, entry.Logger, entry.Message)
			}
		}
	})
	return report
}

// bootsOf returns the numbers of the boots in which a process was started, for each process.
func bootsOf(report *cbi.Report) []int {
	var boots []int
	for _, e := range report.Executions {
		boots = append(boots, e.Boot)
	}
	return boots
}

func toLF(b []byte) []byte { return bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n")) }

func compress(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(b)
	_ = w.Close()
	return out.Bytes()
}
