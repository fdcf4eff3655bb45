package kubelet

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
)

// Figures for Windows.
const (
	// minReservedMemory: Windows itself takes about this much, and has no OOM killer that would help without it.
	minReservedMemory = 2 << 30
	// minEvictionMemory is the kubelet's own default for Windows (eviction.DefaultEvictionHard), five times Linux'.
	minEvictionMemory = 500 << 20
)

// linuxOnly are fields that mean nothing on Windows: of control groups, sysctls, iptables, CPU managers. With the first two
// the kubelet does not start; older kubelets refuse others of them, too.
func linuxOnly() []string {
	return []string{
		"singleProcessOOMKill", "userNamespaces",
		"cgroupDriver", "cgroupRoot", "kubeletCgroups", "systemCgroups", "kubeReservedCgroup", "systemReservedCgroup", "failCgroupV1",
		"cpuManagerPolicy", "cpuManagerPolicyOptions", "cpuManagerReconcilePeriod", "reservedSystemCPUs",
		"memoryManagerPolicy", "reservedMemory", "memoryThrottlingFactor", "memorySwap", "failSwapOn",
		"topologyManagerPolicy", "topologyManagerPolicyOptions", "topologyManagerScope",
		"cpuCFSQuota", "cpuCFSQuotaPeriod", "podPidsLimit", "oomScoreAdj", "allowedUnsafeSysctls", "protectKernelDefaults",
		"seccompDefault", "makeIPTablesUtilChains", "iptablesMasqueradeBit", "iptablesDropBit", "hairpinMode",
		"kernelMemcgNotification",
	}
}

// correct takes out of a configuration that was made for Linux what does not fit Windows, and says what.
func correct(config map[string]any) (notes []string) {
	for _, field := range linuxOnly() {
		if _, given := config[field]; given {
			delete(config, field)
			notes = append(notes, field)
		}
	}
	for _, field := range []string{"evictionHard", "evictionSoft", "evictionSoftGracePeriod", "evictionMinimumReclaim"} {
		signals, ok := config[field].(map[string]any)
		if !ok {
			continue
		}
		for _, signal := range slices.Sorted(maps.Keys(signals)) {
			if strings.HasSuffix(signal, ".inodesFree") || signal == "pid.available" {
				delete(signals, signal)
				notes = append(notes, field+"."+signal)
			}
		}
	}
	return append(notes, removePaths(config, "")...)
}

// removePaths takes out paths of Linux, also in fields that are newer than this agent. resolvConf is one of them.
func removePaths(config map[string]any, prefix string) (notes []string) {
	for _, key := range slices.Sorted(maps.Keys(config)) {
		switch value := config[key].(type) {
		case map[string]any:
			notes = append(notes, removePaths(value, prefix+key+".")...)
		case string:
			if isLinuxPath(key, value) {
				delete(config, key)
				notes = append(notes, prefix+key)
			}
		}
	}
	return notes
}

func isLinuxPath(key, value string) bool {
	if strings.HasPrefix(value, "unix:") {
		return true
	}
	named := slices.ContainsFunc([]string{"Path", "Dir", "File", "Conf", "Endpoint"}, func(end string) bool { return strings.HasSuffix(key, end) })
	return named && strings.HasPrefix(value, "/")
}

// setWindowsValues sets what a node of this agent has where the cluster's configuration says nothing, and what must be
// different on Windows.
func setWindowsValues(config map[string]any, memoryBytes uint64) {
	merge(config, map[string]any{
		// Control groups do not exist, and an empty list is not the same as none: that would be "pods".
		"cgroupsPerQOS":            false,
		"enforceNodeAllocatable":   []any{},
		"resolvConf":               "",
		"containerRuntimeEndpoint": layout.CRIEndpoint,
		"staticPodPath":            layout.ManifestDir,
		"rotateCertificates":       true,
		"serverTLSBootstrap":       true,
		"authentication":           map[string]any{"x509": map[string]any{"clientCAFile": layout.CACertificate}},
	})
	setDefault(config, "containerLogMaxSize", "50Mi")
	setDefault(config, "containerLogMaxFiles", int64(5))
	if seconds, _ := config["runtimeRequestTimeout"].(string); seconds == "" || seconds == "0s" {
		config["runtimeRequestTimeout"] = "10m0s" // a first Windows container of a large image takes longer than two minutes
	}
	// What evictionHard leaves out is not watched at all.
	eviction := object(config, "evictionHard")
	setDefault(eviction, "nodefs.available", "10%")
	setDefault(eviction, "imagefs.available", "15%")
	raise(eviction, "memory.available", minEvictionMemory)
	// A kubelet refuses to reserve more than there is.
	raise(object(config, "systemReserved"), "memory", min(minReservedMemory, int64(memoryBytes/2))) //nolint:gosec // no machine has 2^63 bytes
}

func setDefault(config map[string]any, key string, value any) {
	if _, given := config[key]; !given {
		config[key] = value
	}
}

// object returns the object in a field, which is made if there is none.
func object(config map[string]any, key string) map[string]any {
	child, ok := config[key].(map[string]any)
	if !ok {
		child = map[string]any{}
		config[key] = child
	}
	return child
}

// raise sets a quantity unless a larger one, or a percentage, is given.
func raise(config map[string]any, key string, least int64) {
	given, _ := config[key].(string)
	if strings.HasSuffix(given, "%") {
		return
	}
	if q, err := resource.ParseQuantity(given); err == nil && q.CmpInt64(least) >= 0 {
		return
	}
	config[key] = resource.NewQuantity(least>>20<<20, resource.BinarySI).String()
}

// refuse says what a document may not set: what is decided elsewhere in it, and what keeps the kubelet from starting.
func refuse(config map[string]any) error {
	for field, instead := range map[string]string{
		"registerWithTaints": "node.taints", "registerNode": "nothing: a node registers", "providerID": "node.providerID",
	} {
		if _, given := config[field]; given {
			return fmt.Errorf("%s is not for the document: use %s", field, instead)
		}
	}
	return refuseFatal(config)
}

// refuseFatal says what no kubelet on Windows starts with.
func refuseFatal(config map[string]any) error {
	for _, field := range []string{"singleProcessOOMKill", "userNamespaces"} {
		if config[field] != nil {
			return fmt.Errorf("%s is not supported on Windows", field)
		}
	}
	for _, field := range []string{"containerRuntimeEndpoint", "imageServiceEndpoint"} {
		endpoint, _ := config[field].(string)
		if endpoint != "" && !strings.HasPrefix(endpoint, "npipe://") && !strings.HasPrefix(endpoint, "tcp://") {
			return fmt.Errorf("%s %q: %w", field, endpoint, errEndpoint)
		}
	}
	return nil
}
