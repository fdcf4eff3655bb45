package join_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/capw-dev/cluster-api-provider-windows/agent/apiclient/apitest"
	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/join"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/jointest"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// inWorld runs a test in a bubble, with three hours of virtual time.
func inWorld(t *testing.T, o jointest.Options, test func(ctx context.Context, g Gomega, w *jointest.World)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
		defer cancel()
		w := jointest.New(o)
		defer w.Close()
		test(ctx, NewWithT(t), w)
	})
}

func byKubeadm(d *nodev1.NodeConfiguration) { d.Join.Method = nodev1.JoinKubeadm }

func methods() map[string]func(*nodev1.NodeConfiguration) {
	return map[string]func(*nodev1.NodeConfiguration){"Kubelet": nil, "Kubeadm": byKubeadm}
}

func TestTheMachineBecomesTheNodeOfTheDocument(t *testing.T) {
	for method, doc := range methods() {
		t.Run(method, func(t *testing.T) {
			inWorld(t, jointest.Options{Doc: doc}, func(ctx context.Context, g Gomega, w *jointest.World) {
				g.Expect(w.Boot(ctx, join.Phase())).To(Succeed())
				expectMember(g, w)
				g.Expect(w.Codes()).To(BeEmpty())
				g.Expect(w.Facts.ClusterDNS).To(Equal([]string{"10.96.0.10"}))
				g.Expect(w.Facts.ClusterDomain).To(Equal("cluster.local"))
				g.Expect(w.Facts.KubeletArgs).To(ContainElements("--hostname-override=win-a", "--node-ip=10.0.0.10", "--node-labels=example.com/pool=win"))
				g.Expect(w.Facts.KubeletArgs).NotTo(ContainElement(ContainSubstring("taints")))
			})
		})
	}
}

func expectMember(g Gomega, w *jointest.World) {
	node := w.API.Node(jointest.Name)
	g.Expect(node).NotTo(BeNil())
	g.Expect(node.Spec.ProviderID).To(Equal(jointest.ProviderID))
	g.Expect(node.Labels).To(HaveKeyWithValue("example.com/pool", "win"))
	g.Expect(node.Spec.Taints).To(ConsistOf(
		corev1.Taint{Key: "os", Value: "windows", Effect: corev1.TaintEffectNoSchedule},
		corev1.Taint{Key: "node.cluster.x-k8s.io/uninitialized", Effect: corev1.TaintEffectNoSchedule}))
	g.Expect(w.Machine.ServiceStatus(layout.KubeletService).State).To(Equal(host.ServiceRunning))
	g.Expect(w.Machine.Services()[layout.KubeletService].Start).To(Equal(host.StartAuto))
	expectNoToken(g, w)
}

// expectNoToken looks at every file except the document, which phase Done scrubs.
func expectNoToken(g Gomega, w *jointest.World) {
	for _, path := range w.Machine.Files() {
		if path == layout.Document {
			continue
		}
		content, err := w.Machine.ReadFile(path)
		g.Expect(err).NotTo(HaveOccurred())
		for _, secret := range w.Doc.Secrets() {
			g.Expect(strings.Contains(string(content), secret)).To(BeFalse(), "a secret is in %s", path)
		}
	}
}

func TestEachTaintIsInPlaceWhenAnExternalCloudProviderWaitsForIt(t *testing.T) {
	for method, doc := range methods() {
		t.Run(method, func(t *testing.T) {
			inWorld(t, jointest.Options{Doc: func(d *nodev1.NodeConfiguration) {
				if doc != nil {
					doc(d)
				}
				d.Kubelet.CloudProvider, d.Node.ProviderID = "external", "None"
			}}, func(ctx context.Context, g Gomega, w *jointest.World) {
				w.Facts.ProviderID = ""
				g.Expect(w.Boot(ctx, join.Phase())).To(Succeed())
				node := w.API.Node(jointest.Name)
				g.Expect(node.Spec.ProviderID).To(BeEmpty())
				g.Expect(node.Spec.Taints).To(HaveLen(3))
				g.Expect(node.Spec.Taints).To(ContainElement(corev1.Taint{
					Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule,
				}))
			})
		})
	}
}

func TestAMemberIsLeftAlone(t *testing.T) {
	for method, doc := range methods() {
		t.Run(method, func(t *testing.T) {
			inWorld(t, jointest.Options{Doc: doc}, func(ctx context.Context, g Gomega, w *jointest.World) {
				g.Expect(w.Boot(ctx, join.Phase())).To(Succeed())
				time.Sleep(time.Minute)
				before, facts, pid := w.Machine.Snapshot(), w.Facts, w.Machine.ServiceStatus(layout.KubeletService).PID

				g.Expect(w.Machine.RemoveFile(layout.Journal)).To(Succeed())
				g.Expect(w.Machine.RemoveFile(layout.JournalBackup)).To(Succeed())
				w.Doc.Join.Token = "" // as phase Done leaves the document
				w.Facts = engine.Facts{NodeIPs: facts.NodeIPs, ProviderID: facts.ProviderID}
				var changes []string
				w.Machine.SetInject(func(c sim.Call) sim.Fault {
					for _, op := range []string{"Files.Write", "Services.Apply", "Services.Stop", "Processes.Run"} {
						if c.Program == "" && c.Op == op && !strings.Contains(c.Detail, "journal") {
							changes = append(changes, c.String())
						}
					}
					return sim.Fault{}
				})
				g.Expect(w.Boot(ctx, join.Phase())).To(Succeed())
				g.Expect(changes).To(BeEmpty())
				g.Expect(w.Machine.ServiceStatus(layout.KubeletService).PID).To(Equal(pid))
				g.Expect(w.Facts.KubeletArgs).To(Equal(facts.KubeletArgs))
				g.Expect(w.Facts.ClusterDNS).To(Equal(facts.ClusterDNS))
				after := w.Machine.Snapshot()
				for key := range before {
					if !strings.Contains(key, "journal") && !strings.Contains(key, layout.LogDir) {
						g.Expect(after).To(HaveKeyWithValue(key, before[key]))
					}
				}
			})
		})
	}
}

func TestTheKubeletOfTheImageAndItsLeftoversGiveWay(t *testing.T) {
	for method, doc := range methods() {
		t.Run(method, func(t *testing.T) {
			inWorld(t, jointest.Options{Doc: doc, Machine: func(o *sim.Options) {
				o.Services = append(o.Services, host.Service{Name: "kubelet", Argv: []string{`C:\k\idle.exe`, "of the image"}, Start: host.StartAuto})
				o.Files[layout.Kubeconfig] = "not yaml: ["
				o.Files[layout.CACertificate] = "of another cluster"
				o.Files[layout.KubeletPKIDir+`\kubelet-client-current.pem`] = "stale"
				o.Files[layout.KubeletDir+`\cpu_manager_state`] = "{}"
				o.Files[`C:\var\lib\kubelet\pods\keep`] = "a volume"
			}}, func(ctx context.Context, g Gomega, w *jointest.World) {
				g.Expect(w.Boot(ctx, join.Phase())).To(Succeed())
				expectMember(g, w)
				g.Expect(w.Machine.Services()["kubelet"].Argv).NotTo(ContainElement("of the image"))
				g.Expect(w.Machine.Files()).NotTo(ContainElement(layout.KubeletDir + `\cpu_manager_state`))
				g.Expect(w.Machine.Files()).To(ContainElement(`C:\var\lib\kubelet\pods\keep`))
			})
		})
	}
}

// A kubelet that is in the middle of its bootstrap when the agent is killed has its request pending, and goes on with it.
func TestAJoinThatWasInterruptedGoesOnWithTheSameRequest(t *testing.T) {
	inWorld(t, jointest.Options{}, func(ctx context.Context, g Gomega, w *jointest.World) {
		w.API.Decide(func(*certificatesv1.CertificateSigningRequest) apitest.Decision { return apitest.Hold })
		interrupted, cancel := context.WithTimeout(ctx, 90*time.Second)
		defer cancel()
		w.Machine.PowerOn(ctx)
		g.Expect(w.Run(interrupted, w.Machine.Host(), join.Phase())).To(MatchError(context.DeadlineExceeded))
		pid := w.Machine.ServiceStatus(layout.KubeletService).PID
		g.Expect(w.API.CSRs()).To(HaveLen(1))
		g.Expect(w.Codes()).To(Equal([]codes.Code{codes.CertificateNotIssued}))

		time.AfterFunc(time.Minute, func() {
			w.API.Decide(func(*certificatesv1.CertificateSigningRequest) apitest.Decision { return apitest.Approve })
		})
		g.Expect(w.Run(ctx, w.Machine.Host(), join.Phase())).To(Succeed())
		expectMember(g, w)
		g.Expect(w.Machine.ServiceStatus(layout.KubeletService).PID).To(Equal(pid))
		bootstrap := 0
		for _, csr := range w.API.CSRs() {
			if csr.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName {
				bootstrap++
			}
		}
		g.Expect(bootstrap).To(Equal(1))
	})
}

func TestWhatTheClusterLacksIsSaidAndWaitedFor(t *testing.T) {
	forbid := func(path string) func(w *jointest.World) func() {
		return func(w *jointest.World) func() {
			w.API.Intercept(func(r apitest.Request) *apitest.Answer {
				if strings.HasSuffix(r.Path, path) {
					return &apitest.Answer{Code: http.StatusForbidden, Message: "no role"}
				}
				return nil
			})
			return func() { w.API.Intercept(nil) }
		}
	}
	for name, c := range map[string]struct {
		wrong func(w *jointest.World) (cure func())
		want  codes.Code
	}{
		"the API server is away": {func(w *jointest.World) func() {
			w.API.SetDown(true)
			return func() { w.API.SetDown(false) }
		}, codes.EndpointUnreachable},
		"the token has expired": {func(w *jointest.World) func() {
			w.API.SetTokens(true)
			return func() { w.API.SetTokens(true, w.Doc.Join.Token) }
		}, codes.TokenUnknown},
		"the token may not read kubelet-config": {forbid("kubelet-config"), codes.TokenRefused},
		"nobody approves the request": {func(w *jointest.World) func() {
			w.API.Decide(func(*certificatesv1.CertificateSigningRequest) apitest.Decision { return apitest.Hold })
			return func() {
				w.API.Decide(func(*certificatesv1.CertificateSigningRequest) apitest.Decision { return apitest.Approve })
			}
		}, codes.CertificateNotIssued},
		"the Node may not be registered": {forbid("/api/v1/nodes"), codes.NodeNotRegistered},
		"another machine that is gone has the name": {func(w *jointest.World) func() {
			w.API.SetNode(otherNode(corev1.ConditionUnknown))
			return func() { w.API.DeleteNode(jointest.Name) }
		}, codes.NodeNameNotFree},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, jointest.Options{}, func(ctx context.Context, g Gomega, w *jointest.World) {
				cure := c.wrong(w)
				time.AfterFunc(5*time.Minute, cure)
				g.Expect(w.Boot(ctx, join.Phase())).To(Succeed())
				g.Expect(w.Codes()).To(ContainElement(c.want))
				expectMember(g, w)
			})
		})
	}
}

func otherNode(ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: jointest.Name},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{SystemUUID: "11111111-2222-3333-4444-555555555555"},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}},
		},
	}
}

func TestWhatNoWaitingCuresEndsTheFirstBoot(t *testing.T) {
	for name, c := range map[string]struct {
		doc   func(*nodev1.NodeConfiguration)
		wrong func(w *jointest.World)
		want  codes.Code
		part  string
	}{
		"another Ready machine has the name": {
			wrong: func(w *jointest.World) { w.API.SetNode(otherNode(corev1.ConditionTrue)) }, want: codes.NodeNameTaken, part: "11111111-2222",
		},
		"the endpoint leads to another cluster": {
			wrong: func(w *jointest.World) { w.API.SetCA("other") }, want: codes.CAHashMismatch, part: "pinned",
		},
		"the document holds no token": {
			wrong: func(w *jointest.World) { w.Doc.Join.Token = "" }, want: codes.TokenMissing, part: "no token",
		},
		"the configuration is refused": {
			doc: func(d *nodev1.NodeConfiguration) {
				d.Kubelet.Config = &runtime.RawExtension{Raw: []byte(`{"userNamespaces":{}}`)}
			}, want: codes.KubeletConfigRefused, part: "userNamespaces",
		},
		"a flag is refused": {
			doc: func(d *nodev1.NodeConfiguration) {
				d.Kubelet.ExtraArgs = []string{"--register-with-taints=a:NoSchedule"}
			},
			want: codes.KubeletFlagRefused, part: "node.taints",
		},
		"kubeadm.exe is missing": {
			doc: func(d *nodev1.NodeConfiguration) {
				d.Join.Method, d.Join.Kubeadm.Path = nodev1.JoinKubeadm, `C:\nowhere\kubeadm.exe`
			}, want: codes.KubeadmMissing, part: `C:\nowhere`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, jointest.Options{Doc: c.doc}, func(ctx context.Context, g Gomega, w *jointest.World) {
				if c.wrong != nil {
					c.wrong(w)
				}
				err := w.Boot(ctx, join.Phase())
				failure := (*engine.Failure)(nil)
				g.Expect(errors.As(err, &failure)).To(BeTrue(), "%v", err)
				g.Expect(failure.Code).To(Equal(c.want))
				g.Expect(failure.Message).To(ContainSubstring(c.part))
			})
		})
	}
}

func TestANodeOfThisMachineIsTakenOverAfterAReset(t *testing.T) {
	inWorld(t, jointest.Options{}, func(ctx context.Context, g Gomega, w *jointest.World) {
		g.Expect(w.Boot(ctx, join.Phase())).To(Succeed())
		for _, path := range []string{layout.Journal, layout.JournalBackup, layout.Kubeconfig} {
			g.Expect(w.Machine.RemoveFile(path)).To(Succeed())
		}
		uid := w.API.Node(jointest.Name).UID
		g.Expect(w.Boot(ctx, join.Phase())).To(Succeed())
		expectMember(g, w)
		g.Expect(w.API.Node(jointest.Name).UID).To(Equal(uid))
	})
}

func TestAProviderIDThatCannotBeChangedEndsTheFirstBoot(t *testing.T) {
	inWorld(t, jointest.Options{}, func(ctx context.Context, g Gomega, w *jointest.World) {
		g.Expect(w.Boot(ctx, join.Phase())).To(Succeed())
		node := w.API.Node(jointest.Name)
		node.Spec.ProviderID = "vsphere://another"
		w.API.SetNode(node)
		g.Expect(w.Machine.RemoveFile(layout.Journal)).To(Succeed())
		g.Expect(w.Machine.RemoveFile(layout.JournalBackup)).To(Succeed())
		g.Expect(w.Boot(ctx, join.Phase())).To(MatchError(ContainSubstring(string(codes.ProviderIDDiffers))))
	})
}

func TestAKubeletThatEndsAtOnceIsQuotedWithoutSecrets(t *testing.T) {
	inWorld(t, jointest.Options{
		Doc: func(d *nodev1.NodeConfiguration) {
			d.Kubelet.ExtraArgs = []string{"--unknown-flag=" + d.Join.Token}
			d.Boot.DeadlineSeconds = 600
		},
		Machine: func(o *sim.Options) {
			o.Programs[layout.Kubelet] = func(_ context.Context, p *sim.Process) int {
				p.Running()
				_, _ = p.Stderr.Write([]byte("I1130 1 a.go:1] starting\nE1130 1 run.go:72] \"command failed\" err=\"unknown flag " + p.Argv[len(p.Argv)-1] + "\"\nUsage:\n"))
				return 1
			}
		},
	}, func(ctx context.Context, g Gomega, w *jointest.World) {
		err := w.Boot(ctx, join.Phase())
		g.Expect(err).To(MatchError(And(
			ContainSubstring(string(codes.KubeletEnds)), ContainSubstring("exit code 1"), ContainSubstring(`unknown flag --unknown-flag=<hidden>`),
			Not(ContainSubstring("0123456789abcdef")),
		)))
	})
}

func TestAClusterWithoutKubeletConfigGetsANode(t *testing.T) {
	inWorld(t, jointest.Options{API: apitest.Options{KubeletConfig: "none"}}, func(ctx context.Context, g Gomega, w *jointest.World) {
		g.Expect(w.Boot(ctx, join.Phase())).To(Succeed())
		expectMember(g, w)
		g.Expect(w.Facts.ClusterDNS).To(BeEmpty())
	})
}

func TestFilesOfTheJoinAreForSystemAndAdministrators(t *testing.T) {
	inWorld(t, jointest.Options{}, func(ctx context.Context, g Gomega, w *jointest.World) {
		var seen []string
		w.Machine.SetInject(func(c sim.Call) sim.Fault {
			if c.Op == "Services.Start" && c.Detail == layout.KubeletService && c.Program == "" {
				acl, err := w.Machine.EffectiveACL(layout.BootstrapKubeconfig)
				if err == nil {
					seen = append(seen, string(acl))
				}
			}
			return sim.Fault{}
		})
		g.Expect(w.Boot(ctx, join.Phase())).To(Succeed())
		g.Expect(seen).To(And(Not(BeEmpty()), HaveEach(string(host.ACLSystem))))
		for _, path := range []string{layout.KubeletConfig, layout.CACertificate, layout.Kubeconfig} {
			acl, err := w.Machine.EffectiveACL(path)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(acl).To(Equal(host.ACLSystem), path)
		}
	})
}
