// Package discovery finds a cluster's CA as kubeadm's token discovery does, from nothing but an endpoint, a bootstrap token
// and a pinned key: anonymously and unverified first, then trusted because of the token's signature and the pin, and once
// more over a verified connection.
package discovery

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/token/jws"

	"github.com/capw-dev/cluster-api-provider-windows/agent/apiclient"
	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// Discover returns the cluster's CA certificates, PEM. Of via it uses Dial and Proxy. Its errors have codes.
func Discover(ctx context.Context, via apiclient.Config, join nodev1.JoinInfo) ([]byte, error) {
	id, secret, _ := strings.Cut(join.Token, ".")
	via.Server = Server(join)
	via.CA, via.Token, via.Certificate, via.Key = nil, "", nil, nil
	via.Insecure = true
	info, err := clusterInfo(ctx, via)
	if err != nil {
		return nil, err
	}
	kubeconfig := info.Data[bootstrapapi.KubeConfigKey]
	signature := info.Data[bootstrapapi.JWSSignatureKeyPrefix+id]
	switch {
	case kubeconfig == "":
		return nil, codes.New(codes.ClusterInfoInvalid, "cluster-info at %s has no key %s", join.APIServerEndpoint, bootstrapapi.KubeConfigKey)
	case signature == "":
		return nil, codes.New(codes.TokenUnknown, "cluster-info at %s has no signature for token ID %s", join.APIServerEndpoint, id)
	case !jws.DetachedTokenIsValid(signature, kubeconfig, id, secret):
		return nil, codes.New(codes.SignatureInvalid, "the signature of cluster-info at %s for token ID %s was not made with the token's secret", join.APIServerEndpoint, id)
	}
	ca, err := clusterCA([]byte(kubeconfig))
	if err != nil {
		return nil, err
	}
	if err := CheckPins(ca, join.CACertHashes); err != nil {
		return nil, codes.New(codes.CAHashMismatch, "cluster-info at %s: %w", join.APIServerEndpoint, err)
	}
	via.Insecure, via.CA = false, ca
	again, err := clusterInfo(ctx, via)
	if err != nil {
		return nil, err
	}
	if again.Data[bootstrapapi.KubeConfigKey] != kubeconfig {
		return nil, codes.New(codes.ClusterInfoInvalid, "cluster-info at %s differs when it is read over a verified connection", join.APIServerEndpoint)
	}
	return ca, nil
}

// Server returns the URL of the API server.
func Server(join nodev1.JoinInfo) string { return "https://" + join.APIServerEndpoint }

func clusterInfo(ctx context.Context, via apiclient.Config) (*corev1.ConfigMap, error) {
	client, err := apiclient.New(via)
	if err != nil {
		return nil, codes.New(codes.ClusterInfoInvalid, "the CA in cluster-info at %s: %w", via.Server, err)
	}
	defer client.Close()
	info, err := client.ConfigMap(ctx, metav1.NamespacePublic, bootstrapapi.ConfigMapClusterInfo)
	switch {
	case err == nil:
		return info, nil
	case apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		return nil, codes.New(codes.ClusterInfoMissing, "%s: %w", via.Server, err)
	default:
		return nil, Unreachable(via.Server, err)
	}
}

// Unreachable gives the error of a request, that is not an answer of the API server, its code.
func Unreachable(server string, err error) error {
	var invalid x509.CertificateInvalidError
	var name x509.HostnameError
	var authority x509.UnknownAuthorityError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return codes.New(codes.ServingCertificateTime, "%s: %w", server, err)
	case errors.As(err, &invalid) || errors.As(err, &name) || errors.As(err, &authority):
		return codes.New(codes.ServingCertificate, "%s: %w", server, err)
	default:
		return codes.New(codes.EndpointUnreachable, "%s: %w", server, err)
	}
}

func clusterCA(kubeconfig []byte) ([]byte, error) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, codes.New(codes.ClusterInfoInvalid, "parsing the kubeconfig in cluster-info: %w", err)
	}
	for _, cluster := range config.Clusters { // there is one, without a name
		if _, err := certutil.ParseCertsPEM(cluster.CertificateAuthorityData); err != nil {
			return nil, codes.New(codes.ClusterInfoInvalid, "parsing the CA in cluster-info: %w", err)
		}
		return cluster.CertificateAuthorityData, nil
	}
	return nil, codes.New(codes.ClusterInfoInvalid, "the kubeconfig in cluster-info has no cluster")
}

// CheckPins wants the key of one of the CA certificates, PEM, to be pinned: hashes are sha256:<hex of the SHA-256 of the
// Subject Public Key Info>.
func CheckPins(ca []byte, hashes []string) error {
	certs, err := certutil.ParseCertsPEM(ca)
	if err != nil {
		return fmt.Errorf("parsing the CA: %w", err)
	}
	found := make([]string, 0, len(certs))
	for _, c := range certs {
		sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
		hash := "sha256:" + hex.EncodeToString(sum[:])
		if slices.Contains(hashes, hash) {
			return nil
		}
		found = append(found, hash)
	}
	return fmt.Errorf("the CA has key %s, pinned is %s", strings.Join(found, ", "), strings.Join(hashes, ", "))
}
