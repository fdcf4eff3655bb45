package simkubelet

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// api is an API server as somebody.
type api struct {
	server, bearer string
	http           *http.Client
	transport      *http.Transport
}

func newAPI(network host.Network, server string, ca []byte, bearer string, certificate, key []byte) (*api, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("the kubeconfig has no CA")
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	if len(certificate) > 0 {
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	transport := &http.Transport{DialContext: network.DialContext, TLSClientConfig: config, TLSHandshakeTimeout: 10 * time.Second}
	return &api{server: server, bearer: bearer, transport: transport, http: &http.Client{Transport: transport, Timeout: 10 * time.Second}}, nil
}

// Close ends its connections.
func (a *api) Close() { a.transport.CloseIdleConnections() }

// do sends in, if there is one, and reads out. A Status in answer is an error of package apierrors.
func (a *api) do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(raw)
	}
	request, err := http.NewRequestWithContext(ctx, method, a.server+path, body)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "kubelet/simulated")
	if a.bearer != "" {
		request.Header.Set("Authorization", "Bearer "+a.bearer)
	}
	response, err := a.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= http.StatusBadRequest {
		status := metav1.Status{}
		if err := json.Unmarshal(raw, &status); err != nil || status.Status != metav1.StatusFailure {
			return fmt.Errorf("%s %s: %s", method, path, response.Status)
		}
		return &apierrors.StatusError{ErrStatus: status}
	}
	return json.Unmarshal(raw, out)
}
