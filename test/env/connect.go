package env

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// HostedControlPlaneKind is the stand-in for a control plane that Cluster API does not manage. A Cluster refers to it with
//
//	controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: HostedControlPlane, name: ...}
//
// and its only required field is spec.version.
func HostedControlPlaneKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "controlplane.cluster.x-k8s.io", Version: "v1alpha1", Kind: "HostedControlPlane"}
}

// ConnectCluster makes the workload cluster the control plane of a Cluster whose controlPlaneRef is a HostedControlPlane.
// It does what the controller of such a control plane does: it publishes the Secrets <cluster>-kubeconfig and <cluster>-ca
// (without the CA's key, which nobody outside of a hosted control plane gets), owned by the HostedControlPlane so that they
// go when it goes, the endpoint, and then that the control plane is initialized. It may be repeated.
func (e *Environment) ConnectCluster(ctx context.Context, key client.ObjectKey) error {
	if err := e.connectCluster(ctx, key); err != nil {
		return fmt.Errorf("connecting Cluster %s to the workload cluster: %w", key, err)
	}
	return nil
}

func (e *Environment) connectCluster(ctx context.Context, key client.ObjectKey) error {
	if e.Workload == nil {
		return errors.New("the environment has no workload cluster")
	}
	c := e.Management.Client
	cluster := &clusterv1.Cluster{}
	if err := c.Get(ctx, key, cluster); err != nil {
		return err
	}
	gvk, ref := HostedControlPlaneKind(), cluster.Spec.ControlPlaneRef
	if ref.Kind != gvk.Kind || ref.APIGroup != gvk.Group {
		return fmt.Errorf("its controlPlaneRef is no %s: %q", gvk.Kind, ref.Kind)
	}
	hcp := &unstructured.Unstructured{}
	hcp.SetGroupVersionKind(gvk)
	if err := c.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: ref.Name}, hcp); err != nil {
		return err
	}

	kubeconfig, err := e.Workload.KubeconfigFor(cluster.Name+"-admin", "system:masters")
	if err != nil {
		return err
	}
	owner := *metav1.NewControllerRef(hcp, gvk)
	for purpose, data := range map[secret.Purpose]map[string][]byte{
		secret.Kubeconfig: {secret.KubeconfigDataName: kubeconfig},
		secret.ClusterCA:  {secret.TLSCrtDataName: e.Workload.CA.CertPEM()},
	} {
		err := c.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:       key.Namespace,
				Name:            secret.Name(cluster.Name, purpose),
				Labels:          map[string]string{clusterv1.ClusterNameLabel: cluster.Name},
				OwnerReferences: []metav1.OwnerReference{owner},
			},
			Type: clusterv1.ClusterSecretType,
			Data: data,
		})
		if client.IgnoreAlreadyExists(err) != nil {
			return err
		}
	}
	return e.reportInitialized(ctx, hcp)
}

// reportInitialized writes endpoint and status; spec.version is what the user wants, the API server tells what runs.
func (e *Environment) reportInitialized(ctx context.Context, hcp *unstructured.Unstructured) error {
	version, err := e.Workload.Version()
	if err != nil {
		return err
	}
	before := hcp.DeepCopy()
	endpoint := map[string]any{"host": e.Workload.Host, "port": int64(e.Workload.Port)}
	if err := unstructured.SetNestedMap(hcp.Object, endpoint, "spec", "controlPlaneEndpoint"); err != nil {
		return err
	}
	if err := e.Management.Client.Patch(ctx, hcp, client.MergeFrom(before)); err != nil {
		return err
	}
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&hostedControlPlaneStatus{
		Initialization:              map[string]bool{"controlPlaneInitialized": true},
		ExternalManagedControlPlane: true,
		Version:                     version,
		Versions:                    []map[string]string{{"version": version}},
		Conditions:                  readyConditions(hcp.GetGeneration()),
	})
	if err != nil {
		return err
	}
	before = hcp.DeepCopy()
	hcp.Object["status"] = status
	return e.Management.Client.Status().Patch(ctx, hcp, client.MergeFrom(before))
}

// hostedControlPlaneStatus has what Cluster API core reads of a control plane.
type hostedControlPlaneStatus struct {
	Initialization              map[string]bool     `json:"initialization"`
	ExternalManagedControlPlane bool                `json:"externalManagedControlPlane"`
	Version                     string              `json:"version"`
	Versions                    []map[string]string `json:"versions"`
	Conditions                  []metav1.Condition  `json:"conditions"`
}

func readyConditions(generation int64) []metav1.Condition {
	var conditions []metav1.Condition
	for _, t := range []string{clusterv1.ReadyCondition, clusterv1.AvailableCondition} {
		meta.SetStatusCondition(&conditions, metav1.Condition{
			Type: t, Status: metav1.ConditionTrue, Reason: "Hosted", ObservedGeneration: generation,
		})
	}
	return conditions
}
