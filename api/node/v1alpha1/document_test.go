package v1alpha1

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

const certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"

// full has a value in every field.
func full() *NodeConfiguration {
	c := valid()
	service := ServiceOptions{Path: `C:\k\a.exe`, ExtraArgs: []string{"--v=4"}, PriorityClass: PriorityHigh, Log: LogRotation{MaxSizeMiB: 1, MaxFiles: 2, MaxAgeHours: 3}}
	c.Node.IP = NodeIPInfo{CIDRs: []string{"10.0.0.0/8", "fd00::/8"}, MAC: "00:50:56:aa:bb:01"}
	c.Join.Method = JoinKubeadm
	c.Join.Kubeadm = KubeadmInfo{Path: `C:\k\kubeadm.exe`, IgnorePreflightErrors: []string{"Hostname"}, SkipPhases: []string{"preflight"}}
	c.Kubelet = KubeletInfo{ServiceOptions: service, Config: &runtime.RawExtension{Raw: []byte(`{"maxPods":50}`)}, CloudProvider: "external"}
	c.ContainerRuntime = ContainerRuntimeInfo{
		ServiceOptions: service, Management: Managed, PauseImage: "registry.example.com/pause:3.10", HyperVBuilds: []int32{20348}, ExtraTOML: "version = 2",
		Registries: []Registry{{
			Host: "registry.example.com:5000", Server: "https://registry.example.com:5000", CA: certificate, Username: "u", Password: "secret-r",
			Mirrors: []RegistryMirror{{URL: "https://mirror.example.com/v2/x", OverridePath: true, CA: certificate, SkipVerify: true, Username: "u", Password: "secret-m"}},
		}},
	}
	c.Services = ServicesInfo{
		CNI: &CNI{
			ServiceOptions: service, Type: CNIFlannelOverlay, BinDir: `C:\opt\cni\bin`, ConfDir: `C:\etc\cni\net.d`, PodCIDR: "10.244.0.0/16",
			ServiceCIDR: "10.96.0.0/12", DNSServers: []string{"10.96.0.10"}, DNSSearch: []string{"svc.cluster.local"}, VNI: 4096, Port: 4789, Config: "x: y",
		},
		KubeProxy: &KubeProxy{
			ServiceOptions: service, NetworkName: "vxlan0", SourceVIP: "10.244.1.2", DirectServerReturn: "Enabled", ClusterCIDR: "10.244.0.0/16",
			FeatureGates: map[string]bool{"WinDSR": true}, Kubeconfig: `C:\k\config`,
		},
		CSIProxy:         &service,
		WindowsExporter:  &WindowsExporter{ServiceOptions: service, Port: 9182, Collectors: []string{"cpu"}, TLS: "Files", TLSCertFile: `C:\c`, TLSKeyFile: `C:\k`},
		CloudNodeManager: &CloudNodeManager{ServiceOptions: service, Kubeconfig: `C:\k\config`, WaitRoutes: "Enabled"},
		Additional:       []AdditionalService{{ServiceOptions: service, Name: "mine", Args: []string{"a"}, Kind: "Service", DependsOn: []string{"kubelet"}, Environment: map[string]string{"A": "b"}}},
	}
	c.Artifacts = []Artifact{{
		Name: "kubelet", Destination: `C:\k\kubelet.exe`, URL: "https://example.com/k.zip", SHA256: strings.Repeat("0", 64), Media: `bin\k.zip`,
		Archive: "Zip", StripComponents: 1, Version: "v1.36.3",
	}}
	c.OS = OSInfo{
		Build: "10.0.20348", Features: []string{"Containers"}, TimeZone: "UTC", NTPServers: []string{"time.example.com"},
		Users:      []User{{Name: "ops", FullName: "Ops", Password: "secret-u", Groups: []string{"S-1-5-32-544"}, SSHAuthorizedKeys: []string{"ssh-ed25519 AAAA ops"}}},
		Proxy:      ProxyInfo{HTTP: "http://proxy:3128", HTTPS: "http://proxy:3128", NoProxy: []string{"example.com"}},
		TrustedCAs: []string{certificate}, Environment: map[string]string{"A": "b"},
		Registry:     []RegistryValue{{Key: `HKLM\SOFTWARE\x`, Name: "n", Type: "MultiString", Value: "v", Values: []string{"a"}}},
		Firewall:     []FirewallRule{{Name: "web", Protocol: "TCP", Ports: []string{"80", "8000-8080"}, Program: `C:\a.exe`, RemoteAddresses: []string{"10.0.0.0/8"}}},
		DynamicPorts: PortRange{Start: 34000, Count: 31536}, Defender: "None", PageFile: PageFile{InitialMiB: 1024, MaximumMiB: 2048},
		DomainJoin: &DomainJoin{Domain: "example.com", OU: "OU=x", Username: "join", Password: "secret-d"},
		CCGPlugins: []CCGPlugin{{CLSID: "{CCC2A336-D7F3-4818-A213-272B7924213E}", Path: `C:\p.dll`}}, LogRotation: LogRotation{MaxSizeMiB: 1, MaxFiles: 1, MaxAgeHours: 1},
	}
	c.Network.Adapters = []AdapterInfo{{
		MAC: "00:50:56:aa:bb:01", DHCP: "Disabled", Addresses: []string{"10.0.0.5/24"}, Gateways: []string{"10.0.0.1", "fd00::1"},
		Routes: []Route{{To: "10.1.0.0/16", Via: "10.0.0.2", Metric: 5}}, DNSServers: []string{"10.0.0.3"}, SearchDomains: []string{"example.com"}, MTU: 1400,
	}}
	c.Files = []File{{Path: `C:\secret.txt`, Content: []byte("secret-f"), ACL: ACLUsersRead}}
	c.PreJoinCommands = []Command{{Name: "one", Args: []string{`C:\a.exe`, "b"}, Shell: "Cmd", TimeoutSeconds: 5, OnFailure: "Continue"}}
	c.PostJoinCommands = []Command{{Name: "two", Script: "echo secret-c", Shell: "PowerShell", TimeoutSeconds: 5, OnFailure: "Fail"}}
	c.Boot = BootInfo{MaxBoots: 1, DeadlineSeconds: 60, StatusPort: "COM1", WaitFor: "Registered"}
	return c
}

func TestADocumentThatUsesEveryFieldIsValid(t *testing.T) {
	c := full()
	// A field that is added and not set here would escape the tests below.
	unset := map[string]bool{}
	zeroFields(reflect.ValueOf(*c), "", unset)
	for _, allowed := range []string{".Node.Taints.TimeAdded", ".OS.DomainJoin.OfflineBlob", ".PreJoinCommands.Script", ".PostJoinCommands.Args", ".Kubelet.Config.Object"} {
		delete(unset, allowed)
	}
	if len(unset) > 0 {
		t.Errorf("the full document does not set %v", unset)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

// zeroFields collects the paths of fields that are not set.
func zeroFields(v reflect.Value, path string, out map[string]bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			out[path] = true
			return
		}
		zeroFields(v.Elem(), path, out)
	case reflect.Struct:
		for i := range v.NumField() {
			zeroFields(v.Field(i), path+"."+v.Type().Field(i).Name, out)
		}
	case reflect.Slice:
		if v.Len() == 0 {
			out[path] = true
		}
		for i := range v.Len() {
			if k := v.Index(i).Kind(); k == reflect.Struct || k == reflect.Pointer {
				zeroFields(v.Index(i), path, out)
			}
		}
	default:
		if v.IsZero() {
			out[path] = true
		}
	}
}

func TestValidateNamesTheOptionalFieldThatIsWrong(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*NodeConfiguration)
		field  string
	}{
		"an address range twice for a family": {func(c *NodeConfiguration) { c.Node.IP.CIDRs[1] = "192.168.0.0/16" }, "node.ip.cidrs[1]"},
		"a node MAC with dashes":              {func(c *NodeConfiguration) { c.Node.IP.MAC = "00-50-56-aa-bb-01" }, "node.ip.mac"},
		"another join method":                 {func(c *NodeConfiguration) { c.Join.Method = "SSH" }, "join.method"},
		"a POSIX path":                        {func(c *NodeConfiguration) { c.Join.Kubeadm.Path = "/usr/bin/kubeadm" }, "join.kubeadm.path"},
		"a path with forward slashes":         {func(c *NodeConfiguration) { c.Kubelet.Path = `C:/k/kubelet.exe` }, "kubelet.path"},
		"a path with a step upwards":          {func(c *NodeConfiguration) { c.Kubelet.Path = `C:\k\..\kubelet.exe` }, "kubelet.path"},
		"a stream of a file":                  {func(c *NodeConfiguration) { c.Files[0].Path = `C:\a.txt:stream` }, "files[0].path"},
		"an argument of two lines":            {func(c *NodeConfiguration) { c.Kubelet.ExtraArgs = []string{"a\nb"} }, "kubelet.extraArgs[0]"},
		"the priority Realtime":               {func(c *NodeConfiguration) { c.Kubelet.PriorityClass = "Realtime" }, "kubelet.priorityClass"},
		"a list as kubelet configuration":     {func(c *NodeConfiguration) { c.Kubelet.Config.Raw = []byte("[]") }, "kubelet.config"},
		"another kind as configuration":       {func(c *NodeConfiguration) { c.Kubelet.Config.Raw = []byte(`{"kind":"Pod"}`) }, "kubelet.config.kind"},
		"an in-tree cloud provider":           {func(c *NodeConfiguration) { c.Kubelet.CloudProvider = "vsphere" }, "kubelet.cloudProvider"},
		"a registry with a scheme":            {func(c *NodeConfiguration) { c.ContainerRuntime.Registries[0].Host = "https://r" }, "containerRuntime.registries[0].host"},
		"a registry twice": {func(c *NodeConfiguration) {
			r := &c.ContainerRuntime.Registries
			*r = append(*r, *r...)
		}, "containerRuntime.registries[1].host"},
		"a mirror without scheme":       {func(c *NodeConfiguration) { c.ContainerRuntime.Registries[0].Mirrors[0].URL = "mirror" }, "containerRuntime.registries[0].mirrors[0].url"},
		"a user without password":       {func(c *NodeConfiguration) { c.ContainerRuntime.Registries[0].Password = "" }, "containerRuntime.registries[0].username"},
		"another network":               {func(c *NodeConfiguration) { c.Services.CNI.Type = "Weave" }, "services.cni.type"},
		"a network without a type":      {func(c *NodeConfiguration) { c.Services.CNI.Type = "" }, "services.cni.type"},
		"a pod range without length":    {func(c *NodeConfiguration) { c.Services.CNI.PodCIDR = "10.244.0.0" }, "services.cni.podCIDR"},
		"kube-proxy without a network":  {func(c *NodeConfiguration) { c.Services.CNI = nil; c.Services.KubeProxy.NetworkName = "" }, "services.kubeProxy.networkName"},
		"an exporter without key":       {func(c *NodeConfiguration) { c.Services.WindowsExporter.TLSKeyFile = "" }, "services.windowsExporter.tls"},
		"a service named kubelet":       {func(c *NodeConfiguration) { c.Services.Additional[0].Name = "Kubelet" }, "services.additional[0].name"},
		"a service without program":     {func(c *NodeConfiguration) { c.Services.Additional[0].Path = "" }, "services.additional[0].path"},
		"a download without checksum":   {func(c *NodeConfiguration) { c.Artifacts[0].SHA256 = "" }, "artifacts[0].sha256"},
		"a URL with a password":         {func(c *NodeConfiguration) { c.Artifacts[0].URL = "https://u:p@example.com/x" }, "artifacts[0].url"},
		"media outside of its volume":   {func(c *NodeConfiguration) { c.Artifacts[0].Media = `..\x` }, "artifacts[0].media"},
		"an unknown archive":            {func(c *NodeConfiguration) { c.Artifacts[0].Archive = "Rar" }, "artifacts[0].archive"},
		"a file twice":                  {func(c *NodeConfiguration) { c.Files = append(c.Files, File{Path: `c:\SECRET.TXT`}) }, "files[1].path"},
		"a command without anything":    {func(c *NodeConfiguration) { c.PreJoinCommands[0].Args = nil }, "preJoinCommands[0]"},
		"a command found by luck":       {func(c *NodeConfiguration) { c.PreJoinCommands[0].Args[0] = "a.exe" }, "preJoinCommands[0].args[0]"},
		"an unknown shell":              {func(c *NodeConfiguration) { c.PostJoinCommands[0].Shell = "Bash" }, "postJoinCommands[0].shell"},
		"a build without major version": {func(c *NodeConfiguration) { c.OS.Build = "20348" }, "os.build"},
		"a long user name":              {func(c *NodeConfiguration) { c.OS.Users[0].Name = strings.Repeat("u", 21) }, "os.users[0].name"},
		"a key of two lines":            {func(c *NodeConfiguration) { c.OS.Users[0].SSHAuthorizedKeys[0] += "\nssh-rsa x" }, "os.users[0].sshAuthorizedKeys[0]"},
		"a CA that is a key": {func(c *NodeConfiguration) {
			c.OS.TrustedCAs[0] = strings.ReplaceAll(certificate, "CERTIFICATE", "PRIVATE KEY")
		}, "os.trustedCAs[0]"},
		"a key of a user's hive":    {func(c *NodeConfiguration) { c.OS.Registry[0].Key = `HKCU\x` }, "os.registry[0].key"},
		"a number that is none":     {func(c *NodeConfiguration) { c.OS.Registry[0].Type = "DWord" }, "os.registry[0].value"},
		"a rule without protocol":   {func(c *NodeConfiguration) { c.OS.Firewall[0].Protocol = "" }, "os.firewall[0].protocol"},
		"ports in the wrong order":  {func(c *NodeConfiguration) { c.OS.Firewall[0].Ports = []string{"90-80"} }, "os.firewall[0].ports[0]"},
		"too few dynamic ports":     {func(c *NodeConfiguration) { c.OS.DynamicPorts.Count = 10 }, "os.dynamicPorts"},
		"a page file that shrinks":  {func(c *NodeConfiguration) { c.OS.PageFile.MaximumMiB = 1 }, "os.pageFile"},
		"two ways to join a domain": {func(c *NodeConfiguration) { c.OS.DomainJoin.OfflineBlob = "AAAA" }, "os.domainJoin.domain"},
		"a domain without password": {func(c *NodeConfiguration) { c.OS.DomainJoin.Password = "" }, "os.domainJoin"},
		"a class ID without braces": {func(c *NodeConfiguration) { c.OS.CCGPlugins[0].CLSID = "CCC2A336" }, "os.ccgPlugins[0].clsid"},
		"an adapter twice": {func(c *NodeConfiguration) {
			c.Network.Adapters = append(c.Network.Adapters, AdapterInfo{MAC: "00:50:56:AA:BB:01"})
		}, "network.adapters[1].mac"},
		"an address without length": {func(c *NodeConfiguration) { c.Network.Adapters[0].Addresses[0] = "10.0.0.5" }, "network.adapters[0].addresses[0]"},
		"two gateways of a family":  {func(c *NodeConfiguration) { c.Network.Adapters[0].Gateways[1] = "10.0.0.9" }, "network.adapters[0].gateways[1]"},
		"an MTU of a byte":          {func(c *NodeConfiguration) { c.Network.Adapters[0].MTU = 1 }, "network.adapters[0].mtu"},
		"a deadline of a month":     {func(c *NodeConfiguration) { c.Boot.DeadlineSeconds = 30 * 24 * 3600 }, "boot.deadlineSeconds"},
		"a port of another kind":    {func(c *NodeConfiguration) { c.Boot.StatusPort = "LPT1" }, "boot.statusPort"},
	} {
		c := full()
		tc.change(c)
		err := c.Validate()
		if err == nil || !strings.Contains(err.Error(), tc.field+":") {
			t.Errorf("%s: want an error about %s, got %v", name, tc.field, err)
			continue
		}
		for _, secret := range full().Secrets() {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s: the message shows a secret: %v", name, err)
			}
		}
	}
}

func TestAnEmptyDocumentGetsDefaultsAndTheyAreValid(t *testing.T) {
	c := valid()
	c.Services = ServicesInfo{
		CNI: &CNI{Type: CNIFlannelOverlay, PodCIDR: "10.244.0.0/16"}, KubeProxy: &KubeProxy{}, CSIProxy: &ServiceOptions{}, WindowsExporter: &WindowsExporter{},
		CloudNodeManager: &CloudNodeManager{}, Additional: []AdditionalService{{Name: "mine", ServiceOptions: ServiceOptions{Path: `C:\a.exe`}}},
	}
	c.Artifacts = []Artifact{{Name: "kubelet", Destination: `C:\k\kubelet.exe`, URL: "https://example.com/a.tar.gz?x=.zip", SHA256: strings.Repeat("0", 64)}}
	c.PreJoinCommands = []Command{{Script: "rem"}}
	c.Default()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	for what, pair := range map[string][2]any{
		"join method":     {c.Join.Method, JoinKubelet},
		"kubelet path":    {c.Kubelet.Path, `C:\k\kubelet.exe`},
		"kubelet log":     {c.Kubelet.Log, LogRotation{MaxSizeMiB: 100, MaxFiles: 5, MaxAgeHours: 168}},
		"containerd path": {c.ContainerRuntime.Path, `C:\Program Files\containerd\containerd.exe`},
		"cluster CIDR":    {c.Services.KubeProxy.ClusterCIDR, "10.244.0.0/16"},
		"archive":         {c.Artifacts[0].Archive, "TarGz"},
		"version":         {c.Artifacts[0].Version, "v1.36.3"},
		"feature":         {c.OS.Features[0], "Containers"},
		"deadline":        {c.Boot.DeadlineSeconds, int32(3600)},
		"command":         {c.PreJoinCommands[0].TimeoutSeconds, int32(300)},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s: %v instead of %v", what, pair[0], pair[1])
		}
	}
	again := c.DeepCopy()
	again.Default()
	if !reflect.DeepEqual(c, again) {
		t.Error("defaults change when they are set again")
	}
}

func TestDefaultsChangeNothingThatIsSet(t *testing.T) {
	c := full()
	c.Default()
	if want := full(); !reflect.DeepEqual(c, want) {
		t.Errorf("%+v instead of %+v", *c, *want)
	}
}

func TestAScrubbedDocumentHoldsNoSecret(t *testing.T) {
	c := full()
	c.OS.DomainJoin.OfflineBlob = "secret-b"
	c.Join.Token = "abcdef.fedcba9876543210"
	secrets := c.Secrets()
	for _, want := range []string{c.Join.Token, "fedcba9876543210", "secret-r", "secret-m", "secret-u", "secret-d", "secret-b"} {
		found := false
		for _, s := range secrets {
			found = found || s == want
		}
		if !found {
			t.Errorf("Secrets misses %q", want)
		}
	}
	c.Scrub()
	raw, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range append(secrets, "secret-c", "c2VjcmV0LWY") { // the script, and the file's content in base64
		if strings.Contains(string(raw), secret) {
			t.Errorf("%q is still there", secret)
		}
	}
}
