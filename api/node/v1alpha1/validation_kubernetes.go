package v1alpha1

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"
)

func (o *ServiceOptions) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if o.Path != "" {
		errs = append(errs, windowsPath(path.Child("path"), o.Path)...)
	}
	for i, arg := range o.ExtraArgs {
		if strings.ContainsAny(arg, "\x00\r\n") {
			errs = append(errs, field.Invalid(path.Child("extraArgs").Index(i), arg, "must be one line"))
		}
	}
	errs = append(errs, oneOf(path.Child("priorityClass"), o.PriorityClass, PriorityBelowNormal, PriorityNormal, PriorityAboveNormal, PriorityHigh)...)
	return append(errs, o.Log.validate(path.Child("log"))...)
}

func (l *LogRotation) validate(path *field.Path) field.ErrorList {
	errs := between(path.Child("maxSizeMiB"), l.MaxSizeMiB, 0, 1<<20)
	errs = append(errs, between(path.Child("maxFiles"), l.MaxFiles, 0, 1000)...)
	return append(errs, between(path.Child("maxAgeHours"), l.MaxAgeHours, 0, 24*3660)...)
}

func (k *KubeletInfo) validate(path *field.Path) field.ErrorList {
	errs := k.ServiceOptions.validate(path)
	errs = append(errs, oneOf(path.Child("cloudProvider"), k.CloudProvider, "external")...)
	if k.Config == nil || len(k.Config.Raw) == 0 {
		return errs
	}
	config := map[string]any{}
	if err := json.Unmarshal(k.Config.Raw, &config); err != nil {
		return append(errs, field.Invalid(path.Child("config"), "<KubeletConfiguration>", "must be an object: "+err.Error()))
	}
	for key, want := range map[string]string{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"} {
		if have, ok := config[key]; ok && have != want {
			errs = append(errs, field.NotSupported(path.Child("config", key), fmt.Sprint(have), []string{want}))
		}
	}
	return errs
}

func (c *ContainerRuntimeInfo) validate(path *field.Path) field.ErrorList {
	errs := c.ServiceOptions.validate(path)
	errs = append(errs, oneOf(path.Child("management"), c.Management, Managed, Existing)...)
	if strings.ContainsAny(c.PauseImage, " \t\r\n") {
		errs = append(errs, field.Invalid(path.Child("pauseImage"), c.PauseImage, "must be an image reference"))
	}
	seen := map[string]bool{}
	for i := range c.Registries {
		r, at := &c.Registries[i], path.Child("registries").Index(i)
		if r.Host != "_default" && !hostPort.MatchString(r.Host) {
			errs = append(errs, field.Invalid(at.Child("host"), r.Host, "must be a host name with an optional port, or _default"))
		}
		if seen[strings.ToLower(r.Host)] {
			errs = append(errs, field.Duplicate(at.Child("host"), r.Host))
		}
		seen[strings.ToLower(r.Host)] = true
		if r.Server != "" {
			errs = append(errs, httpURL(at.Child("server"), r.Server)...)
		}
		errs = append(errs, credentials(at, r.Username, r.Password)...)
		for j, m := range r.Mirrors {
			at := at.Child("mirrors").Index(j)
			errs = append(errs, httpURL(at.Child("url"), m.URL)...)
			errs = append(errs, credentials(at, m.Username, m.Password)...)
		}
	}
	for i, build := range c.HyperVBuilds {
		errs = append(errs, between(path.Child("hyperVBuilds").Index(i), build, 17763, 99999)...)
	}
	return errs
}

func (s *ServicesInfo) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c := s.CNI; c != nil {
		at := path.Child("cni")
		errs = append(errs, c.validate(at)...)
		if c.Type == "" {
			errs = append(errs, field.Required(at.Child("type"), "which network it is"))
		}
		errs = append(errs, oneOf(at.Child("type"), c.Type, CNIFlannelHostGateway, CNIFlannelOverlay, CNICalico, CNIAntrea, CNIOVNHybridOverlay)...)
		for name, dir := range map[string]string{"binDir": c.BinDir, "confDir": c.ConfDir} {
			if dir != "" {
				errs = append(errs, windowsPath(at.Child(name), dir)...)
			}
		}
		for name, cidr := range map[string]string{"podCIDR": c.PodCIDR, "serviceCIDR": c.ServiceCIDR} {
			if cidr != "" {
				errs = append(errs, prefix(at.Child(name), cidr)...)
			}
		}
		for i, server := range c.DNSServers {
			errs = append(errs, address(at.Child("dnsServers").Index(i), server)...)
		}
		errs = append(errs, between(at.Child("vni"), c.VNI, 0, 1<<24-1)...)
		errs = append(errs, between(at.Child("port"), c.Port, 0, 65535)...)
	}
	if k := s.KubeProxy; k != nil {
		at := path.Child("kubeProxy")
		errs = append(errs, k.validate(at)...)
		errs = append(errs, oneOf(at.Child("directServerReturn"), k.DirectServerReturn, "Enabled", "Disabled")...)
		if k.SourceVIP != "" {
			errs = append(errs, address(at.Child("sourceVIP"), k.SourceVIP)...)
		}
		if k.ClusterCIDR != "" {
			errs = append(errs, prefix(at.Child("clusterCIDR"), k.ClusterCIDR)...)
		}
		if k.Kubeconfig != "" {
			errs = append(errs, windowsPath(at.Child("kubeconfig"), k.Kubeconfig)...)
		}
		if k.NetworkName == "" && s.CNI == nil {
			errs = append(errs, field.Required(at.Child("networkName"), "without services.cni nobody else knows the HNS network"))
		}
	}
	if s.CSIProxy != nil {
		errs = append(errs, s.CSIProxy.validate(path.Child("csiProxy"))...)
	}
	if e := s.WindowsExporter; e != nil {
		at := path.Child("windowsExporter")
		errs = append(errs, e.validate(at)...)
		errs = append(errs, between(at.Child("port"), e.Port, 0, 65535)...)
		errs = append(errs, oneOf(at.Child("tls"), e.TLS, "Kubelet", "Files", "None")...)
		if (e.TLS == "Files") != (e.TLSCertFile != "" && e.TLSKeyFile != "") {
			errs = append(errs, field.Invalid(at.Child("tls"), e.TLS, "Files, tlsCertFile and tlsKeyFile go together"))
		}
	}
	if m := s.CloudNodeManager; m != nil {
		at := path.Child("cloudNodeManager")
		errs = append(errs, m.validate(at)...)
		errs = append(errs, oneOf(at.Child("waitRoutes"), m.WaitRoutes, "Enabled", "Disabled")...)
		if m.Kubeconfig != "" {
			errs = append(errs, windowsPath(at.Child("kubeconfig"), m.Kubeconfig)...)
		}
	}
	return append(errs, validateAdditional(s.Additional, path.Child("additional"))...)
}

func validateAdditional(services []AdditionalService, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	// Names of services that the agent makes itself.
	seen := map[string]bool{"capw-node": true, "kubelet": true, "containerd": true, "kube-proxy": true, "csi-proxy": true, "windows_exporter": true, "cloud-node-manager": true}
	for i := range services {
		s, at := &services[i], path.Index(i)
		errs = append(errs, s.validate(at)...)
		switch {
		case !serviceName.MatchString(s.Name):
			errs = append(errs, field.Invalid(at.Child("name"), s.Name, "must match "+serviceName.String()))
		case seen[strings.ToLower(s.Name)]:
			errs = append(errs, field.Duplicate(at.Child("name"), s.Name))
		}
		seen[strings.ToLower(s.Name)] = true
		if s.Path == "" {
			errs = append(errs, field.Required(at.Child("path"), "the program to run"))
		}
		errs = append(errs, oneOf(at.Child("kind"), s.Kind, "Console", "Service")...)
		for name := range s.Environment {
			errs = append(errs, variable(at.Child("environment"), name)...)
		}
	}
	return errs
}

func (k *KubeadmInfo) validate(path *field.Path) field.ErrorList {
	if k.Path == "" {
		return nil
	}
	return windowsPath(path.Child("path"), k.Path)
}

func (a *Artifact) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if a.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), "messages name it"))
	}
	errs = append(errs, windowsPath(path.Child("destination"), a.Destination)...)
	if a.URL != "" {
		errs = append(errs, httpURL(path.Child("url"), a.URL)...)
		if a.SHA256 == "" {
			errs = append(errs, field.Required(path.Child("sha256"), "nothing is started that was downloaded without it"))
		}
	}
	if a.SHA256 != "" && !hex64.MatchString(a.SHA256) {
		errs = append(errs, field.Invalid(path.Child("sha256"), a.SHA256, "must be 64 lower-case hexadecimal digits"))
	}
	errs = append(errs, oneOf(path.Child("archive"), a.Archive, "None", "Zip", "TarGz")...)
	errs = append(errs, between(path.Child("stripComponents"), a.StripComponents, 0, 16)...)
	if a.Media != "" && (strings.ContainsAny(a.Media, ":/") || strings.HasPrefix(a.Media, `\`) || strings.Contains(a.Media, "..")) {
		errs = append(errs, field.Invalid(path.Child("media"), a.Media, "must be a path below a volume's root, with backslashes"))
	}
	if a.Version != "" {
		if _, err := version.ParseGeneric(a.Version); err != nil {
			errs = append(errs, field.Invalid(path.Child("version"), a.Version, "must be a version, such as v2.2.0"))
		}
	}
	return errs
}

func (c *Command) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if (len(c.Args) > 0) == (c.Script != "") {
		errs = append(errs, field.Invalid(path, c.Name, "must have either args or script"))
	}
	if len(c.Args) > 0 {
		errs = append(errs, windowsPath(path.Child("args").Index(0), c.Args[0])...)
	}
	errs = append(errs, oneOf(path.Child("shell"), c.Shell, "Cmd", "PowerShell")...)
	errs = append(errs, oneOf(path.Child("onFailure"), c.OnFailure, "Fail", "Continue")...)
	return append(errs, between(path.Child("timeoutSeconds"), c.TimeoutSeconds, 0, 24*3600)...)
}

func (b *BootInfo) validate(path *field.Path) field.ErrorList {
	errs := between(path.Child("maxBoots"), b.MaxBoots, 0, 20)
	errs = append(errs, between(path.Child("deadlineSeconds"), b.DeadlineSeconds, 0, 7*24*3600)...)
	errs = append(errs, oneOf(path.Child("waitFor"), b.WaitFor, "Ready", "Registered")...)
	if b.StatusPort != "" && !serialPort.MatchString(b.StatusPort) {
		errs = append(errs, field.Invalid(path.Child("statusPort"), b.StatusPort, "must be COM1 to COM9"))
	}
	return errs
}

// The forms of texts in a document.
var (
	hostPort     = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?$`)
	serviceName  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$`)
	serialPort   = regexp.MustCompile(`^COM[1-9]$`)
	hex64        = regexp.MustCompile(`^[0-9a-f]{64}$`)
	drivePath    = regexp.MustCompile(`^[A-Za-z]:\\[^/:*?"<>|\x00-\x1f]*$`)
	windowsBuild = regexp.MustCompile(`^10\.0\.[0-9]{5}$`)
	account      = regexp.MustCompile(`^[^"/\\\[\]:;|=,+*?<>@\x00-\x1f]{1,20}$`)
	clsid        = regexp.MustCompile(`^\{[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\}$`)
	ports        = regexp.MustCompile(`^[0-9]{1,5}(-[0-9]{1,5})?$`)
)

// windowsPath wants an absolute path with backslashes that has no step upwards.
func windowsPath(path *field.Path, value string) field.ErrorList {
	if !drivePath.MatchString(value) || strings.Contains(value+`\`, `\..\`) || strings.Contains(value, `\\`) || strings.TrimRight(value, ". ") != value {
		return field.ErrorList{field.Invalid(path, value, `must be an absolute Windows path with backslashes, such as C:\k\kubelet.exe`)}
	}
	return nil
}

func oneOf[T ~string](path *field.Path, value T, allowed ...T) field.ErrorList {
	if value == "" {
		return nil
	}
	for _, a := range allowed {
		if value == a {
			return nil
		}
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}

func between(path *field.Path, value, low, high int32) field.ErrorList {
	if value < low || value > high {
		return field.ErrorList{field.Invalid(path, value, fmt.Sprintf("must be %d to %d", low, high))}
	}
	return nil
}

func httpURL(path *field.Path, value string) field.ErrorList {
	u, err := url.Parse(value)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "" {
		return field.ErrorList{field.Invalid(path, redactURL(value), "must be an http or https URL without user, password and fragment")}
	}
	return nil
}

// redactURL keeps what cannot be a secret.
func redactURL(value string) string {
	u, err := url.Parse(value)
	if err != nil {
		return "<not a URL>"
	}
	u.RawQuery, u.User = "", nil
	return u.String()
}

func credentials(path *field.Path, username, password string) field.ErrorList {
	if (username == "") != (password == "") {
		return field.ErrorList{field.Invalid(path.Child("username"), username, "username and password go together")}
	}
	return nil
}

func prefix(path *field.Path, value string) field.ErrorList {
	if _, err := netip.ParsePrefix(value); err != nil {
		return field.ErrorList{field.Invalid(path, value, "must be an address with a prefix length, such as 10.0.0.0/16")}
	}
	return nil
}

func address(path *field.Path, value string) field.ErrorList {
	if a, err := netip.ParseAddr(value); err != nil || a.Zone() != "" {
		return field.ErrorList{field.Invalid(path, value, "must be an IP address")}
	}
	return nil
}

func variable(path *field.Path, name string) field.ErrorList {
	if msgs := validation.IsEnvVarName(name); len(msgs) > 0 {
		return field.ErrorList{field.Invalid(path.Key(name), name, strings.Join(msgs, ", "))}
	}
	return nil
}

func isBase64(value string) bool {
	_, err := base64.StdEncoding.DecodeString(value)
	return err == nil
}
