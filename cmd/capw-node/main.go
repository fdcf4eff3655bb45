// Command capw-node is the node agent, see package agent.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/capw-dev/cluster-api-provider-windows/agent/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	executable, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "capw-node: finding the path of this program:", err)
		os.Exit(cli.ExitFailed)
	}
	code := cli.Main(ctx, environment(executable), os.Args[1:])
	stop()
	os.Exit(code)
}
