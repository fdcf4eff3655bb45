package bootstrap

import (
	"maps"

	"github.com/blang/semver/v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// Input is all that a NodeConfiguration is made from.
type Input struct {
	// Config says what the node shall be.
	Config *bootstrapv1.WindowsConfig
	// Machine that the node belongs to. Its name makes the computer name, its spec.version the Kubernetes version.
	Machine *clusterv1.Machine
	// Cluster that the node joins.
	Cluster *clusterv1.Cluster
	// CACertHashes pin the cluster's CA, see CACertHashes.
	CACertHashes []string
	// Token is the bootstrap token, <6 characters>.<16 characters>.
	Token string
}

// NodeConfiguration returns the document that makes a node out of a booted Windows. An error says that this input can
// never become a node: it names each field at fault, its value and the remedy. The same input always gives the same
// document.
func NodeConfiguration(in Input) (*nodev1.NodeConfiguration, error) {
	errs := Validate(&in.Config.Spec, field.NewPath("spec"))

	version, err := kubernetesVersion(in.Machine)
	if err != nil {
		errs = append(errs, err)
	}
	endpoint, known := Endpoint(&in.Config.Spec.Join, in.Cluster)
	if !known {
		errs = append(errs, field.Required(field.NewPath("spec", "join", "apiServerEndpoint"),
			"the Cluster has no spec.controlPlaneEndpoint, so give host and port here"))
	}
	if len(in.CACertHashes) == 0 {
		errs = append(errs, field.Required(field.NewPath("caCertHashes"), "a node must be able to tell its cluster from an impostor"))
	}
	if !bootstraputil.IsValidBootstrapToken(in.Token) {
		// The value is a credential, even a malformed one.
		errs = append(errs, field.Invalid(field.NewPath("token"), "<hidden>", "must be <6 characters>.<16 characters> of a-z and 0-9"))
	}
	if len(errs) > 0 {
		return nil, errs.ToAggregate()
	}

	return &nodev1.NodeConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: nodev1.APIVersion, Kind: nodev1.NodeConfigurationKind},
		Cluster: nodev1.ClusterInfo{
			Namespace:         in.Cluster.Namespace,
			Name:              in.Cluster.Name,
			KubernetesVersion: version,
		},
		Node: nodev1.NodeInfo{
			Name:       ComputerName(in.Machine.Namespace, in.Cluster.Name, in.Machine.Name),
			Labels:     maps.Clone(in.Config.Spec.Node.Labels),
			Taints:     taints(in.Config.Spec.Node.Taints),
			ProviderID: string(providerID(in.Config.Spec.Node.ProviderID)),
		},
		Join: nodev1.JoinInfo{
			APIServerEndpoint: endpoint,
			CACertHashes:      in.CACertHashes,
			Token:             in.Token,
		},
	}, nil
}

// Endpoint returns the host:port that the node joins: what spec.join.apiServerEndpoint says and, for the part it leaves
// open, what Cluster.spec.controlPlaneEndpoint says. It returns false while host or port is known from neither.
func Endpoint(join *bootstrapv1.JoinSpec, cluster *clusterv1.Cluster) (string, bool) {
	endpoint := join.APIServerEndpoint
	if endpoint.Host == "" {
		endpoint.Host = cluster.Spec.ControlPlaneEndpoint.Host
	}
	if endpoint.Port == 0 {
		endpoint.Port = cluster.Spec.ControlPlaneEndpoint.Port
	}
	if !endpoint.IsValid() {
		return "", false
	}
	return endpoint.String(), true
}

// kubernetesVersion returns Machine.spec.version with its leading v.
func kubernetesVersion(machine *clusterv1.Machine) (string, *field.Error) {
	path := field.NewPath("Machine", "spec", "version")
	if machine.Spec.Version == "" {
		return "", field.Required(path, "it decides which Kubernetes the node runs: set spec.template.spec.version of the MachineDeployment, such as v1.36.3")
	}
	v, err := semver.ParseTolerant(machine.Spec.Version)
	if err != nil {
		return "", field.Invalid(path, machine.Spec.Version, "must be a semantic version such as v1.36.3: "+err.Error())
	}
	return "v" + v.String(), nil
}

// taints returns all taints that the kubelet registers with. The uninitialized taint is not the user's to give and not
// persisted in the WindowsConfig: Cluster API removes it from the Node as soon as it has synced its labels.
func taints(given *[]bootstrapv1.Taint) []corev1.Taint {
	all := []corev1.Taint{{Key: "os", Value: "windows", Effect: corev1.TaintEffectNoSchedule}}
	if given != nil {
		all = nodeTaints(*given)
	}
	return append(all, clusterv1.NodeUninitializedTaint)
}

// nodeTaints returns taints in the form of the node document.
func nodeTaints(given []bootstrapv1.Taint) []corev1.Taint {
	out := make([]corev1.Taint, 0, len(given)+1)
	for _, t := range given {
		out = append(out, corev1.Taint{Key: t.Key, Value: ptr.Deref(t.Value, ""), Effect: t.Effect})
	}
	return out
}

func providerID(source bootstrapv1.ProviderIDSource) bootstrapv1.ProviderIDSource {
	if source == "" {
		return bootstrapv1.ProviderIDAuto
	}
	return source
}
