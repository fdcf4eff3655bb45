package windowsconfig

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/bootstrap"
	"github.com/capw-dev/cluster-api-provider-windows/cloudinit/cloudbase"
)

// The keys of a data Secret. The contract knows only "value"; "format" is what the kubeadm bootstrap provider writes
// and infrastructure providers read.
const (
	valueKey  = "value"
	formatKey = "format"
	// formatCloudConfig is the one format with which every infrastructure provider hands the value through as user data
	// (cluster-api-provider-vsphere drops any that it does not know).
	formatCloudConfig = "cloud-config"
)

// findDataSecret reads the data Secret and the token in it, if there is one, and makes the WindowsConfig its controller
// again if that got lost: without an owner the Secret would outlive the Machine and be left behind by clusterctl move.
func (r *Reconciler) findDataSecret(ctx context.Context, s *scope) error {
	key := client.ObjectKey{Namespace: s.config.Namespace, Name: s.config.Name}
	if s.handedOut() {
		key.Name = s.config.Status.DataSecretName
	}
	found := &corev1.Secret{}
	if err := r.Client.Get(ctx, key, found); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("reading data Secret %s: %w", key.Name, err)
	}

	doc, err := cloudbase.ReadDocument(found.Data[valueKey])
	if why := foreign(s, found, doc, err); why != "" {
		return refuse(bootstrapv1.SecretNotOwnedReason,
			"Secret %s exists and is not the data of this WindowsConfig: %s; it is left as it is, delete it or rename the Machine", key.Name, why)
	}
	if doc != nil {
		s.token = doc.Join.Token
	}
	s.secret = found
	return r.ensureOwned(ctx, s)
}

// foreign returns why a Secret of the right name is not the WindowsConfig's own, or "". A Secret that it controls is its
// own whatever is in it; one that nobody controls only if the document in it was made for the same node.
func foreign(s *scope, found *corev1.Secret, doc *nodev1.NodeConfiguration, unreadable error) string {
	if found.Type != clusterv1.ClusterSecretType {
		return fmt.Sprintf("its type is %q, not %q", found.Type, clusterv1.ClusterSecretType)
	}
	if owner := metav1.GetControllerOf(found); owner != nil {
		if util.IsControlledBy(found, s.config, bootstrapv1.GroupVersion.WithKind(kind).GroupKind()) {
			return ""
		}
		return fmt.Sprintf("%s %s controls it", owner.Kind, owner.Name)
	}
	if unreadable != nil {
		return "nobody controls it and it holds no readable node document"
	}
	name := bootstrap.ComputerName(s.machine.Namespace, s.cluster.Name, s.machine.Name)
	if doc.Cluster.Namespace != s.cluster.Namespace || doc.Cluster.Name != s.cluster.Name || doc.Node.Name != name {
		return fmt.Sprintf("it is for node %s of cluster %s/%s", doc.Node.Name, doc.Cluster.Namespace, doc.Cluster.Name)
	}
	return ""
}

func (r *Reconciler) ensureOwned(ctx context.Context, s *scope) error {
	before := s.secret.DeepCopy()
	if err := controllerutil.SetControllerReference(s.config, s.secret, r.Client.Scheme()); err != nil {
		return fmt.Errorf("taking control of data Secret %s: %w", s.secret.Name, err)
	}
	if equality.Semantic.DeepEqual(before.OwnerReferences, s.secret.OwnerReferences) {
		return nil
	}
	if err := r.patchSecret(ctx, s.secret, before); err != nil {
		return fmt.Errorf("taking control of data Secret %s: %w", s.secret.Name, err)
	}
	s.log.Info("Took control of the data Secret again", "Secret", klog.KObj(s.secret))
	return nil
}

// writeDataSecret makes the data Secret. One that a crash left behind keeps its token, so that none is ever wasted, and
// is brought up to date otherwise: nobody has taken it yet.
func (r *Reconciler) writeDataSecret(ctx context.Context, s *scope) error {
	if !s.mustWriteData() {
		return nil
	}
	token := s.token
	if !bootstraputil.IsValidBootstrapToken(token) {
		var err error
		if token, err = bootstraputil.GenerateBootstrapToken(); err != nil {
			return fmt.Errorf("generating bootstrap token: %w", err)
		}
	}
	wanted, err := r.render(s, token)
	if err != nil {
		return err
	}

	s.token = token

	if s.secret == nil {
		if err := r.Client.Create(ctx, wanted); err != nil {
			return fmt.Errorf("creating data Secret %s: %w", wanted.Name, err)
		}
		s.secret = wanted
		s.log.Info("Created the data Secret", "Secret", klog.KObj(wanted))
		r.Recorder.Eventf(s.config, corev1.EventTypeNormal, "DataSecretCreated", "Created Secret %s with the bootstrap data", wanted.Name)
		return nil
	}
	before := s.secret.DeepCopy()
	labels.AddLabels(s.secret, wanted.Labels)
	s.secret.Data = wanted.Data
	if equality.Semantic.DeepEqual(before, s.secret) {
		return nil
	}
	if err := r.patchSecret(ctx, s.secret, before); err != nil {
		return fmt.Errorf("updating data Secret %s: %w", wanted.Name, err)
	}
	s.log.Info("Updated the data Secret", "Secret", klog.KObj(wanted))
	return nil
}

// patchSecret writes what changed since before, unless somebody else has changed the Secret too.
func (r *Reconciler) patchSecret(ctx context.Context, changed, before *corev1.Secret) error {
	return r.Client.Patch(ctx, changed, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// render returns the data Secret as it shall be.
func (r *Reconciler) render(s *scope, token string) (*corev1.Secret, error) {
	doc, err := bootstrap.NodeConfiguration(bootstrap.Input{
		Config:       s.config,
		Machine:      s.machine,
		Cluster:      s.cluster,
		CACertHashes: s.caCertHashes,
		Token:        token,
	})
	if err != nil {
		return nil, refuse(bootstrapv1.InvalidConfigurationReason, "%s", err)
	}
	value, err := cloudbase.UserData(doc, s.config.Spec.Agent)
	if err == nil {
		// guestinfo is the channel to the guest on vSphere, ours and that of other providers.
		_, err = cloudbase.GuestInfo(nil, value)
	}
	if tooLarge := (*cloudbase.TooLargeError)(nil); errors.As(err, &tooLarge) {
		return nil, refuse(bootstrapv1.BootstrapDataTooLargeReason, "%s", err)
	}
	if err != nil {
		return nil, refuse(bootstrapv1.InvalidConfigurationReason, "%s", err)
	}

	wanted := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.config.Namespace,
			Name:      s.config.Name,
			Labels:    map[string]string{clusterv1.ClusterNameLabel: s.cluster.Name},
		},
		Type: clusterv1.ClusterSecretType,
		Data: map[string][]byte{valueKey: value, formatKey: []byte(formatCloudConfig)},
	}
	if err := controllerutil.SetControllerReference(s.config, wanted, r.Client.Scheme()); err != nil {
		return nil, fmt.Errorf("owning data Secret %s: %w", wanted.Name, err)
	}
	return wanted, nil
}

// publishDataSecret names the Secret in the status. Cluster API copies the name to the Machine once and never looks
// again.
func publishDataSecret(_ context.Context, s *scope) error {
	if !s.handedOut() {
		s.publish(s.secret.Name)
	}
	return nil
}
