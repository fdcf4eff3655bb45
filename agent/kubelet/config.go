// Package kubelet makes what a kubelet on Windows is started with: its configuration, flags and bootstrap credentials. All of
// it are pure functions of the node document and of what is known about node and cluster.
package kubelet

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"reflect"
	"strconv"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

const (
	configAPIVersion = "kubelet.config.k8s.io/v1beta1"
	configKind       = "KubeletConfiguration"
)

// Config is a KubeletConfiguration as the JSON object that it is, so that a field which this agent does not know yet passes
// through. Numbers are int64 or float64.
type Config map[string]any

// ConfigInput is what a Config depends on beside the cluster's.
type ConfigInput struct {
	// Doc with its defaults.
	Doc *nodev1.NodeConfiguration
	// ProviderID of the node; empty if a cloud provider sets it.
	ProviderID string
	// MemoryBytes of the machine.
	MemoryBytes uint64
}

// ParseConfig reads a KubeletConfiguration, YAML or JSON.
func ParseConfig(raw []byte) (Config, error) {
	object, err := yaml.YAMLToJSON(raw)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	if err := utiljson.Unmarshal(object, &out); err != nil {
		return nil, err
	}
	if kind, _ := out["kind"].(string); kind != configKind {
		return nil, fmt.Errorf("kind is %q, not %s", kind, configKind)
	}
	return out, nil
}

// NewConfig returns the node's configuration: the cluster's (nil if it has none), corrected for Windows, below the document's,
// below what the agent alone decides. notes say what was taken out of the cluster's. Its error has a code.
func NewConfig(cluster Config, in ConfigInput) (_ Config, notes []string, _ error) {
	own, err := documentConfig(in.Doc)
	if err != nil {
		return nil, nil, err
	}
	out := map[string]any{"apiVersion": configAPIVersion, "kind": configKind}
	merge(out, cluster)
	notes = correct(out)
	setWindowsValues(out, in.MemoryBytes)
	merge(out, own)
	if err := setOwned(out, in); err != nil {
		return nil, nil, err
	}
	return out, notes, nil
}

// documentConfig returns kubelet.config of the document, without what says that it is a KubeletConfiguration.
func documentConfig(doc *nodev1.NodeConfiguration) (map[string]any, error) {
	if doc.Kubelet.Config == nil || len(doc.Kubelet.Config.Raw) == 0 {
		return map[string]any{}, nil
	}
	out := map[string]any{}
	if err := utiljson.Unmarshal(doc.Kubelet.Config.Raw, &out); err != nil {
		return nil, codes.New(codes.KubeletConfigRefused, "kubelet.config is no JSON object: %w", err)
	}
	for key, want := range map[string]string{"apiVersion": configAPIVersion, "kind": configKind} {
		if have, given := out[key]; given && have != want {
			return nil, codes.New(codes.KubeletConfigRefused, "kubelet.config: %s is %v, not %s", key, have, want)
		}
		delete(out, key)
	}
	if err := refuse(out); err != nil {
		return nil, codes.New(codes.KubeletConfigRefused, "kubelet.config: %w", err)
	}
	return out, nil
}

// setOwned sets what is decided elsewhere in the document. Taints are here and nowhere else: a flag would replace them.
func setOwned(config map[string]any, in ConfigInput) error {
	config["registerNode"] = true
	delete(config, "providerID")
	if in.ProviderID != "" {
		config["providerID"] = in.ProviderID
	}
	delete(config, "registerWithTaints")
	if taints := Taints(in.Doc); len(taints) > 0 {
		list := make([]any, 0, len(taints))
		for _, t := range taints {
			taint := map[string]any{"key": t.Key, "effect": string(t.Effect)}
			if t.Value != "" {
				taint["value"] = t.Value
			}
			list = append(list, taint)
		}
		config["registerWithTaints"] = list
	}
	// What the cluster's and the document's made together must still be something that the kubelet starts with.
	if err := refuseFatal(config); err != nil {
		return codes.New(codes.KubeletConfigRefused, "the kubelet's configuration: %w", err)
	}
	return nil
}

// YAML returns the file that kubelet reads.
func (c Config) YAML() ([]byte, error) { return yaml.Marshal(map[string]any(c)) }

// ClusterDNS returns the addresses of the cluster's name service.
func (c Config) ClusterDNS() []string {
	var out []string
	list, _ := c["clusterDNS"].([]any)
	for _, entry := range list {
		if address, ok := entry.(string); ok {
			out = append(out, address)
		}
	}
	return out
}

// ClusterDomain returns the domain of the cluster's services.
func (c Config) ClusterDomain() string {
	domain, _ := c["clusterDomain"].(string)
	return domain
}

// Healthz returns the address, host:port, where the kubelet says whether it is healthy; empty when that is turned off.
func (c Config) Healthz() string {
	port := int64(10248)
	switch given := c["healthzPort"].(type) {
	case int64:
		port = given
	case float64:
		port = int64(given)
	}
	address, _ := c["healthzBindAddress"].(string)
	switch address {
	case "", "0.0.0.0":
		address = "127.0.0.1"
	case "::":
		address = "::1"
	}
	if port == 0 {
		return ""
	}
	return net.JoinHostPort(address, strconv.FormatInt(port, 10))
}

// Patch returns the JSON merge patch (RFC 7386) that makes to of from.
func Patch(from, to Config) Config {
	patch := map[string]any{}
	for key, want := range to {
		have, there := from[key]
		if there && reflect.DeepEqual(have, want) {
			continue
		}
		haveMap, isMap := have.(map[string]any)
		wantMap, wantsMap := want.(map[string]any)
		if isMap && wantsMap {
			patch[key] = map[string]any(Patch(haveMap, wantMap))
			continue
		}
		patch[key] = want
	}
	for key := range from {
		if _, kept := to[key]; !kept {
			patch[key] = nil
		}
	}
	return patch
}

// merge applies a JSON merge patch: objects are merged, all else is replaced, null removes.
func merge(into, patch map[string]any) {
	for key, value := range patch {
		switch value := value.(type) {
		case nil:
			delete(into, key)
		case map[string]any:
			child, isMap := into[key].(map[string]any)
			if !isMap {
				child = map[string]any{}
			} else {
				child = maps.Clone(child)
			}
			merge(child, value)
			into[key] = child
		default:
			into[key] = value
		}
	}
}

var errEndpoint = errors.New("must begin with npipe:// or tcp://, as " + layout.CRIEndpoint)
