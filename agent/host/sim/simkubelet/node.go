package simkubelet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

const (
	nodesPath = "/api/v1/nodes"
	leasePath = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
)

// live registers the Node and reports its status until ctx ends. As the real one, it does not register again when somebody
// deletes its Node.
func (k *daemon) live(ctx context.Context, a *api) error {
	var work sync.WaitGroup
	defer work.Wait()
	if k.config.ServerTLSBootstrap {
		work.Go(func() { k.serving(ctx, a) })
	}
	for {
		err := k.register(ctx, a)
		if err == nil {
			break
		}
		k.logf('E', "kubelet_node_status.go:1", `"Unable to register node with API server" err=%q node=%q`, err.Error(), k.nodeName())
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
	k.logf('I', "kubelet_node_status.go:2", `"Successfully registered node" node=%q`, k.nodeName())
	for {
		if err := errors.Join(k.renewLease(ctx, a), k.reportStatus(ctx, a)); err != nil && ctx.Err() == nil {
			k.logf('E', "kubelet_node_status.go:3", `"Error updating node status, will retry" err=%q`, err.Error())
		}
		if err := pause(ctx, k.Heartbeat); err != nil {
			return err
		}
	}
}

func (k *daemon) register(ctx context.Context, a *api) error {
	info, err := k.p.Host.System.Info(ctx)
	if err != nil {
		return err
	}
	node := &corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: k.nodeName(), Labels: map[string]string{
			corev1.LabelHostname: k.nodeName(), corev1.LabelOSStable: "windows", corev1.LabelArchStable: info.Arch, corev1.LabelWindowsBuild: info.Build,
		}},
		Spec: corev1.NodeSpec{ProviderID: k.config.ProviderID, Taints: k.taints()},
	}
	for pair := range strings.SplitSeq(k.flags["node-labels"], ",") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			node.Labels[key] = value
		}
	}
	k.setStatus(ctx, node, info)
	err = a.do(ctx, http.MethodPost, nodesPath, node, &corev1.Node{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// taints are those of the configuration, unless the flag replaces them.
func (k *daemon) taints() []corev1.Taint {
	flag, given := k.flags["register-with-taints"]
	if !given {
		return k.config.RegisterWithTaints
	}
	var out []corev1.Taint
	for text := range strings.SplitSeq(flag, ",") {
		if pair, effect, ok := strings.Cut(text, ":"); ok {
			key, value, _ := strings.Cut(pair, "=")
			out = append(out, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
		}
	}
	return out
}

func (k *daemon) addresses() []string {
	if k.flags["node-ip"] == "" {
		return nil
	}
	return strings.Split(k.flags["node-ip"], ",")
}

// SystemUUID returns what a kubelet reports for a machine: SMBIOS' UUID as Windows shows it.
func SystemUUID(info host.Info) string {
	u := info.UUID
	return fmt.Sprintf("%02X%02X%02X%02X-%02X%02X-%02X%02X-%X-%X", u[3], u[2], u[1], u[0], u[5], u[4], u[7], u[6], u[8:10], u[10:])
}

func (k *daemon) setStatus(ctx context.Context, node *corev1.Node, info host.Info) {
	s := &node.Status
	s.Capacity = corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(info.CPUs), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(int64(info.MemoryBytes), resource.BinarySI), //nolint:gosec // of a simulated machine
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	s.Allocatable = s.Capacity.DeepCopy()
	s.Addresses = nil
	for _, address := range k.addresses() {
		s.Addresses = append(s.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	}
	s.Addresses = append(s.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: k.nodeName()})
	s.NodeInfo = corev1.NodeSystemInfo{
		MachineID: k.nodeName(), SystemUUID: SystemUUID(info), BootID: info.BootID,
		KernelVersion: fmt.Sprintf("%s.%d", info.Build, info.Revision), OSImage: info.ProductName,
		ContainerRuntimeVersion: "containerd://2.2.0", KubeletVersion: k.Version, OperatingSystem: "windows", Architecture: info.Arch,
	}
	set := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) {
		now := metav1.Now()
		c := corev1.NodeCondition{Type: kind, Status: status, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now}
		for i, have := range s.Conditions {
			if have.Type == kind {
				if have.Status == status {
					c.LastTransitionTime = have.LastTransitionTime
				}
				s.Conditions[i] = c
				return
			}
		}
		s.Conditions = append(s.Conditions, c)
	}
	set(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available")
	set(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure")
	set(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available")
	why := ""
	if k.NotReady != nil {
		why = k.NotReady(ctx, k.p)
	}
	if why != "" {
		set(corev1.NodeReady, corev1.ConditionFalse, "KubeletNotReady", why)
	} else {
		set(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status")
	}
}

func (k *daemon) reportStatus(ctx context.Context, a *api) error {
	info, err := k.p.Host.System.Info(ctx)
	if err != nil {
		return err
	}
	for {
		node := &corev1.Node{}
		if err := a.do(ctx, http.MethodGet, nodesPath+"/"+k.nodeName(), nil, node); err != nil {
			return err
		}
		k.setStatus(ctx, node, info)
		err := a.do(ctx, http.MethodPut, nodesPath+"/"+k.nodeName()+"/status", node, node)
		if !apierrors.IsConflict(err) {
			return err
		}
	}
}

func (k *daemon) renewLease(ctx context.Context, a *api) error {
	lease := &coordinationv1.Lease{}
	err := a.do(ctx, http.MethodGet, leasePath+"/"+k.nodeName(), nil, lease)
	switch {
	case apierrors.IsNotFound(err):
		node := &corev1.Node{}
		if err := a.do(ctx, http.MethodGet, nodesPath+"/"+k.nodeName(), nil, node); err != nil {
			return err
		}
		lease = &coordinationv1.Lease{
			TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
			ObjectMeta: metav1.ObjectMeta{
				Name: k.nodeName(), Namespace: corev1.NamespaceNodeLease,
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
			},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: ptr.To(k.nodeName()), LeaseDurationSeconds: ptr.To[int32](40), RenewTime: ptr.To(metav1.NowMicro()),
			},
		}
		return a.do(ctx, http.MethodPost, leasePath, lease, lease)
	case err != nil:
		return err
	}
	lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
	return a.do(ctx, http.MethodPut, leasePath+"/"+k.nodeName(), lease, lease)
}
