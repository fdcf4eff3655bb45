package artifact

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// NewClient returns a client for downloads that connects through dialer, asks the proxy as curl does (NO_PROXY with names,
// suffixes, CIDRs and *), and trusts the roots of the system and those given as PEM.
func NewClient(dialer host.Dialer, proxy nodev1.ProxyInfo, trustedCAs []string) (*http.Client, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("reading the system's root certificates: %w", err)
	}
	for i, ca := range trustedCAs {
		if !roots.AppendCertsFromPEM([]byte(ca)) {
			return nil, fmt.Errorf("trusted CA %d holds no certificate", i)
		}
	}
	rules := (&httpproxy.Config{
		HTTPProxy: proxy.HTTP, HTTPSProxy: proxy.HTTPS, NoProxy: strings.Join(proxy.NoProxy, ","),
	}).ProxyFunc()
	return &http.Client{Transport: &http.Transport{
		DialContext:         dialer.DialContext,
		Proxy:               func(r *http.Request) (*url.URL, error) { return rules(r.URL) },
		TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: 15 * time.Second,
		ForceAttemptHTTP2:   true,
		DisableCompression:  true, // ranges and checksums are of the file as it is
	}}, nil
}

// Redact returns a URL for logs and errors: without user, password and query, where pre-signed URLs have their secrets.
func Redact(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "<unreadable URL>"
	}
	u.User, u.RawQuery, u.ForceQuery, u.Fragment = nil, "", false, ""
	return u.String()
}

// withoutURL returns the cause of an error of net/http, whose text has the whole URL in it.
func withoutURL(err error) error {
	if inner := (*url.Error)(nil); errors.As(err, &inner) {
		return inner.Err
	}
	return err
}
