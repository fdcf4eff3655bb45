package kubelet

import (
	"crypto/tls"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capw-dev/cluster-api-provider-windows/agent/discovery"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// UserPrefix is what a node's user name begins with, and Group the group that it is in.
const (
	UserPrefix = "system:node:"
	Group      = "system:nodes"
)

// BootstrapKubeconfig returns the kubeconfig with which the kubelet asks for its certificate. It holds the token.
func BootstrapKubeconfig(join nodev1.JoinInfo, ca []byte) ([]byte, error) {
	const cluster, user, context = "kubernetes", "bootstrap", "bootstrap"
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{Server: discovery.Server(join), CertificateAuthorityData: ca}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: join.Token}
	config.Contexts[context] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: user}
	config.CurrentContext = context
	return clientcmd.Write(*config)
}

// CheckClientCertificate says why a certificate with its key, PEM, is not one that makes this machine the node at a time.
func CheckClientCertificate(certificate, key []byte, node string, now time.Time) error {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return fmt.Errorf("reading the client certificate: %w", err)
	}
	leaf := pair.Leaf
	switch {
	case leaf.Subject.CommonName != UserPrefix+node:
		return fmt.Errorf("the client certificate is for %q, not for %q", leaf.Subject.CommonName, UserPrefix+node)
	case !slices.Contains(leaf.Subject.Organization, Group):
		return fmt.Errorf("the client certificate is not for group %s", Group)
	case now.After(leaf.NotAfter):
		return fmt.Errorf("the client certificate expired at %s", leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}
