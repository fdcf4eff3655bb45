package join

import (
	"bytes"
	"context"
	"errors"
	"io/fs"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/discovery"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/kubelet"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
)

// kubeletConfigMap is where kubeadm keeps the KubeletConfiguration of all nodes, and configKey its key.
const (
	kubeletConfigMap = "kubelet-config"
	configKey        = "kubelet"
)

// configure writes the kubelet's configuration. That of a member is only read.
func configure(ctx context.Context, r *engine.Run) error {
	isMember, err := member(ctx, r)
	if err != nil {
		return err
	}
	have, err := r.Host.Files.Read(ctx, layout.KubeletConfig)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return codes.New(codes.JoinFilesNotWritten, "reading %s: %w", layout.KubeletConfig, err)
	}
	if isMember {
		if config, err := kubelet.ParseConfig(have); err == nil {
			rememberCluster(r, config)
			return nil
		}
	}
	_, config, err := newConfig(ctx, r, isMember)
	if err != nil {
		return err
	}
	want, err := config.YAML()
	if err != nil {
		return codes.New(codes.Internal, "encoding the kubelet's configuration: %w", err)
	}
	rememberCluster(r, config)
	if bytes.Equal(have, want) {
		return nil
	}
	// A kubelet that runs has read the old one. It starts again in a later step.
	if err := r.Host.Services.Stop(ctx, layout.KubeletService); err != nil && !errors.Is(err, host.ErrNotFound) {
		return codes.New(codes.KubeletNotStopped, "stopping service %s: %w", layout.KubeletService, err)
	}
	return write(ctx, r, layout.KubeletConfig, want)
}

func rememberCluster(r *engine.Run, config kubelet.Config) {
	r.Facts.ClusterDNS, r.Facts.ClusterDomain = config.ClusterDNS(), config.ClusterDomain()
}

// newConfig returns the cluster's KubeletConfiguration, nil if it has none, and the node's.
func newConfig(ctx context.Context, r *engine.Run, isMember bool) (cluster, node kubelet.Config, _ error) {
	cluster, err := clusterConfig(ctx, r, isMember)
	if err != nil {
		return nil, nil, err
	}
	info, err := r.Host.System.Info(ctx)
	if err != nil {
		return nil, nil, codes.New(codes.Internal, "reading the machine's memory: %w", err)
	}
	node, notes, err := kubelet.NewConfig(cluster, kubelet.ConfigInput{
		Doc: r.Doc, ProviderID: r.Facts.ProviderID, MemoryBytes: info.MemoryBytes,
	})
	if err != nil {
		return nil, nil, err
	}
	if len(notes) > 0 {
		logr.FromContextOrDiscard(ctx).Info("Left out of the cluster's kubelet-config what is not for Windows", "fields", notes)
	}
	return cluster, node, nil
}

// clusterConfig reads the cluster's KubeletConfiguration. kubeadm's clusters let the token and nodes read it.
func clusterConfig(ctx context.Context, r *engine.Run, isMember bool) (kubelet.Config, error) {
	c, err := client(ctx, r, isMember)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	cm, err := c.ConfigMap(ctx, metav1.NamespaceSystem, kubeletConfigMap)
	switch {
	case apierrors.IsNotFound(err):
		logr.FromContextOrDiscard(ctx).Info("The cluster has no ConfigMap kube-system/kubelet-config: unless the document sets clusterDNS and clusterDomain, pods cannot resolve names of services")
		return nil, nil
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		return nil, codes.New(codes.TokenRefused, "%s: %w", r.Doc.Join.APIServerEndpoint, err)
	case err != nil:
		return nil, discovery.Unreachable(r.Doc.Join.APIServerEndpoint, err)
	}
	config, err := kubelet.ParseConfig([]byte(cm.Data[configKey]))
	if err != nil {
		return nil, codes.New(codes.KubeletConfigReading, "key %s of ConfigMap kube-system/%s: %w", configKey, kubeletConfigMap, err)
	}
	return config, nil
}

// writeBootstrapKubeconfig gives the kubelet the token.
func writeBootstrapKubeconfig(ctx context.Context, r *engine.Run) error {
	isMember, err := member(ctx, r)
	if isMember || err != nil {
		return err
	}
	ca, err := r.Host.Files.Read(ctx, caPath(r))
	if err != nil {
		return codes.New(codes.JoinFilesNotWritten, "reading %s: %w", caPath(r), err)
	}
	content, err := kubelet.BootstrapKubeconfig(r.Doc.Join, ca)
	if err != nil {
		return codes.New(codes.Internal, "encoding the bootstrap kubeconfig: %w", err)
	}
	return write(ctx, r, layout.BootstrapKubeconfig, content)
}
