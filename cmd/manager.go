package cmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	cliflag "k8s.io/component-base/cli/flag"
	logsv1 "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/apiwarnings"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/capw-dev/cluster-api-provider-windows/controllers/windowscluster"
	"github.com/capw-dev/cluster-api-provider-windows/controllers/windowsconfig"
	"github.com/capw-dev/cluster-api-provider-windows/controllers/windowsmachine"
	"github.com/capw-dev/cluster-api-provider-windows/controllers/windowsmachinetemplate"
	"github.com/capw-dev/cluster-api-provider-windows/infrastructure/vsphere"
	"github.com/capw-dev/cluster-api-provider-windows/version"
	webhooksbootstrap "github.com/capw-dev/cluster-api-provider-windows/webhooks/bootstrap"
	webhooksinfrastructure "github.com/capw-dev/cluster-api-provider-windows/webhooks/infrastructure"
)

// Access to the secured diagnostics endpoint is checked with the API server.
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

func newManager() *cobra.Command {
	o := newManagerOptions()
	c := &cobra.Command{
		Use:   "manager",
		Short: "Run the controllers and webhooks",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			if err := logsv1.ValidateAndApply(o.logs, nil); err != nil {
				return fmt.Errorf("setting up logging: %w", err)
			}
			ctrl.SetLogger(klog.Background())
			return runManager(c.Context(), o)
		},
	}
	c.Flags().SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	o.addFlags(c.Flags())
	return c
}

func runManager(ctx context.Context, o *managerOptions) error {
	log := klog.Background().WithName("setup")
	log.Info("Starting", "version", version.Get().String(), "providers", o.providers)

	cfg, err := restConfig(o)
	if err != nil {
		return err
	}
	scheme, err := newScheme()
	if err != nil {
		return fmt.Errorf("building scheme: %w", err)
	}
	opts := ctrl.Options{
		Scheme: scheme,
		Cache:  cacheOptions(o),
		Client: clientOptions(),
	}
	if err := o.applyTo(&opts); err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(cfg, opts)
	if err != nil {
		return fmt.Errorf("creating manager: %w", err)
	}
	if o.runs(bootstrapProvider) {
		if err := setupBootstrap(ctx, mgr, o); err != nil {
			return fmt.Errorf("setting up the bootstrap provider: %w", err)
		}
	}
	if o.runs(infrastructureProvider) {
		if err := setupInfrastructure(ctx, mgr, o); err != nil {
			return fmt.Errorf("setting up the infrastructure provider: %w", err)
		}
	}
	if err := setupChecks(mgr); err != nil {
		return fmt.Errorf("setting up health checks: %w", err)
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running manager: %w", err)
	}
	return nil
}

func restConfig(o *managerOptions) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the management cluster (set --kubeconfig): %w", err)
	}
	cfg.QPS = o.kubeAPIQPS
	cfg.Burst = o.kubeAPIBurst
	cfg.UserAgent = userAgent()
	cfg.WarningHandlerWithContext = nil
	cfg.WarningHandler = apiwarnings.DefaultHandler(klog.Background().WithName("API server warning"))
	return cfg, nil
}

func userAgent() string { return "capw-manager/" + version.Get().Version }

func setupChecks(mgr ctrl.Manager) error {
	started := mgr.GetWebhookServer().StartedChecker()
	if err := mgr.AddReadyzCheck("webhook", started); err != nil {
		return err
	}
	return mgr.AddHealthzCheck("webhook", started)
}

func setupBootstrap(ctx context.Context, mgr ctrl.Manager, o *managerOptions) error {
	// The ClusterCache reads kubeconfig Secrets again and again; those, and only those, come from the cache.
	secrets, err := client.New(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(),
		Scheme:     mgr.GetScheme(),
		Mapper:     mgr.GetRESTMapper(),
		Cache:      &client.CacheOptions{Reader: mgr.GetCache()},
	})
	if err != nil {
		return fmt.Errorf("creating the client for cluster Secrets: %w", err)
	}
	clusterCache, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient:     secrets,
		Client:           clusterCacheClientOptions(o),
		Cache:            clusterCacheCacheOptions(),
		WatchFilterValue: o.watchFilter,
	}, concurrency(o.clusterCacheConcurrency))
	if err != nil {
		return fmt.Errorf("creating ClusterCache: %w", err)
	}
	if err := (&windowsconfig.Reconciler{
		Client:           mgr.GetClient(),
		ClusterCache:     clusterCache,
		WatchFilterValue: o.watchFilter,
		TokenTTL:         o.bootstrapTokenTTL,
	}).SetupWithManager(ctx, mgr, concurrency(o.windowsConfigConcurrency)); err != nil {
		return fmt.Errorf("creating controller WindowsConfig: %w", err)
	}
	return webhooksbootstrap.SetupWithManager(mgr)
}

func setupInfrastructure(ctx context.Context, mgr ctrl.Manager, o *managerOptions) error {
	platform, err := vsphere.New(vsphere.Options{
		Identities: vsphere.SecretIdentities(mgr.GetClient()),
		UserAgent:  userAgent(),
	})
	if err != nil {
		return fmt.Errorf("creating the vSphere platform: %w", err)
	}
	if err := mgr.Add(platform); err != nil {
		return fmt.Errorf("adding the vSphere platform: %w", err)
	}
	if err := (&windowsmachine.Reconciler{
		Client:           mgr.GetClient(),
		Platforms:        windowsmachine.Platforms{VSphere: platform},
		Namespace:        o.namespace,
		WatchFilterValue: o.watchFilter,
		Recorder:         mgr.GetEventRecorderFor("windowsmachine-controller"), //nolint:staticcheck // see Reconciler.Recorder
	}).SetupWithManager(ctx, mgr, concurrency(o.windowsMachineConcurrency)); err != nil {
		return fmt.Errorf("creating controller WindowsMachine: %w", err)
	}
	if err := (&windowsmachinetemplate.Reconciler{
		Client:           mgr.GetClient(),
		WatchFilterValue: o.watchFilter,
	}).SetupWithManager(ctx, mgr, concurrency(1)); err != nil {
		return fmt.Errorf("creating controller WindowsMachineTemplate: %w", err)
	}
	if err := (&windowscluster.Reconciler{
		Client:           mgr.GetClient(),
		WatchFilterValue: o.watchFilter,
	}).SetupWithManager(ctx, mgr, concurrency(10)); err != nil {
		return fmt.Errorf("creating controller WindowsCluster: %w", err)
	}
	return webhooksinfrastructure.SetupWithManager(mgr)
}

func concurrency(n int) controller.Options {
	return controller.Options{MaxConcurrentReconciles: n}
}
