// Command capw is the Cluster API provider for Windows workers: "capw manager" runs the controllers of the bootstrap
// provider, of the infrastructure provider, or of both.
package main

import (
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capw-dev/cluster-api-provider-windows/cmd"
)

func main() {
	if err := cmd.NewRoot().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		os.Exit(1)
	}
}
