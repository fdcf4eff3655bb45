package main

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
)

// node is the Node that this kubelet keeps.
type node struct {
	object         *corev1.Node
	addresses      []corev1.NodeAddress
	runtimeVersion string
	build          string
	systemUUID     string
}

func newNode(f *flags, c *kubeletconfig.KubeletConfiguration, name, runtimeVersion string) (*node, error) {
	v := windows.RtlGetVersion()
	build := fmt.Sprintf("%d.%d.%d", v.MajorVersion, v.MinorVersion, v.BuildNumber)
	labels := map[string]string{
		corev1.LabelHostname:     name,
		corev1.LabelOSStable:     runtime.GOOS,
		corev1.LabelArchStable:   runtime.GOARCH,
		corev1.LabelWindowsBuild: build,
	}
	for k, v := range f.nodeLabels {
		labels[k] = v
	}
	taints := append([]corev1.Taint{}, c.RegisterWithTaints...)
	for _, t := range f.registerWithTaints {
		taint, err := parseTaint(t)
		if err != nil {
			return nil, err
		}
		taints = append(taints, taint)
	}
	systemUUID, err := readSystemUUID()
	if err != nil {
		return nil, err
	}
	n := &node{runtimeVersion: runtimeVersion, build: build, systemUUID: systemUUID}
	switch f.cloudProvider {
	case "":
	case "external":
		taints = append(taints, corev1.Taint{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule})
	default:
		return nil, fmt.Errorf("unsupported cloud provider %q", f.cloudProvider)
	}
	n.object = &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.NodeSpec{ProviderID: c.ProviderID, Taints: taints},
	}
	for ip := range strings.SplitSeq(f.nodeIP, ",") {
		if ip != "" {
			n.addresses = append(n.addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
		}
	}
	n.addresses = append(n.addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: name})
	return n, nil
}

// readSystemUUID reads it from where the real kubelet reads it.
func readSystemUUID() (string, error) {
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, `SYSTEM\HardwareConfig`, registry.QUERY_VALUE)
	if err != nil {
		return "", fmt.Errorf("opening HardwareConfig: %w", err)
	}
	defer func() { _ = key.Close() }()
	uuid, _, err := key.GetStringValue("LastConfig")
	if err != nil {
		return "", fmt.Errorf("reading the system UUID: %w", err)
	}
	return strings.Trim(uuid, "{}"), nil
}

// parseTaint reads <key>=<value>:<effect>, or <key>:<effect>.
func parseTaint(s string) (corev1.Taint, error) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return corev1.Taint{}, fmt.Errorf("invalid taint %q", s)
	}
	key, value, _ := strings.Cut(s[:i], "=")
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(s[i+1:])}, nil
}

// keep registers the Node and tells that it is Ready until ctx ends. As the real kubelet, it registers once per start.
func (n *node) keep(ctx context.Context, client kubernetes.Interface) error {
	registered := false
	for {
		err := error(nil)
		if !registered {
			_, err = client.CoreV1().Nodes().Create(ctx, n.object, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				err = nil
			}
			registered = err == nil
		}
		if err == nil {
			err = n.beat(ctx, client)
		}
		interval := 2 * time.Second
		if err != nil {
			logf("Unable to register or update node %s, will retry: %v", n.object.Name, err)
			interval = 500 * time.Millisecond
		}
		select {
		case <-ctx.Done():
			logf("Kubelet ends as it was told")
			return nil
		case <-time.After(interval):
		}
	}
}

func (n *node) beat(ctx context.Context, client kubernetes.Interface) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		have, err := client.CoreV1().Nodes().Get(ctx, n.object.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		n.setStatus(have)
		_, err = client.CoreV1().Nodes().UpdateStatus(ctx, have, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("updating node status: %w", err)
	}
	if err := renewLease(ctx, client, n.object.Name); err != nil {
		return fmt.Errorf("renewing lease: %w", err)
	}
	return nil
}

func (n *node) setStatus(have *corev1.Node) {
	now := metav1.Now()
	since := now
	for _, c := range have.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			since = c.LastTransitionTime
		}
	}
	have.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status",
		LastHeartbeatTime: now, LastTransitionTime: since,
	}}
	have.Status.Addresses = n.addresses
	have.Status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("4Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	have.Status.Allocatable = have.Status.Capacity
	have.Status.NodeInfo = corev1.NodeSystemInfo{
		OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH, KernelVersion: n.build, OSImage: "Windows Server (Wine)",
		KubeletVersion: version, ContainerRuntimeVersion: n.runtimeVersion,
		SystemUUID: n.systemUUID, MachineID: n.object.Name, BootID: "1",
	}
}

func renewLease(ctx context.Context, client kubernetes.Interface, name string) error {
	leases := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	spec := coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: ptr.To[int32](40), RenewTime: ptr.To(metav1.NowMicro())}
	lease, err := leases.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	lease.Spec = spec
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}
