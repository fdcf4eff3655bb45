package runner

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

func TestALogIsRotatedWhileItIsWrittenAndKeepsItsBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		path := filepath.Join(t.TempDir(), "kubelet", "kubelet.log")
		const lines, mib = 50_000, 1 << 20
		log := OpenLog(path, nodev1.LogRotation{MaxSizeMiB: 1, MaxFiles: 10})
		line := func(i int) string { return fmt.Sprintf("%05d %s\n", i, strings.Repeat("x", 100)) }
		for i := range lines {
			_, err := log.Write([]byte(line(i)))
			g.Expect(err).NotTo(HaveOccurred())
			if i%1000 == 0 {
				synctest.Wait() // the test is faster than any disk
			}
		}
		log.Close()
		g.Expect(log.Lost()).To(BeZero())

		files := logFiles(g, path)
		g.Expect(files).To(HaveLen(6)) // 5.1 MiB in files of 1 MiB
		var all bytes.Buffer
		for _, f := range files { // the names of rotated files are in order, the current one is the last
			content, err := os.ReadFile(f)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(len(content)).To(BeNumerically("<=", mib))
			g.Expect(content[len(content)-1]).To(Equal(byte('\n')))
			all.Write(content)
		}
		var want strings.Builder
		for i := range lines {
			want.WriteString(line(i))
		}
		g.Expect(bytes.Equal(all.Bytes(), []byte(want.String()))).To(BeTrue(), "all lines are there, once and in order")
	})
}

// logFiles returns the files of a log, the rotated ones in order and then the current one.
func logFiles(g *WithT, path string) []string {
	entries, err := os.ReadDir(filepath.Dir(path))
	g.Expect(err).NotTo(HaveOccurred())
	var out []string
	current := ""
	for _, e := range entries {
		if full := filepath.Join(filepath.Dir(path), e.Name()); full == path {
			current = full
		} else {
			out = append(out, full)
		}
	}
	return append(out, current)
}

func TestOnlyTheNewestRotatedFilesStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		dir := t.TempDir()
		path := filepath.Join(dir, "x.log")
		log := OpenLog(path, nodev1.LogRotation{MaxSizeMiB: 1, MaxFiles: 2, MaxAgeHours: 10})
		others := []string{"x-notes.log", "x.log.1", "y-20000101T000000.000.log"}
		for _, name := range others {
			g.Expect(os.WriteFile(filepath.Join(dir, name), nil, 0o600)).To(Succeed())
		}
		write := func(mib int) {
			for range mib {
				_, _ = log.Write(bytes.Repeat([]byte("0123456789abcde\n"), 1<<16))
				synctest.Wait()
				time.Sleep(time.Minute)
			}
		}
		write(6)
		g.Expect(rotatedFiles(g, path)).To(HaveLen(2))
		time.Sleep(11 * time.Hour) // nothing is written any more
		g.Expect(rotatedFiles(g, path)).To(BeEmpty())
		for _, name := range others {
			g.Expect(filepath.Join(dir, name)).To(BeAnExistingFile(), "it is not the log's")
		}
		log.Close()
	})
}

func rotatedFiles(g *WithT, path string) []string {
	var out []string
	for _, f := range logFiles(g, path) {
		if _, ok := RotatedAt(filepath.Base(path), filepath.Base(f)); ok {
			out = append(out, f)
		}
	}
	return out
}

func TestALineLongerThanAFileIsCutAndNotLost(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "x.log")
	log := OpenLog(path, nodev1.LogRotation{MaxSizeMiB: 1})
	long := bytes.Repeat([]byte{'x'}, 3<<19)
	_, _ = log.Write(long)
	log.Close()
	var size int
	for _, f := range logFiles(g, path) {
		content, err := os.ReadFile(f)
		g.Expect(err).NotTo(HaveOccurred())
		size += len(content)
	}
	g.Expect(size).To(Equal(len(long)))
	g.Expect(log.Lost()).To(BeZero())
}

func TestAFullDiskNeitherStopsNorDelaysTheProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		log := OpenLog("/dev/full", nodev1.LogRotation{}) // every write to it fails with ENOSPC
		began := time.Now()
		for range 100 {
			n, err := log.Write([]byte("a line\n"))
			g.Expect(n).To(Equal(7))
			g.Expect(err).NotTo(HaveOccurred())
			synctest.Wait()
		}
		g.Expect(time.Since(began)).To(BeZero())
		g.Expect(log.Lost()).To(Equal(int64(700)))
		log.Close()
	})
}

func TestALogGoesOnWhenTheDiskDoesAndSaysWhatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		dir := t.TempDir()
		blocker := filepath.Join(dir, "logs")
		g.Expect(os.WriteFile(blocker, nil, 0o600)).To(Succeed())
		path := filepath.Join(blocker, "x.log")
		log := OpenLog(path, nodev1.LogRotation{})
		_, _ = log.Write([]byte("lost\n"))
		synctest.Wait()
		g.Expect(os.Remove(blocker)).To(Succeed())
		_, _ = log.Write([]byte("lost too, as it is not tried again at once\n"))
		synctest.Wait()
		time.Sleep(reopenAfter)
		_, _ = log.Write([]byte("written\n"))
		_, _ = log.Write([]byte("written, too\n"))
		log.Close()
		content, err := os.ReadFile(path)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(content)).To(MatchRegexp(`^\[capw-node\] 48 bytes of output before this line were not written: .*not a directory\nwritten\nwritten, too\n$`))
	})
}

func TestALogThatCannotBeRotatedStopsGrowing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		path := filepath.Join(t.TempDir(), "x.log")
		log := OpenLog(path, nodev1.LogRotation{MaxSizeMiB: 1})
		log.rename = func(string, string) error { return os.ErrPermission }
		for range 10 {
			_, _ = log.Write(bytes.Repeat([]byte("0123456789abcde\n"), 1<<15)) // half a MiB
			synctest.Wait()
		}
		info, err := os.Stat(path)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(info.Size()).To(And(BeNumerically(">", 1<<20), BeNumerically("<=", 2<<20)))
		log.rename = os.Rename
		time.Sleep(reopenAfter)
		_, _ = log.Write([]byte("the last\n"))
		log.Close()
		content, err := os.ReadFile(path)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(len(content)).To(BeNumerically("<", 1<<10), "it was rotated at last")
		g.Expect(string(content)).To(HaveSuffix("the last\n"))
	})
}

func TestWhatADiskIsTooSlowForIsDroppedAndCounted(t *testing.T) {
	g := NewWithT(t)
	log := &Log{wake: make(chan struct{}, 1)} // of which nobody takes anything
	for range 3 {
		_, _ = log.Write(make([]byte, pendingBytes/2))
	}
	g.Expect(log.Lost()).To(Equal(int64(pendingBytes / 2)))
	g.Expect(log.waiting()).To(HaveLen(pendingBytes))
}

func TestTheRunnerPassesOnOutputAndExitCode(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "x.log")
	code := Main(t.Context(), []string{Exec, "--log-file", path, "--", "/bin/sh", "-c", `echo "$0: out"; echo err >&2; exit 7`, "a b"})
	g.Expect(code).To(Equal(7))
	content, err := os.ReadFile(path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(content)).To(Equal("a b: out\nerr\n"))
	g.Expect(Main(t.Context(), []string{Exec, "--", filepath.Join(t.TempDir(), "missing")})).To(Equal(ExitNotStarted))
	g.Expect(Main(t.Context(), []string{Exec})).To(Equal(ExitUsage))
}
