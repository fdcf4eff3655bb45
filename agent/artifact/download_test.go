package artifact_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/artifact"
	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

const (
	url  = "http://user:hunter2@files.example.com/kubelet.exe?signature=hunter2#hunter2"
	path = `C:\ProgramData\kubelet.partial`
)

// wire is a listener in memory, and the dialer that reaches it under every address.
type wire struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	mu     sync.Mutex
	dialed []string
}

func newWire() *wire { return &wire{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (w *wire) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	w.mu.Lock()
	w.dialed = append(w.dialed, address)
	w.mu.Unlock()
	near, far := net.Pipe()
	select {
	case w.conns <- far:
		return near, nil
	case <-w.closed:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (w *wire) Accept() (net.Conn, error) {
	select {
	case c := <-w.conns:
		return c, nil
	case <-w.closed:
		return nil, net.ErrClosed
	}
}

func (w *wire) Close() error {
	w.once.Do(func() { close(w.closed) })
	return nil
}

func (*wire) Addr() net.Addr { return &net.TCPAddr{} }

// place is a machine and a server.
type place struct {
	*artifact.Downloader
	t        *testing.T // of the bubble
	m        *sim.Machine
	wire     *wire
	requests []*http.Request
}

// try runs f in a bubble with virtual time.
func try(t *testing.T, handler http.HandlerFunc, f func(g Gomega, p *place)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &place{t: t, m: sim.New(sim.Options{}), wire: newWire()}
		p.m.PowerOn(t.Context())
		defer p.m.PowerOff()
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // of a test
			p.requests = append(p.requests, r)
			handler(w, r)
		})}
		go func() { _ = server.Serve(p.wire) }()
		defer func() { _ = server.Close() }()
		client, err := artifact.NewClient(p.wire, nodev1.ProxyInfo{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer client.CloseIdleConnections()
		p.Downloader = &artifact.Downloader{Client: client, Files: p.m.Host().Files, MaxBytes: 1 << 26, Stall: 30 * time.Second}
		f(NewWithT(t), p)
	})
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// file serves content as a good server does: with ranges and an entity tag.
func file(content []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Etag", `"`+sum(content)[:8]+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}
}

// breakAfter ends the connection after n bytes of the body.
func breakAfter(n int, content []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Etag", `"`+sum(content)[:8]+`"`)
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		_, _ = w.Write(content[:n])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// inTurn serves each request with the next handler, and the rest with the last.
func inTurn(handlers ...http.HandlerFunc) http.HandlerFunc {
	var n int
	return func(w http.ResponseWriter, r *http.Request) {
		h := handlers[min(n, len(handlers)-1)]
		n++
		h(w, r)
	}
}

func (p *place) expect(g Gomega, content []byte) {
	got, err := p.m.ReadFile(path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(bytes.Equal(got, content)).To(BeTrue(), "%d bytes instead of %d", len(got), len(content))
	g.Expect(p.m.Files()).NotTo(ContainElement(path + ".etag"))
}

func (p *place) partial() int {
	got, err := p.m.ReadFile(path)
	if err != nil {
		return -1
	}
	return len(got)
}

func code(err error) codes.Code {
	if err == nil {
		return ""
	}
	info, _ := codes.Of(err)
	return info.Code
}

func TestGetDownloadsAFile(t *testing.T) {
	content := random(5<<20 + 7)
	try(t, file(content), func(g Gomega, p *place) {
		g.Expect(p.Get(p.t.Context(), url, path, sum(content))).To(Succeed())
		p.expect(g, content)
		g.Expect(p.m.EffectiveACL(path)).To(Equal(host.ACLSystem))
		user, password, _ := p.requests[0].BasicAuth()
		g.Expect(user + password).To(Equal("userhunter2"))

		g.Expect(p.Get(p.t.Context(), url, path, sum(content))).To(Succeed())
		g.Expect(p.requests).To(HaveLen(1), "what is complete is not asked for again")
	})
}

func TestGetGoesOnWhereABrokenConnectionEnded(t *testing.T) {
	content := random(6 << 20)
	try(t, inTurn(breakAfter(2<<20, content), file(content)), func(g Gomega, p *place) {
		err := p.Get(p.t.Context(), url, path, sum(content))
		g.Expect(code(err)).To(Equal(codes.ArtifactUnreachable), "%v", err)
		kept := p.partial()
		g.Expect(kept).To(BeNumerically(">=", 1<<20))

		g.Expect(p.Get(p.t.Context(), url, path, sum(content))).To(Succeed())
		p.expect(g, content)
		g.Expect(p.requests[1].Header.Get("Range")).To(Equal(fmt.Sprintf("bytes=%d-", kept)))
		g.Expect(p.requests[1].Header.Get("If-Range")).To(Equal(`"` + sum(content)[:8] + `"`))
	})
}

func TestGetGoesOnAfterAPowerCut(t *testing.T) {
	content := random(40 << 20)
	var arrived int
	try(t, inTurn(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		for len(content)-arrived > 4<<20 {
			n, err := w.Write(content[arrived : arrived+1<<20])
			if arrived += n; err != nil {
				return
			}
		}
		<-r.Context().Done()
	}, file(content)), func(g Gomega, p *place) {
		done := make(chan error)
		go func() { done <- p.Get(context.WithoutCancel(p.t.Context()), url, path, sum(content)) }()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		p.m.Cut()
		g.Expect(<-done).To(HaveOccurred())
		p.m.PowerOn(p.t.Context())
		p.Files = p.m.Host().Files
		g.Expect(p.partial()).To(BeNumerically(">=", 32<<20), "what was written before the last segment is durable")

		g.Expect(p.Get(p.t.Context(), url, path, sum(content))).To(Succeed())
		p.expect(g, content)
		g.Expect(p.requests).To(HaveLen(2))
	})
}

func TestGetBeginsAnewWhereGoingOnIsImpossible(t *testing.T) {
	content := random(3 << 20)
	whole := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) }
	for name, tc := range map[string]struct {
		there   []byte
		handler http.HandlerFunc
	}{
		"a server without ranges":               {content[:1000], whole},
		"another file by now":                   {nil, inTurn(breakAfter(2<<20, random(3<<20)), file(content))},
		"rubbish after a power cut":             {make([]byte, 1<<20), file(content)},
		"more than the file has":                {append(bytes.Clone(content), 1), file(content)},
		"an answer for another range":           {content[:1000], inTurn(otherRange, file(content))},
		"a range that the server refuses":       {content[:1000], inTurn(status(http.StatusRequestedRangeNotSatisfiable), file(content))},
		"as many bytes as the file, but not it": {random(3 << 20), file(content)},
	} {
		t.Run(name, func(t *testing.T) {
			try(t, tc.handler, func(g Gomega, p *place) {
				if tc.there != nil {
					p.m.WriteFile(path, string(tc.there))
				} else {
					g.Expect(p.Get(p.t.Context(), url, path, sum(content))).NotTo(Succeed())
				}
				g.Expect(p.Get(p.t.Context(), url, path, sum(content))).To(Succeed())
				p.expect(g, content)
			})
		})
	}
}

func otherRange(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Range", "bytes 5-9/10")
	w.WriteHeader(http.StatusPartialContent)
	_, _ = w.Write([]byte("01234"))
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func TestGetTriesWhatRarelyChangesThreeTimesAndNamesNoSecret(t *testing.T) {
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		code    codes.Code
		says    string
	}{
		"nothing there": {status(404), codes.ArtifactRefused, "404"},
		"unauthorized":  {status(401), codes.ArtifactRefused, "401"},
		"forbidden":     {status(403), codes.ArtifactRefused, "403"},
		"another file":  {file([]byte("something else")), codes.ArtifactChecksum, sum([]byte("something else"))},
	} {
		t.Run(name, func(t *testing.T) {
			try(t, tc.handler, func(g Gomega, p *place) {
				begin := time.Now()
				err := p.Get(p.t.Context(), url, path, sum([]byte("it")))
				g.Expect(code(err)).To(Equal(tc.code))
				g.Expect(err).To(MatchError(ContainSubstring("http://files.example.com/kubelet.exe")))
				g.Expect(err).To(MatchError(ContainSubstring(tc.says)))
				g.Expect(err).NotTo(MatchError(ContainSubstring("hunter2")))
				g.Expect(p.requests).To(HaveLen(3))
				g.Expect(time.Since(begin)).To(BeNumerically("<", time.Minute))
				g.Expect(p.partial()).To(Equal(-1))
			})
		})
	}
}

func TestGetLeavesWhatMayChangeToItsCaller(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"overload":       status(503),
		"too many":       status(429),
		"broken at once": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"redirect to none": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "ftp://hunter2@x/", http.StatusFound)
		},
	} {
		t.Run(name, func(t *testing.T) {
			try(t, handler, func(g Gomega, p *place) {
				err := p.Get(p.t.Context(), url, path, sum(nil))
				g.Expect(code(err)).To(Equal(codes.ArtifactUnreachable))
				g.Expect(err).NotTo(MatchError(ContainSubstring("hunter2")))
				g.Expect(p.requests).To(HaveLen(1))
			})
		})
	}
}

func TestGetGivesUpAConnectionThatSendsNothing(t *testing.T) {
	content := random(3 << 20)
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	half := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		_, _ = w.Write(content[:2<<20])
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		kept    int
	}{"before its answer": {hang, -1}, "in the middle": {half, 2 << 20}} {
		t.Run(name, func(t *testing.T) {
			try(t, tc.handler, func(g Gomega, p *place) {
				begin := time.Now()
				err := p.Get(p.t.Context(), url, path, sum(content))
				g.Expect(code(err)).To(Equal(codes.ArtifactUnreachable))
				g.Expect(err).To(MatchError(ContainSubstring("no data came")))
				g.Expect(time.Since(begin)).To(Equal(30 * time.Second))
				g.Expect(p.partial()).To(Equal(tc.kept))
			})
		})
	}
}

func TestGetIsPatientWithASlowLink(t *testing.T) {
	content := random(100)
	try(t, func(w http.ResponseWriter, _ *http.Request) {
		for _, b := range content {
			time.Sleep(29 * time.Second)
			_, _ = w.Write([]byte{b})
			_ = http.NewResponseController(w).Flush()
		}
	}, func(g Gomega, p *place) {
		g.Expect(p.Get(p.t.Context(), url, path, sum(content))).To(Succeed())
		p.expect(g, content)
	})
}

func TestGetAcceptsNoEndlessFile(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"that says so": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "99999999999") },
		"that does not": func(w http.ResponseWriter, _ *http.Request) {
			for b := random(1 << 20); ; {
				if _, err := w.Write(b); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			try(t, handler, func(g Gomega, p *place) {
				p.MaxBytes = 3 << 20
				g.Expect(code(p.Get(p.t.Context(), url, path, sum(nil)))).To(Equal(codes.ArtifactTooLarge))
				g.Expect(p.partial()).To(Equal(-1), "nothing is left of it")
			})
		})
	}
}

func TestGetEndsWithItsContextAndKeepsWhatCame(t *testing.T) {
	content := random(3 << 20)
	try(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		_, _ = w.Write(content[:2<<20])
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}, func(g Gomega, p *place) {
		ctx, cancel := context.WithTimeout(p.t.Context(), 5*time.Second)
		defer cancel()
		g.Expect(p.Get(ctx, url, path, sum(content))).To(MatchError(context.DeadlineExceeded))
		g.Expect(p.partial()).To(Equal(2 << 20))
	})
}

func TestGetSaysSoWhenTheDiskRefuses(t *testing.T) {
	content := random(2 << 20)
	for _, op := range []string{"Files.Open", "Files.Append", "File.Write", "File.Close", "Files.Write", "Files.Remove"} {
		t.Run(op, func(t *testing.T) {
			try(t, file(content), func(g Gomega, p *place) {
				p.m.SetInject(func(c sim.Call) sim.Fault {
					if c.Op == op {
						return sim.Fault{Kind: sim.Fail}
					}
					return sim.Fault{}
				})
				err := p.Get(p.t.Context(), url, path, sum(content))
				g.Expect(code(err)).To(Equal(codes.ArtifactNotPlaced), "%v", err)
				p.m.SetInject(nil)
				g.Expect(p.Get(p.t.Context(), url, path, sum(content))).To(Succeed())
				p.expect(g, content)
			})
		})
	}
}
