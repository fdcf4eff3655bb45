package hosttest

import (
	"context"
	"testing"

	. "github.com/onsi/gomega" //nolint:staticcheck // as in tests
)

func (s *suite) environment(t *testing.T) {
	s.run(t, "sets, changes and deletes a variable whatever the case of its name", func(e *env) {
		name := e.id + "-Name"
		set := func(name string, value *string) { e.succeed(e.System.SetEnvironment(e.ctx, name, value)) }
		e.cleanUp(func(ctx context.Context) error { return e.System.SetEnvironment(ctx, name, nil) })
		variables := func() map[string]string {
			all, err := e.System.Environment(e.ctx)
			e.succeed(err)
			return all
		}
		one, two := "1", `%two%;ä`
		set(name, &one)
		e.Expect(variables()).To(HaveKeyWithValue(name, "1"))
		set(e.id+"-NAME", &two)
		e.Expect(variables()).To(HaveKeyWithValue(name, two), "its name stays as it was first written")
		e.Expect(variables()).NotTo(HaveKey(e.id + "-NAME"))
		set(e.id+"-name", nil)
		set(e.id+"-name", nil)
		e.Expect(variables()).NotTo(HaveKey(name))
	})
	s.run(t, "gives a new variable to programs that start from now on", func(e *env) {
		value := "of the machine"
		e.cleanUp(func(ctx context.Context) error { return e.System.SetEnvironment(ctx, e.id, nil) })
		e.succeed(e.System.SetEnvironment(e.ctx, e.id, &value))
		e.Expect(e.output("env", e.id)).To(Equal(value))
	})
}

func (s *suite) information(t *testing.T) {
	s.run(t, "describes the machine, always in the same way while Windows runs", func(e *env) {
		info, err := e.System.Info(e.ctx)
		e.succeed(err)
		e.Expect(e.System.Info(e.ctx)).To(Equal(info))
		e.Expect(info.Build).To(MatchRegexp(`^\d+\.\d+\.\d+$`))
		e.Expect(info.CPUs).To(BeNumerically(">", 0))
		e.Expect(info.MemoryBytes).To(BeNumerically(">", 64<<20))
		e.Expect(info.BootID).NotTo(BeEmpty())
		e.Expect(info.SystemDrive).To(MatchRegexp(`^[A-Z]:$`))
		e.Expect(info.SystemRoot).To(HavePrefix(info.SystemDrive + `\`))
		now, next, err := e.System.ComputerName(e.ctx)
		e.succeed(err)
		e.Expect(now).NotTo(BeEmpty())
		e.Expect(next).NotTo(BeEmpty())
	})
	s.run(t, "lists the system drive among the volumes", func(e *env) {
		info, err := e.System.Info(e.ctx)
		e.succeed(err)
		volumes, err := e.Volumes.List(e.ctx)
		e.succeed(err)
		roots := []string{}
		for _, v := range volumes {
			roots = append(roots, v.Root)
			e.Expect(v.FreeBytes).To(BeNumerically("<=", v.TotalBytes), v.Root)
		}
		e.Expect(roots).To(ContainElement(info.SystemDrive + `\`))
	})
}
