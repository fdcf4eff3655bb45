package artifacts_test

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
)

// site is a web server in memory, for every address, that counts what it gives out.
type site struct {
	files map[string]string
	mu    sync.Mutex
	asked map[string]int
}

func newSite(files map[string]string) *site { return &site{files: files, asked: map[string]int{}} }

func (s *site) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	server := &http.Server{Handler: s} //nolint:gosec // of a test
	go func() { _ = server.Serve(&once{conn: far}) }()
	return near, nil
}

// ServeHTTP serves a file.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	content, ok := s.files[r.URL.Path]
	s.asked[r.URL.Path]++
	s.mu.Unlock()
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Etag", fmt.Sprintf("%q", sum(content)[:8]))
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(content))
}

// once is a listener of one connection.
type once struct {
	conn net.Conn
	done bool
}

func (o *once) Accept() (net.Conn, error) {
	if o.done {
		return nil, net.ErrClosed
	}
	o.done = true
	return o.conn, nil
}

func (*once) Close() error   { return nil }
func (*once) Addr() net.Addr { return &net.TCPAddr{} }

func sum(content string) string {
	s := sha256.Sum256([]byte(content))
	return hex.EncodeToString(s[:])
}

// program says what its file says, so that another file is another version.
func program(_ context.Context, p *sim.Process) int {
	content, err := p.Host.Files.Read(context.Background(), p.Argv[0])
	if err != nil {
		return 3
	}
	said, ok := strings.CutPrefix(string(content), "MZ ")
	if !ok {
		return 1
	}
	_, _ = fmt.Fprintln(p.Stdout, said)
	return 0
}

const (
	kubelet    = "MZ Kubernetes v1.36.3"
	oldKubelet = "MZ Kubernetes v1.35.1"
	containerd = "MZ containerd github.com/containerd/containerd/v2 v2.2.0 1c4457e"
)

// image is a machine with kubelet and containerd, after change.
func image(s *site, change func(*sim.Options)) sim.Options {
	o := sim.Options{
		Programs: map[string]sim.Program{
			"kubelet.exe": program, "containerd.exe": program, "kubeadm.exe": program, "kube-proxy.exe": program, "windows_exporter.exe": program,
		},
		Files: map[string]string{layout.Kubelet: kubelet, layout.Containerd: containerd},
	}
	if s != nil {
		o.Dial = s.dial
	}
	if change != nil {
		change(&o)
	}
	return o
}

func zipOf(t *testing.T, files map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for name, content := range files {
		out, err := w.Create(name)
		if err == nil {
			_, err = out.Write([]byte(content))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func read(g Gomega, m *sim.Machine, path string) string {
	content, err := m.ReadFile(path)
	g.ExpectWithOffset(1, err).NotTo(HaveOccurred())
	return string(content)
}

// leftovers are what only an unfinished attempt may leave.
func leftovers(m *sim.Machine) []string {
	var out []string
	for _, path := range m.Files() {
		if strings.HasPrefix(path, layout.DownloadDir) || strings.Contains(path, ".tmp") || strings.Contains(path, ".media") || strings.Contains(path, ".old-capw") {
			out = append(out, path)
		}
	}
	return out
}
