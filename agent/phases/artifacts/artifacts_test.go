package artifacts_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/artifacts"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/phasetest"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

func TestAnImageWithEverythingIsUsedAsItIs(t *testing.T) {
	g := NewWithT(t)
	doc := phasetest.Document(func(d *nodev1.NodeConfiguration) {
		d.Join.Method = nodev1.JoinKubeadm
		d.Services.KubeProxy = &nodev1.KubeProxy{}
		d.Services.CSIProxy = &nodev1.ServiceOptions{}
		d.Services.WindowsExporter = &nodev1.WindowsExporter{}
	})
	o := image(nil, func(o *sim.Options) {
		o.Files[layout.Kubeadm] = "MZ v1.36.3"
		o.Files[`C:\k\kube-proxy.exe`] = kubelet
		o.Files[`C:\k\csi-proxy.exe`] = "never started for its version"
		o.Files[`C:\k\windows_exporter.exe`] = "MZ windows_exporter, version 0.31.1 (branch: HEAD)"
	})
	phasetest.Test(t, o, doc, artifacts.Phase(), func(_ *sim.Machine, r phasetest.Result, err error) {
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(r.Facts.Versions).To(Equal(map[string]string{
			"kubelet": "v1.36.3", "kubeadm": "v1.36.3", "kube-proxy": "v1.36.3", "containerd": "v2.2.0", "windows_exporter": "v0.31.1",
		}))
		g.Expect(r.Facts.Paths).To(HaveKeyWithValue("kubelet", layout.Kubelet))
		g.Expect(r.Facts.Paths).To(HaveKeyWithValue("csi-proxy", `C:\k\csi-proxy.exe`))
		g.Expect(r.Facts.Traces).To(BeEmpty(), "nothing of the image is reset's to remove")
	})
}

func TestWhatTheImageLacksStopsTheFirstBootBeforeTheJoin(t *testing.T) {
	for name, tc := range map[string]struct {
		image func(*sim.Options)
		doc   func(*nodev1.NodeConfiguration)
		code  codes.Code
		says  []string
	}{
		"a kubelet of another version": {
			image: func(o *sim.Options) { o.Files[layout.Kubelet] = oldKubelet },
			code:  codes.ArtifactVersionMismatch, says: []string{"v1.35.1", "v1.36.3"},
		},
		"the same, listed as an artifact": {
			image: func(o *sim.Options) { o.Files[layout.Kubelet] = oldKubelet },
			doc: func(d *nodev1.NodeConfiguration) {
				d.Artifacts = []nodev1.Artifact{{Name: "kubelet", Destination: layout.Kubelet}}
			},
			code: codes.ArtifactVersionMismatch, says: []string{"v1.35.1", "v1.36.3"},
		},
		"a pre-release": {
			image: func(o *sim.Options) { o.Files[layout.Kubelet] = "MZ Kubernetes v1.36.3-rc.0" },
			code:  codes.ArtifactVersionMismatch, says: []string{"v1.36.3-rc.0"},
		},
		"no kubelet":    {image: func(o *sim.Options) { delete(o.Files, layout.Kubelet) }, code: codes.ProgramMissing, says: []string{layout.Kubelet}},
		"no containerd": {image: func(o *sim.Options) { delete(o.Files, layout.Containerd) }, code: codes.ProgramMissing, says: []string{layout.Containerd}},
		"no kubeadm":    {doc: func(d *nodev1.NodeConfiguration) { d.Join.Method = nodev1.JoinKubeadm }, code: codes.ProgramMissing, says: []string{layout.Kubeadm}},
		"no service":    {doc: func(d *nodev1.NodeConfiguration) { d.Services.CSIProxy = &nodev1.ServiceOptions{} }, code: codes.ProgramMissing, says: []string{"csi-proxy"}},
		"a broken kubelet": {
			image: func(o *sim.Options) { o.Files[layout.Kubelet] = "truncated" },
			code:  codes.ProgramUnusable, says: []string{layout.Kubelet, "exit code 1"},
		},
		"a file": {
			doc: func(d *nodev1.NodeConfiguration) {
				d.Artifacts = []nodev1.Artifact{{Name: "tool", Destination: `C:\k\tool.exe`}}
			},
			code: codes.ArtifactMissing, says: []string{"tool", `C:\k\tool.exe`},
		},
		"a file on media that are not attached": {
			doc: func(d *nodev1.NodeConfiguration) {
				d.Artifacts = []nodev1.Artifact{{Name: "tool", Destination: `C:\k\tool.exe`, Media: "tool.exe"}}
			},
			code: codes.ArtifactMissing, says: []string{"tool"},
		},
		"the right file": {
			doc: func(d *nodev1.NodeConfiguration) {
				d.Artifacts = []nodev1.Artifact{{Name: "kubelet", Destination: layout.Kubelet, SHA256: sum("another")}}
			},
			code: codes.ArtifactChecksum, says: []string{sum("another"), sum(kubelet)},
		},
		"what is in an archive": {
			image: func(o *sim.Options) { o.Files[`C:\opt\cni\bin\x\y`] = ""; o.Files[`C:\empty\x`] = "" },
			doc: func(d *nodev1.NodeConfiguration) {
				d.Artifacts = []nodev1.Artifact{{Name: "cni", Destination: `C:\not\there`, Archive: "Zip"}}
			},
			code: codes.ArtifactMissing, says: []string{"cni", `C:\not\there`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			phasetest.Test(t, image(nil, tc.image), phasetest.Document(tc.doc), artifacts.Phase(), func(_ *sim.Machine, _ phasetest.Result, err error) {
				g.Expect(phasetest.Code(err)).To(Equal(tc.code), "%v", err)
				for _, text := range tc.says {
					g.Expect(err).To(MatchError(ContainSubstring(text)))
				}
			})
		})
	}
}

func TestWhatMayComeLaterIsNotMissed(t *testing.T) {
	for name, change := range map[string]func(*nodev1.NodeConfiguration){
		"by a command": func(d *nodev1.NodeConfiguration) { d.PreJoinCommands = []nodev1.Command{{Args: []string{"x"}}} },
		"by a file":    func(d *nodev1.NodeConfiguration) { d.Files = []nodev1.File{{Path: `c:\K\csi-proxy.exe`}} },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			doc := phasetest.Document(func(d *nodev1.NodeConfiguration) {
				d.Services.CSIProxy = &nodev1.ServiceOptions{}
				change(d)
			})
			phasetest.Test(t, image(nil, nil), doc, artifacts.Phase(), func(_ *sim.Machine, _ phasetest.Result, err error) {
				g.Expect(err).NotTo(HaveOccurred())
			})
		})
	}
}

func TestTheImagesOwnContainerdNeedNotBeWhereOursIs(t *testing.T) {
	g := NewWithT(t)
	doc := phasetest.Document(func(d *nodev1.NodeConfiguration) { d.ContainerRuntime.Management = nodev1.Existing })
	o := image(nil, func(o *sim.Options) { delete(o.Files, layout.Containerd) })
	phasetest.Test(t, o, doc, artifacts.Phase(), func(_ *sim.Machine, r phasetest.Result, err error) {
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(r.Facts.Versions).NotTo(HaveKey("containerd"))
	})
}

// wanted is a document whose kubelet, CNI plug-ins and containerd come from a site.
func wanted(t *testing.T) (*site, *nodev1.NodeConfiguration) {
	t.Helper()
	plugins := zipOf(t, map[string]string{"cni/flannel.exe": "flannel", "cni/sub/host-local.exe": "local"})
	runtime := zipOf(t, map[string]string{"bin/containerd.exe": containerd, "bin/ctr.exe": strings.Repeat("ctr", 100_000)})
	s := newSite(map[string]string{"/v1.36.3/kubelet.exe": kubelet, "/cni.zip": plugins, "/containerd.zip": runtime})
	return s, phasetest.Document(func(d *nodev1.NodeConfiguration) {
		d.Artifacts = []nodev1.Artifact{
			{Name: "kubelet", Destination: layout.Kubelet, URL: "http://user:hunter2@files.example.com/v1.36.3/kubelet.exe?sig=hunter2", SHA256: sum(kubelet)},
			{Name: "CNI plug-ins", Destination: layout.CNIBinDir, URL: "http://files.example.com/cni.zip", SHA256: sum(plugins), StripComponents: 1},
			{Name: "containerd", Destination: layout.ContainerdDir, URL: "http://files.example.com/containerd.zip", SHA256: sum(runtime), StripComponents: 1, Version: "v2.2.0"},
		}
	})
}

func TestWhatTheImageLacksIsDownloaded(t *testing.T) {
	g := NewWithT(t)
	s, doc := wanted(t)
	o := image(s, func(o *sim.Options) {
		o.Files = map[string]string{layout.ContainerdConfig: "of the image", layout.CNIBinDir + `\host-local.exe`: "of the image"}
	})
	phasetest.Test(t, o, doc, artifacts.Phase(), func(m *sim.Machine, r phasetest.Result, err error) {
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(read(g, m, layout.Kubelet)).To(Equal(kubelet))
		g.Expect(read(g, m, layout.Containerd)).To(Equal(containerd))
		g.Expect(read(g, m, layout.CNIBinDir+`\flannel.exe`)).To(Equal("flannel"))
		g.Expect(read(g, m, layout.CNIBinDir+`\sub\host-local.exe`)).To(Equal("local"))
		g.Expect(read(g, m, layout.ContainerdConfig)).To(Equal("of the image"), "what else is in a folder stays")
		g.Expect(r.Facts.Versions).To(Equal(map[string]string{"kubelet": "v1.36.3", "containerd": "v2.2.0"}))
		g.Expect(r.Facts.Paths).To(HaveKeyWithValue("CNI plug-ins", layout.CNIBinDir))
		for _, path := range []string{layout.Kubelet, layout.Containerd, layout.CNIBinDir + `\flannel.exe`} {
			g.Expect(m.EffectiveACL(path)).To(Equal(host.ACLUsersRead), "a user must not change what SYSTEM runs: %s", path)
		}
		g.Expect(leftovers(m)).To(BeEmpty())
		var traces []string
		for _, trace := range r.Facts.Traces {
			traces = append(traces, trace.Name)
		}
		g.Expect(traces).To(ContainElements(layout.Kubelet, layout.CNIBinDir+`\flannel.exe`, layout.CNIBinDir+`\sub`, layout.Containerd))
		g.Expect(traces).NotTo(ContainElements(layout.CNIBinDir, layout.ContainerdDir, layout.CNIBinDir+`\host-local.exe`))

		// Once more, as after a crash: nothing is downloaded again.
		before := m.Snapshot()
		again := run(m, doc)
		g.Expect(again).To(Succeed())
		g.Expect(s.asked).To(Equal(map[string]int{"/v1.36.3/kubelet.exe": 1, "/cni.zip": 1, "/containerd.zip": 1}))
		g.Expect(m.Snapshot()).To(Equal(before))

		// What was taken away comes back.
		g.Expect(m.RemoveFile(layout.CNIBinDir + `\flannel.exe`)).To(Succeed())
		g.Expect(run(m, doc)).To(Succeed())
		g.Expect(read(g, m, layout.CNIBinDir+`\flannel.exe`)).To(Equal("flannel"))
	})
}

// run runs the phase's steps once more, without a journal that says that they are done.
func run(m *sim.Machine, doc *nodev1.NodeConfiguration) error {
	ctx := context.Background() // of the bubble that calls
	r := engine.NewRun(m.Host(), doc, &engine.Facts{}, func(context.Context) error { return nil })
	for _, s := range artifacts.Phase().Steps {
		if s.When == nil || s.When(r) {
			if err := s.Do(ctx, r); err != nil {
				return err
			}
		}
	}
	return nil
}

func TestAnImageOfAnotherVersionGetsTheRightOneEvenWhileItRuns(t *testing.T) {
	g := NewWithT(t)
	s, doc := wanted(t)
	runs := func(ctx context.Context, p *sim.Process) int {
		if len(p.Argv) > 1 {
			return program(ctx, p)
		}
		p.Running()
		<-ctx.Done()
		return 0
	}
	o := image(s, func(o *sim.Options) {
		o.Files[layout.Kubelet] = oldKubelet
		o.Programs["kubelet.exe"] = runs
		o.Services = []host.Service{{Name: "kubelet", Argv: []string{layout.Kubelet}, Start: host.StartAuto}}
	})
	phasetest.Test(t, o, doc, artifacts.Phase(), func(m *sim.Machine, r phasetest.Result, err error) {
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(read(g, m, layout.Kubelet)).To(Equal(kubelet))
		g.Expect(m.ServiceStatus("kubelet").State).To(Equal(host.ServiceRunning), "what runs is not disturbed")
		g.Expect(read(g, m, layout.Kubelet+".old-capw-0")).To(Equal(oldKubelet))
		g.Expect(r.Facts.Versions).To(HaveKeyWithValue("kubelet", "v1.36.3"))
		g.Expect(s.asked).NotTo(HaveKey("/containerd.zip"), "the image's has the version wanted")
	})
}

func TestMediaComeBeforeTheNetwork(t *testing.T) {
	s, doc := wanted(t)
	for i, name := range []string{`win\kubelet.exe`, "cni.zip", "containerd.zip"} {
		doc.Artifacts[i].Media = name
	}
	media := sim.Volume{Volume: host.Volume{Root: `E:\`, Kind: host.VolumeCDROM}, Files: map[string]string{
		`E:\win\kubelet.exe`: kubelet, `E:\cni.zip`: "of another release", `E:\containerd.zip`: s.files["/containerd.zip"],
	}}
	g := NewWithT(t)
	o := image(s, func(o *sim.Options) {
		o.Files = nil
		o.Volumes = []sim.Volume{{Volume: host.Volume{Root: `D:\`, Kind: host.VolumeFixed}, Files: map[string]string{`D:\win\kubelet.exe`: "of somebody"}}, media}
	})
	phasetest.Test(t, o, doc, artifacts.Phase(), func(m *sim.Machine, _ phasetest.Result, err error) {
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(read(g, m, layout.Kubelet)).To(Equal(kubelet))
		g.Expect(s.asked).To(Equal(map[string]int{"/cni.zip": 1}), "only what the media have not, or not right, is downloaded")
		g.Expect(m.EffectiveACL(layout.Kubelet)).To(Equal(host.ACLUsersRead))
		g.Expect(leftovers(m)).To(BeEmpty())
	})
}

func TestMediaAloneAreEnough(t *testing.T) {
	g := NewWithT(t)
	doc := phasetest.Document(func(d *nodev1.NodeConfiguration) {
		d.Artifacts = []nodev1.Artifact{
			{Name: "kubelet", Destination: layout.Kubelet, Media: "kubelet.exe"},
			{Name: "tool", Destination: `F:\tools\tool.exe`, Media: "kubelet.exe", SHA256: sum(kubelet)},
		}
	})
	o := image(nil, func(o *sim.Options) {
		delete(o.Files, layout.Kubelet)
		o.Volumes = []sim.Volume{
			{Volume: host.Volume{Root: `E:\`, Kind: host.VolumeRemovable}, Files: map[string]string{`E:\kubelet.exe`: kubelet}},
			{Volume: host.Volume{Root: `F:\`, Kind: host.VolumeFixed}},
		}
	})
	phasetest.Test(t, o, doc, artifacts.Phase(), func(m *sim.Machine, _ phasetest.Result, err error) {
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(read(g, m, layout.Kubelet)).To(Equal(kubelet))
		g.Expect(read(g, m, `F:\tools\tool.exe`)).To(Equal(kubelet), "also on another drive")
		g.Expect(m.Files()).NotTo(ContainElement(ContainSubstring(`.capw-`)))
	})
}

func TestWhatCannotBeHadEndsTheFirstBootWithItsCode(t *testing.T) {
	s, _ := wanted(t)
	evil := zipOf(t, map[string]string{"../../Windows/evil.dll": "evil"})
	s.files["/evil.zip"] = evil
	for name, tc := range map[string]struct {
		artifact nodev1.Artifact
		code     codes.Code
		says     string
	}{
		"not there":               {nodev1.Artifact{URL: "http://x:hunter2@files.example.com/none?k=hunter2", SHA256: sum("")}, codes.ArtifactRefused, "http://files.example.com/none: the server answers 404"},
		"not right":               {nodev1.Artifact{URL: "http://files.example.com/cni.zip", SHA256: sum("")}, codes.ArtifactChecksum, sum("")},
		"no sha256":               {nodev1.Artifact{URL: "http://files.example.com/cni.zip"}, codes.ArtifactInvalid, "sha256"},
		"no scheme":               {nodev1.Artifact{URL: "files.example.com/cni.zip", SHA256: sum("")}, codes.ArtifactInvalid, "url"},
		"a file URL":              {nodev1.Artifact{URL: "file:///c:/x?hunter2", SHA256: sum("")}, codes.ArtifactInvalid, "url"},
		"a relative destination":  {nodev1.Artifact{Destination: `k\x`}, codes.ArtifactInvalid, "destination"},
		"media that leave":        {nodev1.Artifact{Media: `..\x`}, codes.ArtifactInvalid, "media"},
		"absolute media":          {nodev1.Artifact{Media: `C:\x`}, codes.ArtifactInvalid, "media"},
		"an unknown archive":      {nodev1.Artifact{Archive: "Rar"}, codes.ArtifactInvalid, "archive"},
		"a malicious archive":     {nodev1.Artifact{URL: "http://files.example.com/evil.zip", SHA256: sum(evil)}, codes.ArtifactUnsafe, `"../../Windows/evil.dll"`},
		"no archive":              {nodev1.Artifact{URL: "http://files.example.com/v1.36.3/kubelet.exe", SHA256: sum(kubelet), Archive: "TarGz"}, codes.ArtifactUnsafe, "gzip"},
		"a folder in its place":   {nodev1.Artifact{Destination: `C:\Windows\System32`, Archive: "None"}, codes.ArtifactInvalid, "folder"},
		"a file in its place":     {nodev1.Artifact{Destination: layout.Containerd, Archive: "Zip"}, codes.ArtifactInvalid, "file"},
		"another version than it": {nodev1.Artifact{Name: "kubelet", Destination: layout.Kubelet, URL: "http://files.example.com/v1.36.3/kubelet.exe", SHA256: sum(kubelet), Version: "v1.36.4"}, codes.ArtifactVersionMismatch, "v1.36.4"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			doc := phasetest.Document(func(d *nodev1.NodeConfiguration) {
				a := tc.artifact
				if a.Name == "" {
					a.Name = "thing"
				}
				if a.Destination == "" {
					a.Destination = `C:\k\thing`
				}
				d.Artifacts = []nodev1.Artifact{a}
			})
			phasetest.Test(t, image(s, nil), doc, artifacts.Phase(), func(m *sim.Machine, r phasetest.Result, err error) {
				g.Expect(phasetest.Code(err)).To(Equal(tc.code), "%v", err)
				g.Expect(err).To(MatchError(ContainSubstring(tc.says)))
				g.Expect(err).NotTo(MatchError(ContainSubstring("hunter2")))
				g.Expect(m.Files()).NotTo(ContainElement(ContainSubstring("evil.dll")))
			})
		})
	}
}

func TestOneThatFailsDoesNotStopTheOthers(t *testing.T) {
	g := NewWithT(t)
	s, doc := wanted(t)
	delete(s.files, "/v1.36.3/kubelet.exe")
	phasetest.Test(t, image(s, func(o *sim.Options) { o.Files = nil }), doc, artifacts.Phase(), func(m *sim.Machine, _ phasetest.Result, err error) {
		g.Expect(phasetest.Code(err)).To(Equal(codes.ArtifactRefused))
		g.Expect(read(g, m, layout.CNIBinDir+`\flannel.exe`)).To(Equal("flannel"))
		g.Expect(read(g, m, layout.Containerd)).To(Equal(containerd))
	})
}

func TestANetworkThatComesLateIsWaitedFor(t *testing.T) {
	g := NewWithT(t)
	s, doc := wanted(t)
	var begin time.Time
	o := image(s, func(o *sim.Options) {
		o.Files = nil
		o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if begin.IsZero() {
				begin = time.Now()
			}
			if time.Since(begin) < 20*time.Minute {
				return nil, errors.New("no route to host")
			}
			return s.dial(ctx, network, address)
		}
	})
	phasetest.Test(t, o, doc, artifacts.Phase(), func(m *sim.Machine, r phasetest.Result, err error) {
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(read(g, m, layout.Kubelet)).To(Equal(kubelet))
		var messages []string
		for _, s := range r.Statuses {
			messages = append(messages, s.Message)
		}
		g.Expect(messages).To(ContainElement(ContainSubstring("http://files.example.com/")))
		g.Expect(messages).To(ContainElement(ContainSubstring("no route to host")))
		g.Expect(strings.Join(messages, "\n")).NotTo(ContainSubstring("hunter2"))
	})
}

func TestAtMostThreeDownloadsRunAtATime(t *testing.T) {
	g := NewWithT(t)
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		now, most := 0, 0
		s := newSite(map[string]string{})
		doc := phasetest.Document(func(d *nodev1.NodeConfiguration) {
			for i := range 8 {
				content := fmt.Sprint("file ", i)
				s.files[fmt.Sprint("/", i)] = content
				d.Artifacts = append(d.Artifacts, nodev1.Artifact{
					Name: fmt.Sprint("file ", i), Destination: fmt.Sprintf(`C:\k\%d`, i), URL: fmt.Sprintf("http://host%d/%d", i, i), SHA256: sum(content),
				})
			}
		})
		m := sim.New(image(s, func(o *sim.Options) {
			o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				mu.Lock()
				now++
				most = max(most, now)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				now--
				mu.Unlock()
				return s.dial(ctx, network, address)
			}
		}))
		defer m.PowerOff()
		_, err := phasetest.Run(t.Context(), m, doc, artifacts.Phase())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(most).To(Equal(3))
	})
}

func TestThePhaseSurvivesEveryFault(t *testing.T) {
	s, doc := wanted(t)
	doc.Artifacts[1].Media = "cni.zip"
	doc.Boot.DeadlineSeconds = 12 * 3600 // longer than a hang
	o := image(s, func(o *sim.Options) {
		o.Files = map[string]string{layout.Kubelet: oldKubelet, layout.CNIBinDir + `\flannel.exe`: "old"}
		o.Volumes = []sim.Volume{{Volume: host.Volume{Root: `E:\`, Kind: host.VolumeCDROM}, Files: map[string]string{`E:\cni.zip`: s.files["/cni.zip"]}}}
	})
	phasetest.Loop(t, o, doc, phasetest.UntilDead(artifacts.Phase()), nil)
}
