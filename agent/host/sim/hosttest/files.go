package hosttest

import (
	"context"
	"io"
	"io/fs"
	"testing"
	"time"

	. "github.com/onsi/gomega" //nolint:staticcheck // as in tests

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

func (s *suite) files(t *testing.T) {
	s.run(t, "reads what was written, whatever the case of its path", func(e *env) {
		path := e.write("Some.txt", "first")
		e.write("some.TXT", "second")
		e.Expect(e.read(path)).To(Equal("second"))
		e.Expect(e.read(e.dir + `\SOME.txt`)).To(Equal("second"))
		info, err := e.Files.Stat(e.ctx, path)
		e.succeed(err)
		e.Expect(info.Dir).To(BeFalse())
		e.Expect(info.Size).To(BeEquivalentTo(6))
		e.Expect(info.Modified).To(BeTemporally("~", time.Now(), time.Hour))
		e.Expect(e.names(e.dir)).To(HaveLen(len("Some.txt")), "there is one file")
	})
	s.run(t, "keeps empty and binary files as they are", func(e *env) {
		e.Expect(e.read(e.write("empty", ""))).To(BeEmpty())
		binary := "\x00\xff\r\n\n\x1a."
		e.Expect(e.read(e.write("binary", binary))).To(Equal(binary))
	})
	s.run(t, "says that what is missing does not exist", func(e *env) {
		missing, below := e.dir+`\missing`, e.dir+`\missing\file`
		_, err := e.Files.Read(e.ctx, missing)
		e.Expect(err).To(MatchError(fs.ErrNotExist))
		_, err = e.Files.Open(e.ctx, missing)
		e.Expect(err).To(MatchError(fs.ErrNotExist))
		_, err = e.Files.Stat(e.ctx, below)
		e.Expect(err).To(MatchError(fs.ErrNotExist))
		_, err = e.Files.List(e.ctx, missing)
		e.Expect(err).To(MatchError(fs.ErrNotExist))
		_, err = e.Files.ACL(e.ctx, missing)
		e.Expect(err).To(MatchError(fs.ErrNotExist))
		_, err = e.Files.Append(e.ctx, below, host.ACLInherited)
		e.Expect(err).To(MatchError(fs.ErrNotExist))
		e.Expect(e.Files.SetACL(e.ctx, missing, host.ACLSystem)).To(MatchError(fs.ErrNotExist))
		e.Expect(e.Files.Write(e.ctx, below, nil, host.ACLInherited)).To(MatchError(fs.ErrNotExist))
		e.Expect(e.Files.Rename(e.ctx, missing, e.dir+`\elsewhere`)).To(MatchError(fs.ErrNotExist))
		e.Expect(e.Files.Remove(e.ctx, missing)).To(Succeed())
		e.Expect(e.Files.Remove(e.ctx, below)).To(Succeed())
	})
	s.run(t, "makes a folder with its parents and leaves its content when it is made again", func(e *env) {
		deep := e.dir + `\a\b\c`
		e.succeed(e.Files.Mkdir(e.ctx, deep, host.ACLInherited))
		e.succeed(e.Files.Write(e.ctx, deep+`\f`, []byte("x"), host.ACLInherited))
		e.succeed(e.Files.Mkdir(e.ctx, deep, host.ACLInherited))
		e.Expect(e.read(deep + `\f`)).To(Equal("x"))
		e.Expect(e.Files.Mkdir(e.ctx, deep+`\f`, host.ACLInherited)).NotTo(Succeed(), "a file stands there")
	})
	s.run(t, "lists a folder sorted by name", func(e *env) {
		for _, name := range []string{"b", "c", "a"} {
			e.write(name, name)
		}
		e.succeed(e.Files.Mkdir(e.ctx, e.dir+`\ab`, host.ACLInherited))
		e.Expect(e.names(e.dir)).To(Equal(`a ab\ b c`))
	})
	s.run(t, "appends, and reads from the beginning", func(e *env) {
		path := e.dir + `\log`
		for _, part := range []string{"one ", "two"} {
			w, err := e.Files.Append(e.ctx, path, host.ACLInherited)
			e.succeed(err)
			_, err = io.WriteString(w, part)
			e.succeed(err)
			e.succeed(w.Close())
		}
		r, err := e.Files.Open(e.ctx, path)
		e.succeed(err)
		content, err := io.ReadAll(r)
		e.succeed(err)
		e.succeed(r.Close())
		e.Expect(string(content)).To(Equal("one two"))
	})
	s.run(t, "can be read while it is appended to", func(e *env) {
		w, err := e.Files.Append(e.ctx, e.dir+`\log`, host.ACLInherited)
		e.succeed(err)
		_, err = io.WriteString(w, "so far")
		e.succeed(err)
		e.Expect(e.read(e.dir + `\log`)).To(Equal("so far"))
		e.succeed(w.Close())
	})
	s.run(t, "renames files and folders, and replaces a file but no folder", func(e *env) {
		from, to := e.write("from", "new"), e.write("to", "old")
		e.succeed(e.Files.Rename(e.ctx, from, to))
		e.Expect(e.read(to)).To(Equal("new"))
		e.Expect(e.names(e.dir)).To(Equal("to"))
		e.succeed(e.Files.Mkdir(e.ctx, e.dir+`\d\sub`, host.ACLInherited))
		e.succeed(e.Files.Rename(e.ctx, e.dir+`\d`, e.dir+`\e`))
		e.Expect(e.names(e.dir + `\e`)).To(Equal(`sub\`))
		e.Expect(e.Files.Rename(e.ctx, to, e.dir+`\e`)).NotTo(Succeed())
		e.Expect(e.names(e.dir)).To(Equal(`e\ to`))
	})
	s.run(t, "removes a folder with all in it", func(e *env) {
		e.succeed(e.Files.Mkdir(e.ctx, e.dir+`\a\b`, host.ACLInherited))
		e.write(`a\f`, "x")
		e.write(`a\b\f`, "x")
		e.succeed(e.Files.Remove(e.ctx, e.dir+`\a`))
		e.Expect(e.names(e.dir)).To(BeEmpty())
	})
	s.run(t, "does nothing for a context that has ended", func(e *env) {
		ended, cancel := context.WithCancel(e.ctx)
		cancel()
		e.Expect(e.Files.Write(ended, e.dir+`\f`, nil, host.ACLInherited)).To(MatchError(context.Canceled))
		e.Expect(e.names(e.dir)).To(BeEmpty())
	})
	if !s.o.Wine {
		s.run(t, "keeps the access control that it was given", s.accessControl)
	}
}

func (s *suite) accessControl(e *env) {
	acl := func(path string) host.ACL {
		e.t.Helper()
		acl, err := e.Files.ACL(e.ctx, path)
		e.succeed(err)
		return acl
	}
	for _, want := range []host.ACL{host.ACLSystem, host.ACLUsersRead, host.ACLInherited} {
		path := e.dir + `\f` + string(want)
		e.succeed(e.Files.Write(e.ctx, path, []byte("x"), want))
		e.Expect(acl(path)).To(Equal(want))
		folder := e.dir + `\d` + string(want)
		e.succeed(e.Files.Mkdir(e.ctx, folder, want))
		e.Expect(acl(folder)).To(Equal(want))
		e.succeed(e.Files.Write(e.ctx, folder+`\in`, []byte("x"), host.ACLInherited))
		e.Expect(acl(folder+`\in`)).To(Equal(host.ACLInherited), "an inherited one is none of its own")
	}
	path := e.dir + `\f` + string(host.ACLSystem)
	e.succeed(e.Files.Write(e.ctx, path, []byte("y"), host.ACLUsersRead))
	e.Expect(acl(path)).To(Equal(host.ACLUsersRead), "a file that is replaced has the new one")
	e.succeed(e.Files.SetACL(e.ctx, path, host.ACLSystem))
	e.Expect(acl(path)).To(Equal(host.ACLSystem))
	e.succeed(e.Files.Rename(e.ctx, path, e.dir+`\moved`))
	e.Expect(acl(e.dir+`\moved`)).To(Equal(host.ACLSystem), "a file that is moved keeps it")
	e.succeed(e.Files.Mkdir(e.ctx, e.dir+`\new\deep`, host.ACLSystem))
	e.Expect(acl(e.dir+`\new`)).To(Equal(host.ACLSystem), "parents that are made get it, too")
	e.succeed(e.Files.Mkdir(e.ctx, e.dir+`\new\deep`, host.ACLUsersRead))
	e.Expect(acl(e.dir+`\new\deep`)).To(Equal(host.ACLUsersRead), "a folder that exists gets it")
	e.Expect(acl(e.dir+`\new`)).To(Equal(host.ACLSystem), "parents that exist keep theirs")
	w, err := e.Files.Append(e.ctx, e.dir+`\log`, host.ACLSystem)
	e.succeed(err)
	e.succeed(w.Close())
	e.Expect(acl(e.dir+`\log`)).To(Equal(host.ACLSystem), "a file that is made to append to gets it")
}
