// Package preflight is the phase that finds out, before anything is changed, whether this machine can become the node that the
// document describes.
package preflight

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/firmware"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// Phase returns the phase Preflight.
func Phase() engine.Phase {
	return engine.Phase{Name: "Preflight", Steps: []engine.Step{
		{Name: "check Windows", Do: checkWindows, Budget: engine.Retry(time.Minute, time.Second, 5*time.Minute)},
		{Name: "check the machine's size", Do: checkSize, Budget: engine.Retry(time.Minute, time.Second, 5*time.Minute)},
		// Longer, as cloudbase-init may extend the volume after it has run the user data.
		{Name: "check free space", Do: checkSpace, Budget: engine.Retry(time.Minute, 5*time.Second, 10*time.Minute)},
		{Name: "find the provider ID", Do: findProviderID, Budget: engine.Retry(time.Minute, time.Second, 5*time.Minute)},
		{Name: "look for a former node", Do: checkFormerNode, Budget: engine.Retry(2*time.Minute, time.Second, 5*time.Minute)},
	}}
}

// What a Windows node needs at least.
const (
	// minBuild is Windows Server 2019, the oldest that Kubernetes ran on.
	minBuild = 17763
	// minCPUs and minMemory are those of kubeadm's documentation; the firmware keeps some of the memory to itself.
	minCPUs   = 2
	minMemory = 2<<30 - 128<<20
	// smallMemory is what Windows and the kubelet's default reservation (2 GiB) need to leave anything to pods.
	smallMemory = 4<<30 - 128<<20
	// minFree lets containerd unpack a pause image and Windows write its logs; the base image of most pods takes as much again.
	minFree = 4 << 30
)

func info(ctx context.Context, r *engine.Run) (host.Info, error) {
	i, err := r.Host.System.Info(ctx)
	if err != nil {
		return i, codes.New(codes.HostUnreadable, "reading what machine this is: %w", err)
	}
	return i, nil
}

func checkWindows(ctx context.Context, r *engine.Run) error {
	i, err := info(ctx, r)
	if err != nil {
		return err
	}
	if err := Supported(i); err != nil {
		return err
	}
	if want := r.Doc.OS.Build; want != "" && want != i.Build {
		return codes.New(codes.WindowsBuildDiffers, "this is %s, build %s; the document wants build %s", i.ProductName, i.Build, want)
	}
	if want := r.Doc.Node.Labels[corev1.LabelArchStable]; want != "" && want != i.Arch {
		return codes.New(codes.ArchitectureUnsupported, "the machine is %s; the node's label %s is %s", i.Arch, corev1.LabelArchStable, want)
	}
	log := logr.FromContextOrDiscard(ctx).WithValues("product", i.ProductName, "build", i.Build, "revision", i.Revision, "arch", i.Arch)
	if Undocumented(i.Build, r.Doc.Cluster.KubernetesVersion) {
		log.Info("Kubernetes' documentation does not name this Windows any more: expect no help with it", "kubernetes", r.Doc.Cluster.KubernetesVersion)
	}
	log.Info("Windows is supported")
	r.Facts.WindowsBuild = i.Build
	return nil
}

// Supported returns why Kubernetes does not run on a Windows; nil if it does.
func Supported(i host.Info) error {
	number, ok := buildNumber(i.Build)
	switch {
	case !ok || number < minBuild:
		return codes.New(codes.WindowsUnsupported, "%s is build %s; the oldest supported one is 10.0.%d", i.ProductName, i.Build, minBuild)
	case !i.Server:
		return codes.New(codes.WindowsUnsupported, "%s is a client edition", i.ProductName)
	case i.Arch != "amd64" && i.Arch != "arm64":
		return codes.New(codes.ArchitectureUnsupported, "the machine is %s; Windows nodes are amd64 or arm64", i.Arch)
	}
	return nil
}

// buildNumber returns the last part of a build of Windows 10.0, which all Windows since 2016 are.
func buildNumber(build string) (uint, bool) {
	v, err := version.ParseGeneric(build)
	if err != nil || v.Major() != 10 || v.Minor() != 0 {
		return 0, false
	}
	return v.Patch(), true
}

// Undocumented says whether the documentation of a Kubernetes version leaves out a Windows build: since 1.36 it names Windows
// Server 2022 and 2025 only.
func Undocumented(build, kubernetes string) bool {
	number, _ := buildNumber(build)
	v, err := version.ParseSemantic(kubernetes)
	return err == nil && number < 20348 && v.WithPreRelease("").AtLeast(version.MajorMinor(1, 36))
}

func checkSize(ctx context.Context, r *engine.Run) error {
	i, err := info(ctx, r)
	if err != nil {
		return err
	}
	if i.CPUs < minCPUs || i.MemoryBytes < minMemory {
		return codes.New(codes.MachineTooSmall, "the machine has %d processors and %s of memory; at least %d and 2.0 GiB are needed",
			i.CPUs, gib(i.MemoryBytes), minCPUs)
	}
	if i.MemoryBytes < smallMemory {
		logr.FromContextOrDiscard(ctx).Info("The machine has little memory: next to nothing is left for pods after Windows and the kubelet's reservation", "memory", gib(i.MemoryBytes))
	}
	return nil
}

func checkSpace(ctx context.Context, r *engine.Run) error {
	i, err := info(ctx, r)
	if err != nil {
		return err
	}
	volumes, err := r.Host.Volumes.List(ctx)
	if err != nil {
		return codes.New(codes.HostUnreadable, "listing the volumes: %w", err)
	}
	for _, v := range volumes {
		if !strings.EqualFold(v.Root, i.SystemDrive+`\`) {
			continue
		}
		if v.FreeBytes < minFree {
			return codes.New(codes.DiskSpaceLow, "%s has %s free of %s; at least %s are needed", v.Root, gib(v.FreeBytes), gib(v.TotalBytes), gib(minFree))
		}
		return nil
	}
	return codes.New(codes.HostUnreadable, "there is no volume %s", i.SystemDrive)
}

func gib(bytes uint64) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30)) }

func findProviderID(ctx context.Context, r *engine.Run) error {
	r.Facts.ProviderID = ""
	if r.Doc.Node.ProviderID == "None" {
		return nil
	}
	i, err := info(ctx, r)
	if err != nil {
		return err
	}
	id, err := firmware.ProviderID(i)
	if err != nil {
		return codes.New(codes.ProviderIDUnknown, "%w", err)
	}
	r.Facts.ProviderID = id
	return nil
}
