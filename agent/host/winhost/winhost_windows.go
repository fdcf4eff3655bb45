//go:build windows

package winhost

import (
	"github.com/go-logr/logr"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// Options change how the host behaves.
type Options struct {
	// Lenient is for tests on something that is not quite Windows, such as Wine: parts of the service control manager that
	// are not there are made up for in the registry, and a reboot is forced without asking anyone. On Windows, where their
	// absence is an error, it must not be set; nothing but a person, or a test, sets it.
	Lenient bool
	// Log takes what no caller could be told. Its zero value discards.
	Log logr.Logger
}

// New returns the machine that this program runs on.
func New(o Options) *host.Host {
	if o.Lenient {
		o.Log.Info("Lenient mode: errors of the service control manager are passed over. This is for tests, never for a node")
	}
	registry := newRegistry()
	processes := newProcesses()
	h := &host.Host{
		System:       newSystem(registry, o.Lenient),
		Files:        newFiles(),
		Processes:    processes,
		Services:     newServices(registry, o.Lenient),
		Registry:     registry,
		Network:      newNetwork(processes, registry),
		HNS:          newHNS(),
		Firewall:     newFirewall(),
		Features:     newFeatures(processes),
		Users:        newUsers(registry),
		Certificates: newCertificates(),
		Volumes:      newVolumes(),
		Domain:       newDomain(),
		Reporting:    newReporting(registry, processes),
	}
	if o.Lenient {
		makeUp(h)
	}
	return h
}
