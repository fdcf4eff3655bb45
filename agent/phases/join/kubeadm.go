package join

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"regexp"
	"strings"

	"github.com/go-logr/logr"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/kubeadm"
	"github.com/capw-dev/cluster-api-provider-windows/agent/kubelet"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/servicelog"
	"github.com/capw-dev/cluster-api-provider-windows/agent/services"
)

// runKubeadm runs kubeadm join, unless the machine is a member: it is when kubeadm has succeeded.
func runKubeadm(ctx context.Context, r *engine.Run) error {
	isMember, err := member(ctx, r)
	if isMember || err != nil {
		return err
	}
	program := kubeadmPath(r)
	switch _, err := r.Host.Files.Stat(ctx, program); {
	case errors.Is(err, fs.ErrNotExist):
		return codes.New(codes.KubeadmMissing, "there is no %s", program)
	case err != nil:
		return codes.New(codes.KubeadmFailed, "looking for %s: %w", program, err)
	}
	// Its preflight checks refuse a machine where another attempt has left anything.
	if err := removeJoin(ctx, r); err != nil {
		return err
	}
	if err := makeFolders(ctx, r); err != nil {
		return err
	}
	if err := writePatch(ctx, r); err != nil {
		return err
	}
	if err := writeJoinConfiguration(ctx, r); err != nil {
		return err
	}
	if err := makeKubeletService(ctx, r); err != nil {
		return err
	}
	env, err := pathWithKubelet(ctx, r)
	if err != nil {
		return err
	}
	result, err := r.Host.Processes.Run(ctx, host.Command{
		Argv: []string{program, "join", "--config", layout.KubeadmJoin},
		// kubeadm writes to paths without a drive: \etc\kubernetes and \var\lib\kubelet.
		Dir: `C:\`,
		Env: env,
	})
	if err != nil {
		return codes.New(codes.KubeadmFailed, "running %s: %w", program, err)
	}
	output := append(bytes.Clone(result.Stdout), result.Stderr...)
	logOutput(ctx, r, output)
	return kubeadmError(result, output, r.Doc.Secrets())
}

func kubeadmPath(r *engine.Run) string {
	if path := r.Facts.Paths["kubeadm"]; path != "" {
		return path
	}
	return r.Doc.Join.Kubeadm.Path
}

// writePatch lets kubeadm write the configuration that method Kubelet would: as what differs from the cluster's.
func writePatch(ctx context.Context, r *engine.Run) error {
	cluster, node, err := newConfig(ctx, r, false)
	if err != nil {
		return err
	}
	patch, err := kubelet.Patch(cluster, node).YAML()
	if err != nil {
		return codes.New(codes.Internal, "encoding the patch of the kubelet's configuration: %w", err)
	}
	return write(ctx, r, layout.Join(layout.PatchesDir, kubeletPatch), patch)
}

func writeJoinConfiguration(ctx context.Context, r *engine.Run) error {
	args, err := kubelet.KubeadmArgs(r.Doc, r.Facts.NodeIPs)
	if err != nil {
		return err
	}
	content, err := kubeadm.Join{
		KubernetesVersion: r.Doc.Cluster.KubernetesVersion,
		NodeName:          strings.ToLower(r.Doc.Node.Name),
		CRISocket:         layout.CRIEndpoint,
		CACertPath:        layout.CACertificate,
		Taints:            kubelet.Taints(r.Doc),
		KubeletArgs:       args,
		APIServerEndpoint: r.Doc.Join.APIServerEndpoint, Token: r.Doc.Join.Token, CACertHashes: r.Doc.Join.CACertHashes,
		PatchesDir:            layout.PatchesDir,
		IgnorePreflightErrors: r.Doc.Join.Kubeadm.IgnorePreflightErrors,
		SkipPhases:            r.Doc.Join.Kubeadm.SkipPhases,
	}.YAML()
	if err != nil {
		return codes.New(codes.KubeadmConfigRefused, "%w", err)
	}
	return write(ctx, r, layout.KubeadmJoin, content)
}

// makeKubeletService makes the service that kubeadm starts: without one it waits for minutes and fails. It is not started
// here, as its configuration is not there yet.
func makeKubeletService(ctx context.Context, r *engine.Run) error {
	flags, err := kubelet.Flags(r.Doc, r.Facts.NodeIPs, nil)
	if err != nil {
		return err
	}
	r.Facts.KubeletArgs = flags
	service, err := services.Kubelet(r)
	if err != nil {
		return err
	}
	return services.Register(ctx, r, service)
}

// pathWithKubelet lets kubeadm find kubelet.exe, whose version it checks.
func pathWithKubelet(ctx context.Context, r *engine.Run) ([]string, error) {
	environment, err := r.Host.System.Environment(ctx)
	if err != nil {
		return nil, codes.New(codes.KubeadmFailed, "reading the machine's environment: %w", err)
	}
	program := r.Doc.Kubelet.Path
	if path := r.Facts.Paths["kubelet"]; path != "" {
		program = path
	}
	path := layout.Dir(program)
	info, err := r.Host.System.Info(ctx)
	if err != nil {
		return nil, codes.New(codes.KubeadmFailed, "reading where Windows is: %w", err)
	}
	for name, value := range environment {
		if strings.EqualFold(name, "PATH") && value != "" {
			path += ";" + expand(value, environment, info)
		}
	}
	return []string{"PATH=" + path}, nil
}

// expand replaces %NAME% by the variables that Windows itself sets, and by the machine's. Windows does so when it makes a
// process's environment of the machine's, in which the folders of Windows are written in this way, but not to what is added.
func expand(value string, environment map[string]string, info host.Info) string {
	replacements := map[string]string{"SystemDrive": info.SystemDrive, "SystemRoot": info.SystemRoot, "windir": info.SystemRoot}
	for name, text := range environment {
		if !strings.Contains(text, "%") {
			replacements[name] = text
		}
	}
	for name, text := range replacements {
		pattern := regexp.MustCompile("(?i)%" + regexp.QuoteMeta(name) + "%")
		value = pattern.ReplaceAllLiteralString(value, text)
	}
	return value
}

// logOutput keeps what kubeadm said in this attempt. That it cannot be kept is no reason to fail.
func logOutput(ctx context.Context, r *engine.Run, output []byte) {
	path := layout.Log("kubeadm")
	err := r.Host.Files.Mkdir(ctx, layout.Dir(path), host.ACLSystem)
	if err == nil {
		err = r.Host.Files.Write(ctx, path, []byte(servicelog.Redact(string(output), r.Doc.Secrets())), host.ACLSystem)
	}
	if err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Keeping the output of kubeadm")
	}
}

// kubeadmError says why kubeadm failed. Newer ones always exit with 1; older ones with 2 after failed preflight checks and 3
// for a configuration that they refuse.
func kubeadmError(result host.Result, output []byte, secrets []string) error {
	last := servicelog.LastError(result.Stderr, secrets)
	if last == "" {
		last = servicelog.LastError(output, secrets)
	}
	code := codes.KubeadmFailed
	switch {
	case result.ExitCode == 0:
		return nil
	case result.ExitCode == 2 || bytes.Contains(output, []byte("[preflight] Some fatal errors occurred")):
		code, last = codes.KubeadmPreflight, preflightErrors(output, secrets)
	case result.ExitCode == 3:
		code = codes.KubeadmConfigRefused
	}
	return codes.New(code, "kubeadm join ended with exit code %d: %s", result.ExitCode, last)
}

// preflightErrors returns the lines of the checks that failed.
func preflightErrors(output []byte, secrets []string) string {
	var failed []string
	for line := range strings.Lines(string(output)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "[ERROR ") {
			failed = append(failed, line)
		}
	}
	if len(failed) == 0 {
		return servicelog.LastError(output, secrets)
	}
	return servicelog.Redact(strings.Join(failed, "; "), secrets)
}

// ownCommandLine puts the flags that kubeadm wrote to a file, which nothing on Windows reads, on the kubelet's command line,
// and starts the kubelet anew if they are not there yet.
func ownCommandLine(ctx context.Context, r *engine.Run) error {
	content, err := r.Host.Files.Read(ctx, layout.KubeadmFlags)
	if err != nil {
		return codes.New(codes.JoinFilesNotWritten, "reading the flags that kubeadm wrote: %w", err)
	}
	base, err := kubeadm.ParseFlags(content)
	if err != nil {
		return codes.New(codes.KubeadmFlagsUnusable, "%s: %w", layout.KubeadmFlags, err)
	}
	if r.Facts.KubeletArgs, err = kubelet.Flags(r.Doc, r.Facts.NodeIPs, base); err != nil {
		return err
	}
	if err := rememberWritten(ctx, r); err != nil {
		return err
	}
	return ensureKubelet(ctx, r)
}

// rememberWritten takes what others need from the configuration that kubeadm wrote.
func rememberWritten(ctx context.Context, r *engine.Run) error {
	raw, err := r.Host.Files.Read(ctx, layout.KubeletConfig)
	if err != nil {
		return codes.New(codes.JoinFilesNotWritten, "reading %s: %w", layout.KubeletConfig, err)
	}
	config, err := kubelet.ParseConfig(raw)
	if err != nil {
		return codes.New(codes.KubeletConfigReading, "%s: %w", layout.KubeletConfig, err)
	}
	rememberCluster(r, config)
	return nil
}
