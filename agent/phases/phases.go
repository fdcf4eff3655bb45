// Package phases puts the phases of a first boot in their order.
package phases

import (
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/artifacts"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/configure"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/containerruntime"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/done"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/hostprep"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/join"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/network"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/preflight"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/services"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/verify"
)

// All returns the phases of a first boot. Only those before Join may reboot the machine.
func All() []engine.Phase {
	return []engine.Phase{
		preflight.Phase(),
		hostprep.Phase(),
		network.Phase(),
		artifacts.Phase(),
		configure.Phase(),
		containerruntime.Phase(),
		join.Phase(),
		services.Phase(),
		verify.Phase(),
		done.Phase(),
	}
}
