package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/test/env"
)

const (
	deployment     = clusterName + "-windows"
	secondTemplate = deployment + "-v2"
	template       = "templates/cluster-template-hosted-control-plane.yaml"
)

// generate lets clusterctl fill the template in, as a user would, and adds the control plane object of the environment's
// stand-in for a hosted control plane provider.
func (s *story) generate(ctx context.Context) (string, error) {
	version, err := s.env.Workload.Version()
	if err != nil {
		return "", err
	}
	cmd := s.command(ctx, s.env.Assets.Clusterctl, s.env.Management, "generate", "cluster", clusterName,
		"--from", template, "--kubernetes-version", version, "--worker-machine-count", "3", "--target-namespace", namespace)
	for name, value := range map[string]string{
		"CONTROL_PLANE_KIND":          env.HostedControlPlaneKind().Kind,
		"CONTROL_PLANE_ENDPOINT_HOST": s.env.Workload.Host,
		"CONTROL_PLANE_ENDPOINT_PORT": strconv.Itoa(int(s.env.Workload.Port)),
		"VSPHERE_SERVER":              s.env.VCSim.Host,
		"VSPHERE_THUMBPRINT":          s.env.VCSim.Thumbprint,
		"VSPHERE_IDENTITY_SECRET":     identityName,
		"VSPHERE_DATACENTER":          "DC0",
		"VSPHERE_TEMPLATE":            "windows-2022",
		"VSPHERE_FOLDER":              "/DC0/vm",
		"VSPHERE_RESOURCE_POOL":       "/DC0/host/DC0_C0/Resources",
		"VSPHERE_DATASTORE":           "LocalDS_0",
		"VSPHERE_NETWORK":             "DC0_DVPG0",
	} {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Stdout = nil
	manifests, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("clusterctl generate cluster: %w", err)
	}
	hosted := fmt.Sprintf("---\napiVersion: %s\nkind: %s\nmetadata:\n  name: %s\n  namespace: %s\nspec:\n  version: %s\n",
		env.HostedControlPlaneKind().GroupVersion(), env.HostedControlPlaneKind().Kind, clusterName, namespace, version)
	path := filepath.Join(s.env.Dir, clusterName+".yaml")
	if err := os.WriteFile(path, append(manifests, hosted...), 0o600); err != nil {
		return "", fmt.Errorf("writing manifests: %w", err)
	}
	return path, nil
}

// createSecondTemplate copies the WindowsMachineTemplate with more CPUs.
func (s *story) createSecondTemplate(ctx context.Context) error {
	c := s.env.Management.Client
	first := &infrav1.WindowsMachineTemplate{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: deployment}, first); err != nil {
		return fmt.Errorf("reading the first template: %w", err)
	}
	second := &infrav1.WindowsMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: secondTemplate}, Spec: first.Spec}
	second.Spec.Template.Spec.VSphere.NumCPUs = 8
	if err := c.Create(ctx, second); err != nil {
		return fmt.Errorf("creating the second template: %w", err)
	}
	s.sayf("created WindowsMachineTemplate %s, a copy of %s with numCPUs: 8", secondTemplate, deployment)
	return nil
}

// awaitNodes waits until the MachineDeployment has n available machines and the workload cluster n Ready nodes.
func (s *story) awaitNodes(ctx context.Context, n int) error {
	return s.await(ctx, fmt.Sprintf("%d Ready nodes", n), func(ctx context.Context) (bool, string, error) {
		md := &clusterv1.MachineDeployment{}
		if err := s.env.Management.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: deployment}, md); err != nil {
			return false, "", err
		}
		nodes := &corev1.NodeList{}
		if err := s.env.Workload.Client.List(ctx, nodes); err != nil {
			return false, "", err
		}
		available := 0
		if md.Status.AvailableReplicas != nil {
			available = int(*md.Status.AvailableReplicas)
		}
		machines := &clusterv1.MachineList{}
		if err := s.env.Management.Client.List(ctx, machines, client.InNamespace(namespace)); err != nil {
			return false, "", err
		}
		cluster := &clusterv1.Cluster{}
		if err := s.env.Management.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: clusterName}, cluster); err != nil {
			return false, "", err
		}
		settled := cluster.Status.Workers != nil && cluster.Status.Workers.Replicas != nil && int(*cluster.Status.Workers.Replicas) == n
		state := fmt.Sprintf("%d machines, %d of them available, %d nodes", len(machines.Items), available, len(nodes.Items))
		done := settled && available == n && len(machines.Items) == n && len(nodes.Items) == n &&
			conditions.IsTrue(md, clusterv1.MachineDeploymentAvailableCondition) && !conditions.IsTrue(md, clusterv1.MachineDeploymentRollingOutCondition)
		return done, state, nil
	})
}

// awaitRollout waits until n machines are there, all of them from the second template, and their nodes.
func (s *story) awaitRollout(ctx context.Context, n int) error {
	err := s.await(ctx, "every VM from the second template", func(ctx context.Context) (bool, string, error) {
		machines := &infrav1.WindowsMachineList{}
		if err := s.env.Management.Client.List(ctx, machines, client.InNamespace(namespace)); err != nil {
			return false, "", err
		}
		current := 0
		for _, m := range machines.Items {
			if m.Annotations[clusterv1.TemplateClonedFromNameAnnotation] == secondTemplate {
				current++
			}
		}
		return current == n && len(machines.Items) == n, fmt.Sprintf("%d of %d", current, len(machines.Items)), nil
	})
	if err != nil {
		return err
	}
	return s.awaitNodes(ctx, n)
}

// awaitNothingLeft waits until no object of the cluster, no VM and no Secret is left.
func (s *story) awaitNothingLeft(ctx context.Context) error {
	c := s.env.Management.Client
	if err := s.await(ctx, "the Cluster to be gone", func(ctx context.Context) (bool, string, error) {
		cluster := &clusterv1.Cluster{}
		err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: clusterName}, cluster)
		if apierrors.IsNotFound(err) {
			return true, "", nil
		}
		reason := ""
		if d := conditions.Get(cluster, clusterv1.ClusterDeletingCondition); d != nil {
			reason = d.Message
		}
		return false, reason, err
	}); err != nil {
		return err
	}
	if err := s.await(ctx, "its Secrets to be gone", func(ctx context.Context) (bool, string, error) {
		secrets := &corev1.SecretList{}
		if err := c.List(ctx, secrets, client.InNamespace(namespace)); err != nil {
			return false, "", err
		}
		var left []string
		for _, secret := range secrets.Items {
			if secret.Name != identityName {
				left = append(left, secret.Name)
			}
		}
		return len(left) == 0, strings.Join(left, ", "), nil
	}); err != nil {
		return err
	}
	vms, err := s.vms.VMs(ctx)
	if err != nil {
		return err
	}
	if len(vms) > 0 {
		return fmt.Errorf("%d VMs are left in the vCenter: %v", len(vms), vms)
	}
	tokens := &corev1.SecretList{}
	if err := s.env.Workload.Client.List(ctx, tokens, client.InNamespace(metav1.NamespaceSystem)); err != nil {
		return err
	}
	s.sayf("left behind: 0 VMs in the vCenter, 0 Secrets of the cluster, %d bootstrap tokens in the workload cluster", len(tokens.Items))
	return nil
}

// await asks again and again until the answer is yes, and says what it last saw when the patience is at an end.
func (s *story) await(ctx context.Context, what string, ask func(context.Context) (done bool, state string, err error)) error {
	var state string
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, patience, true, func(ctx context.Context) (done bool, err error) {
		done, state, err = ask(ctx)
		return done, err
	})
	if err != nil {
		return fmt.Errorf("waiting for %s (now: %s): %w", what, state, err)
	}
	return nil
}

// show prints what a person would look at.
func (s *story) show(ctx context.Context) error {
	if err := s.clusterctl(ctx, "describe", "cluster", clusterName, "-n", namespace, "--grouping=false", "--echo"); err != nil {
		return err
	}
	return s.kubectl(ctx, s.env.Workload, "get", "nodes", "-o", "wide")
}

func (s *story) kubectl(ctx context.Context, cluster *env.Cluster, args ...string) error {
	return s.tell(s.command(ctx, s.env.Assets.Kubectl, cluster, args...), "kubectl", args)
}

func (s *story) clusterctl(ctx context.Context, args ...string) error {
	return s.tell(s.command(ctx, s.env.Assets.Clusterctl, s.env.Management, args...), "clusterctl", args)
}

// tell runs a command with its output set off from the story.
func (s *story) tell(cmd *exec.Cmd, name string, args []string) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	line := name
	for _, arg := range args {
		if strings.ContainsAny(arg, "{}\" ") {
			arg = "'" + arg + "'"
		}
		line += " " + arg
	}
	s.block(line, string(out))
	return nil
}

func (s *story) command(ctx context.Context, path string, cluster *env.Cluster, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, append(args, "--kubeconfig", cluster.Kubeconfig)...)
	cmd.Env = append(os.Environ(), "CLUSTERCTL_DISABLE_VERSIONCHECK=true", "NO_COLOR=1")
	return cmd
}
