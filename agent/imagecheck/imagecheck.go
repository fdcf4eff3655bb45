// Package imagecheck tells what an image lacks to become a node: when it is built, or on a machine that was made from it. It
// changes nothing.
package imagecheck

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// Options of Check.
type Options struct {
	// KubernetesVersion, such as v1.36.3, that the image shall be for. Empty: the image may leave out Kubernetes' programs, as
	// nodes can download them.
	KubernetesVersion string
}

// Report is what was found.
type Report struct {
	// Product and Build of Windows, Platform by its firmware.
	Product  string `json:"product"`
	Build    string `json:"build"`
	Platform string `json:"platform"`
	// Versions of the programs in the image, by name.
	Versions map[string]string `json:"versions,omitempty"`
	// Findings, the worst first.
	Findings []Finding `json:"findings"`
}

// Finding is something that is worth knowing about the image.
type Finding struct {
	Severity Severity `json:"severity"`
	// ID in CamelCase; it keeps its meaning in later releases.
	ID string `json:"id"`
	// What was found, Remedy what to do about it.
	What   string `json:"what"`
	Remedy string `json:"remedy"`
}

// Severity of a finding.
type Severity string

// Severities.
const (
	// Error: no machine that is made from the image becomes a node.
	Error Severity = "Error"
	// Warning: some do not, or they take longer, or are less safe.
	Warning Severity = "Warning"
	// Info: nothing needs to be done.
	Info Severity = "Info"
)

// OK says whether there is no Error.
func (r Report) OK() bool {
	return !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == Error })
}

// Check looks at a machine.
func Check(ctx context.Context, h *host.Host, o Options) Report {
	c := &checker{Host: h, o: o, report: Report{Versions: map[string]string{}, Findings: []Finding{}}}
	info, err := h.System.Info(ctx)
	if err != nil {
		c.unreadable("what machine this is", err)
		return c.report
	}
	c.info = info
	c.report.Product, c.report.Build = info.ProductName, fmt.Sprintf("%s.%d", info.Build, info.Revision)
	c.report.Platform = strings.TrimSpace(info.Manufacturer + " " + info.Product)
	for _, check := range []func(context.Context){
		c.windows, c.sealing, c.features, c.pageFile, c.updates, c.administrator, c.defender,
		c.cloudbaseInit, c.answerFiles, c.vmwareTools,
		c.programs, c.plugins, c.services, c.formerNode, c.agent,
	} {
		check(ctx)
	}
	order := []Severity{Error, Warning, Info}
	slices.SortStableFunc(c.report.Findings, func(a, b Finding) int {
		return slices.Index(order, a.Severity) - slices.Index(order, b.Severity)
	})
	return c.report
}

// checker collects findings.
type checker struct {
	*host.Host

	o      Options
	info   host.Info
	report Report
}

// callTimeout bounds one program that is asked for its version.
const callTimeout = 30 * time.Second

func (c *checker) add(s Severity, id, remedy, what string, args ...any) {
	c.report.Findings = append(c.report.Findings, Finding{Severity: s, ID: id, What: fmt.Sprintf(what, args...), Remedy: remedy})
}

// unreadable reports that something could not be looked at.
func (c *checker) unreadable(what string, err error) {
	c.add(Error, "Unreadable", "Run as an administrator; if it was, look into the System event log.", "%s cannot be read: %v", what, err)
}

// vmware says whether the machine is a VM of vSphere.
func (c *checker) vmware() bool { return strings.HasPrefix(c.info.Manufacturer, "VMware") }

// file returns the content of a file, and whether there is one.
func (c *checker) file(ctx context.Context, path string) (string, bool) {
	content, err := c.Files.Read(ctx, path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.unreadable(path, err)
	}
	return string(content), err == nil
}

// exists says whether there is a file or folder.
func (c *checker) exists(ctx context.Context, path string) bool {
	_, err := c.Files.Stat(ctx, path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.unreadable(path, err)
	}
	return err == nil
}

// value returns a registry value, and whether there is one.
func (c *checker) value(ctx context.Context, key, name string) (host.Value, bool) {
	v, err := c.Registry.Get(ctx, key, name)
	if err != nil && !errors.Is(err, host.ErrNotFound) {
		c.unreadable(key, err)
	}
	return v, err == nil
}

// service returns a service, and whether there is one.
func (c *checker) service(ctx context.Context, name string) (host.Service, bool) {
	s, err := c.Services.Get(ctx, name)
	if err != nil && !errors.Is(err, host.ErrNotFound) {
		c.unreadable("service "+name, err)
	}
	return s, err == nil
}
