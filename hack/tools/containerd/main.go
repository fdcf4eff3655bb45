// Command containerd is the real containerd of the version that go.mod pins, as a reader of configurations that we make:
// all its own commands ("config dump"), and "hosts <folder> <registry>", which prints as JSON how it would reach a registry.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	_ "github.com/containerd/containerd/v2/cmd/containerd/builtins"
	"github.com/containerd/containerd/v2/cmd/containerd/command"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
)

func main() {
	var err error
	if len(os.Args) == 4 && os.Args[1] == "hosts" {
		err = hosts(os.Args[2], os.Args[3])
	} else {
		err = command.App().Run(context.Background(), os.Args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "containerd:", err)
		os.Exit(1)
	}
}

func hosts(folder, registry string) error {
	found, err := config.ConfigureHosts(context.Background(), config.HostOptions{HostDir: config.HostDirFromRoot(folder)})(registry)
	if err != nil {
		return err
	}
	type host struct {
		URL           string
		Pull, Resolve bool
		Push          bool
		Header        map[string][]string `json:",omitempty"`
	}
	out := []host{}
	for _, h := range found {
		out = append(out, host{
			URL: h.Scheme + "://" + h.Host + h.Path, Header: h.Header,
			Pull: h.Capabilities.Has(docker.HostCapabilityPull), Resolve: h.Capabilities.Has(docker.HostCapabilityResolve), Push: h.Capabilities.Has(docker.HostCapabilityPush),
		})
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}
