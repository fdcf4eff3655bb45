// Package hosttest holds the tests that every implementation of package host passes: the simulated machine, and the native
// one on Windows or Wine. What both pass, tests against the simulation may rely on.
package hosttest

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// Options say what the tests work with.
type Options struct {
	// Dir is a folder for the tests. They make it, and remove what they made in it. Default: C:\hosttest.
	Dir string
	// Helper is the command line of the helper program, up to where its own arguments begin: an executable that calls
	// HelperMain, or that is registered in the simulation with Helper. Needed for processes and services.
	Helper []string
	// Wine leaves out what Wine 8 lacks: access control, and of the SCM the environment of a service, its dependencies, and
	// restarts after failures.
	Wine bool
}

// Run runs all tests, each with a host of its own from newHost. These may be handles of the same machine; the tests clean
// up after themselves.
func Run(t *testing.T, newHost func(t *testing.T) *host.Host, o Options) {
	t.Helper()
	if o.Dir == "" {
		o.Dir = `C:\hosttest`
	}
	s := &suite{o: o, newHost: newHost}
	t.Run("Files", s.files)
	t.Run("Registry", s.registry)
	t.Run("Environment", s.environment)
	t.Run("Information", s.information)
	t.Run("Processes", s.processes)
	t.Run("Services", s.services)
}

type suite struct {
	o       Options
	newHost func(t *testing.T) *host.Host
	count   atomic.Int64
}

// env is what one test works with.
type env struct {
	*gomega.WithT
	*host.Host

	t   *testing.T
	ctx context.Context //nolint:containedctx // of the test
	o   Options
	// id is different in every test; dir is its folder.
	id, dir string
}

func (s *suite) run(t *testing.T, behaviour string, test func(e *env)) {
	t.Helper()
	t.Run(behaviour, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		id := fmt.Sprintf("hosttest-%d", s.count.Add(1))
		e := &env{WithT: gomega.NewWithT(t), Host: s.newHost(t), t: t, ctx: ctx, o: s.o, id: id, dir: s.o.Dir + `\` + id}
		e.Expect(e.Files.Remove(ctx, e.dir)).To(gomega.Succeed(), "of an earlier run")
		e.Expect(e.Files.Mkdir(ctx, e.dir, host.ACLInherited)).To(gomega.Succeed())
		e.cleanUp(func(ctx context.Context) error { return e.Files.Remove(ctx, e.dir) })
		test(e)
	})
}

// cleanUp does something at the end of the test, whose context has ended then.
func (e *env) cleanUp(do func(ctx context.Context) error) {
	e.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(e.ctx), time.Minute)
		defer cancel()
		if err := do(ctx); err != nil {
			e.t.Errorf("clean up: %v", err)
		}
	})
}

// succeed fails the test if a call did.
func (e *env) succeed(err error) {
	e.t.Helper()
	e.Expect(err).NotTo(gomega.HaveOccurred())
}

// write writes a file in the test's folder and returns its path.
func (e *env) write(name, content string) string {
	e.t.Helper()
	path := e.dir + `\` + name
	e.succeed(e.Files.Write(e.ctx, path, []byte(content), host.ACLInherited))
	return path
}

// read returns the content of a file.
func (e *env) read(path string) string {
	e.t.Helper()
	content, err := e.Files.Read(e.ctx, path)
	e.succeed(err)
	return string(content)
}

// helper returns a command line of the helper.
func (e *env) helper(args ...string) []string {
	return append(append([]string{}, e.o.Helper...), args...)
}

// names returns the names of what is in a folder.
func (e *env) names(path string) string {
	e.t.Helper()
	list, err := e.Files.List(e.ctx, path)
	e.succeed(err)
	names := []string{}
	for _, info := range list {
		name := info.Name
		if info.Dir {
			name += `\`
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}
