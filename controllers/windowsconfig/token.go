package windowsconfig

import (
	"context"
	"crypto/subtle"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	bootstrapsecrets "k8s.io/cluster-bootstrap/util/secrets"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capw-dev/cluster-api-provider-windows/bootstrap"
)

// ensureToken makes the token in the data valid in the workload cluster for as long as the node has not joined. A token
// that the workload cluster has forgotten is made again as it was, because it may already be inside a VM.
func (r *Reconciler) ensureToken(ctx context.Context, s *scope) error {
	if s.joined() {
		return r.revokeToken(ctx, s)
	}
	if s.token == "" {
		// Only data that was handed out can be gone or replaced by something else here.
		s.tokenProblem = fmt.Sprintf("Secret %s with the bootstrap data is gone or unreadable, so the token in it cannot be extended; "+
			"if the node does not join in time, delete the Machine", s.config.Status.DataSecretName)
		return nil
	}
	if s.workload == nil {
		return nil
	}

	wanted, err := bootstrap.TokenSecret(s.token, tokenDescription(s), time.Now().Add(r.TokenTTL))
	if err != nil {
		return fmt.Errorf("reading bootstrap token from data Secret %s: %w", s.secret.Name, err)
	}
	id := string(wanted.Data[bootstrapapi.BootstrapTokenIDKey])
	log := s.log.WithValues("Secret", klog.KObj(wanted))

	found := &corev1.Secret{}
	err = s.workload.Get(ctx, client.ObjectKeyFromObject(wanted), found)
	if apierrors.IsNotFound(err) {
		if err := s.workload.Create(ctx, wanted); err != nil {
			return fmt.Errorf("creating bootstrap token %s in the workload cluster: %w", id, err)
		}
		log.Info("Created the bootstrap token in the workload cluster", "ttl", r.TokenTTL)
		r.Recorder.Eventf(s.config, corev1.EventTypeNormal, "BootstrapTokenCreated", "Created bootstrap token %s in the workload cluster", id)
		s.tokenValid = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading bootstrap token %s from the workload cluster: %w", id, err)
	}
	if subtle.ConstantTimeCompare(found.Data[bootstrapapi.BootstrapTokenSecretKey], wanted.Data[bootstrapapi.BootstrapTokenSecretKey]) != 1 {
		return fmt.Errorf("the workload cluster has another bootstrap token with ID %s; delete data Secret %s for a new one, or, if it was handed out, the Machine", id, s.secret.Name)
	}

	// With a check every third of the TTL, two may fail before a token that was left alone at 5/6 expires.
	if left, expired := bootstrapsecrets.GetExpiration(found, time.Now()); expired || left < r.TokenTTL*5/6 {
		found.Data[bootstrapapi.BootstrapTokenExpirationKey] = wanted.Data[bootstrapapi.BootstrapTokenExpirationKey]
		if err := s.workload.Update(ctx, found); err != nil {
			return fmt.Errorf("extending bootstrap token %s in the workload cluster: %w", id, err)
		}
		log.Info("Extended the bootstrap token, the node has not joined yet", "left", left, "ttl", r.TokenTTL)
	}
	s.tokenValid = true
	return nil
}

// revokeToken deletes the token of a node that has joined: from then on the node has a certificate of its own, and a
// credential that nobody needs is one that only a thief would use.
func (r *Reconciler) revokeToken(ctx context.Context, s *scope) error {
	if s.token == "" || s.workload == nil {
		return nil
	}
	token, err := bootstrap.TokenSecret(s.token, tokenDescription(s), time.Now())
	if err != nil {
		return fmt.Errorf("reading bootstrap token from data Secret %s: %w", s.secret.Name, err)
	}
	if err := s.workload.Delete(ctx, token); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the bootstrap token of a node that has joined: %w", err)
	}
	s.log.Info("Deleted the bootstrap token, the node has joined", "Secret", klog.KObj(token))
	s.tokenRevoked = true
	return nil
}

// refreshTokenInTime comes back before the token expires. There is no event to wait for.
func (r *Reconciler) refreshTokenInTime(_ context.Context, s *scope) error {
	if s.tokenValid {
		s.result.RequeueAfter = r.TokenTTL / 3
	}
	return nil
}

// tokenDescription says whose token it is, for people who list them.
func tokenDescription(s *scope) string {
	return fmt.Sprintf("Cluster API Machine %s/%s, made by the bootstrap provider for Windows", s.machine.Namespace, s.machine.Name)
}
