package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/Microsoft/go-winio"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/capw-dev/cluster-api-provider-windows/test/wine/programs/internal/program"
)

func logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "I"+time.Now().Format("0102 15:04:05.000000")+" "+format+"\n", args...)
}

// run is the life of the kubelet.
func run(ctx context.Context, f *flags) error {
	if err := program.Record(); err != nil {
		return err
	}
	logf("Kubelet version %s, flags %+v", version, *f)
	config, err := readConfig(f.config)
	if err != nil {
		return fmt.Errorf("failed to load kubelet config file, path: %s: %w", f.config, err)
	}
	runtimeVersion, err := askRuntime(ctx, cmp.Or(f.containerRuntimeEndpoint, config.ContainerRuntimeEndpoint))
	if err != nil {
		return fmt.Errorf("failed to run Kubelet: validate service connection: %w", err)
	}
	name := f.hostnameOverride
	if name == "" {
		if name, err = os.Hostname(); err != nil {
			return err
		}
	}
	name = strings.ToLower(strings.TrimSpace(name))

	if err := bootstrapCertificate(ctx, f, name); err != nil {
		return fmt.Errorf("failed to run Kubelet: unable to load bootstrap kubeconfig or get a certificate: %w", err)
	}
	restConfig, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	if err != nil {
		return fmt.Errorf("invalid kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(restConfig)
	if err != nil {
		return err
	}
	if err := serveHealth(ctx, config); err != nil {
		return err
	}
	n, err := newNode(f, config, name, runtimeVersion)
	if err != nil {
		return err
	}
	return n.keep(ctx, client)
}

// readConfig is strict, where the real kubelet only warns: a misspelled field shall not pass here.
func readConfig(path string) (*kubeletconfig.KubeletConfiguration, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c := &kubeletconfig.KubeletConfiguration{}
	if err := yaml.UnmarshalStrict(raw, c); err != nil {
		return nil, err
	}
	if c.APIVersion != kubeletconfig.SchemeGroupVersion.String() || c.Kind != "KubeletConfiguration" {
		return nil, fmt.Errorf("no kind %q of %q", c.Kind, c.APIVersion)
	}
	// What the real one refuses on Windows, or what makes it fail there.
	switch {
	case c.SingleProcessOOMKill != nil:
		return nil, errors.New("invalid configuration: singleProcessOOMKill is not supported on Windows")
	case c.UserNamespaces != nil:
		return nil, errors.New("invalid configuration: userNamespaces is not supported on Windows")
	case c.ResolverConfig != nil && *c.ResolverConfig != "":
		return nil, fmt.Errorf("resolvConf %q: there is no such file on Windows", *c.ResolverConfig)
	}
	if ca := c.Authentication.X509.ClientCAFile; ca != "" {
		if _, err := os.Stat(ca); err != nil {
			return nil, fmt.Errorf("unable to load client CA file: %w", err)
		}
	}
	return c, nil
}

// askRuntime returns the version of the container runtime; without an answer the real kubelet ends.
func askRuntime(ctx context.Context, endpoint string) (string, error) {
	const scheme = "npipe:////./pipe/"
	if !strings.HasPrefix(endpoint, scheme) {
		return "", fmt.Errorf("container runtime endpoint %q is no named pipe", endpoint)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///pipe", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return winio.DialPipeContext(ctx, `\\.\pipe\`+strings.TrimPrefix(endpoint, scheme))
		}))
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	v, err := runtimeapi.NewRuntimeServiceClient(conn).Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		return "", err
	}
	return v.RuntimeName + "://" + strings.TrimPrefix(v.RuntimeVersion, "v"), nil
}

// serveHealth answers on /healthz as long as ctx lives.
func serveHealth(ctx context.Context, c *kubeletconfig.KubeletConfiguration) error {
	port := 10248
	if c.HealthzPort != nil {
		port = int(*c.HealthzPort)
	}
	if port == 0 {
		return nil
	}
	address := net.JoinHostPort(cmp.Or(c.HealthzBindAddress, "127.0.0.1"), strconv.Itoa(port))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("failed to start healthz server: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() { logf("Healthz server ended: %v", server.Serve(listener)) }()
	return nil
}
