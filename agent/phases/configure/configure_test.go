package configure_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/containerd"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/configure"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/phasetest"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

const (
	cmd        = `C:\Windows\System32\cmd.exe`
	powershell = `C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe`
)

// known puts what phases before find out in front of the phase.
func known(p engine.Phase) engine.Phase {
	p.Steps = append([]engine.Step{{Name: "facts", Budget: engine.Retry(time.Minute, time.Second, 0), Do: func(_ context.Context, r *engine.Run) error {
		r.Facts.WindowsBuild = "10.0.20348"
		r.Facts.Versions = map[string]string{"containerd": "v2.2.0"}
		return nil
	}}}, p.Steps...)
	return p
}

// idle is a service that does nothing.
func idle(ctx context.Context, p *sim.Process) int {
	p.Running()
	<-ctx.Done()
	return 0
}

func withContainerd(change func(*sim.Options)) sim.Options {
	o := sim.Options{
		Programs: map[string]sim.Program{layout.Containerd: idle},
		Files:    map[string]string{layout.ContainerdConfig: "# of the image"},
		Services: []host.Service{{Name: layout.ContainerdService, Argv: []string{layout.Containerd}, Start: host.StartAuto}},
	}
	if change != nil {
		change(&o)
	}
	return o
}

func read(g Gomega, m *sim.Machine, path string) string {
	content, err := m.ReadFile(path)
	g.ExpectWithOffset(1, err).NotTo(HaveOccurred())
	return string(content)
}

func traces(r phasetest.Result) []string {
	var out []string
	for _, t := range r.Facts.Traces {
		out = append(out, t.Name)
	}
	return out
}

func TestContainerdGetsItsConfiguration(t *testing.T) {
	g := NewWithT(t)
	doc := phasetest.Document(func(d *nodev1.NodeConfiguration) {
		d.Services.CNI = &nodev1.CNI{Type: nodev1.CNIFlannelOverlay, BinDir: `D:\cni`}
		d.ContainerRuntime.ExtraTOML = "[debug]\nlevel = 'debug'"
	})
	phasetest.Test(t, withContainerd(nil), doc, known(configure.Phase()), func(m *sim.Machine, r phasetest.Result, err error) {
		g.Expect(err).NotTo(HaveOccurred())
		want, err := containerd.Config(containerd.Options{
			Version: "v2.2.0", PauseImage: "registry.k8s.io/pause:3.10.2", CNIBinDir: `D:\cni`, CNIConfDir: `C:\etc\cni\net.d`, Extra: "[debug]\nlevel = 'debug'",
		})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(read(g, m, layout.ContainerdConfig)).To(Equal(string(want)))
		g.Expect(read(g, m, layout.ContainerdConfig+".before-capw")).To(Equal("# of the image"))
		g.Expect(m.EffectiveACL(layout.ContainerdConfig)).To(Equal(host.ACLSystem))
		g.Expect(m.EffectiveACL(layout.ContainerdCertsDir)).To(Equal(host.ACLSystem))
		g.Expect(m.EffectiveACL(layout.ContainerdRoot)).To(Equal(host.ACLSystem))
		g.Expect(traces(r)).NotTo(ContainElement(layout.ContainerdConfig), "reset does not remove what the image brought")
	})
}

func TestAConfigurationThatIsRightIsNotWrittenAgain(t *testing.T) {
	g := NewWithT(t)
	doc := phasetest.Document(nil)
	want, err := containerd.Config(containerd.Options{
		Version: "v2.2.0", PauseImage: "registry.k8s.io/pause:3.10.2", CNIBinDir: layout.CNIBinDir, CNIConfDir: layout.CNIConfDir,
	})
	g.Expect(err).NotTo(HaveOccurred())
	o := withContainerd(func(o *sim.Options) { o.Files[layout.ContainerdConfig] = string(want) })
	o.Inject = func(c sim.Call) sim.Fault {
		if c.Op == "Files.Write" && c.Detail == layout.ContainerdConfig {
			return sim.Fault{Kind: sim.Fail}
		}
		return sim.Fault{}
	}
	phasetest.Test(t, o, doc, known(configure.Phase()), func(m *sim.Machine, _ phasetest.Result, err error) {
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(m.Files()).NotTo(ContainElement(layout.ContainerdConfig + ".before-capw"))
	})
}

func TestAContainerdOfTheImageIsLeftAlone(t *testing.T) {
	g := NewWithT(t)
	doc := phasetest.Document(func(d *nodev1.NodeConfiguration) {
		d.ContainerRuntime.Management = nodev1.Existing
		d.ContainerRuntime.Registries = []nodev1.Registry{{Host: "quay.io"}}
	})
	phasetest.Test(t, withContainerd(nil), doc, known(configure.Phase()), func(m *sim.Machine, _ phasetest.Result, err error) {
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(read(g, m, layout.ContainerdConfig)).To(Equal("# of the image"))
		synctest.Wait()
		g.Expect(m.ServiceStatus(layout.ContainerdService).State).To(Equal(host.ServiceRunning))
		g.Expect(m.Files()).NotTo(ContainElement(HavePrefix(layout.ContainerdCertsDir)))
	})
}

func TestRegistriesAndFilesAreNobodyElsesToRead(t *testing.T) {
	g := NewWithT(t)
	doc := phasetest.Document(func(d *nodev1.NodeConfiguration) {
		d.ContainerRuntime.Registries = []nodev1.Registry{
			{Host: "r.example.com:5000", Username: "u", Password: "p"},
			{Host: "quay.io", Mirrors: []nodev1.RegistryMirror{{URL: "https://m.example.com/org"}}},
		}
		d.Files = []nodev1.File{
			{Path: `C:\new\folder\secret.txt`, Content: []byte("s")},
			{Path: `C:\new\folder\public.txt`, Content: []byte{0, 1, 2}, ACL: nodev1.ACLUsersRead},
			{Path: `C:\Windows\System32\drivers.txt`, Content: []byte("x")},
			{Path: `C:\there.txt`, Content: []byte("new")},
		}
	})
	o := withContainerd(func(o *sim.Options) {
		o.Files[`C:\there.txt`] = "old"
		o.Files[layout.ContainerdCertsDir+`\mcr.microsoft.com\hosts.toml`] = "of the image"
	})
	phasetest.Test(t, o, doc, known(configure.Phase()), func(m *sim.Machine, r phasetest.Result, err error) {
		g.Expect(err).NotTo(HaveOccurred())
		for path, acl := range map[string]host.ACL{
			layout.ContainerdCertsDir + `\r.example.com_5000_\hosts.toml`: host.ACLSystem,
			layout.ContainerdCertsDir + `\quay.io\hosts.toml`:             host.ACLSystem,
			`C:\new\folder\secret.txt`:                                    host.ACLSystem,
			`C:\new\folder\public.txt`:                                    host.ACLUsersRead,
			`C:\Windows\System32`:                                         host.ACLInherited,
		} {
			g.Expect(m.EffectiveACL(path)).To(Equal(acl), path)
		}
		g.Expect(read(g, m, `C:\new\folder\public.txt`)).To(Equal("\x00\x01\x02"))
		g.Expect(read(g, m, `C:\there.txt`)).To(Equal("new"))
		g.Expect(read(g, m, layout.ContainerdCertsDir+`\mcr.microsoft.com\hosts.toml`)).To(Equal("of the image"))
		g.Expect(read(g, m, layout.ContainerdCertsDir+`\quay.io\hosts.toml`)).To(ContainSubstring("https://m.example.com/v2/org"))
		g.Expect(traces(r)).To(ContainElements(`C:\new\folder\secret.txt`, `C:\Windows\System32\drivers.txt`, layout.ContainerdCertsDir+`\quay.io\hosts.toml`))
		g.Expect(traces(r)).NotTo(ContainElement(`C:\there.txt`))
	})
}

func TestWhatCannotBeConfiguredEndsTheFirstBoot(t *testing.T) {
	for name, tc := range map[string]struct {
		doc  func(*nodev1.NodeConfiguration)
		then func(*engine.Facts)
		code codes.Code
	}{
		"a bad fragment": {doc: func(d *nodev1.NodeConfiguration) { d.ContainerRuntime.ExtraTOML = "[" }, code: codes.RuntimeConfigInvalid},
		"a bad registry": {doc: func(d *nodev1.NodeConfiguration) {
			d.ContainerRuntime.Registries = []nodev1.Registry{{Host: "a/b", Password: "hunter2"}}
		}, code: codes.RegistryInvalid},
		"an old Windows":    {then: func(f *engine.Facts) { f.WindowsBuild = "10.0.14393" }, code: codes.PauseImageUnknown},
		"an old containerd": {then: func(f *engine.Facts) { f.Versions["containerd"] = "v1.6.0" }, code: codes.RuntimeConfigInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			phase := known(configure.Phase())
			facts := phase.Steps[0].Do
			phase.Steps[0].Do = func(ctx context.Context, r *engine.Run) error {
				err := facts(ctx, r)
				if tc.then != nil {
					tc.then(r.Facts)
				}
				return err
			}
			phasetest.Test(t, withContainerd(nil), phasetest.Document(tc.doc), phase, func(m *sim.Machine, _ phasetest.Result, err error) {
				g.Expect(phasetest.Code(err)).To(Equal(tc.code), "%v", err)
				g.Expect(err).NotTo(MatchError(ContainSubstring("hunter2")))
				g.Expect(read(g, m, layout.ContainerdConfig)).To(Equal("# of the image"))
			})
		})
	}
}

// shell is an interpreter that does what the test says and remembers what it was given.
type shell struct {
	argv    [][]string
	scripts []string
	acls    []host.ACL
	run     func(ctx context.Context, p *sim.Process) int
}

func (s *shell) program(ctx context.Context, p *sim.Process) int {
	s.argv = append(s.argv, p.Argv)
	path := p.Argv[len(p.Argv)-1]
	if content, err := p.Host.Files.Read(ctx, path); err == nil {
		acl, _ := p.Host.Files.ACL(ctx, path)
		s.scripts, s.acls = append(s.scripts, string(content)), append(s.acls, acl)
	}
	if s.run == nil {
		return 0
	}
	return s.run(ctx, p)
}

func (s *shell) image() sim.Options {
	return sim.Options{Programs: map[string]sim.Program{cmd: s.program, powershell: s.program, `C:\tool.exe`: s.program}}
}

func only(commands ...nodev1.Command) *nodev1.NodeConfiguration {
	return phasetest.Document(func(d *nodev1.NodeConfiguration) {
		d.ContainerRuntime.Management = nodev1.Existing
		d.PreJoinCommands = commands
	})
}

func TestCommandsRunInOrderEachAsItsKindWants(t *testing.T) {
	g := NewWithT(t)
	s := &shell{}
	doc := only(
		nodev1.Command{Args: []string{`C:\tool.exe`, "a b", `"quoted"`, "%PATH%"}},
		nodev1.Command{Script: "echo one\necho two\r\n"},
		nodev1.Command{Script: "Write-Host ü", Shell: "PowerShell"},
		nodev1.Command{Script: "echo ü"},
	)
	phasetest.Test(t, s.image(), doc, configure.Phase(), func(m *sim.Machine, r phasetest.Result, err error) {
		g.Expect(err).NotTo(HaveOccurred())
		script := func(name string) string { return layout.Join(layout.StateDir, "command-preJoin-"+name) }
		g.Expect(s.argv).To(Equal([][]string{
			{`C:\tool.exe`, "a b", `"quoted"`, "%PATH%"},
			{cmd, "/d", "/c", script("1.cmd")},
			{powershell, "-NoProfile", "-NonInteractive", "-ExecutionPolicy", "Bypass", "-File", script("2.ps1")},
			{cmd, "/d", "/c", script("3.cmd")},
		}))
		g.Expect(s.scripts).To(Equal([]string{"echo one\r\necho two\r\n", "\ufeffWrite-Host ü", "@chcp 65001 >nul\r\necho ü"}))
		g.Expect(s.acls).To(HaveEach(host.ACLSystem))
		g.Expect(m.Files()).NotTo(ContainElement(ContainSubstring("command-preJoin")))
		g.Expect(r.Facts.RanCommands).To(Equal([]string{"preJoin/0", "preJoin/1", "preJoin/2", "preJoin/3"}))
	})
}

func TestACommandThatFailsEndsTheFirstBootUnlessTheDocumentSaysToContinue(t *testing.T) {
	for name, tc := range map[string]struct {
		run  func(ctx context.Context, p *sim.Process) int
		args []string
		code codes.Code
		says string
	}{
		"an exit code": {run: func(_ context.Context, p *sim.Process) int {
			_, _ = io.WriteString(p.Stdout, "out of luck\r\n")
			_, _ = io.WriteString(p.Stderr, "token abcdef.0123456789abcdef is no good")
			return 5
		}, code: codes.CommandFailed, says: "exit code 5: token <hidden> is no good\nout of luck"},
		"no end": {run: func(ctx context.Context, _ *sim.Process) int {
			<-ctx.Done()
			return 0
		}, code: codes.CommandTimeout, says: "did not end in 10s"},
		"no program": {args: []string{`C:\none.exe`}, code: codes.CommandFailed, says: "cannot be started"},
		"much output": {run: func(_ context.Context, p *sim.Process) int {
			_, _ = io.WriteString(p.Stdout, strings.Repeat("blah ", 10_000)+"the end")
			return 1
		}, code: codes.CommandFailed, says: "the end"},
	} {
		for _, onFailure := range []string{"Fail", "Continue"} {
			t.Run(name+", "+onFailure, func(t *testing.T) {
				g := NewWithT(t)
				s := &shell{run: tc.run}
				first := nodev1.Command{Name: "first", Script: "x", TimeoutSeconds: 10, OnFailure: onFailure}
				if tc.args != nil {
					first.Args = tc.args
				}
				second := nodev1.Command{Name: "second", Args: []string{`C:\tool.exe`}, OnFailure: "Continue", TimeoutSeconds: 1}
				phasetest.Test(t, s.image(), only(first, second), configure.Phase(), func(m *sim.Machine, r phasetest.Result, err error) {
					g.Expect(m.Files()).NotTo(ContainElement(ContainSubstring("command-preJoin")))
					if onFailure == "Continue" {
						g.Expect(err).NotTo(HaveOccurred())
						g.Expect(s.argv[len(s.argv)-1]).To(Equal([]string{`C:\tool.exe`}))
						return
					}
					g.Expect(phasetest.Code(err)).To(Equal(tc.code))
					g.Expect(err).To(MatchError(ContainSubstring(`"first"`)))
					g.Expect(err).To(MatchError(ContainSubstring(tc.says)))
					g.Expect(err).NotTo(MatchError(ContainSubstring("0123456789abcdef")))
					g.Expect(len(err.Error())).To(BeNumerically("<", 5000))
					g.Expect(len(s.argv)).To(BeNumerically("<=", 1), "it is tried once, and nothing after it")
				})
			})
		}
	}
}

func TestTheLogHasTheOutputAndNoSecret(t *testing.T) {
	g := NewWithT(t)
	synctest.Test(t, func(t *testing.T) {
		s := &shell{run: func(_ context.Context, p *sim.Process) int {
			_, _ = io.WriteString(p.Stdout, "joined with abcdef.0123456789abcdef, fine")
			return 0
		}}
		m := sim.New(s.image())
		defer m.PowerOff()
		var log strings.Builder
		ctx := logr.NewContext(t.Context(), funcr.New(func(_, args string) { log.WriteString(args + "\n") }, funcr.Options{}))
		_, err := phasetest.Run(ctx, m, only(nodev1.Command{Script: "set P=hunter2"}), configure.Phase())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(log.String()).To(ContainSubstring("joined with <hidden>, fine"))
		g.Expect(log.String()).NotTo(Or(ContainSubstring("0123456789abcdef"), ContainSubstring("hunter2")))
	})
}

func TestCommandsOfAnotherListAreOthers(t *testing.T) {
	g := NewWithT(t)
	synctest.Test(t, func(t *testing.T) {
		s := &shell{}
		m := sim.New(s.image())
		m.PowerOn(t.Context())
		defer m.PowerOff()
		doc := only(nodev1.Command{Args: []string{`C:\tool.exe`}})
		facts, saved := &engine.Facts{}, 0
		r := engine.NewRun(m.Host(), doc, facts, func(context.Context) error { saved++; return nil })
		for range 3 {
			g.Expect(configure.RunCommands(t.Context(), r, doc.PreJoinCommands, "preJoin")).To(Succeed())
			g.Expect(configure.RunCommands(t.Context(), r, doc.PreJoinCommands, "postJoin")).To(Succeed())
		}
		g.Expect(s.argv).To(HaveLen(2))
		g.Expect(saved).To(Equal(2))
	})
}

func TestACommandThatThePhaseInterruptsRunsAgain(t *testing.T) {
	g := NewWithT(t)
	synctest.Test(t, func(t *testing.T) {
		s := &shell{run: func(ctx context.Context, _ *sim.Process) int {
			<-ctx.Done()
			return 0
		}}
		m := sim.New(s.image())
		m.PowerOn(t.Context())
		defer m.PowerOff()
		doc := only(nodev1.Command{Script: "wait", OnFailure: "Continue"})
		facts := &engine.Facts{}
		r := engine.NewRun(m.Host(), doc, facts, func(context.Context) error { return nil })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := configure.RunCommands(ctx, r, doc.PreJoinCommands, "preJoin")
		g.Expect(errors.Is(err, context.DeadlineExceeded)).To(BeTrue(), "%v", err)
		g.Expect(facts.RanCommands).To(BeEmpty())
		g.Expect(m.Files()).NotTo(ContainElement(ContainSubstring("command-preJoin")), "its script may hold secrets")
	})
}

func TestThePhaseSurvivesEveryFault(t *testing.T) {
	doc := phasetest.Document(func(d *nodev1.NodeConfiguration) {
		d.ContainerRuntime.Registries = []nodev1.Registry{{Host: "quay.io", Mirrors: []nodev1.RegistryMirror{{URL: "https://m.example.com"}}}}
		d.Files = []nodev1.File{{Path: `C:\new\secret.txt`, Content: []byte("s")}}
		d.PreJoinCommands = []nodev1.Command{{Script: "one", OnFailure: "Continue"}, {Args: []string{`C:\tool.exe`}, OnFailure: "Continue"}}
		d.Boot.DeadlineSeconds = 12 * 3600 // longer than a hang
	})
	o := withContainerd(func(o *sim.Options) {
		o.Services = nil
		for _, path := range []string{cmd, `C:\tool.exe`} {
			o.Programs[path] = func(_ context.Context, p *sim.Process) int {
				_, _ = io.WriteString(p.Stdout, "ran")
				return 0
			}
		}
	})
	phasetest.Loop(t, o, doc, phasetest.UntilDead(known(configure.Phase())), nil)
}
