package env

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/capw-dev/cluster-api-provider-windows/test/env/process"
)

// VCSim is the simulated vCenter (test/vcsim).
type VCSim struct {
	// URL of the SDK endpoint, without credentials; Host is its host:port.
	URL  string `json:"url"`
	Host string `json:"host"`

	// Thumbprint of the certificate that the endpoint presents.
	Thumbprint string `json:"thumbprint"`

	// Username and Password that a login needs.
	Username string `json:"username"`
	Password string `json:"password"`

	// Control is the base URL of the endpoint that drives the simulator: (*vcsim.Server).Control documents it.
	Control string `json:"control"`

	// Process is the running simulator.
	Process *process.Process `json:"-"`
}

func (e *Environment) startVCSim(ctx context.Context, built *builds) error {
	if err := built.await(ctx, vcsimBinary); err != nil {
		return err
	}
	p, err := e.runner.Start(process.Spec{
		Name: vcsimBinary, Path: e.path(vcsimBinary), Args: e.opts.VCSimArgs,
		Env: []string{"TMPDIR=" + e.Dir}, // its datastores are folders, which go with everything else
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	line, err := p.FirstLine(ctx)
	if err != nil {
		return err
	}
	v := &VCSim{Process: p}
	if err := json.Unmarshal([]byte(line), v); err != nil {
		return fmt.Errorf("reading the announcement of %s: %w: %q", vcsimBinary, err, line)
	}
	e.VCSim = v
	e.progressf("simulated vCenter ready: %s", v.URL)
	return nil
}
