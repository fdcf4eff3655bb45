package containerd

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"strconv"

	"github.com/BurntSushi/toml"

	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
)

// Mark is the first line of a config.toml that Config has made.
const Mark = "# Written by capw-node from the node document: changes are lost."

// Options are what config.toml depends on.
type Options struct {
	// Version of the containerd that reads it, such as v2.2.0.
	Version string
	// PauseImage is the sandbox image.
	PauseImage string
	// CNIBinDir and CNIConfDir are the folders of the CNI plug-ins and of their configuration.
	CNIBinDir, CNIConfDir string
	// HyperVBuilds are the Windows builds, such as 20348, that a Hyper-V isolated runtime is made for.
	HyperVBuilds []int32
	// Extra is TOML in the layout of Version that is merged over the rest: tables are merged, everything else, lists too, is
	// replaced. It is merged here, and not by containerd's imports, as containerd 1.7 replaces a plug-in's whole table by
	// that of an imported file, and as a mistake is found before containerd fails to start.
	Extra string
}

// names of containerd's plug-ins.
const (
	criV2      = "io.containerd.grpc.v1.cri" // the CRI up to version 2 of the configuration
	criRuntime = "io.containerd.cri.v1.runtime"
	criImages  = "io.containerd.cri.v1.images"
)

// runtimes of Windows containers: https://github.com/containerd/containerd/blob/main/docs/cri/config.md.
const (
	shim           = "io.containerd.runhcs.v1"
	processRuntime = "runhcs-wcow-process"
	snapshotter    = "windows"
)

// maxConcurrentDownloads is containerd's default. Another value makes containerd 2.2 and later give up its transfer service.
const maxConcurrentDownloads = 3

type table = map[string]any

// configFile is the part of config.toml that all versions share.
type configFile struct {
	Version int    `toml:"version"`
	Root    string `toml:"root"`
	State   string `toml:"state"`
	GRPC    struct {
		Address string `toml:"address"`
	} `toml:"grpc"`
	Plugins map[string]any `toml:"plugins"`
}

type cni struct {
	BinDir  string   `toml:"bin_dir,omitempty"`
	BinDirs []string `toml:"bin_dirs,omitempty"`
	ConfDir string   `toml:"conf_dir"`
}

type registries struct {
	ConfigPath string `toml:"config_path"`
}

type runtimes struct {
	Snapshotter    string                `toml:"snapshotter,omitempty"` // of version 2
	DefaultRuntime string                `toml:"default_runtime_name"`
	Runtimes       map[string]runtimeOCI `toml:"runtimes"`
}

type runtimeOCI struct {
	Type                 string   `toml:"runtime_type"`
	PodAnnotations       []string `toml:"pod_annotations,omitempty"`
	ContainerAnnotations []string `toml:"container_annotations"`
	// Options of the shim, see runhcs.proto in github.com/Microsoft/hcsshim; names as the shim's Go type has them.
	Options table `toml:"options,omitempty"`
}

// criPluginV2 is the CRI in version 2: one plug-in.
type criPluginV2 struct {
	SandboxImage           string     `toml:"sandbox_image"`
	MaxConcurrentDownloads int        `toml:"max_concurrent_downloads"`
	CNI                    cni        `toml:"cni"`
	Containerd             runtimes   `toml:"containerd"`
	Registry               registries `toml:"registry"`
}

// runtimePlugin and imagesPlugin are the CRI from version 3 on: two plug-ins.
type runtimePlugin struct {
	CNI        cni      `toml:"cni"`
	Containerd runtimes `toml:"containerd"`
}

type imagesPlugin struct {
	Snapshotter            string                   `toml:"snapshotter"`
	MaxConcurrentDownloads int                      `toml:"max_concurrent_downloads"`
	PinnedImages           map[string]string        `toml:"pinned_images"`
	RuntimePlatforms       map[string]imagePlatform `toml:"runtime_platforms,omitempty"`
	Registry               registries               `toml:"registry"`
}

// imagePlatform says which of an index's images a runtime gets, where the kubelet names the runtime.
type imagePlatform struct {
	Platform    string `toml:"platform"`
	Snapshotter string `toml:"snapshotter"`
}

// Config returns config.toml.
func Config(o Options) ([]byte, error) {
	d, err := dialectOf(o.Version)
	if err != nil {
		return nil, err
	}
	out := configFile{Version: d.version, Root: layout.ContainerdRoot, State: layout.ContainerdState, Plugins: plugins(d, o)}
	out.GRPC.Address = layout.CRIPipe
	base, err := encode(out)
	if err != nil {
		return nil, err
	}
	merged := table{}
	if _, err := toml.Decode(string(base), &merged); err != nil {
		return nil, fmt.Errorf("reading back containerd's configuration: %w", err)
	}
	extra := table{}
	if _, err := toml.Decode(o.Extra, &extra); err != nil {
		return nil, fmt.Errorf("the additional TOML: %w", err)
	}
	if v, ok := extra["version"]; ok && v != int64(d.version) {
		return nil, fmt.Errorf("the additional TOML is of version %v, and containerd %s is configured in version %d", v, o.Version, d.version)
	}
	merge(merged, extra)
	content, err := encode(merged)
	if err != nil {
		return nil, err
	}
	return append([]byte(Mark+"\n"), content...), verify(content)
}

func plugins(d dialect, o Options) table {
	network := cni{ConfDir: o.CNIConfDir}
	if d.binDirs {
		network.BinDirs = []string{o.CNIBinDir}
	} else {
		network.BinDir = o.CNIBinDir
	}
	oci := runtimes{DefaultRuntime: processRuntime, Runtimes: ociRuntimes(o)}
	certs := registries{ConfigPath: layout.ContainerdCertsDir}
	if d.version == 2 {
		oci.Snapshotter = snapshotter
		return table{criV2: criPluginV2{
			SandboxImage: o.PauseImage, MaxConcurrentDownloads: maxConcurrentDownloads, CNI: network, Containerd: oci, Registry: certs,
		}}
	}
	platforms := map[string]imagePlatform{}
	for _, build := range o.HyperVBuilds {
		platforms[hyperVRuntime(build)] = imagePlatform{Platform: fmt.Sprintf("windows(10.0.%d)/amd64", build), Snapshotter: snapshotter}
	}
	return table{
		criRuntime: runtimePlugin{CNI: network, Containerd: oci},
		criImages: imagesPlugin{
			Snapshotter: snapshotter, MaxConcurrentDownloads: maxConcurrentDownloads,
			PinnedImages: map[string]string{"sandbox": o.PauseImage}, RuntimePlatforms: platforms, Registry: certs,
		},
	}
}

// ociRuntimes returns the runtimes that RuntimeClasses can name as their handler.
func ociRuntimes(o Options) map[string]runtimeOCI {
	containers := []string{"io.microsoft.container.*"}
	out := map[string]runtimeOCI{processRuntime: {Type: shim, ContainerAnnotations: containers}}
	for _, build := range o.HyperVBuilds {
		out[hyperVRuntime(build)] = runtimeOCI{
			Type:                 shim,
			PodAnnotations:       []string{"io.microsoft.virtualmachine.*"},
			ContainerAnnotations: containers,
			Options: table{
				"SandboxPlatform":         "windows/amd64",
				"SandboxIsolation":        1, // HYPERVISOR
				"ScaleCpuLimitsToSandbox": true,
			},
		}
	}
	return out
}

func hyperVRuntime(build int32) string {
	return "runhcs-wcow-hypervisor-" + strconv.FormatInt(int64(build), 10)
}

// merge lays over on base.
func merge(base, over table) {
	for key, value := range over {
		into, isTable := base[key].(table)
		from, bothTables := value.(table)
		if isTable && bothTables {
			merge(into, from)
			continue
		}
		base[key] = value
	}
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := toml.NewEncoder(&b)
	e.Indent = ""
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encoding TOML: %w", err)
	}
	return b.Bytes(), nil
}

// verify reads a finished config.toml and checks what the node cannot do without.
func verify(content []byte) error {
	var c configFile
	if _, err := toml.Decode(string(content), &c); err != nil {
		return fmt.Errorf("reading back containerd's configuration: %w", err)
	}
	if c.GRPC.Address != layout.CRIPipe {
		return fmt.Errorf("grpc.address is %q, and the kubelet asks %s", c.GRPC.Address, layout.CRIPipe)
	}
	name := criRuntime
	if c.Version == 2 {
		name = criV2
	}
	var oci struct {
		Containerd runtimes `toml:"containerd"`
	}
	cri, ok := c.Plugins[name].(table)
	if !ok {
		return fmt.Errorf("plugin %s is not a table", name)
	}
	raw, err := encode(maps.Clone(cri))
	if err != nil {
		return err
	}
	if _, err := toml.Decode(string(raw), &oci); err != nil {
		return fmt.Errorf("plugin %s: %w", name, err)
	}
	if _, ok := oci.Containerd.Runtimes[oci.Containerd.DefaultRuntime]; !ok {
		return errors.New("default_runtime_name names no runtime: " + oci.Containerd.DefaultRuntime)
	}
	return nil
}
