package runner

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

func TestACommandLineIsReadBackAsItWasMeant(t *testing.T) {
	for name, o := range map[string]Options{
		"the least":             {Mode: Exec, Argv: []string{`C:\k\kubelet.exe`}},
		"arguments as they are": {Mode: Exec, Argv: []string{`C:\k\kubelet.exe`, "", "--", "--log-file", `a "b" c\`, "--name=x"}},
		"everything": {
			Mode: Service, Name: "containerd", LogFile: `C:\var\log\containerd\containerd.log`,
			Rotation: nodev1.LogRotation{MaxSizeMiB: 100, MaxFiles: 5, MaxAgeHours: 168}, Priority: nodev1.PriorityAboveNormal,
			Grace: 90 * time.Second, Dir: `C:\Program Files`, LeaveChildren: true,
			Argv: []string{`C:\Program Files\containerd\containerd.exe`, "--config", `C:\x.toml`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			argv := Command(o)
			g.Expect(argv[0]).To(Equal(layout.Agent))
			g.Expect(Parse(argv[1:])).To(Equal(o))
			inner, got, ok := Unwrap(append([]string{`D:\image\CAPW-node.EXE`}, argv[1:]...))
			g.Expect(ok).To(BeTrue())
			g.Expect(got).To(Equal(o))
			g.Expect(inner).To(Equal(o.Argv))
		})
	}
}

func TestACommandLineThatCannotBeRunIsRefused(t *testing.T) {
	for name, args := range map[string][]string{
		"nothing":                  nil,
		"another subcommand":       {"run", "--", "x"},
		"no program":               {Exec, "--log-file", "x", "--"},
		"no separator":             {Exec, "--log-file", "x"},
		"a service without a name": {Service, "--", "x"},
		"an unknown flag":          {Exec, "--verbose", "2", "--", "x"},
		"a flag without a value":   {Exec, "--log-file"},
		"a size that is no number": {Exec, "--max-size-mib", "1G", "--", "x"},
		"a negative number":        {Exec, "--max-files=-1", "--", "x"},
		"a priority of nothing":    {Exec, "--priority", "Realtime", "--", "x"},
		"a grace without unit":     {Service, "--name", "x", "--grace", "20", "--", "x"},
		"a grace of nothing":       {Service, "--name", "x", "--grace", "0s", "--", "x"},
		"a program before --":      {Exec, `C:\k\kubelet.exe`, "--", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := Parse(args)
			g.Expect(err).To(HaveOccurred())
			_, _, ok := Unwrap(append([]string{layout.Agent}, args...))
			g.Expect(ok).To(BeFalse())
		})
	}
}

func TestOnlyTheAgentsCommandLinesAreUnwrapped(t *testing.T) {
	g := NewWithT(t)
	_, _, ok := Unwrap([]string{`C:\k\kube-log-runner.exe`, Exec, "--", "x"})
	g.Expect(ok).To(BeFalse())
	_, _, ok = Unwrap(nil)
	g.Expect(ok).To(BeFalse())
}
