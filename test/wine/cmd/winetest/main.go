//go:build linux

// Command winetest runs the tests of a package as a Windows program, on a new Wine machine:
//
//	go run ./test/wine/cmd/winetest ./agent/host/winhost -test.run Service -test.v
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/capw-dev/cluster-api-provider-windows/test/wine"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: winetest <package> [-test.<flag> ...]")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, os.Args[1], os.Args[2:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "winetest:", err)
		code = 1
	}
	os.Exit(code)
}

func run(ctx context.Context, pkg string, flags []string) (_ int, rerr error) {
	vm, err := wine.NewVM(ctx, wine.Options{Log: os.Stderr})
	if err != nil {
		return 0, err
	}
	defer func() {
		if err := vm.Shutdown(); rerr == nil {
			rerr = err
		}
	}()
	return vm.Test(ctx, os.Stdout, pkg, flags...)
}
