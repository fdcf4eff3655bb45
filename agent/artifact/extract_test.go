package artifact

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// packed is an entry of an archive to be made.
type packed struct {
	name, content string
	typeflag      byte        // of tar; 0: a file, or a folder if the name ends with /
	mode          fs.FileMode // of zip
}

func tarGz(t *testing.T, entries ...packed) Archive {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Size: int64(len(e.content)), Mode: 0o644, Typeflag: e.typeflag, Linkname: "target"}
		if h.Typeflag == 0 {
			h.Typeflag, h.Linkname = tar.TypeReg, ""
			if strings.HasSuffix(e.name, "/") {
				h.Typeflag = tar.TypeDir
			}
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			h = &tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "x"}}
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return archive(TarGz, b.Bytes())
}

func zipped(t *testing.T, entries ...packed) Archive {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		if e.mode != 0 {
			h.SetMode(e.mode)
		}
		out, err := w.CreateHeader(h)
		if err == nil && !strings.HasSuffix(e.name, "/") {
			_, err = io.WriteString(out, e.content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return archive(Zip, b.Bytes())
}

// archive reads forward only, as a file of a Host may.
func archive(kind Kind, content []byte) Archive {
	return Archive{Kind: kind, Size: int64(len(content)), MaxBytes: 1 << 20, MaxEntries: 100, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(bytes.NewReader(content))), nil
	}}
}

// memory is a Sink that fails a test's expectation of folders before files.
type memory struct {
	folders map[string]bool
	files   map[string]string
	fail    error
}

func (m *memory) Folder(path string) error {
	if m.folders[path] {
		return errors.New("folder twice: " + path)
	}
	return m.parent(path, func() { m.folders[path] = true })
}

func (m *memory) File(path string, content io.Reader) error {
	if m.fail != nil {
		return m.fail
	}
	b, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	return m.parent(path, func() { m.files[path] = string(b) })
}

func (m *memory) parent(path string, add func()) error {
	if i := strings.LastIndexByte(path, '\\'); i >= 0 && !m.folders[path[:i]] {
		return errors.New("no folder for " + path)
	}
	add()
	return nil
}

func extract(ctx context.Context, a Archive) (*memory, error) {
	m := &memory{folders: map[string]bool{}, files: map[string]string{}}
	return m, Extract(ctx, a, m)
}

func TestExtractUnpacksPlainFilesAndFolders(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 40_000)
	entries := []packed{
		{name: "./"}, {name: "bin/"}, {name: "bin/containerd.exe", content: "exe"}, {name: "./bin/ctr.exe", content: large},
		{name: "deep/er/READ.ME", content: "text"}, {name: "empty/"}, {name: "com10.txt"}, {name: "ünï", content: "ü"},
	}
	for kind, a := range map[Kind]Archive{
		Zip: zipped(t, entries[1:]...), TarGz: tarGz(t, append([]packed{{typeflag: tar.TypeXGlobalHeader}}, entries...)...),
	} {
		t.Run(string(kind), func(t *testing.T) {
			g := NewWithT(t)
			m, err := extract(t.Context(), a)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(m.files).To(Equal(map[string]string{
				`bin\containerd.exe`: "exe", `bin\ctr.exe`: large, `deep\er\READ.ME`: "text", "com10.txt": "", "ünï": "ü",
			}))
			g.Expect(m.folders).To(Equal(map[string]bool{"bin": true, "deep": true, `deep\er`: true, "empty": true}))

			a.Strip = 1
			m, err = extract(t.Context(), a)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(m.files).To(Equal(map[string]string{"containerd.exe": "exe", "ctr.exe": large, `er\READ.ME`: "text"}))
		})
	}
}

func TestExtractRefusesNamesThatMeanSomethingElseToWindows(t *testing.T) {
	for _, name := range []string{
		"../evil", "a/../../evil", "a/./b", "/etc/passwd", "a//b", `..\evil`, `a\b`, `C:\evil`, "C:evil", "a/file:stream", "a/b::$DATA",
		"con", "a/NUL.txt", "aux.tar.gz", "Com1", "lpt9.log", "COM¹", "CONOUT$", "con .txt", "a./b", "a /b", "dot.", "space ", "q?", "st*r",
		"<a>", `"`, "p|pe", "bell\a", "del/\x01", strings.Repeat("n", 256), "\xff",
	} {
		for kind, a := range map[Kind]Archive{Zip: zipped(t, packed{name: name}), TarGz: tarGz(t, packed{name: name})} {
			m, err := extract(t.Context(), a)
			if !errors.Is(err, ErrUnsafe) || len(m.files) != 0 {
				t.Errorf("%s %q: %v, files %q", kind, name, err, m.files)
			}
		}
	}
}

func TestExtractRefusesWhatIsNoPlainFileOrFolder(t *testing.T) {
	for name, a := range map[string]Archive{
		"a symbolic link":      tarGz(t, packed{name: "l", typeflag: tar.TypeSymlink}),
		"a hard link":          tarGz(t, packed{name: "l", typeflag: tar.TypeLink}),
		"a device":             tarGz(t, packed{name: "d", typeflag: tar.TypeBlock}),
		"a pipe":               tarGz(t, packed{name: "p", typeflag: tar.TypeFifo}),
		"a zipped link":        zipped(t, packed{name: "l", content: "target", mode: fs.ModeSymlink | 0o777}),
		"a zipped device":      zipped(t, packed{name: "d", mode: fs.ModeDevice | 0o777}),
		"a file twice":         tarGz(t, packed{name: "a", content: "1"}, packed{name: "a", content: "2"}),
		"a file twice in case": zipped(t, packed{name: "Kubelet.exe"}, packed{name: "kubelet.EXE"}),
		"a folder and a file":  tarGz(t, packed{name: "a/b"}, packed{name: "A"}),
		"a file and a folder":  tarGz(t, packed{name: "A"}, packed{name: "a/b"}),
		"no archive":           archive(Zip, []byte("MZ")),
		"no gzip":              archive(TarGz, []byte("MZ")),
		"nothing":              archive(TarGz, nil),
	} {
		if _, err := extract(t.Context(), a); !errors.Is(err, ErrUnsafe) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestExtractRefusesADamagedArchiveWhereverItIsDamaged(t *testing.T) {
	entries := []packed{{name: "a/b", content: strings.Repeat("some text ", 300)}, {name: "c", content: "d"}}
	for kind, a := range map[Kind]Archive{Zip: zipped(t, entries...), TarGz: tarGz(t, entries...)} {
		file, err := a.Open()
		if err != nil {
			t.Fatal(err)
		}
		whole, err := io.ReadAll(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := extract(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		for cut := range whole {
			m, err := extract(t.Context(), withBytes(a, whole[:cut]))
			if err == nil && len(m.files) < len(want.files) {
				t.Fatalf("%s cut after %d of %d bytes: no error, and files are missing", kind, cut, len(whole))
			}
			flipped := slices.Clone(whole)
			flipped[cut] ^= 0x10
			m, err = extract(t.Context(), withBytes(a, flipped))
			if err != nil && !errors.Is(err, ErrUnsafe) && !errors.Is(err, ErrTooLarge) {
				t.Fatalf("%s with byte %d flipped: %v", kind, cut, err)
			}
			for name, content := range m.files {
				if err == nil && strings.HasPrefix(name, "a") && content != want.files[name] && want.files[name] != "" {
					t.Fatalf("%s with byte %d flipped: other content without an error", kind, cut)
				}
			}
		}
	}
}

func withBytes(a Archive, content []byte) Archive {
	a.Size = int64(len(content))
	a.Open = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
	return a
}

func TestExtractStopsABomb(t *testing.T) {
	bomb := packed{name: "bomb", content: strings.Repeat("\x00", 1<<20+1)}
	many := make([]packed, 101)
	for i := range many {
		many[i] = packed{name: strings.Repeat("x", i+1)}
	}
	for name, a := range map[string]Archive{
		"a zip": zipped(t, bomb), "a tar": tarGz(t, bomb), "many in a zip": zipped(t, many...), "many in a tar": tarGz(t, many...),
		"two halves": zipped(t, packed{name: "a", content: bomb.content[1<<19:]}, packed{name: "b", content: bomb.content[1<<19:]}),
	} {
		m, err := extract(t.Context(), a)
		if !errors.Is(err, ErrTooLarge) || errors.Is(err, ErrUnsafe) || m.files["bomb"] != "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestExtractTellsErrorsOfTheDiskFromThoseOfTheArchive(t *testing.T) {
	g := NewWithT(t)
	m := &memory{folders: map[string]bool{}, files: map[string]string{}, fail: os.ErrPermission}
	err := Extract(t.Context(), tarGz(t, packed{name: "a", content: "b"}), m)
	g.Expect(err).To(MatchError(os.ErrPermission))
	g.Expect(errors.Is(err, ErrUnsafe)).To(BeFalse())

	for kind, a := range map[Kind]Archive{Zip: zipped(t, packed{name: "a", content: "b"}), TarGz: tarGz(t, packed{name: "a", content: "b"})} {
		open := a.Open
		for after := range a.Size {
			a.Open = func() (io.ReadCloser, error) {
				file, err := open()
				return io.NopCloser(io.MultiReader(io.LimitReader(file, after), failing{})), err
			}
			if _, err := extract(t.Context(), a); !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, ErrUnsafe) {
				t.Errorf("%s, read error after %d bytes: %v", kind, after, err)
			}
		}
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

func TestExtractEndsWithItsContext(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := extract(ctx, tarGz(t, packed{name: "a"}))
	g.Expect(err).To(MatchError(context.Canceled))
}

func FuzzEntryPathNeverLeavesTheDestination(f *testing.F) {
	for _, s := range []string{"a/b", "../a", "./a/", `a\..\b`, "CON", "a:b", "//x", "a/ /b"} {
		f.Add(s, 0)
		f.Add(s, 1)
	}
	f.Fuzz(func(t *testing.T, name string, strip int) {
		path, err := entryPath(name, max(strip, 0)%5)
		if err != nil || path == "" {
			return
		}
		for part := range strings.SplitSeq(path, `\`) {
			if part == "" || strings.Trim(part, ". ") == "" || strings.ContainsAny(part, "/:") || isDevice(part) {
				t.Errorf("%q gives %q", name, path)
			}
		}
	})
}
