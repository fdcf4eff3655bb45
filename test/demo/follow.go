package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
)

// narrator prints one line for every change that a person following the demo wants to see, and nothing twice.
type narrator struct {
	out   io.Writer
	begin time.Time

	mu   sync.Mutex
	last map[string]string
}

func newNarrator(out io.Writer) *narrator {
	return &narrator{out: out, begin: time.Now(), last: map[string]string{}}
}

// sayf prints a line of its own.
func (n *narrator) sayf(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.print(fmt.Sprintf(format, args...))
}

// stepf prints the headline of the next part of the story.
func (n *narrator) stepf(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, _ = fmt.Fprintln(n.out)
	n.print("== " + fmt.Sprintf(format, args...))
}

// block prints a command and its output.
func (n *narrator) block(command, output string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.print("$ " + command)
	for line := range strings.Lines(output) {
		_, _ = fmt.Fprintf(n.out, "          %s\n", strings.TrimRight(line, "\n"))
	}
}

// lines prints lines that can be copied.
func (n *narrator) lines(lines ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, line := range lines {
		_, _ = fmt.Fprintln(n.out, line)
	}
}

// Write prints the progress of the environment, one line at a time.
func (n *narrator) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		n.sayf("   %s", strings.TrimRight(line, "\n"))
	}
	return len(p), nil
}

// changed prints the state of an object unless that was the last thing said about it.
func (n *narrator) changed(kind, name, state string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	key := kind + "/" + name
	if n.last[key] == state {
		return
	}
	n.last[key] = state
	n.print(fmt.Sprintf("   %-8s %-16s %s", kind, name, state))
}

func (n *narrator) print(line string) {
	_, _ = fmt.Fprintf(n.out, "[%6.1fs] %s\n", time.Since(n.begin).Seconds(), line)
}

// follow watches the management and the workload cluster until ctx ends and narrates what happens.
func (n *narrator) follow(ctx context.Context, management, workload *rest.Config, scheme *runtime.Scheme) error {
	if err := n.watch(ctx, management, scheme, map[client.Object]func(any) string{
		&clusterv1.Machine{}:      describeMachine,
		&infrav1.WindowsMachine{}: describeWindowsMachine,
	}); err != nil {
		return fmt.Errorf("watching the management cluster: %w", err)
	}
	if err := n.watch(ctx, workload, scheme, map[client.Object]func(any) string{
		&corev1.Node{}: describeNode,
	}); err != nil {
		return fmt.Errorf("watching the workload cluster: %w", err)
	}
	return nil
}

func (n *narrator) watch(ctx context.Context, cfg *rest.Config, scheme *runtime.Scheme, describe map[client.Object]func(any) string) error {
	c, err := cache.New(cfg, cache.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	for obj, state := range describe {
		kind := strings.TrimPrefix(fmt.Sprintf("%T", obj), "*")
		kind = kind[strings.LastIndex(kind, ".")+1:]
		if kind == "WindowsMachine" {
			kind = "VM"
		}
		informer, err := c.GetInformer(ctx, obj)
		if err != nil {
			return err
		}
		tell := func(o any) {
			if object, ok := o.(client.Object); ok {
				if s := state(o); s != "" {
					n.changed(kind, object.GetName(), s)
				}
			}
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    tell,
			UpdateFunc: func(_, o any) { tell(o) },
			DeleteFunc: func(o any) {
				if object, ok := o.(client.Object); ok {
					n.changed(kind, object.GetName(), "gone")
				}
			},
		}); err != nil {
			return err
		}
	}
	go func() {
		if err := c.Start(ctx); err != nil {
			n.sayf("watch ended: %v", err)
		}
	}()
	if !c.WaitForCacheSync(ctx) {
		return ctx.Err()
	}
	return nil
}

func describeMachine(o any) string {
	m, ok := o.(*clusterv1.Machine)
	if !ok {
		return ""
	}
	phase := m.Status.GetTypedPhase()
	if phase == clusterv1.MachinePhaseUnknown {
		return "" // Cluster API has not looked at it yet
	}
	s := string(phase)
	if phase == clusterv1.MachinePhasePending {
		if c := conditions.Get(m, clusterv1.MachineBootstrapConfigReadyCondition); c != nil && c.Status != metav1.ConditionTrue {
			s += ", bootstrap data: " + c.Message
		}
	}
	if m.Status.NodeRef.Name != "" && phase == clusterv1.MachinePhaseRunning {
		s += ", node " + m.Status.NodeRef.Name
	}
	return s
}

func describeWindowsMachine(o any) string {
	m, ok := o.(*infrav1.WindowsMachine)
	if !ok {
		return ""
	}
	s := string(m.Status.Instance.State)
	if c := conditions.Get(m, infrav1.InstanceProvisionedCondition); c != nil && c.Status != metav1.ConditionTrue {
		switch c.Reason {
		case infrav1.WaitingForClusterInfrastructureReason, infrav1.WaitingForBootstrapDataReason:
			return "" // the Machine's own line says it
		case infrav1.InstanceCreatingReason, infrav1.InstanceDeletingReason:
		default:
			return c.Reason + ": " + c.Message
		}
	}
	if s == "" {
		return ""
	}
	if m.Spec.ProviderID != "" && m.Status.Instance.State == infrav1.InstanceRunning {
		s += ", " + m.Spec.ProviderID
	}
	return s
}

func describeNode(o any) string {
	node, ok := o.(*corev1.Node)
	if !ok {
		return ""
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			switch {
			case c.Status == corev1.ConditionTrue:
				return "Ready, " + node.Status.NodeInfo.OSImage
			case c.Reason != "KubeletNotReady": // which every node is for a moment
				return "not Ready: " + c.Reason
			}
		}
	}
	return ""
}
