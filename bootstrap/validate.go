package bootstrap

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// Validate returns what is wrong with the join and node parts of a WindowsConfigSpec; cloudbase.UserData judges the agent
// part. It includes what the CRD's schema says of labels and taints, because not every spec has seen an API server.
func Validate(spec *bootstrapv1.WindowsConfigSpec, path *field.Path) field.ErrorList {
	errs := validateEndpoint(&spec.Join.APIServerEndpoint, path.Child("join", "apiServerEndpoint"))
	errs = append(errs, validateLabels(spec.Node.Labels, path.Child("node", "labels"))...)
	if spec.Node.Taints != nil {
		errs = append(errs, validateTaints(*spec.Node.Taints, path.Child("node", "taints"))...)
	}
	return errs
}

func validateEndpoint(endpoint *clusterv1.APIEndpoint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if host := endpoint.Host; host != "" {
		_, notIP := netip.ParseAddr(host)
		if notIP != nil && len(validation.IsDNS1123Subdomain(host)) > 0 {
			errs = append(errs, field.Invalid(path.Child("host"), host,
				"must be an IP address or a lower-case DNS name, without scheme, port, path or brackets"))
		}
	}
	if port := endpoint.Port; port != 0 {
		for _, msg := range validation.IsValidPortNum(int(port)) {
			errs = append(errs, field.Invalid(path.Child("port"), port, msg))
		}
	}
	return errs
}

func validateLabels(labels map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		at := path.Key(key)
		for _, msg := range validation.IsQualifiedName(key) {
			errs = append(errs, field.Invalid(at, key, msg))
		}
		for _, msg := range validation.IsValidLabelValue(labels[key]) {
			errs = append(errs, field.Invalid(at, labels[key], msg))
		}
		if why := labelRefused(key); why != "" {
			errs = append(errs, field.Forbidden(at, why))
		}
	}
	return errs
}

// labelRefused returns why a node must not register itself with a label, or "". A kubelet that is started with such a
// label exits at once, so the fault would show only as a node that never appears. The rule is the kubelet's own:
// k8s.io/kubernetes v1.36 cmd/kubelet/app/options/options.go (ValidateKubeletFlags) and k8s.io/kubelet
// pkg/apis/well_known_labels.go; the API server's NodeRestriction admission repeats it.
func labelRefused(key string) string {
	domain, _, qualified := strings.Cut(key, "/")
	if !qualified {
		return ""
	}
	switch {
	case inDomain(domain, "node-role.kubernetes.io"), inDomain(domain, "node-restriction.kubernetes.io"):
		return "a node may not give itself this label; set it in spec.template.metadata.labels of the MachineDeployment, Cluster API syncs it to the Node"
	case !inDomain(domain, "kubernetes.io") && !inDomain(domain, "k8s.io"):
		return ""
	case inDomain(domain, "kubelet.kubernetes.io"), inDomain(domain, "node.kubernetes.io"):
		return ""
	}
	switch key {
	case corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
		corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
		corev1.LabelInstanceType:
		return ""
	// The kubelet accepts these too and lets them override what it knows better: pods for another system would come.
	case corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable, "beta.kubernetes.io/os", "beta.kubernetes.io/arch":
		return "the kubelet sets this label itself; remove it"
	}
	return "a kubelet may set only these labels in the kubernetes.io and k8s.io domains: kubelet.kubernetes.io/*, node.kubernetes.io/*, " +
		"topology.kubernetes.io/zone, topology.kubernetes.io/region; use a domain of your own"
}

func inDomain(domain, of string) bool {
	return domain == of || strings.HasSuffix(domain, "."+of)
}

// validateTaints adds to the rules of the node document what only Cluster API may set.
func validateTaints(taints []bootstrapv1.Taint, path *field.Path) field.ErrorList {
	errs := nodev1.ValidateTaints(nodeTaints(taints), path)
	for i, t := range taints {
		if t.Key == clusterv1.NodeUninitializedTaint.Key {
			errs = append(errs, field.Forbidden(path.Index(i).Child("key"), "Cluster API owns this taint and it is always added; remove it"))
		}
	}
	return errs
}
