package bootstrap

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"
)

// TokenGroup is the group that a node belongs to while it authenticates with its bootstrap token. kubeadm binds the
// right to create node client certificates to it and has them approved.
const TokenGroup = "system:bootstrappers:kubeadm:default-node-token"

// splitToken returns the two parts of a bootstrap token: its public ID and its secret.
func splitToken(token string) (id, secret string, err error) {
	if !bootstraputil.IsValidBootstrapToken(token) {
		return "", "", fmt.Errorf("malformed bootstrap token: must be <6 characters>.<16 characters> of a-z and 0-9")
	}
	id, secret, _ = strings.Cut(token, ".")
	return id, secret, nil
}

// TokenSecret returns the Secret that makes a bootstrap token valid in a workload cluster until it expires. The
// description is what "kubeadm token list" shows.
func TokenSecret(token, description string, expires time.Time) (*corev1.Secret, error) {
	id, secret, err := splitToken(token)
	if err != nil {
		return nil, err
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem,
			Name:      bootstraputil.BootstrapTokenSecretName(id),
		},
		Type: bootstrapapi.SecretTypeBootstrapToken,
		Data: map[string][]byte{
			bootstrapapi.BootstrapTokenIDKey:               []byte(id),
			bootstrapapi.BootstrapTokenSecretKey:           []byte(secret),
			bootstrapapi.BootstrapTokenDescriptionKey:      []byte(description),
			bootstrapapi.BootstrapTokenExpirationKey:       []byte(expires.UTC().Format(time.RFC3339)),
			bootstrapapi.BootstrapTokenUsageAuthentication: []byte("true"),
			bootstrapapi.BootstrapTokenUsageSigningKey:     []byte("true"),
			bootstrapapi.BootstrapTokenExtraGroupsKey:      []byte(TokenGroup),
		},
	}, nil
}
