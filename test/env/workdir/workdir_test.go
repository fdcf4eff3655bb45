package workdir

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestFoldersOfKilledEnvironmentsAreRemovedByTheNextStartAndNoOthers(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("TMPDIR", t.TempDir())
	newOne := func() *Dir {
		d, err := New("", "capw-test-*")
		g.Expect(err).NotTo(HaveOccurred())
		return d
	}
	age := func(d *Dir) {
		before := time.Now().Add(-time.Hour)
		g.Expect(os.Chtimes(filepath.Join(d.Path, lockName), before, before)).To(Succeed())
	}
	living, killed, young, kept, ended := newOne(), newOne(), newOne(), newOne(), newOne()
	age(living)
	age(killed)
	age(kept)
	g.Expect(killed.lock.Close()).To(Succeed(), "what the kernel does")
	g.Expect(young.lock.Close()).To(Succeed())
	g.Expect(kept.Close(true)).To(Succeed())
	g.Expect(ended.Close(false)).To(Succeed())

	next := newOne()
	for d, there := range map[*Dir]bool{living: true, killed: false, young: true, kept: true, ended: false, next: true} {
		_, err := os.Stat(d.Path)
		g.Expect(err == nil).To(Equal(there), d.Path)
	}
}
