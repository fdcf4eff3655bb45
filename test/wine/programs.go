//go:build linux

package wine

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/capw-dev/cluster-api-provider-windows/test/env/assets"
)

// Programs are Windows programs that were built from this repository; the fields are paths of this Linux.
type Programs struct {
	// Agent is the node agent, as it is released.
	Agent string
	// The stand-ins below test/wine/programs: each says what it does.
	Kubelet, Containerd, Generic, Recorder, Launcher string
}

// BuildPrograms builds them into dir, which must exist.
func BuildPrograms(ctx context.Context, dir string) (*Programs, error) {
	p := &Programs{}
	const standIns = "./test/wine/programs/"
	for _, b := range []struct {
		out *string
		pkg string
	}{
		{&p.Agent, "./cmd/capw-node"},
		{&p.Kubelet, standIns + "kubelet"},
		{&p.Containerd, standIns + "containerd"},
		{&p.Generic, standIns + "generic"},
		{&p.Recorder, standIns + "recorder"},
		{&p.Launcher, standIns + "launcher"},
	} {
		*b.out = filepath.Join(dir, filepath.Base(b.pkg)+".exe")
		if err := assets.BuildWindows(ctx, b.pkg, *b.out); err != nil {
			return nil, fmt.Errorf("building programs for Wine: %w", err)
		}
	}
	return p, nil
}
