package guest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

const windowsBuild = "10.0.20348"

// host is what the kubelet sees of the machine it runs on.
type host struct {
	computerName string
	uuid         string // SMBIOS UUID
	cpus         int32
	memoryMiB    int32
	address      string // of the first adapter; empty without adapters
}

// admit refuses what Windows, the node agent or the kubelet refuses before it talks to any server. The document was
// validated when it was read, and what else is wrong with labels or taints the API server refuses.
func (h host) admit(doc *nodev1.NodeConfiguration) error {
	name := doc.Node.Name
	var errs []error
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("node name %q: %s", name, strings.Join(problems, ", ")))
	}
	if len(name) > maxComputerName {
		errs = append(errs, fmt.Errorf("node name %q has %d characters, a Windows computer name has at most %d", name, len(name), maxComputerName))
	}
	if h.computerName != name {
		errs = append(errs, fmt.Errorf("the computer is named %q, the document wants Node %q: local-hostname in the metadata must be exactly the node name", h.computerName, name))
	}
	return errors.Join(append(errs, checkLabels(doc.Node.Labels))...)
}

// checkLabels is the kubelet's check of --node-labels.
func checkLabels(labels map[string]string) error {
	own := sets.New(corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
		corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
		corev1.LabelInstanceType, corev1.LabelInstanceTypeStable,
		corev1.LabelOSStable, corev1.LabelArchStable, "beta.kubernetes.io/os", "beta.kubernetes.io/arch")
	within := func(namespace, parent string) bool {
		return namespace == parent || strings.HasSuffix(namespace, "."+parent)
	}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		namespace, _, _ := strings.Cut(key, "/") // of a key without a namespace this is no namespace of Kubernetes either
		if (within(namespace, "kubernetes.io") || within(namespace, "k8s.io")) && !own.Has(key) &&
			!within(namespace, corev1.LabelNamespaceSuffixKubelet) && !within(namespace, corev1.LabelNamespaceSuffixNode) {
			errs = append(errs, fmt.Errorf("the kubelet may not set label %q on its own Node", key))
		}
	}
	return errors.Join(errs...)
}

// providerID is what the firmware says, unless an external cloud provider shall set it.
func (h host) providerID(doc *nodev1.NodeConfiguration) string {
	if doc.Node.ProviderID == "None" {
		return ""
	}
	return "vsphere://" + strings.ToLower(h.uuid)
}

// newNode is the Node as the kubelet registers it: not ready yet.
func (h host) newNode(doc *nodev1.NodeConfiguration) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: doc.Node.Name,
			Labels: map[string]string{
				corev1.LabelHostname:     doc.Node.Name,
				corev1.LabelOSStable:     "windows",
				corev1.LabelArchStable:   "amd64",
				corev1.LabelWindowsBuild: windowsBuild,
			},
		},
		Spec: corev1.NodeSpec{
			ProviderID: h.providerID(doc),
			Taints:     slices.Clone(doc.Node.Taints),
		},
	}
	maps.Copy(node.Labels, doc.Node.Labels)
	h.setStatus(node, doc, corev1.ConditionFalse, "KubeletNotReady", "container runtime is starting", metav1.Now())
	return node
}

// setStatus is one status report of the kubelet. Conditions that it does not own stay.
func (h host) setStatus(node *corev1.Node, doc *nodev1.NodeConfiguration, ready corev1.ConditionStatus, reason, message string, now metav1.Time) {
	s := &node.Status
	s.Capacity = corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(h.cpus), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(int64(h.memoryMiB)<<20, resource.BinarySI),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	s.Allocatable = s.Capacity.DeepCopy()
	s.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: h.computerName}}
	if h.address != "" {
		s.Addresses = append([]corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: h.address}}, s.Addresses...)
	}
	s.NodeInfo = corev1.NodeSystemInfo{
		MachineID:               h.computerName,
		SystemUUID:              h.uuid,
		KernelVersion:           windowsBuild + ".2527",
		OSImage:                 "Windows Server 2022 Datacenter",
		ContainerRuntimeVersion: "containerd://2.1.4",
		KubeletVersion:          doc.Cluster.KubernetesVersion,
		OperatingSystem:         "windows",
		Architecture:            "amd64",
	}
	setCondition(s, corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available", now)
	setCondition(s, corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure", now)
	setCondition(s, corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available", now)
	setCondition(s, corev1.NodeReady, ready, reason, message, now)
}

func setCondition(s *corev1.NodeStatus, typ corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string, now metav1.Time) {
	c := corev1.NodeCondition{
		Type: typ, Status: status, Reason: reason, Message: message,
		LastHeartbeatTime: now, LastTransitionTime: now,
	}
	i := slices.IndexFunc(s.Conditions, func(c corev1.NodeCondition) bool { return c.Type == typ })
	if i < 0 {
		s.Conditions = append(s.Conditions, c)
		return
	}
	if s.Conditions[i].Status == status {
		c.LastTransitionTime = s.Conditions[i].LastTransitionTime
	}
	s.Conditions[i] = c
}
