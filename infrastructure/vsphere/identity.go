package vsphere

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capw-dev/cluster-api-provider-windows/infrastructure"
)

// Keys of a credentials Secret.
const (
	usernameKey = "username"
	passwordKey = "password"
	caBundleKey = "ca.crt"
)

// Identity are the credentials for a vCenter.
type Identity struct {
	Username, Password string
	// CABundle are PEM certificates that may sign the vCenter's, besides those that the system knows. Optional.
	CABundle []byte
}

// Identities reads the credentials that spec.vsphere.identityRef names. It is asked at each operation and should answer with
// what is there now, so that a changed Secret is used from the next call on. Its error wraps infrastructure.ErrIdentity when only a person can cure it, and then says how.
type Identities func(ctx context.Context, namespace, name string) (Identity, error)

// SecretIdentities reads credentials from Secrets through reader: one GET per operation when that is not cached, which costs
// less than a cache of every Secret in the cluster.
func SecretIdentities(reader client.Reader) Identities {
	return func(ctx context.Context, namespace, name string) (Identity, error) {
		key := types.NamespacedName{Namespace: namespace, Name: name}
		secret := &corev1.Secret{}
		if err := reader.Get(ctx, key, secret); apierrors.IsNotFound(err) {
			return Identity{}, fmt.Errorf("%w: Secret %s, named by spec.vsphere.identityRef, does not exist: create it with the keys %s and %s",
				infrastructure.ErrIdentity, key, usernameKey, passwordKey)
		} else if err != nil {
			return Identity{}, fmt.Errorf("reading credentials from Secret %s: %w", key, err)
		}
		for _, k := range []string{usernameKey, passwordKey} {
			if len(secret.Data[k]) == 0 {
				return Identity{}, fmt.Errorf("%w: Secret %s, named by spec.vsphere.identityRef, has no key %s, or nothing under it: add it",
					infrastructure.ErrIdentity, key, k)
			}
		}
		ca := secret.Data[caBundleKey]
		if len(bytes.TrimSpace(ca)) > 0 && !x509.NewCertPool().AppendCertsFromPEM(ca) {
			return Identity{}, fmt.Errorf("%w: Secret %s, named by spec.vsphere.identityRef, has no PEM certificate under the key %s: correct or remove it",
				infrastructure.ErrIdentity, key, caBundleKey)
		}
		return Identity{Username: string(secret.Data[usernameKey]), Password: string(secret.Data[passwordKey]), CABundle: ca}, nil
	}
}

// hash tells identities apart without keeping them.
func (i Identity) hash() [sha256.Size]byte {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(i.Username), []byte(i.Password), i.CABundle} {
		// The length keeps ("a", "bc") and ("ab", "c") apart.
		_ = binary.Write(h, binary.BigEndian, uint64(len(part))) // a hash never fails
		_, _ = h.Write(part)
	}
	return [sha256.Size]byte(h.Sum(nil))
}
