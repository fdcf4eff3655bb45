package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

const (
	// bufferSize of reads and writes.
	bufferSize = 1 << 20
	// segment is how much of a download a power cut may cost.
	segment = 16 << 20
	// progressEvery is how often a download says how far it is.
	progressEvery = 10 * time.Second
	// tries is how often something is tried that another try rarely changes: a server that refuses, a wrong checksum.
	tries = 3
)

// errStalled: the server sends nothing.
var errStalled = errors.New("no data came")

// errStartOver: what is there cannot be continued; it is gone now.
var errStartOver = errors.New("the server cannot continue the download")

// Downloader downloads files to the machine.
type Downloader struct {
	Client *http.Client
	Files  host.Files
	// MaxBytes of one file.
	MaxBytes int64
	// Stall is the time without a byte after which a connection is given up.
	Stall time.Duration
}

// Get downloads a file to path, whose folder exists. What is at path is continued, if the server can, after its checksum has
// been computed anew; once Get has succeeded it is the file with the SHA-256 sum, in lower-case hexadecimal.
//
// Errors name the URL without secrets and are of code ArtifactUnreachable (what has arrived is kept), ArtifactNotPlaced, and
// after some tries ArtifactRefused, ArtifactChecksum or ArtifactTooLarge.
func (d *Downloader) Get(ctx context.Context, url, path, sum string) error {
	log := logr.FromContextOrDiscard(ctx).WithValues("url", Redact(url))
	ctx = logr.NewContext(ctx, log)
	for try := 1; ; try++ {
		err := d.try(ctx, url, path, sum)
		if err == nil || ctx.Err() != nil || try == tries || !worthAnother(err) {
			return err
		}
		log.Info("Download failed, trying again", "try", try, "error", err.Error())
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(try) * 2 * time.Second):
		}
	}
}

func worthAnother(err error) bool {
	info, _ := codes.Of(err)
	return errors.Is(err, errStartOver) || info.Code == codes.ArtifactRefused || info.Code == codes.ArtifactChecksum
}

// partial is what has arrived.
type partial struct {
	path string
	size int64
	hash hash.Hash
	// tag is the server's strong entity tag for the content; empty if it has none.
	tag string
}

func (p *partial) sum() string { return hex.EncodeToString(p.hash.Sum(nil)) }

func (p *partial) tagPath() string { return p.path + ".etag" }

// try makes one request for what is missing.
func (d *Downloader) try(ctx context.Context, url, path, sum string) error {
	have, err := d.resume(ctx, path)
	if err != nil {
		return codes.New(codes.ArtifactNotPlaced, "reading what has arrived of %s: %w", Redact(url), err)
	}
	if have.size > 0 && have.sum() == sum {
		return d.finish(ctx, have)
	}

	// The watch ends the request when nothing comes any more, also before the answer begins.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(d.Stall, func() { cancel(errStalled) })
	defer watch.Stop()

	response, err := d.request(ctx, url, have)
	if err != nil {
		return unreachable(ctx, url, err)
	}
	defer func() { _ = response.Body.Close() }()
	if err := d.accept(ctx, url, response, have); err != nil {
		return err
	}
	if err := d.receive(ctx, url, response, have, watch); err != nil {
		return err
	}
	if got := have.sum(); got != sum {
		if err := d.discard(ctx, have); err != nil {
			return err
		}
		return codes.New(codes.ArtifactChecksum, "%s has the SHA-256 sum %s, and the document says %s", Redact(url), got, sum)
	}
	return d.finish(ctx, have)
}

// resume reads what is there.
func (d *Downloader) resume(ctx context.Context, path string) (*partial, error) {
	have := &partial{path: path, hash: sha256.New()}
	file, err := d.Files.Open(ctx, path)
	if errors.Is(err, fs.ErrNotExist) {
		return have, nil
	}
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	defer func() { _ = file.Close() }()
	if have.size, err = io.CopyBuffer(have.hash, file, make([]byte, bufferSize)); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	tag, err := d.Files.Read(ctx, have.tagPath())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading %s: %w", have.tagPath(), err)
	}
	have.tag = string(tag)
	return have, nil
}

func (d *Downloader) request(ctx context.Context, url string, have *partial) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if have.size > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", have.size))
		if have.tag != "" { // the whole file comes if it is another by now
			request.Header.Set("If-Range", have.tag)
		}
	}
	return d.Client.Do(request)
}

// accept judges the head of an answer, and forgets what is there if all comes anew.
func (d *Downloader) accept(ctx context.Context, url string, response *http.Response, have *partial) error {
	switch status := response.StatusCode; {
	case status == http.StatusPartialContent && have.size > 0:
		if !strings.HasPrefix(response.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", have.size)) {
			return d.startOver(ctx, url, have)
		}
	case status == http.StatusOK:
		if have.size > 0 {
			if err := d.discard(ctx, have); err != nil {
				return err
			}
		}
		have.tag = response.Header.Get("Etag")
		if have.tag != "" && !strings.HasPrefix(have.tag, "W/") {
			if err := d.Files.Write(ctx, have.tagPath(), []byte(have.tag), host.ACLSystem); err != nil {
				return codes.New(codes.ArtifactNotPlaced, "writing %s: %w", have.tagPath(), err)
			}
		}
	case status == http.StatusRequestedRangeNotSatisfiable && have.size > 0:
		return d.startOver(ctx, url, have)
	case status >= 500, slices.Contains([]int{http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests}, status):
		return codes.New(codes.ArtifactUnreachable, "%s: the server answers %s", Redact(url), response.Status)
	default:
		return codes.New(codes.ArtifactRefused, "%s: the server answers %s", Redact(url), response.Status)
	}
	if all := have.size + response.ContentLength; response.ContentLength > 0 && all > d.MaxBytes {
		return codes.New(codes.ArtifactTooLarge, "%s has %d bytes, and at most %d are accepted", Redact(url), all, d.MaxBytes)
	}
	return nil
}

// receive appends the body of an answer.
func (d *Downloader) receive(ctx context.Context, url string, response *http.Response, have *partial, watch *time.Timer) error {
	log := logr.FromContextOrDiscard(ctx)
	out := &segmented{ctx: ctx, files: d.Files, path: have.path}
	defer func() { _ = out.Close() }()
	buffer := make([]byte, bufferSize)
	begin, said, resumedAt := time.Now(), time.Now(), have.size
	for {
		n, readErr := fill(response.Body, buffer, func() { watch.Reset(d.Stall) })
		watch.Stop()
		if have.size += int64(n); have.size > d.MaxBytes {
			return errors.Join(codes.New(codes.ArtifactTooLarge, "%s has more than the %d bytes that are accepted", Redact(url), d.MaxBytes), d.discard(ctx, have))
		}
		have.hash.Write(buffer[:n])
		if _, err := out.Write(buffer[:n]); err != nil {
			return codes.New(codes.ArtifactNotPlaced, "writing %s: %w", have.path, err)
		}
		if time.Since(said) >= progressEvery {
			said = time.Now()
			log.Info("Downloading", "bytes", have.size, "of", resumedAt+response.ContentLength)
		}
		switch {
		case errors.Is(readErr, io.EOF):
			if err := out.Close(); err != nil {
				return codes.New(codes.ArtifactNotPlaced, "writing %s: %w", have.path, err)
			}
			log.Info("Downloaded", "bytes", have.size, "resumedAt", resumedAt, "took", time.Since(begin).Round(time.Millisecond))
			return nil
		case readErr != nil:
			return unreachable(ctx, url, readErr)
		}
	}
}

// fill reads until the buffer is full or there is an error, so that few and large writes follow. It calls begin at each read.
func fill(r io.Reader, buffer []byte, begin func()) (n int, err error) {
	for n < len(buffer) && err == nil {
		var m int
		begin()
		m, err = r.Read(buffer[n:])
		n += m
	}
	return n, err
}

func (d *Downloader) startOver(ctx context.Context, url string, have *partial) error {
	if err := d.discard(ctx, have); err != nil {
		return err
	}
	return codes.New(codes.ArtifactUnreachable, "%s: %w", Redact(url), errStartOver)
}

// discard forgets what is there.
func (d *Downloader) discard(ctx context.Context, have *partial) error {
	for _, path := range []string{have.tagPath(), have.path} {
		if err := d.Files.Remove(ctx, path); err != nil {
			return codes.New(codes.ArtifactNotPlaced, "removing %s: %w", path, err)
		}
	}
	have.size, have.tag = 0, ""
	have.hash.Reset()
	return nil
}

func (d *Downloader) finish(ctx context.Context, have *partial) error {
	if err := d.Files.Remove(ctx, have.tagPath()); err != nil {
		return codes.New(codes.ArtifactNotPlaced, "removing %s: %w", have.tagPath(), err)
	}
	return nil
}

func unreachable(ctx context.Context, url string, err error) error {
	if errors.Is(context.Cause(ctx), errStalled) {
		err = errStalled
	}
	return codes.New(codes.ArtifactUnreachable, "%s: %w", Redact(url), withoutURL(err))
}

// segmented appends to a file, and closes it now and then, so that what was written before outlives a power cut.
type segmented struct {
	ctx   context.Context //nolint:containedctx // of one download
	files host.Files
	path  string
	file  io.WriteCloser
	n     int
}

func (s *segmented) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if s.file == nil {
		file, err := s.files.Append(s.ctx, s.path, host.ACLSystem)
		if err != nil {
			return 0, err
		}
		s.file, s.n = file, 0
	}
	n, err := s.file.Write(b)
	if s.n += n; err == nil && s.n >= segment {
		err = s.Close()
	}
	return n, err
}

func (s *segmented) Close() error {
	if s.file == nil {
		return nil
	}
	file := s.file
	s.file = nil
	return file.Close()
}
