package simkubelet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/capw-dev/cluster-api-provider-windows/agent/apiclient"
	"github.com/capw-dev/cluster-api-provider-windows/agent/discovery"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/kubelet"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// joinFile is the part of a JoinConfiguration v1beta4 that matters here.
type joinFile struct {
	APIVersion string `json:"apiVersion"`
	CACertPath string `json:"caCertPath"`
	Discovery  struct {
		BootstrapToken struct {
			Token             string   `json:"token"`
			APIServerEndpoint string   `json:"apiServerEndpoint"`
			CACertHashes      []string `json:"caCertHashes"`
		} `json:"bootstrapToken"`
	} `json:"discovery"`
	NodeRegistration struct {
		Name             string         `json:"name"`
		Taints           []corev1.Taint `json:"taints"`
		KubeletExtraArgs []struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"kubeletExtraArgs"`
		IgnorePreflightErrors []string `json:"ignorePreflightErrors"`
	} `json:"nodeRegistration"`
	Patches struct {
		Directory string `json:"directory"`
	} `json:"patches"`
}

// Kubeadm is kubeadm.exe join --config <file> of v1.36: its preflight checks for what another join has left, its files, and
// what it does with the service kubelet.
func Kubeadm(ctx context.Context, p *sim.Process) int {
	if err := kubeadmJoin(ctx, p); err != nil {
		fmt.Fprintf(p.Stderr, "error: %v\nTo see the stack trace of this error execute with --v=5 or higher\n", err) //nolint:errcheck // nobody is left to be told
		return 1
	}
	fmt.Fprintln(p.Stdout, "This node has joined the cluster:") //nolint:errcheck // as above
	return 0
}

func kubeadmJoin(ctx context.Context, p *sim.Process) error {
	if len(p.Argv) != 4 || p.Argv[1] != "join" || p.Argv[2] != "--config" {
		return fmt.Errorf("unknown command line %q", p.Argv[1:])
	}
	raw, err := p.Host.Files.Read(ctx, p.Argv[3])
	if err != nil {
		return err
	}
	config := joinFile{}
	if err := yaml.Unmarshal(raw, &config); err != nil || config.APIVersion != "kubeadm.k8s.io/v1beta4" {
		return fmt.Errorf("no kind JoinConfiguration is registered for version %q: %w", config.APIVersion, err)
	}
	if err := preflight(ctx, p, config); err != nil {
		return err
	}
	token := config.Discovery.BootstrapToken
	join := nodev1.JoinInfo{APIServerEndpoint: token.APIServerEndpoint, Token: token.Token, CACertHashes: token.CACertHashes}
	ca, err := discovery.Discover(ctx, apiclient.Config{Dial: p.Host.Network.DialContext}, join)
	if err != nil {
		return fmt.Errorf("couldn't validate the identity of the API Server: %w", err)
	}
	if err := kubeadmFiles(ctx, p, config, join, ca); err != nil {
		return err
	}
	// Failures of these are warnings only.
	for _, act := range []func(context.Context, string) error{p.Host.Services.Stop, p.Host.Services.Start} {
		if err := act(ctx, layout.KubeletService); err != nil {
			fmt.Fprintf(p.Stderr, "W kubelet service: %v\n", err) //nolint:errcheck // as it says
		}
	}
	for range 240 {
		if _, err := p.Host.Files.Stat(ctx, layout.Kubeconfig); err == nil {
			return p.Host.Files.Remove(ctx, layout.BootstrapKubeconfig)
		}
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
	return errors.New("failed while waiting for TLS bootstrap: context deadline exceeded")
}

func preflight(ctx context.Context, p *sim.Process, config joinFile) error {
	var failed []string
	check := func(name, message string) {
		if !slices.Contains(config.NodeRegistration.IgnorePreflightErrors, name) {
			failed = append(failed, fmt.Sprintf("\t[ERROR %s]: %s\n", name, message))
		}
	}
	for name, path := range map[string]string{
		`\etc\kubernetes\bootstrap-kubelet.conf`: layout.BootstrapKubeconfig, `\etc\kubernetes\kubelet.conf`: layout.Kubeconfig,
		config.CACertPath: config.CACertPath,
	} {
		if _, err := p.Host.Files.Stat(ctx, path); !errors.Is(err, fs.ErrNotExist) {
			check("FileAvailable-"+name, name+" already exists")
		}
	}
	found := false
	for folder := range strings.SplitSeq(p.Getenv("PATH"), ";") {
		_, err := p.Host.Files.Stat(ctx, layout.Join(folder, "kubelet.exe"))
		found = found || err == nil
	}
	if !found {
		check("KubeletVersion", `couldn't get kubelet version: cannot execute 'kubelet --version': executable file not found in %PATH%`)
	}
	if p.Dir != `C:\` {
		check("Drive", "the working folder is not on C:")
	}
	if len(failed) == 0 {
		return nil
	}
	slices.Sort(failed)
	return fmt.Errorf("[preflight] Some fatal errors occurred:\n%s[preflight] If you know what you are doing, you can make a check non-fatal with `--ignore-preflight-errors=...`", strings.Join(failed, ""))
}

// kubeadmFiles writes what the kubelet starts with.
func kubeadmFiles(ctx context.Context, p *sim.Process, config joinFile, join nodev1.JoinInfo, ca []byte) error {
	bootstrap, err := kubelet.BootstrapKubeconfig(join, ca)
	if err != nil {
		return err
	}
	kubeletConfig, err := kubeadmKubeletConfig(ctx, p, config, join, ca)
	if err != nil {
		return err
	}
	flags := map[string]string{}
	var taints []string
	for _, t := range config.NodeRegistration.Taints {
		taints = append(taints, t.ToString())
	}
	if len(taints) > 0 {
		flags["register-with-taints"] = strings.Join(taints, ",")
	}
	var args []string
	for _, a := range config.NodeRegistration.KubeletExtraArgs {
		delete(flags, a.Name)
		args = append(args, "--"+a.Name+"="+a.Value)
	}
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(flags))) {
		args = append([]string{"--" + name + "=" + flags[name]}, args...)
	}
	for path, content := range map[string][]byte{
		layout.BootstrapKubeconfig: bootstrap, config.CACertPath: ca, layout.KubeletConfig: kubeletConfig,
		layout.KubeadmFlags: fmt.Appendf(nil, "KUBELET_KUBEADM_ARGS=%q\n", strings.Join(args, " ")),
		layout.Join(layout.KubeletDir, "instance-config.yaml"): []byte("containerRuntimeEndpoint: " + layout.CRIEndpoint + "\n"),
	} {
		if err := p.Host.Files.Write(ctx, path, content, host.ACLInherited); err != nil {
			return err
		}
	}
	return nil
}

// kubeadmKubeletConfig is the cluster's configuration with kubeadm's own changes for Windows and the patches.
func kubeadmKubeletConfig(ctx context.Context, p *sim.Process, config joinFile, join nodev1.JoinInfo, ca []byte) ([]byte, error) {
	a, err := newAPI(p.Host.Network, discovery.Server(join), ca, join.Token, nil, nil)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	cm := corev1.ConfigMap{}
	if err := a.do(ctx, http.MethodGet, "/api/v1/namespaces/kube-system/configmaps/kubelet-config", nil, &cm); err != nil {
		return nil, err
	}
	values, err := kubelet.ParseConfig([]byte(cm.Data["kubelet"]))
	if err != nil {
		return nil, err
	}
	values["resolvConf"] = ""
	if path, ok := values["staticPodPath"].(string); ok {
		values["staticPodPath"] = "C:" + strings.ReplaceAll(path, "/", `\`)
	}
	document, err := utiljson.Marshal(values)
	if err != nil {
		return nil, err
	}
	patch, err := p.Host.Files.Read(ctx, layout.Join(config.Patches.Directory, "kubeletconfiguration0+merge.yaml"))
	if err != nil {
		return nil, err
	}
	if patch, err = yaml.YAMLToJSON(patch); err != nil {
		return nil, err
	}
	if document, err = jsonpatch.MergePatch(document, patch); err != nil {
		return nil, err
	}
	return yaml.JSONToYAML(document)
}
