package windowsmachine

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/infrastructure"
)

// identityIndex finds the WindowsMachines that use a credentials Secret.
const identityIndex = "spec.vsphere.identityRef.name"

// identityNames returns the value of identityIndex.
func identityNames(o client.Object) []string {
	if v := o.(*infrav1.WindowsMachine).Spec.VSphere; v != nil {
		return []string{v.IdentityRef.Name}
	}
	return nil
}

// machineToIdentity returns the credentials Secret of a WindowsMachine.
func machineToIdentity(_ context.Context, o client.Object) (requests []reconcile.Request) {
	for _, name := range identityNames(o) {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: name}})
	}
	return requests
}

// secretMetadata is a Secret without its content: nothing here needs to know credentials.
func secretMetadata() *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return m
}

// newSecretCache returns a cache of the metadata of all Secrets. The manager's own cache will not do: it may hold only the
// Secrets of Cluster API, and one that a person made for credentials has no label. RBAC knows no difference between a Secret
// and its metadata: this cache is why list and watch on Secrets are granted.
func (r *Reconciler) newSecretCache(mgr ctrl.Manager) (cache.Cache, error) {
	options := cache.Options{
		HTTPClient:       mgr.GetHTTPClient(),
		Scheme:           mgr.GetScheme(),
		Mapper:           mgr.GetRESTMapper(),
		DefaultTransform: stripMetadata,
	}
	if r.Namespace != "" {
		options.DefaultNamespaces = map[string]cache.Config{r.Namespace: {}}
	}
	secrets, err := cache.New(mgr.GetConfig(), options)
	if err != nil {
		return nil, fmt.Errorf("building the cache of Secret metadata: %w", err)
	}
	return secrets, mgr.Add(secrets)
}

// stripMetadata keeps of an object's metadata what credentialsReconciler reads: there may be many Secrets.
func stripMetadata(in any) (any, error) {
	m, ok := in.(*metav1.PartialObjectMetadata)
	if !ok {
		return in, nil
	}
	m.ObjectMeta = metav1.ObjectMeta{
		Namespace:         m.Namespace,
		Name:              m.Name,
		UID:               m.UID,
		ResourceVersion:   m.ResourceVersion,
		DeletionTimestamp: m.DeletionTimestamp,
		Finalizers:        m.Finalizers,
	}
	return m, nil
}

// protectCredentials sees to it that the Secret is there for as long as the instance, before there is one. It comes after
// the claim: whoever sees a Secret that is being deleted and then no claim can let the Secret go, because every later claim
// is refused here.
func (r *Reconciler) protectCredentials(ctx context.Context, s *scope) (bool, error) {
	for _, request := range machineToIdentity(ctx, s.object) {
		if err := r.protectSecret(ctx, request.NamespacedName, s.newClaim); err != nil {
			s.claimWithdrawn = s.newClaim // the platform was not asked yet
			return false, err
		}
	}
	return true, nil
}

// protectSecret adds the finalizer. The platform has more to say about a Secret that does not exist. One that is being deleted
// still serves an older claim, which keeps it, and no new one.
func (r *Reconciler) protectSecret(ctx context.Context, key client.ObjectKey, newClaim bool) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		secret := secretMetadata()
		if err := r.Client.Get(ctx, key, secret); err != nil {
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("reading credentials Secret %s: %w", key, err)
		}
		protected := controllerutil.ContainsFinalizer(secret, infrav1.CredentialsFinalizer)
		if !secret.DeletionTimestamp.IsZero() && (newClaim || !protected) {
			return fmt.Errorf("%w: Secret %s, named by spec.vsphere.identityRef, is being deleted and stays only until the VMs that need it are gone: "+
				"create it again then, or use a WindowsMachineTemplate that names another Secret", infrastructure.ErrIdentity, key)
		}
		return setCredentialsFinalizer(ctx, r.Client, secret, controllerutil.AddFinalizer)
	})
}

// setCredentialsFinalizer adds or removes the finalizer, unless somebody else has changed the Secret meanwhile.
func setCredentialsFinalizer(ctx context.Context, c client.Client, secret *metav1.PartialObjectMetadata, set func(client.Object, string) bool) error {
	base := secret.DeepCopy()
	if !set(secret, infrav1.CredentialsFinalizer) {
		return nil
	}
	if err := c.Patch(ctx, secret, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("setting finalizers %q of credentials Secret %s: %w", secret.Finalizers, client.ObjectKeyFromObject(secret), err)
	}
	return nil
}

// credentialsReconciler keeps infrav1.CredentialsFinalizer on exactly the Secrets that need it. Reconciler.protectCredentials
// adds it before an instance is created; everything else happens here, level-triggered: the finalizer goes with the last
// WindowsMachine however that goes (also moved away, or stripped of its own finalizer), and comes with one that was moved
// here.
type credentialsReconciler struct {
	client client.Client
	// live reads from the API server.
	live client.Reader
	// secrets has the metadata of all Secrets.
	secrets client.Reader
}

// setup registers the reconciler and its watches. A Secret is looked at when it changes, when a WindowsMachine that names it
// comes or goes, and when one may have got an instance.
func (r *credentialsReconciler) setup(mgr ctrl.Manager, options controller.Options, secrets cache.Cache) error {
	return ctrl.NewControllerManagedBy(mgr).WithOptions(options).
		Named("windowsmachine-credentials").
		WatchesRawSource(secretSource(secrets, &handler.EnqueueRequestForObject{})).
		Watches(&infrav1.WindowsMachine{}, handler.EnqueueRequestsFromMapFunc(machineToIdentity), builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(e event.UpdateEvent) bool {
				older, newer := e.ObjectOld.(*infrav1.WindowsMachine), e.ObjectNew.(*infrav1.WindowsMachine)
				return claimed(older) != claimed(newer) || !slices.Equal(identityNames(older), identityNames(newer))
			},
		})).
		Complete(r)
}

// Reconcile adds or removes the finalizer of one Secret.
func (r *credentialsReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	secret := secretMetadata()
	if err := r.secrets.Get(ctx, req.NamespacedName, secret); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	users := &infrav1.WindowsMachineList{}
	if err := r.client.List(ctx, users, client.InNamespace(req.Namespace), client.MatchingFields{identityIndex: req.Name}); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing the WindowsMachines that use Secret %s: %w", req, err)
	}
	deleting := !secret.DeletionTimestamp.IsZero()
	// As long as it is not deleted, it is kept for every WindowsMachine: each will be claimed in a moment, or tried again.
	needs := func(m infrav1.WindowsMachine) bool { return !deleting || claimed(&m) }

	set := controllerutil.RemoveFinalizer
	switch protected := controllerutil.ContainsFinalizer(secret, infrav1.CredentialsFinalizer); {
	case !protected && !deleting && slices.ContainsFunc(users.Items, func(m infrav1.WindowsMachine) bool { return claimed(&m) }):
		set = controllerutil.AddFinalizer
	case !protected, slices.ContainsFunc(users.Items, needs):
		return ctrl.Result{}, nil
	default:
		// The cache may be behind a claim.
		if err := r.live.List(ctx, users, client.InNamespace(req.Namespace)); err != nil {
			return ctrl.Result{}, fmt.Errorf("listing the WindowsMachines of namespace %s: %w", req.Namespace, err)
		}
		if slices.ContainsFunc(users.Items, func(m infrav1.WindowsMachine) bool {
			return slices.Contains(identityNames(&m), req.Name) && needs(m)
		}) {
			return ctrl.Result{}, nil // its event wakes us
		}
	}
	err := setCredentialsFinalizer(ctx, r.client, secret, set)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return ctrl.Result{}, nil // the cache is behind a change of the Secret, whose event wakes us
	}
	return ctrl.Result{}, err
}
