package hostprep

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// setEnvironment sets the machine's variables. Services have them after the next boot.
func setEnvironment(ctx context.Context, r *engine.Run) error {
	n, err := newNeed(ctx, r, "environment variables")
	if err != nil {
		return err
	}
	have, err := r.Host.System.Environment(ctx)
	if err != nil {
		return codes.New(codes.HostUnreadable, "reading the environment: %w", err)
	}
	want := environment(r.Doc)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		before, exists := lookup(have, name)
		if exists && before == want[name] {
			continue
		}
		if err := n.remember(ctx); err != nil {
			return err
		}
		if err := setVariable(ctx, r, name, want[name], before, exists); err != nil {
			return err
		}
	}
	n.request()
	return nil
}

func setVariable(ctx context.Context, r *engine.Run, name, value, before string, exists bool) error {
	trace := engine.Trace{Kind: engine.TraceEnvironment, Name: name}
	if exists {
		raw, err := json.Marshal(before)
		if err != nil {
			return fmt.Errorf("remembering the variable %s: %w", name, err)
		}
		trace.Before = string(raw)
	}
	if err := r.Trace(ctx, trace); err != nil {
		return fmt.Errorf("remembering the variable %s: %w", name, err)
	}
	if err := r.Host.System.SetEnvironment(ctx, name, &value); err != nil {
		return refused(err, codes.EnvironmentRefused, codes.EnvironmentNotSet, "setting the variable %s", name)
	}
	return nil
}

// lookup finds a variable; Windows does not tell names apart by case.
func lookup(variables map[string]string, name string) (string, bool) {
	for have, value := range variables {
		if strings.EqualFold(have, name) {
			return value, true
		}
	}
	return "", false
}

// environment returns the variables that the document wants.
func environment(doc *nodev1.NodeConfiguration) map[string]string {
	out := map[string]string{}
	proxy := doc.OS.Proxy
	if proxy.HTTP != "" {
		out["HTTP_PROXY"] = proxy.HTTP
	}
	if proxy.HTTPS != "" {
		out["HTTPS_PROXY"] = proxy.HTTPS
	}
	if len(out) > 0 {
		out["NO_PROXY"] = strings.Join(noProxy(doc), ",")
	}
	for name, value := range doc.OS.Environment {
		maps.DeleteFunc(out, func(have, _ string) bool { return strings.EqualFold(have, name) })
		out[name] = value
	}
	return out
}

// noProxy returns what is reached without the proxy: what the document says, the cluster, and the host itself.
func noProxy(doc *nodev1.NodeConfiguration) []string {
	out := slices.Clone(doc.OS.Proxy.NoProxy)
	if apiServer, _, err := net.SplitHostPort(doc.Join.APIServerEndpoint); err == nil {
		out = append(out, apiServer)
	}
	// The last is where clouds serve metadata and credentials to the machine.
	out = append(out, "localhost", "127.0.0.1", "::1", ".svc", ".cluster.local", "169.254.169.254")
	if cni := doc.Services.CNI; cni != nil {
		out = append(out, cni.PodCIDR, cni.ServiceCIDR)
	}
	if proxy := doc.Services.KubeProxy; proxy != nil {
		out = append(out, strings.Split(proxy.ClusterCIDR, ",")...)
	}
	seen := map[string]bool{"": true}
	return slices.DeleteFunc(out, func(entry string) bool {
		dup := seen[entry]
		seen[entry] = true
		return dup
	})
}
