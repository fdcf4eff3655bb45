// Package bench measures what the agent itself costs.
package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capw-dev/cluster-api-provider-windows/agent/apiclient/apitest"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim/simagent"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/status"
	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/cloudinit/cloudbase"
)

const (
	// maxHostCalls and maxJournalWrites bound a first boot without downloads. On Windows each journal write is two files that
	// are flushed to the disk.
	maxHostCalls     = 650
	maxJournalWrites = 105
)

// firstBoot runs one on a simulated machine that cloudbase-init has named already, up to the last status.
func firstBoot(ctx context.Context, inject func(sim.Call) sim.Fault) (nodev1.BootStatus, error) {
	cluster := apitest.New(apitest.Options{})
	defer cluster.Close()
	doc := &nodev1.NodeConfiguration{
		Cluster: nodev1.ClusterInfo{Namespace: "default", Name: "prod", KubernetesVersion: "v1.36.3"},
		Node: nodev1.NodeInfo{
			Name: "prod-ki54itvck1", ProviderID: "Auto",
			Taints: []corev1.Taint{{Key: "os", Value: "windows", Effect: corev1.TaintEffectNoSchedule}},
		},
		Join: cluster.Join(),
	}
	doc.APIVersion, doc.Kind = nodev1.APIVersion, nodev1.NodeConfigurationKind
	userData, err := cloudbase.UserData(doc, bootstrapv1.AgentSpec{})
	if err != nil {
		return nodev1.BootStatus{}, err
	}

	const script = `C:\Windows\Temp\userdata.cmd`
	ended := make(chan nodev1.BootStatus, 1)
	machine := sim.New(sim.Options{
		ComputerName: doc.Node.Name,
		Files:        map[string]string{script: string(userData)},
		Programs:     simagent.Programs(simagent.Options{}),
		Services:     simagent.Services(),
		Dial:         cluster.DialContext,
		GuestInfo:    true,
		Inject:       inject,
		OnGuestInfo: func(_ context.Context, key, value string) {
			s := nodev1.BootStatus{}
			if key == status.GuestInfoKey && json.Unmarshal([]byte(value), &s) == nil && (s.State == nodev1.BootDone || s.State == nodev1.BootFailed) {
				ended <- s
			}
		},
	})
	machine.PowerOn(ctx)
	defer machine.PowerOff()
	result, err := machine.Host().Processes.Run(ctx, host.Command{Argv: []string{layout.Agent, "bootstrap", "--user-data", script}})
	if err == nil && result.ExitCode != 0 {
		err = fmt.Errorf("bootstrap ended with exit code %d: %s", result.ExitCode, result.Stderr)
	}
	if err != nil {
		return nodev1.BootStatus{}, err
	}
	select {
	case s := <-ended:
		if s.State == nodev1.BootFailed {
			return s, fmt.Errorf("%s, %s: %s %s", s.Phase, s.Step, s.Code, s.Message)
		}
		return s, nil
	case <-ctx.Done():
		return nodev1.BootStatus{}, ctx.Err()
	}
}

// BenchmarkFirstBoot reports milliseconds per phase as the agent itself tells them, and from the start of the first-boot
// script to Done.
func BenchmarkFirstBoot(b *testing.B) {
	total, elapsed := time.Duration(0), map[string]int64{}
	for b.Loop() {
		begin := time.Now()
		s, err := firstBoot(b.Context(), nil)
		if err != nil {
			b.Fatal(err)
		}
		total += time.Since(begin)
		for phase, ms := range s.Elapsed {
			elapsed[phase] += ms
		}
	}
	for phase, ms := range maps.All(elapsed) {
		b.ReportMetric(float64(ms)/float64(b.N), phase+"-ms")
	}
	b.ReportMetric(float64(total.Milliseconds())/float64(b.N), "total-ms")
}

func TestAFirstBootMakesFewHostCallsAndFewWritesOfItsJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls, writes atomic.Int64
		s, err := firstBoot(t.Context(), func(c sim.Call) sim.Fault {
			calls.Add(1)
			if c.Op == "Files.Write" && strings.EqualFold(c.Detail, layout.Journal) {
				writes.Add(1)
			}
			return sim.Fault{}
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d host calls, %d journal writes, %d phases", calls.Load(), writes.Load(), len(s.Elapsed))
		if calls.Load() > maxHostCalls {
			t.Errorf("%d host calls, at most %d are wanted", calls.Load(), maxHostCalls)
		}
		if n := writes.Load(); n == 0 || n > maxJournalWrites {
			t.Errorf("%d journal writes, at least 1 and at most %d are wanted", n, maxJournalWrites)
		}
	})
}
