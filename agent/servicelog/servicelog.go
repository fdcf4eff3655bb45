// Package servicelog reads the end of a service's log for error messages.
package servicelog

import (
	"bytes"
	"context"
	"io"
	"regexp"
	"strings"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
)

// readBytes is how much of the end of a log is looked at, maxBytes how much of it a message holds.
const (
	readBytes = 16 << 10
	maxBytes  = 400
)

// Last returns what a service said last, in one line without the secrets: its last error if there is one, else its last line;
// empty if there is no log, or it cannot be read.
func Last(ctx context.Context, files host.Files, service string, secrets []string) string {
	r, err := files.Open(ctx, layout.Log(service))
	if err != nil {
		return ""
	}
	defer r.Close() //nolint:errcheck // it was only read
	end, err := tail(r)
	if err != nil {
		return ""
	}
	return LastError(end, secrets)
}

// tail returns the end of what r gives.
func tail(r io.Reader) ([]byte, error) {
	var end []byte
	buf := make([]byte, readBytes)
	for {
		n, err := r.Read(buf)
		end = append(end, buf[:n]...)
		end = end[max(0, len(end)-readBytes):]
		switch {
		case err == io.EOF:
			return end, nil
		case err != nil:
			return nil, err
		}
	}
}

// LastError returns the last line of an output that looks like an error, else its last line, without secrets and shortened.
func LastError(output []byte, secrets []string) string {
	// As klog, logrus and kubeadm write them. Usage texts often follow the error.
	looksLikeError := regexp.MustCompile(`^[EF]\d{4} |level=(error|fatal)|(?i)^\s*\[?(error|fatal|panic)\b`)
	var last, lastError string
	for line := range bytes.Lines(output) {
		text := strings.TrimSpace(string(line))
		if text == "" {
			continue
		}
		last = text
		if looksLikeError.MatchString(text) {
			lastError = text
		}
	}
	if lastError == "" {
		lastError = last
	}
	lastError = Redact(lastError, secrets)
	if len(lastError) > maxBytes {
		lastError = strings.ToValidUTF8(lastError[:maxBytes], "") + "..."
	}
	return lastError
}

// Redact replaces secrets in a text.
func Redact(text string, secrets []string) string {
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "<hidden>")
		}
	}
	return text
}
