package cmd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/component-base/logs"
	logsv1 "k8s.io/component-base/logs/api/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	capiflags "sigs.k8s.io/cluster-api/util/flags"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// The provider halves that one manager can run.
const (
	bootstrapProvider      = "bootstrap"
	infrastructureProvider = "infrastructure"
)

// managerOptions are the flags of "capw manager". Their names are those of the Cluster API managers, so that what a
// platform team knows about one of them holds for all.
type managerOptions struct {
	kubeconfig string
	providers  []string

	leaderElect              bool
	leaderElectionNamespace  string
	leaderElectLeaseDuration time.Duration
	leaderElectRenewDeadline time.Duration
	leaderElectRetryPeriod   time.Duration

	namespace   string
	watchFilter string
	syncPeriod  time.Duration

	kubeAPIQPS   float32
	kubeAPIBurst int

	clusterCacheConcurrency   int
	clusterCacheQPS           float32
	clusterCacheBurst         int
	windowsConfigConcurrency  int
	windowsMachineConcurrency int

	bootstrapTokenTTL time.Duration

	healthAddr  string
	webhook     webhook.Options
	diagnostics capiflags.ManagerOptions
	logs        *logs.Options
}

func newManagerOptions() *managerOptions {
	return &managerOptions{logs: logs.NewOptions()}
}

func (o *managerOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "Path to a kubeconfig of the management cluster. Default: $KUBECONFIG, then the Pod's service account, then ~/.kube/config.")
	fs.StringSliceVar(&o.providers, "providers", []string{bootstrapProvider, infrastructureProvider}, "Provider halves to run: bootstrap, infrastructure or both.")

	fs.BoolVar(&o.leaderElect, "leader-elect", false, "Let only one of several replicas be active.")
	fs.StringVar(&o.leaderElectionNamespace, "leader-election-namespace", "", "Namespace of the Lease that leaders are elected with. Default: the Pod's; outside of a Pod it must be set.")
	fs.DurationVar(&o.leaderElectLeaseDuration, "leader-elect-lease-duration", 15*time.Second, "Time that non-leaders wait before they take leadership by force.")
	fs.DurationVar(&o.leaderElectRenewDeadline, "leader-elect-renew-deadline", 10*time.Second, "Time that the leader tries to renew its leadership before it gives up.")
	fs.DurationVar(&o.leaderElectRetryPeriod, "leader-elect-retry-period", 2*time.Second, "Time between two tries to get or renew leadership.")

	fs.StringVar(&o.namespace, "namespace", "", "Namespace to watch. Default: all namespaces.")
	fs.StringVar(&o.watchFilter, "watch-filter", "", fmt.Sprintf("Reconcile only objects whose label %s has this value. Default: all objects.", clusterv1.WatchLabel))
	fs.DurationVar(&o.syncPeriod, "sync-period", 10*time.Minute, "Interval after which every object is reconciled again, whether or not something happened.")

	fs.Float32Var(&o.kubeAPIQPS, "kube-api-qps", 100, "Maximum requests per second to the management cluster's API server.")
	fs.IntVar(&o.kubeAPIBurst, "kube-api-burst", 200, "Maximum burst of requests to the management cluster's API server.")

	fs.IntVar(&o.clusterCacheConcurrency, "clustercache-concurrency", 100, "Number of workload clusters to connect to at the same time.")
	fs.Float32Var(&o.clusterCacheQPS, "clustercache-client-qps", 20, "Maximum requests per second to one workload cluster's API server.")
	fs.IntVar(&o.clusterCacheBurst, "clustercache-client-burst", 30, "Maximum burst of requests to one workload cluster's API server.")
	fs.IntVar(&o.windowsConfigConcurrency, "windowsconfig-concurrency", 50, "Number of WindowsConfigs to reconcile at the same time.")
	fs.IntVar(&o.windowsMachineConcurrency, "windowsmachine-concurrency", 50, "Number of WindowsMachines to reconcile at the same time.")

	fs.DurationVar(&o.bootstrapTokenTTL, "bootstrap-token-ttl", time.Hour, "Lifetime of a bootstrap token. It is extended for as long as the node has not joined; it must outlast the time that this manager may be down during a Windows first boot.")

	fs.StringVar(&o.healthAddr, "health-addr", ":9440", "Address of the health endpoints /healthz and /readyz.")
	fs.IntVar(&o.webhook.Port, "webhook-port", webhook.DefaultPort, "Port of the webhook server.")
	fs.StringVar(&o.webhook.CertDir, "webhook-cert-dir", filepath.Join(os.TempDir(), "k8s-webhook-server", "serving-certs"), "Directory with the webhook server's certificate and key.")
	fs.StringVar(&o.webhook.CertName, "webhook-cert-name", "tls.crt", "File name of the webhook server's certificate.")
	fs.StringVar(&o.webhook.KeyName, "webhook-key-name", "tls.key", "File name of the webhook server's key.")

	capiflags.AddManagerOptions(fs, &o.diagnostics)
	logsv1.AddFlags(o.logs, fs)
}

func (o *managerOptions) validate() error {
	var errs []error
	for _, p := range o.providers {
		if p != bootstrapProvider && p != infrastructureProvider {
			errs = append(errs, fmt.Errorf("--providers %q: use %s, %s or both", p, bootstrapProvider, infrastructureProvider))
		}
	}
	if len(o.providers) == 0 {
		errs = append(errs, fmt.Errorf("--providers is empty: use %s, %s or both", bootstrapProvider, infrastructureProvider))
	}
	// kube-controller-manager's token cleaner and our own refresh work in steps of a minute; below that a token could be
	// gone before anyone looks.
	if o.bootstrapTokenTTL < 5*time.Minute {
		errs = append(errs, fmt.Errorf("--bootstrap-token-ttl %s: must be at least 5m; a Windows first boot takes 5 to 30 minutes", o.bootstrapTokenTTL))
	}
	return errors.Join(errs...)
}

func (o *managerOptions) runs(provider string) bool { return slices.Contains(o.providers, provider) }

// leaderElectionID differs by what the manager runs, so that the two deployments of one cluster never wait for each other.
func (o *managerOptions) leaderElectionID() string {
	switch {
	case o.runs(bootstrapProvider) && o.runs(infrastructureProvider):
		return "capw-manager-leader-election"
	case o.runs(bootstrapProvider):
		return "capw-bootstrap-manager-leader-election"
	default:
		return "capw-infrastructure-manager-leader-election"
	}
}

func (o *managerOptions) applyTo(opts *ctrl.Options) error {
	tlsOpts, metrics, err := capiflags.GetManagerOptions(o.diagnostics)
	if err != nil {
		return fmt.Errorf("reading TLS and diagnostics flags: %w", err)
	}
	o.webhook.TLSOpts = tlsOpts
	opts.Metrics = *metrics
	opts.WebhookServer = webhook.NewServer(o.webhook)
	opts.HealthProbeBindAddress = o.healthAddr
	opts.LeaderElection = o.leaderElect
	opts.LeaderElectionNamespace = o.leaderElectionNamespace
	opts.LeaderElectionID = o.leaderElectionID()
	opts.LeaderElectionReleaseOnCancel = true
	opts.LeaseDuration = &o.leaderElectLeaseDuration
	opts.RenewDeadline = &o.leaderElectRenewDeadline
	opts.RetryPeriod = &o.leaderElectRetryPeriod
	return nil
}
