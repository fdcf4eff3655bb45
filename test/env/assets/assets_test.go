package assets

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
)

// newTool writes a repository with one tool whose pinned library knows its version, and returns a builder for it.
func newTool(t *testing.T) (*builder, program) {
	t.Helper()
	root := t.TempDir()
	tool := filepath.Join(root, "hack", "tools", "tool")
	for name, content := range map[string]string{
		"go.mod":                 "module example.com/tool\n\ngo 1.26\n\nrequire example.com/lib v1.2.3\n\nreplace example.com/lib => ./lib\n",
		"go.sum":                 "",
		"main.go":                "package main\n\nimport \"example.com/lib/version\"\n\nfunc main() { print(version.Get()) }\n",
		"lib/go.mod":             "module example.com/lib\n\ngo 1.26\n",
		"lib/version/version.go": "package version\n\nvar gitVersion, gitMajor, gitMinor = \"unknown\", \"\", \"\"\n\nfunc Get() string { return gitVersion + \" \" + gitMajor + \" \" + gitMinor }\n",
	} {
		write(t, filepath.Join(tool, name), content)
	}
	p := program{name: "tool", module: "tool", pkg: "example.com/tool", path: "example.com/lib", stamp: "example.com/lib/version", minutes: "1 second"}
	return &builder{cache: t.TempDir(), root: root, toolchain: "this", progress: &bytes.Buffer{}}, p
}

func write(t *testing.T, path, content string) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(Succeed())
	g.Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
}

func TestAToolIsBuiltOnceAtThePinnedVersionWithProgress(t *testing.T) {
	g := NewWithT(t)
	b, p := newTool(t)
	path, err := b.ensure(t.Context(), p)
	g.Expect(err).NotTo(HaveOccurred())
	out, err := exec.CommandContext(t.Context(), path).CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(out)).To(Equal("v1.2.3 1 2"))
	g.Expect(b.progress.(*bytes.Buffer).String()).To(MatchRegexp(`^building tool v1\.2\.3 \(first time only, about 1 second\) \.\.\.\nbuilt tool in \d+s\n$`))

	b.progress = &bytes.Buffer{}
	g.Expect(b.ensure(t.Context(), p)).To(Equal(path))
	g.Expect(b.progress.(*bytes.Buffer).String()).To(BeEmpty(), "the second time it is there")
}

func TestAToolIsBuiltAgainWhenItsPinsOrTheToolchainChange(t *testing.T) {
	g := NewWithT(t)
	b, p := newTool(t)
	first, err := b.ensure(t.Context(), p)
	g.Expect(err).NotTo(HaveOccurred())

	b.toolchain = "other"
	second, err := b.ensure(t.Context(), p)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(second).NotTo(Equal(first))

	write(t, filepath.Join(b.root, "hack", "tools", "tool", "go.sum"), "example.com/other v1.0.0 h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n")
	third, err := b.ensure(t.Context(), p)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(third).NotTo(Equal(second))
}

func TestOfSeveralThatNeedAToolOneBuildsIt(t *testing.T) {
	g := NewWithT(t)
	b, p := newTool(t)
	outputs := make([]bytes.Buffer, 4)
	errs := make([]error, len(outputs))
	var wg sync.WaitGroup
	for i := range outputs {
		wg.Go(func() {
			// A builder of its own, as another process has.
			other := &builder{cache: b.cache, root: b.root, toolchain: b.toolchain, progress: &outputs[i]}
			_, errs[i] = other.ensure(t.Context(), p)
		})
	}
	wg.Wait()
	g.Expect(errs).To(HaveEach(BeNil()))
	var builds int
	for i := range outputs {
		builds += strings.Count(outputs[i].String(), "building ")
	}
	g.Expect(builds).To(Equal(1))
}

func TestABuildThatFailsLeavesNothingInTheCacheAndTellsWhatTheCompilerSaid(t *testing.T) {
	g := NewWithT(t)
	b, p := newTool(t)
	write(t, filepath.Join(b.root, "hack", "tools", "tool", "main.go"), "package main\n\nfunc main() { undefinedThing() }\n")
	_, err := b.ensure(t.Context(), p)
	g.Expect(err).To(MatchError(ContainSubstring("undefined: undefinedThing")))
	left, err := filepath.Glob(filepath.Join(b.cache, "bin", "*", "*"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(left).To(HaveEach(HaveSuffix(".lock")))
}

func TestGivenProgramsAreUsedAndCollectedInOneFolder(t *testing.T) {
	g := NewWithT(t)
	given := t.TempDir()
	for _, p := range programs() {
		write(t, filepath.Join(given, p.name), p.name)
	}
	t.Setenv("KUBEBUILDER_ASSETS", given)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	a, err := Ensure(t.Context(), Options{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(a.KubeAPIServer).To(Equal(filepath.Join(given, "kube-apiserver")))
	g.Expect(a.CAPICore).To(Equal(filepath.Join(given, "capi-core")))
	g.Expect(a.KubeadmExe).To(BeEmpty())
	for _, p := range programs() {
		if p.windows {
			g.Expect(filepath.Join(a.Dir, p.name)).NotTo(BeAnExistingFile())
		} else {
			g.Expect(os.ReadFile(filepath.Join(a.Dir, p.name))).To(BeEquivalentTo(p.name))
		}
	}

	// As "export KUBEBUILDER_ASSETS=$(go run ./test/cmd/assets)" does.
	t.Setenv("KUBEBUILDER_ASSETS", a.Dir)
	g.Expect(Ensure(t.Context(), Options{})).To(Equal(a))
}

func TestProgramsForWindowsAreProvidedToThoseWhoAskForThem(t *testing.T) {
	g := NewWithT(t)
	given := t.TempDir()
	for _, p := range programs() {
		write(t, filepath.Join(given, p.name), p.name)
	}
	t.Setenv("KUBEBUILDER_ASSETS", given)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	a, err := Ensure(t.Context(), Options{Windows: true})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(a.KubeadmExe).To(Equal(filepath.Join(given, "kubeadm.exe")))
	for _, p := range programs() {
		g.Expect(os.ReadFile(filepath.Join(a.Dir, p.name))).To(BeEquivalentTo(p.name))
	}
}

func TestAToolForWindowsIsAProgramForWindows(t *testing.T) {
	g := NewWithT(t)
	b, p := newTool(t)
	here, err := b.ensure(t.Context(), p)
	g.Expect(err).NotTo(HaveOccurred())
	p.windows = true
	there, err := b.ensure(t.Context(), p)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(there).NotTo(Equal(here))
	g.Expect(os.ReadFile(there)).To(HavePrefix("MZ"))
}

func TestThePinsOfTheToolModulesAreTheVersionsThatAreStamped(t *testing.T) {
	g := NewWithT(t)
	root, err := Root(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	for _, p := range programs() {
		gomod, err := os.ReadFile(filepath.Join(root, "hack", "tools", p.module, "go.mod"))
		g.Expect(err).NotTo(HaveOccurred())
		version, err := pinnedVersion(gomod, p.path)
		g.Expect(err).NotTo(HaveOccurred(), p.name)
		if p.stamp != "" {
			g.Expect(linkerFlags(p, version)).To(ContainSubstring("-X " + p.stamp + ".gitVersion=" + version))
		}
	}
	g.Expect(linkerFlags(program{stamp: "p"}, "v1.36.3")).To(Equal("-s -w -X p.gitVersion=v1.36.3 -X p.gitMajor=1 -X p.gitMinor=36 -X p.gitTreeState=clean"))
}

func TestOurOwnProgramsAreBuiltFromTheWorkingTree(t *testing.T) {
	g := NewWithT(t)
	out := filepath.Join(t.TempDir(), "assets")
	t.Setenv("GOFLAGS", "-n") // a flag of the user that would make go build print instead of build
	g.Expect(Build(t.Context(), "./test/cmd/assets", out)).To(Succeed())
	info, err := os.Stat(out)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Mode().Perm()&0o100).NotTo(BeZero(), "executable")

	exe := filepath.Join(t.TempDir(), "recorder.exe")
	g.Expect(BuildWindows(t.Context(), "./test/wine/programs/recorder", exe)).To(Succeed())
	g.Expect(os.ReadFile(exe)).To(HavePrefix("MZ"))

	test := filepath.Join(t.TempDir(), "test.exe")
	g.Expect(BuildWindowsTest(t.Context(), "./api/node/v1alpha1", test)).To(Succeed())
	g.Expect(os.ReadFile(test)).To(HavePrefix("MZ"))
	g.Expect(BuildWindowsTest(t.Context(), "./version", test+"2")).To(MatchError("building tests of ./version: it has none"))

	g.Expect(Build(t.Context(), "./test/cmd/missing", out+"2")).To(MatchError(ContainSubstring("building ./test/cmd/missing")))
}

func TestTheSourceOfClusterAPIIsAtHand(t *testing.T) {
	g := NewWithT(t)
	m, err := CAPIModule(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(m.Version).To(HavePrefix("v1.14."))
	g.Expect(filepath.Join(m.Dir, "core", "config", "default", "kustomization.yaml")).To(BeARegularFile())
}
