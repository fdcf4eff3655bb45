package v1alpha1

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"
)

// maxComputerName is NetBIOS' limit; cloudbase-init and Windows cut longer names.
const maxComputerName = 15

// Validate returns an error that names everything in the document which can never become a node. It judges the document
// alone: that the cluster exists, or that the token is still good, only the join can tell. Secrets are not repeated in it.
func (c *NodeConfiguration) Validate() error {
	var errs field.ErrorList
	if c.APIVersion != APIVersion {
		errs = append(errs, field.NotSupported(field.NewPath("apiVersion"), c.APIVersion, []string{APIVersion}))
	}
	if c.Kind != NodeConfigurationKind {
		errs = append(errs, field.NotSupported(field.NewPath("kind"), c.Kind, []string{NodeConfigurationKind}))
	}
	errs = append(errs, c.Cluster.validate(field.NewPath("cluster"))...)
	errs = append(errs, c.Node.validate(field.NewPath("node"))...)
	errs = append(errs, c.Join.validate(field.NewPath("join"))...)
	errs = append(errs, c.Kubelet.validate(field.NewPath("kubelet"))...)
	errs = append(errs, c.ContainerRuntime.validate(field.NewPath("containerRuntime"))...)
	errs = append(errs, c.Services.validate(field.NewPath("services"))...)
	seen := map[string]bool{}
	for i := range c.Artifacts {
		at := field.NewPath("artifacts").Index(i)
		errs = append(errs, c.Artifacts[i].validate(at)...)
		errs = append(errs, unique(at.Child("destination"), c.Artifacts[i].Destination+"|"+c.Artifacts[i].Name, seen)...)
	}
	errs = append(errs, c.OS.validate(field.NewPath("os"))...)
	errs = append(errs, c.Network.validate(field.NewPath("network"))...)
	for i := range c.Files {
		at := field.NewPath("files").Index(i)
		errs = append(errs, c.Files[i].validate(at)...)
		errs = append(errs, unique(at.Child("path"), c.Files[i].Path, seen)...)
	}
	for name, commands := range map[string][]Command{"preJoinCommands": c.PreJoinCommands, "postJoinCommands": c.PostJoinCommands} {
		for i := range commands {
			errs = append(errs, commands[i].validate(field.NewPath(name).Index(i))...)
		}
	}
	errs = append(errs, c.Boot.validate(field.NewPath("boot"))...)
	return errs.ToAggregate()
}

// ValidateComputerName returns what keeps name from being both a Windows computer name and a Node name; nothing if it is
// fit: a lower-case RFC 1123 label of at most 15 characters that is not all digits.
func ValidateComputerName(name string) []string {
	msgs := validation.IsDNS1123Label(name)
	if len(name) > maxComputerName {
		msgs = append(msgs, validation.MaxLenError(maxComputerName))
	}
	if name != "" && strings.Trim(name, "0123456789") == "" {
		msgs = append(msgs, "must not consist of digits only: Windows refuses such a computer name")
	}
	return msgs
}

func (c *ClusterInfo) validate(path *field.Path) field.ErrorList {
	errs := invalid(path.Child("namespace"), c.Namespace, validation.IsDNS1123Label(c.Namespace))
	errs = append(errs, invalid(path.Child("name"), c.Name, validation.IsDNS1123Subdomain(c.Name))...)
	if _, err := version.ParseSemantic(c.KubernetesVersion); err != nil || !strings.HasPrefix(c.KubernetesVersion, "v") {
		errs = append(errs, field.Invalid(path.Child("kubernetesVersion"), c.KubernetesVersion, "must be a semantic version with a leading v, such as v1.36.3"))
	}
	return errs
}

func (n *NodeInfo) validate(path *field.Path) field.ErrorList {
	errs := invalid(path.Child("name"), n.Name, ValidateComputerName(n.Name))
	for _, key := range slices.Sorted(maps.Keys(n.Labels)) {
		at := path.Child("labels").Key(key)
		errs = append(errs, invalid(at, key, validation.IsQualifiedName(key))...)
		errs = append(errs, invalid(at, n.Labels[key], validation.IsValidLabelValue(n.Labels[key]))...)
	}
	errs = append(errs, ValidateTaints(n.Taints, path.Child("taints"))...)
	errs = append(errs, n.IP.validate(path.Child("ip"))...)
	switch n.ProviderID {
	case "Auto", "None":
	default:
		errs = append(errs, field.NotSupported(path.Child("providerID"), n.ProviderID, []string{"Auto", "None"}))
	}
	return errs
}

// ValidateTaints returns what is wrong with taints that a node shall register with.
func ValidateTaints(taints []corev1.Taint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	type identity struct {
		key    string
		effect corev1.TaintEffect
	}
	seen := map[identity]bool{}
	for i, t := range taints {
		at := path.Index(i)
		errs = append(errs, invalid(at.Child("key"), t.Key, validation.IsQualifiedName(t.Key))...)
		errs = append(errs, invalid(at.Child("value"), t.Value, validation.IsValidLabelValue(t.Value))...)
		switch t.Effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			errs = append(errs, field.NotSupported(at.Child("effect"), t.Effect,
				[]corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}))
		}
		if t.TimeAdded != nil {
			errs = append(errs, field.Forbidden(at.Child("timeAdded"), "a node cannot register with it"))
		}
		id := identity{t.Key, t.Effect}
		if seen[id] {
			errs = append(errs, field.Duplicate(at, fmt.Sprintf("%s:%s", t.Key, t.Effect)))
		}
		seen[id] = true
	}
	return errs
}

func (j *JoinInfo) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if msg := validateEndpoint(j.APIServerEndpoint); msg != "" {
		errs = append(errs, field.Invalid(path.Child("apiServerEndpoint"), j.APIServerEndpoint, msg))
	}
	if len(j.CACertHashes) == 0 {
		errs = append(errs, field.Required(path.Child("caCertHashes"), "without a pinned CA the node would trust any API server"))
	}
	for i, hash := range j.CACertHashes {
		if hex, ok := strings.CutPrefix(hash, "sha256:"); !ok || len(hex) != 64 || strings.Trim(hex, "0123456789abcdef") != "" {
			errs = append(errs, field.Invalid(path.Child("caCertHashes").Index(i), hash, "must be sha256: and 64 lower-case hexadecimal digits"))
		}
	}
	if !isToken(j.Token) {
		errs = append(errs, field.Invalid(path.Child("token"), "<hidden>", "must be <6 characters>.<16 characters> of a-z and 0-9"))
	}
	errs = append(errs, oneOf(path.Child("method"), j.Method, JoinKubelet, JoinKubeadm)...)
	return append(errs, j.Kubeadm.validate(path.Child("kubeadm"))...)
}

// validateEndpoint returns what is wrong with a host:port, or "".
func validateEndpoint(endpoint string) string {
	host, port, err := net.SplitHostPort(endpoint)
	if err != nil {
		return "must be host:port, an IPv6 address in brackets"
	}
	if addr, err := netip.ParseAddr(host); (err != nil || addr.Zone() != "") && len(validation.IsDNS1123Subdomain(host)) > 0 {
		return "the host must be an IP address or a lower-case DNS name"
	}
	// Only the shortest form, as others may read "0443" or "+443" differently.
	if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 || strconv.FormatUint(number, 10) != port {
		return "the port must be a decimal number from 1 to 65535"
	}
	return ""
}

func isToken(token string) bool {
	id, secret, ok := strings.Cut(token, ".")
	return ok && len(id) == 6 && len(secret) == 16 && strings.Trim(id+secret, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

func invalid(path *field.Path, value string, msgs []string) field.ErrorList {
	var errs field.ErrorList
	for _, msg := range msgs {
		errs = append(errs, field.Invalid(path, value, msg))
	}
	return errs
}

// unique refuses what is there already; Windows does not tell upper from lower case.
func unique(path *field.Path, value string, seen map[string]bool) field.ErrorList {
	value = strings.ToLower(value)
	if seen[value] {
		return field.ErrorList{field.Duplicate(path, value)}
	}
	seen[value] = true
	return nil
}
