package env

import (
	"context"
	"fmt"
	"time"

	"github.com/capw-dev/cluster-api-provider-windows/test/env/assets"
)

// Names of the programs of this repository that an environment runs.
const (
	managerBinary = "capw"
	vcsimBinary   = "vcsim"
)

// builds compiles our own programs while the clusters start.
type builds struct {
	env   *Environment
	order []string
	done  map[string]chan struct{}
}

func newBuilds(e *Environment) *builds {
	b := &builds{env: e, done: map[string]chan struct{}{}}
	if !e.opts.NoVCSim {
		b.order = append(b.order, vcsimBinary)
	}
	if !e.opts.NoManager && !e.opts.NoCAPI && !e.opts.NoManagement {
		b.order = append(b.order, managerBinary)
	}
	for _, name := range b.order {
		b.done[name] = make(chan struct{})
	}
	return b
}

// run builds one after the other; the compiler uses all processors by itself.
func (b *builds) run(ctx context.Context) error {
	packages := map[string]string{managerBinary: ".", vcsimBinary: "./test/cmd/vcsim"}
	for _, name := range b.order {
		begin := time.Now()
		// Most of the time nothing has changed, and there is nothing to tell.
		slow := time.AfterFunc(3*time.Second, func() { b.env.progressf("building %s ...", name) })
		err := assets.Build(ctx, packages[name], b.env.path(name))
		if !slow.Stop() {
			b.env.progressf("built %s in %s", name, time.Since(begin).Round(time.Second))
		}
		if err != nil {
			return err
		}
		close(b.done[name])
	}
	return nil
}

func (b *builds) await(ctx context.Context, name string) error {
	select {
	case <-b.done[name]:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the build of %s: %w", name, context.Cause(ctx))
	}
}
