package guest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/token/jws"

	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// discover returns the cluster's CA certificates as kubeadm's token discovery finds them: anonymously from cluster-info,
// trusted because of the token's signature and the pinned key, and then read a second time over a verified connection.
// Failures that no repetition cures are errPermanent.
func discover(ctx context.Context, join nodev1.JoinInfo) ([]byte, error) {
	id, secret, _ := strings.Cut(join.Token, ".")
	info, signature, err := clusterInfo(ctx, join.APIServerEndpoint, rest.TLSClientConfig{Insecure: true}, id)
	if err != nil {
		return nil, err
	}
	if !jws.DetachedTokenIsValid(signature, string(info), id, secret) {
		return nil, fmt.Errorf("%w: the signature of cluster-info was not made with the token's secret", errPermanent)
	}
	ca, err := clusterCA(info)
	if err != nil {
		return nil, err
	}
	if err := checkPins(ca, join.CACertHashes); err != nil {
		return nil, err
	}
	again, _, err := clusterInfo(ctx, join.APIServerEndpoint, rest.TLSClientConfig{CAData: ca}, id)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(info, again) {
		return nil, fmt.Errorf("%w: cluster-info differs when it is read over a verified connection", errPermanent)
	}
	return ca, nil
}

// clusterInfo returns the kubeconfig in cluster-info, and the signature made with the token.
func clusterInfo(ctx context.Context, endpoint string, tls rest.TLSClientConfig, tokenID string) (kubeconfig []byte, signature string, err error) {
	client, err := newClient(&rest.Config{Host: "https://" + endpoint, TLSClientConfig: tls, Timeout: 10 * time.Second})
	if err != nil {
		return nil, "", err
	}
	cm, err := client.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(ctx, bootstrapapi.ConfigMapClusterInfo, metav1.GetOptions{})
	if err != nil {
		return nil, "", fmt.Errorf("reading ConfigMap kube-public/cluster-info: %w", err)
	}
	signature, ok := cm.Data[bootstrapapi.JWSSignatureKeyPrefix+tokenID]
	if !ok {
		return nil, "", fmt.Errorf("cluster-info has no signature for token ID %s: the token is unknown to this cluster or has expired", tokenID)
	}
	return []byte(cm.Data[bootstrapapi.KubeConfigKey]), signature, nil
}

func clusterCA(kubeconfig []byte) ([]byte, error) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("%w: parsing the kubeconfig in cluster-info: %w", errPermanent, err)
	}
	for _, c := range config.Clusters { // there is one, without a name
		return c.CertificateAuthorityData, nil
	}
	return nil, fmt.Errorf("%w: the kubeconfig in cluster-info has no cluster", errPermanent)
}

// checkPins wants the key of one CA certificate among hashes, each sha256:<hex of the Subject Public Key Info>.
func checkPins(ca []byte, hashes []string) error {
	certs, err := certutil.ParseCertsPEM(ca)
	if err != nil {
		return fmt.Errorf("%w: parsing the CA in cluster-info: %w", errPermanent, err)
	}
	pinned := func(c *x509.Certificate) bool {
		sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
		return slices.Contains(hashes, "sha256:"+hex.EncodeToString(sum[:]))
	}
	if !slices.ContainsFunc(certs, pinned) {
		return fmt.Errorf("%w: the CA in cluster-info has none of the pinned keys %s", errPermanent, strings.Join(hashes, ", "))
	}
	return nil
}

func newClient(config *rest.Config) (kubernetes.Interface, error) {
	config.UserAgent = userAgent
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for %s: %w", config.Host, err)
	}
	return client, nil
}
