//go:build windows

package winhost

import (
	"context"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

func TestInfoDescribesTheMachine(t *testing.T) {
	g, s := NewWithT(t), newSystem(newRegistry(), lenient())
	info, err := s.Info(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Build).To(MatchRegexp(`^10\.0\.\d{5}$`))
	g.Expect(info.ProductName).NotTo(BeEmpty())
	g.Expect(info.Arch).To(Equal(runtime.GOARCH))
	g.Expect(info.CPUs).To(BeNumerically(">=", runtime.NumCPU()))
	g.Expect(info.MemoryBytes).To(BeNumerically(">", 256<<20))
	if !lenient() { // Wine says what Linux says, which is nothing in a container
		g.Expect(info.Manufacturer).NotTo(BeEmpty())
		g.Expect(info.UUID).NotTo(BeZero())
	}
	g.Expect(info.BootTime).To(BeTemporally("<", time.Now()))
	g.Expect(info.BootTime).To(BeTemporally(">", time.Now().AddDate(-5, 0, 0)))
	g.Expect(info.SystemDrive).To(Equal(os.Getenv("SystemDrive")))
	g.Expect(info.SystemRoot).To(BeADirectory())

	again, err := newSystem(newRegistry(), lenient()).Info(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again).To(Equal(info))
}

// That the key is gone after a boot is a matter of a test that boots; here it is that it is not kept.
func TestBootIDIsInMemoryOnly(t *testing.T) {
	g := NewWithT(t)
	first, err := bootID()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(bootID()).To(Equal(first))
	// Windows makes no lasting key below a volatile one.
	k, err := create(bootKey+`\lasting`, 0, 0)
	if err == nil {
		closeKey(k)
		g.Expect(newRegistry().DeleteKey(t.Context(), bootKey+`\lasting`)).To(Succeed())
	}
	g.Expect(err).To(HaveOccurred())
	// A new boot has another one.
	g.Expect(newRegistry().DeleteKey(t.Context(), bootKey)).To(Succeed())
	g.Expect(bootID()).NotTo(Equal(first))
}

func TestComputerNameIsKnown(t *testing.T) {
	g, s := NewWithT(t), newSystem(newRegistry(), lenient())
	now, next, err := s.ComputerName(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(now).NotTo(BeEmpty())
	g.Expect(next).NotTo(BeEmpty())
	g.Expect(s.SetComputerName(t.Context(), next)).To(Succeed())
	g.Expect(s.SetComputerName(t.Context(), "a\x00b")).To(MatchError(host.ErrInvalid))
}

// Under Wine this is what lenient mode writes, on Windows what Windows does. That a boot makes the next name the one that
// Windows has is a matter of a test that boots.
func TestANewComputerNameWaitsForAReboot(t *testing.T) {
	g, s := NewWithT(t), newSystem(newRegistry(), lenient())
	now, next, err := s.ComputerName(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(next).To(Equal(now), "this machine waits for a reboot already")
	cleanUp(t, func(ctx context.Context) error { return s.SetComputerName(ctx, now) })
	for range 2 {
		g.Expect(s.SetComputerName(t.Context(), "Worker-1")).To(Succeed())
	}
	after, next, err := s.ComputerName(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect([]string{after, next}).To(Equal([]string{now, "Worker-1"}))
	g.Expect(s.RebootPending(t.Context())).To(BeTrue())
	g.Expect(s.SetComputerName(t.Context(), now)).To(Succeed())
	g.Expect(s.RebootPending(t.Context())).To(BeFalse())
}

func TestTimeZoneIsSetByItsName(t *testing.T) {
	g, s := NewWithT(t), newSystem(newRegistry(), lenient())
	before, err := s.TimeZone(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	cleanUp(t, func(ctx context.Context) error { return s.SetTimeZone(ctx, before) })
	for _, name := range []string{"W. Europe Standard Time", "UTC", "India Standard Time"} {
		for range 2 {
			g.Expect(s.SetTimeZone(t.Context(), name)).To(Succeed())
		}
		g.Expect(s.TimeZone(t.Context())).To(Equal(name))
	}
	for _, name := range []string{"", "Europe/Berlin", `UTC\Dynamic DST`, "No Such Time"} {
		g.Expect(s.SetTimeZone(t.Context(), name)).To(MatchError(host.ErrInvalid), name)
	}
}

func TestEnvironmentIsThatOfProcessesStartedNext(t *testing.T) {
	g, s, p := NewWithT(t), newSystem(newRegistry(), lenient()), newProcesses()
	environment, err := s.Environment(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(environment).To(HaveKey(MatchRegexp("(?i)^path$")))
	said := func() string {
		result, err := p.Run(t.Context(), host.Command{Argv: []string{self(t), asProgram, "echo"}})
		g.Expect(err).NotTo(HaveOccurred())
		return string(result.Stderr)
	}
	cleanUp(t, func(ctx context.Context) error { return s.SetEnvironment(ctx, "CAPW_TEST", nil) })
	for _, value := range []string{"one", `two;C:\x`} {
		for range 2 {
			g.Expect(s.SetEnvironment(t.Context(), "CAPW_TEST", &value)).To(Succeed())
		}
		environment, err = s.Environment(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(environment).To(HaveKeyWithValue("CAPW_TEST", value))
		g.Expect(said()).To(ContainSubstring(value))
	}
	expanded := `%SystemRoot%\x`
	g.Expect(s.SetEnvironment(t.Context(), "capw_test", &expanded)).To(Succeed())
	g.Expect(said()).To(ContainSubstring(os.Getenv("SystemRoot") + `\x`))
	for range 2 {
		g.Expect(s.SetEnvironment(t.Context(), "CAPW_TEST", nil)).To(Succeed())
	}
	environment, err = s.Environment(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(environment).NotTo(HaveKey("CAPW_TEST"))
	g.Expect(s.SetEnvironment(t.Context(), "A=B", &expanded)).To(MatchError(host.ErrInvalid))
}

func TestRebootIsPendingForFilesThatWillBeReplaced(t *testing.T) {
	g, r := NewWithT(t), newRegistry()
	s := newSystem(r, lenient())
	pending, err := s.RebootPending(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	before, err := r.Get(t.Context(), sessionManagerKey, "PendingFileRenameOperations")
	existed := err == nil
	cleanUp(t, func(ctx context.Context) error {
		if !existed {
			return r.Delete(ctx, sessionManagerKey, "PendingFileRenameOperations")
		}
		return r.Set(ctx, sessionManagerKey, "PendingFileRenameOperations", before)
	})
	operations := append(slices.Clone(before.Texts), `\??\C:\capw-test-none`, `\??\C:\capw-test-none-either`)
	g.Expect(r.Set(t.Context(), sessionManagerKey, "PendingFileRenameOperations", host.Value{Type: host.MultiString, Texts: operations})).To(Succeed())
	g.Expect(s.RebootPending(t.Context())).To(BeTrue())
	g.Expect(pending).To(BeFalse(), "this machine waits for a reboot already")
}

func TestVolumesHaveTheSystemDrive(t *testing.T) {
	g := NewWithT(t)
	list, err := newVolumes().List(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(list).To(ContainElement(And(HaveField("Root", os.Getenv("SystemDrive")+`\`), HaveField("Kind", host.VolumeFixed),
		HaveField("TotalBytes", BeNumerically(">", 0)), HaveField("FreeBytes", BeNumerically(">", 0)), HaveField("FileSystem", Not(BeEmpty())))))
}
