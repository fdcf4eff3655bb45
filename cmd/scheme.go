package cmd

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
)

func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	builder := runtime.NewSchemeBuilder(
		clientgoscheme.AddToScheme,
		clusterv1.AddToScheme,
		bootstrapv1.AddToScheme,
		infrav1.AddToScheme,
	)
	return s, builder.AddToScheme(s)
}

// cacheOptions keeps the cache small and free of secrets that nobody here reads: of all Secrets only those of Cluster
// API clusters are cached, and of these only kubeconfigs and certificates with their data.
func cacheOptions(o *managerOptions) cache.Options {
	opts := cache.Options{
		SyncPeriod:       &o.syncPeriod,
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}: {Label: hasClusterName(), Transform: dropForeignSecretData},
		},
	}
	if o.namespace != "" {
		opts.DefaultNamespaces = map[string]cache.Config{o.namespace: {}}
	}
	return opts
}

func hasClusterName() labels.Selector {
	exists, err := labels.NewRequirement(clusterv1.ClusterNameLabel, selection.Exists, nil)
	if err != nil {
		panic(err) // a constant label key: only a programming error can get here
	}
	return labels.NewSelector().Add(*exists)
}

func dropForeignSecretData(in any) (any, error) {
	if s, ok := in.(*corev1.Secret); ok {
		s.SetManagedFields(nil)
		if !secret.HasPurposeSuffix(s.Name) {
			s.Data = nil
		}
	}
	return in, nil
}

func clientOptions() client.Options {
	return client.Options{Cache: &client.CacheOptions{
		// Bootstrap data and credentials are read from the API server when they are needed, and only then.
		DisableFor: []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}},
	}}
}

func clusterCacheClientOptions(o *managerOptions) clustercache.ClientOptions {
	return clustercache.ClientOptions{
		QPS:       o.clusterCacheQPS,
		Burst:     o.clusterCacheBurst,
		UserAgent: userAgent(),
		Cache: clustercache.ClientCacheOptions{
			DisableFor: []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}},
		},
	}
}

func clusterCacheCacheOptions() clustercache.CacheOptions {
	return clustercache.CacheOptions{DefaultTransform: cache.TransformStripManagedFields()}
}
