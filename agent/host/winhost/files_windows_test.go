//go:build windows

package winhost

import (
	"bytes"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
)

func TestWriteReplacesAFileAsAWhole(t *testing.T) {
	for _, acl := range []host.ACL{host.ACLInherited, host.ACLSystem, host.ACLUsersRead} {
		t.Run(string(acl), func(t *testing.T) {
			g, f, dir := NewWithT(t), newFiles(), tempDir(t)
			path := layout.Join(dir, "token")
			for _, content := range []string{"first", "", "third"} {
				g.Expect(f.Write(t.Context(), path, []byte(content), acl)).To(Succeed())
				g.Expect(f.Read(t.Context(), path)).To(BeEquivalentTo(content))
			}
			list, err := f.List(t.Context(), dir)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(list).To(HaveLen(1))
			g.Expect(list[0].Name).To(Equal("token"))
			g.Expect(list[0].Size).To(BeEquivalentTo(5))
			g.Expect(list[0].Dir).To(BeFalse())
			g.Expect(list[0].Modified).To(BeTemporally("~", time.Now(), time.Minute))
		})
	}
}

func TestReadersSeeOneContentOrTheOther(t *testing.T) {
	g, f, dir := NewWithT(t), newFiles(), tempDir(t)
	path := layout.Join(dir, "status")
	contents := [][]byte{bytes.Repeat([]byte("a"), 100_000), bytes.Repeat([]byte("b"), 50_000)}
	g.Expect(f.Write(t.Context(), path, contents[0], host.ACLInherited)).To(Succeed())
	var writer sync.WaitGroup
	stop := make(chan struct{})
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				if err := f.Write(t.Context(), path, contents[i%2], host.ACLInherited); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	for range 50 {
		got, err := f.Read(t.Context(), path)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(bytes.Equal(got, contents[0]) || bytes.Equal(got, contents[1])).To(BeTrue(), "%d bytes", len(got))
	}
	close(stop)
	writer.Wait()
}

func TestWhatAPowerCutLeftOfASecretGoesAwayWithTheFile(t *testing.T) {
	g, f, dir := NewWithT(t), newFiles(), tempDir(t)
	path := layout.Join(dir, "token")
	g.Expect(os.WriteFile(path+incomplete, []byte("half a sec"), 0o600)).To(Succeed())
	g.Expect(f.Write(t.Context(), path, []byte("secret"), host.ACLSystem)).To(Succeed())
	g.Expect(f.List(t.Context(), dir)).To(HaveLen(1))

	g.Expect(os.WriteFile(path+incomplete, []byte("half a sec"), 0o600)).To(Succeed())
	g.Expect(f.Remove(t.Context(), path)).To(Succeed())
	g.Expect(f.List(t.Context(), dir)).To(BeEmpty())
}

func TestWriteNeedsItsFolderAndLeavesNothingWhenItFails(t *testing.T) {
	g, f, dir := NewWithT(t), newFiles(), tempDir(t)
	g.Expect(f.Write(t.Context(), layout.Join(dir, "no", "file"), nil, host.ACLSystem)).To(MatchError(fs.ErrNotExist))
	g.Expect(f.Mkdir(t.Context(), layout.Join(dir, "folder"), host.ACLInherited)).To(Succeed())
	g.Expect(f.Write(t.Context(), layout.Join(dir, "folder"), []byte("x"), host.ACLInherited)).NotTo(Succeed())
	list, err := f.List(t.Context(), dir)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(list).To(HaveLen(1))
}

func TestAppendWritesAtTheEnd(t *testing.T) {
	g, f, dir := NewWithT(t), newFiles(), tempDir(t)
	path := layout.Join(dir, "log")
	for _, text := range []string{"one ", "two ", "three"} {
		w, err := f.Append(t.Context(), path, host.ACLSystem)
		g.Expect(err).NotTo(HaveOccurred())
		_, err = w.Write([]byte(text))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(w.Close()).To(Succeed())
	}
	g.Expect(f.Read(t.Context(), path)).To(BeEquivalentTo("one two three"))
}

func TestALogIsRotatedWhileItIsWritten(t *testing.T) {
	g, f, dir := NewWithT(t), newFiles(), tempDir(t)
	path := layout.Join(dir, "log")
	w, err := f.Append(t.Context(), path, host.ACLInherited)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = w.Write([]byte("before "))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(f.Rename(t.Context(), path, path+".1")).To(Succeed())
	_, err = w.Write([]byte("after"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.Close()).To(Succeed())
	g.Expect(f.Read(t.Context(), path+".1")).To(BeEquivalentTo("before after"))
	_, err = f.Stat(t.Context(), path)
	g.Expect(err).To(MatchError(fs.ErrNotExist))
}

func TestMkdirMakesParentsAndKeepsContent(t *testing.T) {
	g, f, dir := NewWithT(t), newFiles(), tempDir(t)
	deep := layout.Join(dir, "a", "b", "c")
	for range 2 {
		g.Expect(f.Mkdir(t.Context(), deep, host.ACLSystem)).To(Succeed())
	}
	g.Expect(f.Write(t.Context(), layout.Join(deep, "file"), []byte("x"), host.ACLInherited)).To(Succeed())
	g.Expect(f.Mkdir(t.Context(), deep, host.ACLUsersRead)).To(Succeed())
	g.Expect(f.Read(t.Context(), layout.Join(deep, "file"))).To(BeEquivalentTo("x"))
	info, err := f.Stat(t.Context(), deep)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Dir).To(BeTrue())
	g.Expect(f.Mkdir(t.Context(), layout.Join(deep, "file"), host.ACLSystem)).To(MatchError(fs.ErrExist))
}

func TestRemoveDeletesAllBelowAndMissingIsSuccess(t *testing.T) {
	g, f, dir := NewWithT(t), newFiles(), tempDir(t)
	top := layout.Join(dir, "top")
	for _, folder := range []string{"a", `a\b`, "c"} {
		g.Expect(f.Mkdir(t.Context(), layout.Join(top, folder), host.ACLSystem)).To(Succeed())
		g.Expect(f.Write(t.Context(), layout.Join(top, folder, "file"), []byte("x"), host.ACLSystem)).To(Succeed())
	}
	g.Expect(os.Chmod(layout.Join(top, "c", "file"), 0o400)).To(Succeed()) // read-only
	for range 2 {
		g.Expect(f.Remove(t.Context(), top)).To(Succeed())
	}
	_, err := f.Stat(t.Context(), top)
	g.Expect(err).To(MatchError(fs.ErrNotExist))
	g.Expect(f.Remove(t.Context(), layout.Join(top, "no", "such"))).To(Succeed())
}

func TestAProgramThatRunsIsOnlyRenamed(t *testing.T) {
	g, f, dir := NewWithT(t), newFiles(), tempDir(t)
	program, err := f.Read(t.Context(), self(t))
	g.Expect(err).NotTo(HaveOccurred())
	path := layout.Join(dir, "program.exe")
	g.Expect(f.Write(t.Context(), path, program, host.ACLInherited)).To(Succeed())
	ended := make(chan error, 1)
	pidFile := layout.Join(dir, "pid")
	go func() {
		_, err := newProcesses().Run(t.Context(), host.Command{Argv: []string{path, asProgram, "hold", pidFile, layout.Join(dir, "go")}})
		ended <- err
	}()
	g.Eventually(func() error { _, err := f.Stat(t.Context(), pidFile); return err }, 10*time.Second, 20*time.Millisecond).Should(Succeed())
	g.Expect(f.Remove(t.Context(), path)).NotTo(Succeed())
	g.Expect(f.Rename(t.Context(), path, path+".old")).To(Succeed())
	g.Expect(f.Write(t.Context(), path, []byte("new"), host.ACLInherited)).To(Succeed())
	g.Expect(f.Write(t.Context(), layout.Join(dir, "go"), nil, host.ACLInherited)).To(Succeed())
	g.Eventually(ended, 10*time.Second).Should(Receive(BeNil()))
}

func TestRenameReplacesAFile(t *testing.T) {
	g, f, dir := NewWithT(t), newFiles(), tempDir(t)
	from, to := layout.Join(dir, "from"), layout.Join(dir, "to")
	g.Expect(f.Write(t.Context(), from, []byte("new"), host.ACLInherited)).To(Succeed())
	g.Expect(f.Write(t.Context(), to, []byte("old"), host.ACLInherited)).To(Succeed())
	g.Expect(f.Rename(t.Context(), from, to)).To(Succeed())
	g.Expect(f.Read(t.Context(), to)).To(BeEquivalentTo("new"))
	g.Expect(f.Rename(t.Context(), from, to)).To(MatchError(fs.ErrNotExist))
}

// Wine takes the same calls and keeps nothing: that they have an effect, only Windows can tell.
func TestAccessControlIsSetAndReadOnWindows(t *testing.T) {
	f, dir := newFiles(), tempDir(t)
	for _, name := range []string{"folder", "file"} {
		for _, acl := range []host.ACL{host.ACLSystem, host.ACLUsersRead, host.ACLInherited} {
			t.Run(name+" "+string(acl), func(t *testing.T) {
				g := NewWithT(t)
				path := layout.Join(dir, name)
				if name == "folder" {
					g.Expect(f.Mkdir(t.Context(), path, host.ACLInherited)).To(Succeed())
				} else {
					g.Expect(f.Write(t.Context(), path, nil, host.ACLInherited)).To(Succeed())
				}
				g.Expect(f.SetACL(t.Context(), path, acl)).To(Succeed())
				got, err := f.ACL(t.Context(), path)
				g.Expect(err).NotTo(HaveOccurred())
				if !lenient() {
					g.Expect(got).To(Equal(acl))
				}
				// What we ask for is what Windows understands by it, on either.
				if acl != host.ACLInherited {
					written := asWindowsWrites(acl.SDDL(name == "folder"))
					g.Expect(strings.HasPrefix(written, "D:P")).To(BeTrue(), written)
					g.Expect(aclOf(written, name == "folder", asWindowsWrites)).To(Equal(acl))
				}
			})
		}
	}
	NewWithT(t).Expect(f.SetACL(t.Context(), layout.Join(dir, "none"), host.ACLSystem)).To(MatchError(fs.ErrNotExist))
}
