// Command assets provides the programs that the tests run and prints the folder that holds them, for use as
// KUBEBUILDER_ASSETS. With -windows they include what the tests under Wine run. Progress goes to standard error.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/capw-dev/cluster-api-provider-windows/test/env/assets"
)

func main() {
	windows := flag.Bool("windows", false, "provide also what the tests under Wine need")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	a, err := assets.Ensure(ctx, assets.Options{Progress: os.Stderr, Windows: *windows})
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "assets:", err)
		os.Exit(1)
	}
	fmt.Println(a.Dir)
}
