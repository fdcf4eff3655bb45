// Package hostprep is the phase Host: Windows is brought to what a node needs, and to what the document says about it.
//
// Whatever needs a reboot asks for one; the phase runs once more after that, finds all in place, and says so with a code of its
// own when Windows did not take something.
package hostprep

import (
	"time"

	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/network"
)

// Phase returns the phase Host.
func Phase() engine.Phase {
	quick := engine.Retry(time.Minute, time.Second, 5*time.Minute)
	// The servicing stack may be busy with updates at the first boot, and a domain controller out of reach.
	slow := engine.Retry(20*time.Minute, 10*time.Second, 40*time.Minute)
	return engine.Phase{Name: "Host", Steps: []engine.Step{
		{Name: "make folders", Do: makeFolders, Budget: quick},
		{Name: "set the computer name", Do: setComputerName, Budget: quick},
		{Name: "set registry values", Do: setRegistryValues, Budget: quick, When: func(r *engine.Run) bool { return len(r.Doc.OS.Registry) > 0 }},
		{Name: "set up HNS", Do: setUpHNS, Budget: quick},
		{Name: "set the page file", Do: setPageFile, Budget: quick, When: func(r *engine.Run) bool { return r.Doc.OS.PageFile.MaximumMiB > 0 }},
		{Name: "register CCG plug-ins", Do: registerCCGPlugins, Budget: quick, When: func(r *engine.Run) bool { return len(r.Doc.OS.CCGPlugins) > 0 }},
		{Name: "exclude from Defender", Do: excludeFromDefender, Budget: quick, When: func(r *engine.Run) bool { return r.Doc.OS.Defender == "Exclude" }},
		{Name: "set the time zone", Do: setTimeZone, Budget: quick, When: func(r *engine.Run) bool { return r.Doc.OS.TimeZone != "" }},
		{Name: "set time servers", Do: setTimeServers, Budget: quick, When: func(r *engine.Run) bool { return len(r.Doc.OS.NTPServers) > 0 }},
		{Name: "set the environment", Do: setEnvironment, Budget: quick},
		{Name: "trust certificates", Do: trustCAs, Budget: quick, When: func(r *engine.Run) bool { return len(r.Doc.OS.TrustedCAs) > 0 }},
		{Name: "open the firewall", Do: openFirewall, Budget: quick},
		{Name: "set dynamic ports", Do: setDynamicPorts, Budget: quick},
		{Name: "set up users", Do: setUpUsers, Budget: quick, When: func(r *engine.Run) bool { return len(r.Doc.OS.Users) > 0 }},
		{Name: "enable features", Do: enableFeatures, Budget: slow},
		// A domain controller may be out of reach until the adapters are what the document says.
		{Name: "configure adapters for the domain", Do: network.ConfigureAdapters, Budget: quick, When: joinsOnline},
		{Name: "join the domain", Do: joinDomain, Budget: slow, When: func(r *engine.Run) bool { return r.Doc.OS.DomainJoin != nil }},
		{Name: "heed a pending reboot", Do: heedPendingReboot, Budget: quick},
	}}
}

func joinsOnline(r *engine.Run) bool {
	return r.Doc.OS.DomainJoin != nil && r.Doc.OS.DomainJoin.OfflineBlob == ""
}
