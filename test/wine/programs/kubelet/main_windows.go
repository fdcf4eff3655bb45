// Command kubelet stands in for kubelet.exe v1.36: it has the real one's flags and files, checks its configuration more
// strictly, needs a container runtime, bootstraps its client certificate, and registers its Node and keeps it Ready. It runs
// no pods.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	kubeletapis "k8s.io/kubelet/pkg/apis"

	"github.com/capw-dev/cluster-api-provider-windows/test/wine/programs/internal/program"
)

const version = "v1.36.3"

// flags of the kubelet that the stand-in minds.
type flags struct {
	config, kubeconfig, bootstrapKubeconfig, certDir string
	hostnameOverride, nodeIP, cloudProvider          string
	containerRuntimeEndpoint                         string
	nodeLabels                                       map[string]string
	registerWithTaints                               []string
	windowsService                                   bool
}

func main() {
	f, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "E kubelet:", err)
		os.Exit(1)
	}
	program.Run(f.windowsService, "kubelet", func(ctx context.Context) error { return run(ctx, f) })
}

// parse reads the command line. The real kubelet, too, ends on an unknown flag and on an argument that is no flag.
func parse(args []string) (*flags, error) {
	f := &flags{}
	set := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	printVersion := set.String("version", "", "")
	set.Lookup("version").NoOptDefVal = "true"
	set.StringVar(&f.config, "config", "", "")
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "")
	set.StringVar(&f.bootstrapKubeconfig, "bootstrap-kubeconfig", "", "")
	set.StringVar(&f.certDir, "cert-dir", "/var/lib/kubelet/pki", "")
	set.StringVar(&f.hostnameOverride, "hostname-override", "", "")
	set.StringVar(&f.nodeIP, "node-ip", "", "")
	set.StringVar(&f.cloudProvider, "cloud-provider", "", "")
	set.StringVar(&f.containerRuntimeEndpoint, "container-runtime-endpoint", "", "")
	set.StringToStringVar(&f.nodeLabels, "node-labels", nil, "")
	set.StringSliceVar(&f.registerWithTaints, "register-with-taints", nil, "")
	set.BoolVar(&f.windowsService, "windows-service", false, "")
	// Read by the real one, without a meaning here.
	for _, name := range []string{
		"windows-priorityclass", "root-dir", "image-credential-provider-config", "image-credential-provider-bin-dir",
		"config-dir", "max-pods", "cluster-dns", "resolv-conf", "feature-gates",
	} {
		set.String(name, "", "")
	}
	set.IntP("v", "v", 0, "")
	if err := set.Parse(args); err != nil {
		return nil, fmt.Errorf("failed to parse kubelet flag: %w", err)
	}
	if *printVersion != "" {
		fmt.Println("Kubernetes", version)
		os.Exit(0)
	}
	if len(set.Args()) > 0 {
		return nil, fmt.Errorf("unknown command %q", set.Args()[0])
	}
	return f, f.validate()
}

// validate refuses the labels that the real kubelet refuses: those in Kubernetes' namespaces that a node must not give to
// itself.
func (f *flags) validate() error {
	var errs []error
	for key, value := range f.nodeLabels {
		namespace, _, _ := strings.Cut(key, "/")
		if !strings.Contains(key, "/") {
			namespace = ""
		}
		for _, suffix := range []string{"kubernetes.io", "k8s.io"} {
			if (namespace == suffix || strings.HasSuffix(namespace, "."+suffix)) && !kubeletapis.IsKubeletLabel(key) {
				errs = append(errs, fmt.Errorf("unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: %s", key))
			}
		}
		for _, problem := range append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...) {
			errs = append(errs, fmt.Errorf("invalid node label %s=%s: %s", key, value, problem))
		}
	}
	if f.kubeconfig == "" {
		errs = append(errs, errors.New("without --kubeconfig it would be a kubelet without a cluster"))
	}
	return errors.Join(errs...)
}
