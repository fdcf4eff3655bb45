package env

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capw-dev/cluster-api-provider-windows/test/env/pki"
	"github.com/capw-dev/cluster-api-provider-windows/test/env/process"
)

// loopback is where everything listens.
const loopback = "127.0.0.1"

// startTimeout bounds the start of one process. It is generous: many suites may share two processors.
const startTimeout = 3 * time.Minute

// Cluster is a Kubernetes control plane without nodes.
type Cluster struct {
	// Name is "management" or "workload".
	Name string

	// Host and Port are the address of the API server.
	Host string
	Port int32

	// Config, Client and the file Kubeconfig have the rights of cluster-admin. The client reads from the API server, not
	// from a cache, and is not throttled. It knows the types of Kubernetes, Cluster API core and our providers.
	Config     *rest.Config
	Client     client.Client
	Kubeconfig string

	// CA has signed the API server's certificate and signs what CertificateSigningRequests ask for.
	CA *pki.CA

	// APIServer is the process of the API server.
	APIServer *process.Process

	profile clusterProfile
}

// URL returns the address of the API server.
func (c *Cluster) URL() string {
	return "https://" + loopback + ":" + strconv.Itoa(int(c.Port))
}

// KubeconfigFor returns a kubeconfig for a user of the given groups, authenticated by a client certificate.
func (c *Cluster) KubeconfigFor(user string, groups ...string) ([]byte, error) {
	pair, err := c.CA.Client(user, groups...)
	if err != nil {
		return nil, err
	}
	return c.CA.Kubeconfig(c.Name, c.URL(), user, pair)
}

// Version asks the API server for its version, such as "v1.36.3".
func (c *Cluster) Version() (string, error) {
	d, err := discovery.NewDiscoveryClientForConfig(c.Config)
	if err != nil {
		return "", fmt.Errorf("creating discovery client: %w", err)
	}
	info, err := d.ServerVersion()
	if err != nil {
		return "", fmt.Errorf("asking the API server of %s for its version: %w", c.Name, err)
	}
	return info.GitVersion, nil
}

// clusterProfile is in what the two clusters differ.
type clusterProfile struct {
	name          string
	apiServerArgs []string
	controllers   []string
}

// managementProfile has the controllers that Cluster API relies on, and no other: each costs time on a small machine.
func managementProfile() clusterProfile {
	return clusterProfile{
		name: "management",
		controllers: []string{
			"garbage-collector-controller",
			"namespace-controller",
			"clusterrole-aggregation-controller", // the rights of Cluster API core are an aggregated ClusterRole
		},
	}
}

// workloadProfile has what joining a node needs: bootstrap tokens, their signature on cluster-info, signed client
// certificates; and what a live cluster does to Nodes whose kubelet is silent.
func workloadProfile() clusterProfile {
	return clusterProfile{
		name: "workload",
		apiServerArgs: []string{
			"--enable-bootstrap-token-auth",
			"--enable-admission-plugins=NodeRestriction",
		},
		controllers: []string{
			"bootstrap-signer-controller",
			"token-cleaner-controller",
			"certificatesigningrequest-approving-controller",
			"certificatesigningrequest-signing-controller",
			"certificatesigningrequest-cleaner-controller",
			"node-lifecycle-controller",
			"garbage-collector-controller",
			"namespace-controller",
		},
	}
}

func (e *Environment) startEtcd(ctx context.Context) error {
	port, err := e.ports.Take()
	if err != nil {
		return err
	}
	e.etcd = "http://" + loopback + ":" + strconv.Itoa(port)
	p, err := e.runner.Start(process.Spec{
		Name: "etcd",
		Path: e.Assets.Etcd,
		Args: []string{
			"--data-dir=" + e.path("etcd"),
			"--listen-client-urls=" + e.etcd,
			"--advertise-client-urls=" + e.etcd,
			"--listen-peer-urls=http://" + loopback + ":0", // a cluster of one has no peers
			"--unsafe-no-fsync",                            // the data does not outlive the machine anyway
			"--log-level=warn",
		},
	})
	if err != nil {
		return err
	}
	return p.Await(ctx, startTimeout, func(ctx context.Context) error {
		return probe(ctx, http.DefaultClient, e.etcd+"/health")
	})
}

// startCluster starts an API server and returns when it is ready. Its controllers are started by startControllers, after
// the first CRDs are there: the garbage collector looks for new kinds only every 30 s.
func (e *Environment) startCluster(ctx context.Context, profile clusterProfile) (*Cluster, error) {
	begin := time.Now()
	port, err := e.ports.Take()
	if err != nil {
		return nil, err
	}
	c := &Cluster{Name: profile.name, Host: loopback, Port: int32(port), profile: profile}
	if c.CA, err = pki.NewCA("kubernetes"); err != nil {
		return nil, err
	}
	if err := e.writePKI(c); err != nil {
		return nil, err
	}
	if c.APIServer, err = e.runner.Start(process.Spec{
		Name: c.Name + "-kube-apiserver",
		Path: e.Assets.KubeAPIServer,
		Args: append(e.apiServerArgs(c), profile.apiServerArgs...),
	}); err != nil {
		return nil, err
	}
	httpClient, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		return nil, fmt.Errorf("creating HTTP client: %w", err)
	}
	if err := c.APIServer.Await(ctx, startTimeout, func(ctx context.Context) error {
		return probe(ctx, httpClient, c.URL()+"/readyz")
	}); err != nil {
		return nil, err
	}
	if c.Client, err = client.New(c.Config, client.Options{Scheme: e.scheme}); err != nil {
		return nil, fmt.Errorf("creating client: %w", err)
	}
	e.progressf("%s cluster: API server ready in %s", c.Name, time.Since(begin).Round(100*time.Millisecond))
	return c, nil
}

func (e *Environment) apiServerArgs(c *Cluster) []string {
	return []string{
		"--etcd-servers=" + e.etcd,
		"--etcd-prefix=/" + c.Name,
		"--bind-address=" + loopback,
		"--secure-port=" + strconv.Itoa(int(c.Port)),
		"--endpoint-reconciler-type=none", // a loopback address is no valid endpoint, and nobody needs one
		"--service-cluster-ip-range=10.0.0.0/24",
		"--tls-cert-file=" + e.pkiPath(c, "apiserver.crt"),
		"--tls-private-key-file=" + e.pkiPath(c, "apiserver.key"),
		"--client-ca-file=" + e.pkiPath(c, "ca.crt"),
		"--service-account-key-file=" + e.pkiPath(c, "service-account.key"),
		"--service-account-signing-key-file=" + e.pkiPath(c, "service-account.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--authorization-mode=Node,RBAC",
		"--disable-admission-plugins=ServiceAccount", // no Pod runs here
		"--enable-priority-and-fairness=false",
		"--profiling=false",
		"--shutdown-delay-duration=0s",
	}
}

// startControllers starts the kube-controller-manager. It serves nothing, so there is nothing to wait for.
func (e *Environment) startControllers(c *Cluster) error {
	// One identity for all controllers: separate ones would need ServiceAccounts, tokens and time.
	kubeconfig, err := c.KubeconfigFor("system:kube-controller-manager", "system:masters")
	if err != nil {
		return err
	}
	name := c.Name + "-kube-controller-manager"
	path, err := e.writeFile(name+".kubeconfig", kubeconfig)
	if err != nil {
		return err
	}
	_, err = e.runner.Start(process.Spec{
		Name: name,
		Path: e.Assets.KubeControllerManager,
		Args: []string{
			"--kubeconfig=" + path,
			"--controllers=" + strings.Join(c.profile.controllers, ","),
			"--cluster-signing-cert-file=" + e.pkiPath(c, "ca.crt"),
			"--cluster-signing-key-file=" + e.pkiPath(c, "ca.key"),
			"--secure-port=0",
			"--leader-elect=false",
			"--kube-api-qps=200",
			"--kube-api-burst=400",
			"--profiling=false",
		},
	})
	return err
}

func (e *Environment) pkiPath(c *Cluster, name string) string { return e.path(c.Name+"-pki", name) }

// writePKI writes the keys of a cluster and its administrator's kubeconfig, and sets Config.
func (e *Environment) writePKI(c *Cluster) error {
	ca, err := c.CA.KeyPair()
	if err != nil {
		return err
	}
	server, err := c.CA.Server("kube-apiserver", loopback, "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.0.0.1")
	if err != nil {
		return err
	}
	serviceAccounts, err := c.CA.Server("service-account")
	if err != nil {
		return err
	}
	for name, pair := range map[string]pki.KeyPair{"ca": ca, "apiserver": server, "service-account": serviceAccounts} {
		if _, _, err := pair.Write(e.path(c.Name+"-pki"), name); err != nil {
			return err
		}
	}
	kubeconfig, err := c.KubeconfigFor("kubernetes-admin", "system:masters")
	if err != nil {
		return err
	}
	if c.Kubeconfig, err = e.writeFile(c.Name+".kubeconfig", kubeconfig); err != nil {
		return err
	}
	if c.Config, err = clientcmd.RESTConfigFromKubeConfig(kubeconfig); err != nil {
		return fmt.Errorf("reading kubeconfig of %s: %w", c.Name, err)
	}
	c.Config.QPS = -1
	return nil
}

// probe succeeds when url answers with status 200.
func probe(ctx context.Context, c *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return fmt.Errorf("GET %s: %w", url, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s: %s", url, resp.Status, bytes.TrimSpace(body))
	}
	return nil
}
