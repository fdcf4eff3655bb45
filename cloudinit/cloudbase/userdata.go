package cloudbase

import (
	"bytes"
	"compress/gzip"
	_ "embed" // for firstboot.cmd
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	kjson "sigs.k8s.io/json"

	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// Exit codes of the first-boot script's own failures; cloudbase-init logs them and gives none of them a meaning.
const (
	// ExitAgentMissing: there is no agent in any place where it may be.
	ExitAgentMissing = 70
	// ExitNoFolder: the folder for the download cannot be made, or not be closed to ordinary users.
	ExitNoFolder = 71
	// ExitDownloadFailed: the agent cannot be downloaded.
	ExitDownloadFailed = 72
	// ExitChecksumMismatch: what was downloaded is not the agent that was asked for.
	ExitChecksumMismatch = 73
)

const (
	// firstLine makes cloudbase-init take the user data for a batch file.
	firstLine = "rem cmd"
	// pemType names the block with the node document.
	pemType = "CAPW NODE CONFIGURATION"
	// maxDocument bounds the JSON of a node document, in bytes; a Secret cannot be larger either.
	maxDocument = 1 << 20
)

// ErrForeign says that user data was not made by this package.
var ErrForeign = errors.New("not user data of Cluster API Provider Windows")

//go:embed firstboot.cmd
var firstBoot string

// What the CRD allows in AgentSpec. cmd.exe gives no meaning to any of these characters between quotation marks, and
// curl.exe none at all; "%", "^", "&", "!" and the quotation mark are not among them.
var (
	urlPattern    = regexp.MustCompile(`^https?://[A-Za-z0-9._~:/?#@$,;=+-]+$`)
	sha256Pattern = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// UserData returns the batch file that makes a node of a booted Windows according to doc, with the agent from where
// agent says. It is ASCII with CRLF line ends: without them cmd.exe may miss a label. It holds the bootstrap token.
//
// An error says what is wrong with doc or agent; it is a *TooLargeError if doc exceeds 1 MiB of JSON.
func UserData(doc *nodev1.NodeConfiguration, agent bootstrapv1.AgentSpec) ([]byte, error) {
	if err := doc.Validate(); err != nil {
		return nil, fmt.Errorf("invalid node document: %w", err)
	}
	if agent.Source == "" {
		agent.Source = bootstrapv1.AgentAuto
	}
	if err := validateAgent(agent); err != nil {
		return nil, fmt.Errorf("invalid agent: %w", err)
	}
	document, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encoding node document: %w", err)
	}
	if len(document) > maxDocument {
		return nil, &TooLargeError{What: "node document", Size: len(document), Limit: maxDocument}
	}

	script := strings.NewReplacer("<source>", string(agent.Source), "<url>", agent.URL, "<sha256>", agent.SHA256).Replace(firstBoot)
	block := pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: compress(document)})
	return toCRLF(append([]byte(script), block...)), nil
}

// IsUserData says whether data was made by UserData, in either form of line ends. Other bootstrap providers make
// cloud-config and the like.
func IsUserData(data []byte) bool {
	return bytes.HasPrefix(data, []byte(firstLine)) && bytes.Contains(data, []byte("\n-----BEGIN "+pemType+"-----"))
}

// ReadDocument returns the node document that UserData put into userData, in either form of line ends. It is strict: a
// document with unknown or repeated fields, with anything behind it, or that does not validate is refused.
// The error is ErrForeign if UserData did not make userData.
func ReadDocument(userData []byte) (*nodev1.NodeConfiguration, error) {
	if !IsUserData(userData) {
		return nil, ErrForeign
	}
	block, rest := pem.Decode(userData)
	if block == nil || block.Type != pemType || len(block.Headers) > 0 {
		return nil, errors.New("the node document in the user data is damaged")
	}
	if len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("the user data goes on behind the node document")
	}
	document, err := decompress(block.Bytes, maxDocument)
	if err != nil {
		return nil, fmt.Errorf("decompressing node document: %w", err)
	}
	doc := &nodev1.NodeConfiguration{}
	strictErrs, err := kjson.UnmarshalStrict(document, doc)
	if err := errors.Join(append(strictErrs, err)...); err != nil {
		return nil, fmt.Errorf("decoding node document: %w", err)
	}
	if err := doc.Validate(); err != nil {
		return nil, fmt.Errorf("invalid node document: %w", err)
	}
	return doc, nil
}

// validateAgent repeats the rules of the CRD: the values become part of a script that runs as an administrator.
func validateAgent(agent bootstrapv1.AgentSpec) error {
	switch agent.Source {
	case bootstrapv1.AgentAuto, bootstrapv1.AgentImage, bootstrapv1.AgentMedia, bootstrapv1.AgentURL:
	default:
		return fmt.Errorf("source %q is none of Auto, Image, Media, URL", agent.Source)
	}
	if agent.URL == "" && agent.SHA256 == "" {
		if agent.Source == bootstrapv1.AgentURL {
			return errors.New("source URL needs url and sha256")
		}
		return nil
	}
	if agent.Source == bootstrapv1.AgentImage || agent.Source == bootstrapv1.AgentMedia {
		return fmt.Errorf("url is read only with source Auto or URL, not %s", agent.Source)
	}
	if !urlPattern.MatchString(agent.URL) || len(agent.URL) > 2048 {
		return fmt.Errorf("url %q must match %s and have at most 2048 characters", agent.URL, urlPattern)
	}
	if !sha256Pattern.MatchString(agent.SHA256) {
		return fmt.Errorf("sha256 %q must be 64 lower-case hexadecimal digits", agent.SHA256)
	}
	return nil
}

// toCRLF gives every line the end that cmd.exe is made for.
func toCRLF(text []byte) []byte {
	return bytes.ReplaceAll(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), []byte("\n"), []byte("\r\n"))
}

// compress returns the gzip of data. It holds neither name nor time, so that it depends on data alone.
func compress(data []byte) []byte {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(fmt.Sprintf("gzip to memory: %v", err)) // a constant level and a buffer cannot fail
	}
	return out.Bytes()
}

// decompress is the inverse of compress. It refuses more than limit bytes of output, and anything behind the gzip member.
func decompress(data []byte, limit int64) ([]byte, error) {
	in := bytes.NewReader(data)
	r, err := gzip.NewReader(in)
	if err != nil {
		return nil, err
	}
	r.Multistream(false)
	out, err := io.ReadAll(io.LimitReader(r, limit+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(out)) > limit:
		return nil, fmt.Errorf("more than %d bytes", limit)
	case in.Len() > 0:
		return nil, errors.New("data behind the end")
	}
	return out, nil
}
