package containerd

import (
	"testing"

	"github.com/BurntSushi/toml"
	. "github.com/onsi/gomega"
)

func options(change func(*Options)) Options {
	o := Options{
		Version: "v2.4.2", PauseImage: "registry.k8s.io/pause:3.10.2", CNIBinDir: `C:\opt\cni\bin`, CNIConfDir: `C:\etc\cni\net.d`,
	}
	if change != nil {
		change(&o)
	}
	return o
}

// decoded is config.toml as any reader of TOML sees it.
func decoded(t *testing.T, content []byte) func(path ...string) any {
	t.Helper()
	var all map[string]any
	if _, err := toml.Decode(string(content), &all); err != nil {
		t.Fatal(err)
	}
	return func(path ...string) any {
		var at any = all
		for _, key := range path {
			section, _ := at.(map[string]any)
			at = section[key]
		}
		return at
	}
}

func TestConfigIsInTheLayoutOfTheContainerdThatReadsIt(t *testing.T) {
	for version, want := range map[string]struct {
		version int64
		// where the CNI, the runtimes, the snapshotter and the pause image stand
		cni, containerd, snapshotter, pause []string
		binDir                              string
		bin                                 any
	}{
		"v1.7.29": {2, []string{criV2, "cni"}, []string{criV2, "containerd"}, []string{criV2, "containerd", "snapshotter"}, []string{criV2, "sandbox_image"}, "bin_dir", `C:\opt\cni\bin`},
		"v2.1.9":  {3, []string{criRuntime, "cni"}, []string{criRuntime, "containerd"}, []string{criImages, "snapshotter"}, []string{criImages, "pinned_images", "sandbox"}, "bin_dir", `C:\opt\cni\bin`},
		"v2.3.7":  {3, []string{criRuntime, "cni"}, []string{criRuntime, "containerd"}, []string{criImages, "snapshotter"}, []string{criImages, "pinned_images", "sandbox"}, "bin_dirs", []any{`C:\opt\cni\bin`}},
		"v2.4.0":  {3, []string{criRuntime, "cni"}, []string{criRuntime, "containerd"}, []string{criImages, "snapshotter"}, []string{criImages, "pinned_images", "sandbox"}, "bin_dirs", []any{`C:\opt\cni\bin`}},
		"v2.9.1":  {3, []string{criRuntime, "cni"}, []string{criRuntime, "containerd"}, []string{criImages, "snapshotter"}, []string{criImages, "pinned_images", "sandbox"}, "bin_dirs", []any{`C:\opt\cni\bin`}},
	} {
		t.Run(version, func(t *testing.T) {
			g := NewWithT(t)
			content, err := Config(options(func(o *Options) { o.Version = version }))
			g.Expect(err).NotTo(HaveOccurred())
			at := decoded(t, content)
			plugin := func(path []string, more ...string) any {
				return at(append(append([]string{"plugins"}, path...), more...)...)
			}
			g.Expect(at("version")).To(Equal(want.version))
			g.Expect(at("grpc", "address")).To(Equal(`\\.\pipe\containerd-containerd`))
			g.Expect(at("root")).To(Equal(`C:\ProgramData\containerd\root`))
			g.Expect(plugin(want.cni)).To(HaveLen(2), "bin_dir and bin_dirs exclude each other")
			g.Expect(plugin(want.cni, want.binDir)).To(Equal(want.bin))
			g.Expect(plugin(want.cni, "conf_dir")).To(Equal(`C:\etc\cni\net.d`))
			g.Expect(plugin(want.containerd, "default_runtime_name")).To(Equal("runhcs-wcow-process"))
			g.Expect(plugin(want.containerd, "runtimes", "runhcs-wcow-process", "runtime_type")).To(Equal("io.containerd.runhcs.v1"))
			g.Expect(plugin(want.snapshotter)).To(Equal("windows"))
			g.Expect(plugin(want.pause)).To(Equal("registry.k8s.io/pause:3.10.2"))
		})
	}
}

func TestConfigIsTheSameEveryTime(t *testing.T) {
	g := NewWithT(t)
	o := options(func(o *Options) { o.HyperVBuilds = []int32{26100, 20348, 17763} })
	first, err := Config(o)
	g.Expect(err).NotTo(HaveOccurred())
	for range 20 { // or containerd would be restarted for nothing
		g.Expect(Config(o)).To(Equal(first))
	}
}

func TestEachHyperVBuildHasARuntimeThatGetsItsImages(t *testing.T) {
	g := NewWithT(t)
	content, err := Config(options(func(o *Options) { o.HyperVBuilds = []int32{17763, 20348} }))
	g.Expect(err).NotTo(HaveOccurred())
	at := decoded(t, content)
	for _, build := range []string{"17763", "20348"} {
		name := "runhcs-wcow-hypervisor-" + build
		g.Expect(at("plugins", criRuntime, "containerd", "runtimes", name, "options")).To(Equal(map[string]any{
			"SandboxIsolation": int64(1), "SandboxPlatform": "windows/amd64", "ScaleCpuLimitsToSandbox": true,
		}))
		g.Expect(at("plugins", criImages, "runtime_platforms", name, "platform")).To(Equal("windows(10.0." + build + ")/amd64"))
	}
	g.Expect(at("plugins", criRuntime, "containerd", "runtimes")).To(HaveLen(3))
}

func TestExtraIsMergedOverTheRest(t *testing.T) {
	g := NewWithT(t)
	content, err := Config(options(func(o *Options) {
		o.Extra = `
oom_score = -5
[debug]
level = "debug"
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ['D:\cni', 'C:\opt\cni\bin']
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.mine]
runtime_type = "io.containerd.runhcs.v1"
[plugins."io.containerd.nri.v1.nri"]
disable = true
`
	}))
	g.Expect(err).NotTo(HaveOccurred())
	at := decoded(t, content)
	g.Expect(at("oom_score")).To(Equal(int64(-5)))
	g.Expect(at("debug", "level")).To(Equal("debug"))
	g.Expect(at("plugins", criRuntime, "cni", "bin_dirs")).To(Equal([]any{`D:\cni`, `C:\opt\cni\bin`}))
	g.Expect(at("plugins", criRuntime, "cni", "conf_dir")).To(Equal(`C:\etc\cni\net.d`), "the rest of a table stays")
	g.Expect(at("plugins", criRuntime, "containerd", "runtimes")).To(HaveLen(2))
	g.Expect(at("plugins", "io.containerd.nri.v1.nri", "disable")).To(BeTrue())
}

func TestConfigRefusesWhatContainerdCouldNotRunWith(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"an old containerd":             func(o *Options) { o.Version = "v1.6.38" },
		"a future one":                  func(o *Options) { o.Version = "v3.0.0" },
		"no version":                    func(o *Options) { o.Version = "" },
		"what is no TOML":               func(o *Options) { o.Extra = "[plugins" },
		"a fragment of another version": func(o *Options) { o.Extra = "version = 2" },
		"another pipe":                  func(o *Options) { o.Extra = "[grpc]\naddress = 'npipe:////./pipe/other'" },
		"a default runtime that is not": func(o *Options) {
			o.Extra = "[plugins.'io.containerd.cri.v1.runtime'.containerd]\ndefault_runtime_name = 'runc'"
		},
		"a text where a table is": func(o *Options) { o.Extra = "[plugins]\n'io.containerd.cri.v1.runtime' = 'x'" },
		"runtimes of another kind": func(o *Options) {
			o.Extra = "[plugins.'io.containerd.cri.v1.runtime'.containerd]\nruntimes = 1"
		},
	} {
		if content, err := Config(options(change)); err == nil {
			t.Errorf("%s: no error, but\n%s", name, content)
		}
	}
}

func TestThePauseImageFitsTheBuild(t *testing.T) {
	for build, there := range map[string]bool{
		"10.0.17763": true, "10.0.20348": true, "10.0.25398": true, "10.0.26100": true, "10.0.29000": true,
		"10.0.14393": false, "10.0.19045": false, "": false, "6.3.9600": false,
	} {
		image, err := PauseImage(build)
		if (err == nil) != there || (image != "") != there {
			t.Errorf("%q: %q, %v", build, image, err)
		}
	}
}
