// Package control drives a simulated vCenter that runs as a process of its own, through its control endpoint.
package control

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/capw-dev/cluster-api-provider-windows/test/vcsim"
)

// Client of the control endpoint. It goes around the SOAP endpoint, so its calls are not counted.
type Client struct {
	// URL of the control endpoint, such as http://127.0.0.1:8990.
	URL string
}

// Calls returns the counted requests.
func (c *Client) Calls(ctx context.Context) (calls vcsim.Calls, err error) {
	return calls, c.do(ctx, http.MethodGet, "/calls", nil, &calls)
}

// ResetCalls sets the counts to zero.
func (c *Client) ResetCalls(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, "/calls/reset", nil, nil)
}

// VMs returns all virtual machines except templates, by name.
func (c *Client) VMs(ctx context.Context) (vms []vcsim.VM, err error) {
	return vms, c.do(ctx, http.MethodGet, "/vms", nil, &vms)
}

// DestroyVM destroys a VM behind everyone's back.
func (c *Client) DestroyVM(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodPost, "/vms/destroy", url.Values{"name": {name}}, nil)
}

// CreateForeignVM creates a VM that nobody owns.
func (c *Client) CreateForeignVM(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodPost, "/vms/foreign", url.Values{"name": {name}}, nil)
}

// SetCloneDelay sets how long a clone task takes before its VM exists, and removes the other delays.
func (c *Client) SetCloneDelay(ctx context.Context, d time.Duration) error {
	return c.do(ctx, http.MethodPost, "/delays", url.Values{"clone": {d.String()}}, nil)
}

// FailClones fails the next n clone tasks with a fault whose cause carries the message.
func (c *Client) FailClones(ctx context.Context, n int, message string) error {
	return c.do(ctx, http.MethodPost, "/clones/fail", url.Values{"times": {fmt.Sprint(n)}, "message": {message}}, nil)
}

// Sessions returns the sessions of users.
func (c *Client) Sessions(ctx context.Context) (sessions []json.RawMessage, err error) {
	return sessions, c.do(ctx, http.MethodGet, "/sessions", nil, &sessions)
}

func (c *Client) do(ctx context.Context, method, path string, query url.Values, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, c.URL+path+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("calling the simulated vCenter: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("reading the answer to %s %s: %w", method, path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, body)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("decoding the answer to %s %s: %w", method, path, err)
	}
	return nil
}
