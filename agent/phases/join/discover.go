package join

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/discovery"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/kubelet"
)

// discover finds the cluster's CA. kubeadm would find it by itself, but says less about why it cannot.
func discover(ctx context.Context, r *engine.Run) error {
	isMember, err := member(ctx, r)
	if isMember || err != nil {
		return err
	}
	via, err := connection(ctx, r)
	if err != nil {
		return err
	}
	ca, err := discovery.Discover(ctx, via, r.Doc.Join)
	if err != nil {
		return err
	}
	return write(ctx, r, caPath(r), ca)
}

// checkName makes sure that no other machine is the Node. It must be known before the kubelet starts: that would take the
// Node over and overwrite what tells the two apart.
func checkName(ctx context.Context, r *engine.Run) error {
	isMember, err := member(ctx, r)
	if isMember || err != nil {
		return err
	}
	c, err := client(ctx, r, false)
	if err != nil {
		return err
	}
	defer c.Close()
	node, err := c.Node(ctx, r.Doc.Node.Name)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsForbidden(err):
		// kubeadm's clusters allow it; others may not, and then the answer is found only afterwards.
		logr.FromContextOrDiscard(ctx).Info("The token may not read Nodes, so whether the name is free is not known", "error", err.Error())
		return nil
	case apierrors.IsUnauthorized(err):
		return codes.New(codes.TokenRefused, "%s: %w", r.Doc.Join.APIServerEndpoint, err)
	case err != nil:
		return discovery.Unreachable(r.Doc.Join.APIServerEndpoint, err)
	}
	uuids, err := systemUUIDs(ctx, r)
	if err != nil {
		return err
	}
	if isOurs(node, uuids) || r.Facts.ProviderID != "" && node.Spec.ProviderID == r.Facts.ProviderID {
		return nil
	}
	code, state := codes.NodeNameNotFree, "not Ready"
	if ready, _ := kubelet.Ready(node); ready {
		code, state = codes.NodeNameTaken, "Ready"
	}
	return codes.New(code, "Node %s exists and is %s, with system UUID %q and provider ID %q; this machine has %s and %q",
		node.Name, state, node.Status.NodeInfo.SystemUUID, node.Spec.ProviderID, strings.Join(uuids, " or "), r.Facts.ProviderID)
}

func isOurs(node *corev1.Node, uuids []string) bool {
	for _, uuid := range uuids {
		if strings.EqualFold(node.Status.NodeInfo.SystemUUID, uuid) {
			return true
		}
	}
	return false
}

// systemUUIDs returns what the kubelet may report as this machine's system UUID. It reads it from the registry, where Windows
// puts SMBIOS' UUID with its first three fields in the other byte order; before Windows has done so, both orders count.
func systemUUIDs(ctx context.Context, r *engine.Run) ([]string, error) {
	info, err := r.Host.System.Info(ctx)
	if err != nil {
		return nil, codes.New(codes.Internal, "reading the system UUID: %w", err)
	}
	u := info.UUID
	out := []string{
		fmt.Sprintf("%X-%X-%X-%X-%X", []byte{u[3], u[2], u[1], u[0]}, []byte{u[5], u[4]}, []byte{u[7], u[6]}, u[8:10], u[10:]),
		fmt.Sprintf("%X-%X-%X-%X-%X", u[0:4], u[4:6], u[6:8], u[8:10], u[10:]),
	}
	switch value, err := r.Host.Registry.Get(ctx, `HKLM\SYSTEM\HardwareConfig`, "LastConfig"); {
	case err == nil:
		out = append(out, strings.ToUpper(strings.Trim(value.Text, "{}")))
	case !errors.Is(err, host.ErrNotFound):
		return nil, codes.New(codes.Internal, "reading the system UUID from the registry: %w", err)
	}
	return out, nil
}
