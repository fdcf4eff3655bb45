// Command demo shows the main job of CAPW on one machine, on real parts: a MachineDeployment becomes Ready Windows nodes,
// is scaled, rolled over to another template, and deleted, and nothing is left.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	keep := flag.Bool("keep", false, "After the nodes are Ready keep everything running until Ctrl-C, to play with it.")
	flag.Parse()
	// The story is told by the narrator; what libraries have to say goes nowhere.
	ctrl.SetLogger(logr.Discard())

	if err := demo(*keep); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func demo(keep bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, newNarrator(os.Stdout), keep)
	if err != nil && ctx.Err() != nil {
		return errors.Join(errors.New("interrupted"), err)
	}
	return err
}
