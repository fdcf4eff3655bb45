package conformance

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/BurntSushi/toml"
	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/containerd"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/test/env/assets"
)

// unknownKey is how containerd says that it ignores something: its own check of our spelling.
var unknownKey = regexp.MustCompile(`Ignoring unknown key.* key=(?:"([^"]+)"|(\S+))`)

func TestContainerdKnowsEveryKeyOfOurConfiguration(t *testing.T) {
	reader := containerdReader(t)
	for name, tc := range map[string]struct {
		version string
		ignored []string // by the containerd that reads here, which is a newer one
		extra   string
	}{
		"1.7, migrated":          {version: "v1.7.29"},
		"2.0 and 2.1":            {version: "v2.1.9", ignored: []string{"cni bin_dir"}},
		"2.2 and later":          {version: "v2.2.0"},
		"2.4":                    {version: "v2.4.2"},
		"2.4 with something odd": {version: "v2.4.2", extra: "[plugins.'io.containerd.cri.v1.images']\nodd = 1", ignored: []string{"odd"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			content, err := containerd.Config(containerd.Options{
				Version: tc.version, PauseImage: "registry.example.com/pause:1", CNIBinDir: `C:\cni\bin`, CNIConfDir: `C:\cni\conf`,
				HyperVBuilds: []int32{17763, 20348}, Extra: tc.extra,
			})
			g.Expect(err).NotTo(HaveOccurred())
			path := filepath.Join(t.TempDir(), "config.toml")
			g.Expect(os.WriteFile(path, content, 0o600)).To(Succeed())

			var stderr bytes.Buffer
			dump := exec.CommandContext(t.Context(), reader, "--config", path, "config", "dump")
			dump.Stderr = &stderr
			out, err := dump.Output()
			g.Expect(err).NotTo(HaveOccurred(), stderr.String())
			var ignored []string
			for _, match := range unknownKey.FindAllStringSubmatch(stderr.String(), -1) {
				ignored = append(ignored, match[1]+match[2])
			}
			g.Expect(ignored).To(Equal(tc.ignored), stderr.String())

			// What containerd understood.
			var understood struct {
				Root, State string
				Plugins     map[string]map[string]any
			}
			_, err = toml.Decode(string(out), &understood)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(understood.Root).To(Equal(`C:\ProgramData\containerd\root`))
			g.Expect(understood.State).To(Equal(`C:\ProgramData\containerd\state`))
			plugins := understood.Plugins
			g.Expect(plugins["io.containerd.server.v1.grpc"]).To(HaveKeyWithValue("address", `\\.\pipe\containerd-containerd`))
			images, runtime := plugins["io.containerd.cri.v1.images"], plugins["io.containerd.cri.v1.runtime"]
			g.Expect(images).To(HaveKeyWithValue("snapshotter", "windows"))
			g.Expect(images).To(HaveKeyWithValue("pinned_images", HaveKeyWithValue("sandbox", "registry.example.com/pause:1")))
			g.Expect(images).To(HaveKeyWithValue("registry", HaveKeyWithValue("config_path", `C:\Program Files\containerd\certs.d`)))
			g.Expect(images).To(HaveKeyWithValue("use_local_image_pull", false), "our settings must not turn off the transfer service")
			if tc.ignored == nil {
				g.Expect(runtime).To(HaveKeyWithValue("cni", And(
					HaveKeyWithValue("bin_dirs", []any{`C:\cni\bin`}), HaveKeyWithValue("conf_dir", `C:\cni\conf`))))
			}
			g.Expect(runtime).To(HaveKeyWithValue("containerd", And(
				HaveKeyWithValue("default_runtime_name", "runhcs-wcow-process"),
				HaveKeyWithValue("runtimes", And(
					HaveKeyWithValue("runhcs-wcow-process", HaveKeyWithValue("runtime_type", "io.containerd.runhcs.v1")),
					HaveKeyWithValue("runhcs-wcow-hypervisor-17763", HaveKeyWithValue("options", HaveKeyWithValue("SandboxIsolation", int64(1)))),
					HaveKey("runhcs-wcow-hypervisor-20348"))))))
			if tc.version != "v1.7.29" {
				g.Expect(images).To(HaveKeyWithValue("runtime_platforms", HaveKeyWithValue("runhcs-wcow-hypervisor-17763",
					HaveKeyWithValue("platform", "windows(10.0.17763)/amd64"))))
			}
		})
	}
}

func TestContainerdReachesRegistriesAsTheDocumentSays(t *testing.T) {
	type host struct {
		URL                 string
		Pull, Resolve, Push bool
		Header              map[string][]string
	}
	reader := containerdReader(t)
	for name, tc := range map[string]struct {
		registry nodev1.Registry
		image    string // the registry that an image's name begins with
		want     []host
	}{
		"a mirror that keeps images below an organization": {
			registry: nodev1.Registry{Host: "quay.io", Mirrors: []nodev1.RegistryMirror{{URL: "https://mirror.example.com/org/quay"}}},
			want: []host{
				{URL: "https://mirror.example.com/v2/org/quay", Pull: true, Resolve: true},
				{URL: "https://quay.io/v2", Pull: true, Resolve: true, Push: true},
			},
		},
		"mirrors in their order, with credentials of their own": {
			registry: nodev1.Registry{Host: "r.example.com:5000", Username: "u", Password: `p"\`, Mirrors: []nodev1.RegistryMirror{
				{URL: "https://z.example.com", Username: "a", Password: "1"},
				{URL: "https://a.example.com:8443/artifactory/docker", OverridePath: true},
				{URL: "http://m.example.com", Username: "ü", Password: "3"},
			}},
			want: []host{
				{URL: "https://z.example.com/v2", Pull: true, Resolve: true, Header: map[string][]string{"Authorization": {"Basic YTox"}}},
				{URL: "https://a.example.com:8443/artifactory/docker", Pull: true, Resolve: true},
				{URL: "http://m.example.com/v2", Pull: true, Resolve: true, Header: map[string][]string{"Authorization": {"Basic w7w6Mw=="}}},
				{URL: "https://r.example.com:5000/v2", Pull: true, Resolve: true, Push: true, Header: map[string][]string{"Authorization": {"Basic dTpwIlw="}}},
			},
		},
		"Docker Hub under its other name": {
			registry: nodev1.Registry{Host: "docker.io", Username: "u", Password: "p"},
			want:     []host{{URL: "https://registry-1.docker.io/v2", Pull: true, Resolve: true, Push: true, Header: map[string][]string{"Authorization": {"Basic dTpw"}}}},
		},
		"a server that is not the host": {
			registry: nodev1.Registry{Host: "k8s.example.com", Server: "https://real.example.com/sub"},
			want:     []host{{URL: "https://real.example.com/sub/v2", Pull: true, Resolve: true, Push: true}},
		},
		"a mirror of everything": {
			registry: nodev1.Registry{Host: "_default", Mirrors: []nodev1.RegistryMirror{{URL: "https://m.example.com"}}},
			image:    "mcr.microsoft.com",
			want: []host{
				{URL: "https://m.example.com/v2", Pull: true, Resolve: true},
				{URL: "https://mcr.microsoft.com/v2", Pull: true, Resolve: true, Push: true},
			},
		},
		"a mirror whose certificate nobody checks": {
			registry: nodev1.Registry{Host: "quay.io", Mirrors: []nodev1.RegistryMirror{{URL: "https://m.example.com", SkipVerify: true}}},
			want: []host{
				{URL: "https://m.example.com/v2", Pull: true, Resolve: true},
				{URL: "https://quay.io/v2", Pull: true, Resolve: true, Push: true},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			folder, files, err := containerd.Hosts(tc.registry)
			g.Expect(err).NotTo(HaveOccurred())
			root := t.TempDir()
			g.Expect(os.Mkdir(filepath.Join(root, folder), 0o750)).To(Succeed())
			for file, content := range files {
				g.Expect(os.WriteFile(filepath.Join(root, folder, file), content, 0o600)).To(Succeed())
			}
			image := tc.image
			if image == "" {
				image = tc.registry.Host
			}
			out, err := exec.CommandContext(t.Context(), reader, "hosts", root, image).CombinedOutput()
			g.Expect(err).NotTo(HaveOccurred(), string(out))
			var got []host
			g.Expect(json.Unmarshal(out, &got)).To(Succeed(), string(out))
			g.Expect(got).To(Equal(tc.want))
		})
	}
}

func containerdReader(t *testing.T) string {
	t.Helper()
	path, err := assets.Containerd(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
