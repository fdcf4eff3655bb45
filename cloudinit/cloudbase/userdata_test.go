package cloudbase

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

const (
	someURL    = "https://example.com:8443/~a/b?c=d;e,f@g#$-+_/capw-node.exe"
	someSHA256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

func TestUserDataIsAScriptThatCloudbaseInitAndCmdUnderstand(t *testing.T) {
	for _, agent := range []bootstrapv1.AgentSpec{
		{},
		{Source: bootstrapv1.AgentImage},
		{Source: bootstrapv1.AgentMedia},
		{Source: bootstrapv1.AgentURL, URL: someURL, SHA256: someSHA256},
		{URL: someURL, SHA256: someSHA256},
	} {
		script := mustUserData(t, aDocument(), agent)
		checkScript(t, script)
		source := agent.Source
		if source == "" {
			source = bootstrapv1.AgentAuto
		}
		for _, line := range []string{`set "source=` + string(source) + `"`, `set "url=` + agent.URL + `"`, `set "sha256=` + agent.SHA256 + `"`} {
			if bytes.Count(script, []byte("\r\n"+line+"\r\n")) != 1 {
				t.Errorf("agent %+v: want one line %s", agent, line)
			}
		}
		if !IsUserData(script) {
			t.Errorf("agent %+v: not recognised", agent)
		}
	}
}

// checkScript checks what must hold for every script, whatever is in it.
func checkScript(t *testing.T, script []byte) {
	t.Helper()
	text := string(script)
	if !strings.HasPrefix(text, "rem cmd\r\n@echo off\r\n") {
		t.Errorf("begins with %.30q", text)
	}
	if crlf, lf := strings.Count(text, "\r\n"), strings.Count(text, "\n"); crlf != lf || crlf != strings.Count(text, "\r") || !strings.HasSuffix(text, "\r\n") {
		t.Error("has line ends that are not CRLF")
	}
	if i := strings.IndexFunc(text, func(r rune) bool { return r != '\r' && r != '\n' && (r < ' ' || r > '~') }); i >= 0 {
		t.Errorf("has the non-ASCII or control character %q", text[i])
	}
	// A header of this kind makes cloudbase-init take a CRLF text for a multipart message, wherever it stands.
	if strings.Contains(text, "Content-Type: multipart") {
		t.Error("looks like a multipart message")
	}
	if regexp.MustCompile(`</?(script|powershell)>`).MatchString(text) {
		t.Error("looks like a script of EC2")
	}
	if strings.Contains(text, "<source>") || strings.Contains(text, "<url>") || strings.Contains(text, "<sha256>") {
		t.Error("has a placeholder")
	}

	commands, document, found := strings.Cut(text, "-----BEGIN")
	if !found {
		t.Fatal("has no document")
	}
	if !strings.HasSuffix(commands, "\r\nexit /b %code%\r\n") {
		t.Error("cmd.exe would read the document")
	}
	for _, line := range strings.Split(document, "\r\n") {
		if len(line) > 76 {
			t.Errorf("line of %d characters in the document", len(line))
		}
	}
	exits := regexp.MustCompile(`exit /b ?(\S*)`).FindAllStringSubmatch(commands, -1)
	for _, exit := range exits {
		if strings.HasPrefix(exit[1], "10") {
			t.Errorf("%q is a code that cloudbase-init acts on", exit[0])
		}
	}
	// Every label that is gone to exists, once.
	for _, target := range regexp.MustCompile(`(?m)(?:goto |call :)(\w+)`).FindAllStringSubmatch(commands, -1) {
		if n := strings.Count(commands, "\r\n:"+target[1]+"\r\n"); n != 1 {
			t.Errorf("label %s exists %d times", target[1], n)
		}
	}
}

func TestUserDataIsTheSameForTheSameDocument(t *testing.T) {
	one, two := aDocument(), aDocument()
	one.Node.Labels = map[string]string{"a": "1", "b": "2", "c": "3", "d": "4", "e": "5"}
	two.Node.Labels = maps.Clone(one.Node.Labels)
	if !bytes.Equal(mustUserData(t, one, bootstrapv1.AgentSpec{}), mustUserData(t, two, bootstrapv1.AgentSpec{})) {
		t.Error("two renderings of one document differ")
	}
}

func TestUserDataDocumentsItsExitCodes(t *testing.T) {
	script := string(mustUserData(t, aDocument(), bootstrapv1.AgentSpec{}))
	for label, code := range map[string]int{
		"missing": ExitAgentMissing, "nofolder": ExitNoFolder, "unreachable": ExitDownloadFailed, "downloaded": ExitChecksumMismatch,
	} {
		_, behind, _ := strings.Cut(script, "\r\n:"+label+"\r\n")
		if section, _, _ := strings.Cut(behind, "\r\n\r\n"); !strings.HasSuffix(section, fmt.Sprintf("\r\nexit /b %d", code)) {
			t.Errorf("%s does not end with exit code %d:\n%s", label, code, section)
		}
	}
}

func TestUserDataRefusesWhatCouldChangeTheScript(t *testing.T) {
	for _, agent := range []bootstrapv1.AgentSpec{
		{Source: "auto"},
		{Source: "Image\" & calc & rem \""},
		{Source: bootstrapv1.AgentURL},
		{URL: someURL},
		{SHA256: someSHA256},
		{Source: bootstrapv1.AgentImage, URL: someURL, SHA256: someSHA256},
		{Source: bootstrapv1.AgentMedia, URL: someURL, SHA256: someSHA256},
		{URL: someURL, SHA256: strings.ToUpper(someSHA256)},
		{URL: someURL, SHA256: someSHA256 + "\n"},
		{URL: someURL, SHA256: someSHA256[1:]},
		{URL: "ftp://example.com/a", SHA256: someSHA256},
		{URL: "--config", SHA256: someSHA256},
		{URL: "https://" + strings.Repeat("a", 2041), SHA256: someSHA256},
	} {
		if _, err := UserData(aDocument(), agent); err == nil {
			t.Errorf("no error for agent %+v", agent)
		}
	}
	for _, c := range "%^&!\"'<>|()[]{}*\\` \t\r\n\x00é" {
		agent := bootstrapv1.AgentSpec{URL: "https://example.com/" + string(c) + "a", SHA256: someSHA256}
		if _, err := UserData(aDocument(), agent); err == nil {
			t.Errorf("no error for %q in the URL", c)
		}
	}
}

func TestUserDataRefusesADocumentThatIsInvalidOrTooLarge(t *testing.T) {
	invalid := aDocument()
	invalid.Join.Token = ""
	if _, err := UserData(invalid, bootstrapv1.AgentSpec{}); err == nil {
		t.Error("no error for a document without token")
	}
	large := aDocument()
	for len(large.Join.CACertHashes) <= maxDocument/len(large.Join.CACertHashes[0]) {
		large.Join.CACertHashes = append(large.Join.CACertHashes, large.Join.CACertHashes...)
	}
	_, err := UserData(large, bootstrapv1.AgentSpec{})
	if tooLarge := (*TooLargeError)(nil); !errors.As(err, &tooLarge) || tooLarge.Size <= tooLarge.Limit {
		t.Errorf("no TooLargeError for a document of more than 1 MiB: %v", err)
	}
}

func TestReadDocumentReturnsTheDocument(t *testing.T) {
	want := aDocument()
	script := mustUserData(t, want, bootstrapv1.AgentSpec{URL: someURL, SHA256: someSHA256})
	lf := bytes.ReplaceAll(script, []byte("\r\n"), []byte("\n"))
	for name, data := range map[string][]byte{
		"as made":                  script,
		"with LF":                  lf,
		"with LF and CRLF again":   toCRLF(lf),
		"with lines at the end":    append(bytes.Clone(script), "\r\n\r\n"...),
		"without the last CRLF":    bytes.TrimRight(script, "\r\n"),
		"with spaces in its lines": bytes.ReplaceAll(script, []byte("\r\n"), []byte(" \r\n")),
	} {
		got, err := ReadDocument(data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !apiequality.Semantic.DeepEqual(got, want) {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestReadDocumentTellsForeignUserData(t *testing.T) {
	script := mustUserData(t, aDocument(), bootstrapv1.AgentSpec{})
	commands, document, _ := bytes.Cut(script, []byte("-----BEGIN"))
	for name, data := range map[string][]byte{
		"nothing":                      nil,
		"cloud-config":                 []byte("#cloud-config\nruncmd: []\n"),
		"PowerShell":                   []byte("#ps1_sysnative\nexit 0\n"),
		"another batch file":           commands,
		"the document alone":           append([]byte("-----BEGIN"), document...),
		"our script with a BOM":        append([]byte("\xef\xbb\xbf"), script...),
		"our script in a cloud-config": append([]byte("#cloud-config\n"), script...),
		"gzip":                         compress(script),
	} {
		if IsUserData(data) {
			t.Errorf("%s is taken for ours", name)
		}
		if _, err := ReadDocument(data); !errors.Is(err, ErrForeign) {
			t.Errorf("%s: got error %v", name, err)
		}
	}
}

func TestReadDocumentIsStrict(t *testing.T) {
	good, err := json.Marshal(aDocument())
	if err != nil {
		t.Fatal(err)
	}
	script := mustUserData(t, aDocument(), bootstrapv1.AgentSpec{})
	commands, _, _ := bytes.Cut(script, []byte("-----BEGIN"))
	with := func(payload []byte) []byte {
		return append(bytes.Clone(commands), pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: payload})...)
	}
	replace := func(from, to string) []byte { return compress([]byte(strings.Replace(string(good), from, to, 1))) }
	if _, err := ReadDocument(with(compress(good))); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"an unknown field":              with(replace(`{"kind"`, `{"sudo":true,"kind"`)),
		"a field in another case":       with(replace(`"token"`, `"Token"`)),
		"a field twice":                 with(replace(`{"kind"`, `{"kind":"a","kind"`)),
		"an invalid document":           with(replace(`"Auto"`, `"auto"`)),
		"data behind the JSON":          with(compress(append(bytes.Clone(good), "{}"...))),
		"YAML":                          with(compress([]byte("kind: NodeConfiguration\n"))),
		"no gzip":                       with(good),
		"cut gzip":                      with(compress(good)[:100]),
		"two gzip members":              with(append(compress(good), compress(nil)...)),
		"a decompression bomb":          with(compress(make([]byte, maxDocument+1))),
		"a second block":                append(with(compress(good)), with(compress(good))[len(commands):]...),
		"text behind the block":         append(bytes.Clone(script), "calc\r\n"...),
		"a block that is cut":           script[:len(script)-50],
		"a block that is changed":       bytes.Replace(script, []byte("H4sI"), []byte("H5sI"), 1),
		"a first block of another type": append(append(bytes.Clone(commands), "-----BEGIN X-----\n-----END X-----\n"...), script[len(commands):]...),
	} {
		if _, err := ReadDocument(data); err == nil || errors.Is(err, ErrForeign) {
			t.Errorf("%s: got error %v", name, err)
		} else if strings.Contains(err.Error(), "0123456789abcdef") {
			t.Errorf("%s: the error has a secret in it: %v", name, err)
		}
	}
}

func FuzzReadDocument(f *testing.F) {
	script, err := UserData(aDocument(), bootstrapv1.AgentSpec{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(script)
	f.Add(bytes.ReplaceAll(script, []byte("\r\n"), []byte("\n")))
	f.Add([]byte("#cloud-config\n"))
	f.Add([]byte("rem cmd\n-----BEGIN " + pemType + "-----\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, err := ReadDocument(data)
		if err != nil {
			return
		}
		again, err := ReadDocument(mustUserData(t, doc, bootstrapv1.AgentSpec{}))
		if err != nil || !apiequality.Semantic.DeepEqual(doc, again) {
			t.Errorf("%+v became %+v, %v", doc, again, err)
		}
	})
}

func FuzzUserDataRoundTrip(f *testing.F) {
	d := aDocument()
	f.Add(d.Cluster.Namespace, d.Cluster.Name, d.Cluster.KubernetesVersion, d.Node.Name, "a.b/c", "d", "os", "windows", "NoSchedule", "Auto",
		d.Join.APIServerEndpoint, d.Join.CACertHashes[0], d.Join.Token, "Auto", someURL, someSHA256)
	f.Add("a", "b.c", "v1.36.0-rc.1", "0-a", "x", "", "example.com/k", "", "NoExecute", "None",
		"[::1]:1", d.Join.CACertHashes[0], d.Join.Token, "Image", "", "")
	f.Add("-", "<url>", "v1", "%PATH%", "<", ">", "&", "|", "^", "!", "\r\n", "\x1a", "\x00", "URL", "https://<sha256>", "<source>")
	f.Fuzz(func(t *testing.T, namespace, cluster, version, name, labelKey, labelValue, taintKey, taintValue, effect, providerID,
		endpoint, hash, token, source, url, sha256 string,
	) {
		doc := aDocument()
		doc.Cluster = nodev1.ClusterInfo{Namespace: namespace, Name: cluster, KubernetesVersion: version}
		doc.Node = nodev1.NodeInfo{
			Name: name, Labels: map[string]string{labelKey: labelValue},
			Taints:     []corev1.Taint{{Key: taintKey, Value: taintValue, Effect: corev1.TaintEffect(effect)}},
			ProviderID: providerID,
		}
		doc.Join = nodev1.JoinInfo{APIServerEndpoint: endpoint, CACertHashes: []string{hash}, Token: token}
		script, err := UserData(doc, bootstrapv1.AgentSpec{Source: bootstrapv1.AgentSource(source), URL: url, SHA256: sha256})
		if err != nil {
			return
		}
		checkScript(t, script)
		for _, data := range [][]byte{script, bytes.ReplaceAll(script, []byte("\r\n"), []byte("\n"))} {
			got, err := ReadDocument(data)
			if err != nil {
				t.Fatal(err)
			}
			if !apiequality.Semantic.DeepEqual(got, doc) {
				t.Errorf("%+v became %+v", doc, got)
			}
		}
	})
}

func BenchmarkUserData(b *testing.B) {
	doc := aDocument()
	var script []byte
	for b.Loop() {
		script = mustUserData(b, doc, bootstrapv1.AgentSpec{})
	}
	metadata, err := Metadata("6f2c0f6e-5d0b-4d5e-9a3c-2f1f3f0b9f11", doc.Node.Name)
	if err != nil {
		b.Fatal(err)
	}
	info, err := GuestInfo(metadata, script)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(len(script)), "script-bytes")
	b.ReportMetric(float64(len(info[2].Value)), "guestinfo-bytes")
}

func BenchmarkReadDocument(b *testing.B) {
	script := mustUserData(b, aDocument(), bootstrapv1.AgentSpec{})
	for b.Loop() {
		if _, err := ReadDocument(script); err != nil {
			b.Fatal(err)
		}
	}
}

func mustUserData(tb testing.TB, doc *nodev1.NodeConfiguration, agent bootstrapv1.AgentSpec) []byte {
	tb.Helper()
	script, err := UserData(doc, agent)
	if err != nil {
		tb.Fatal(err)
	}
	return script
}
