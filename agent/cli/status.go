package cli

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// statusLine is one status for people, on one line.
func statusLine(s *nodev1.BootStatus) string {
	line := fmt.Sprintf("%s  %-9s %s", s.Time.UTC().Format(time.RFC3339), s.State, s.Phase)
	if s.Step != "" {
		line += ", " + s.Step
	}
	if s.Attempt > 1 {
		line += fmt.Sprintf(", attempt %d", s.Attempt)
	}
	if s.Code != "" {
		line += fmt.Sprintf(": %s %s", s.Code, codes.Lookup(codes.Code(s.Code)).Name)
	}
	if s.Message != "" {
		line += ": " + s.Message
	}
	return line
}

// writeStatus is one status for people, with what to do about it.
func writeStatus(w io.Writer, s *nodev1.BootStatus) error {
	sayf(w, "Node     %s\nState    %s\nPhase    %s\n", s.Node, s.State, s.Phase)
	if s.Step != "" {
		sayf(w, "Step     %s (attempt %d)\n", s.Step, s.Attempt)
	}
	sayf(w, "Started  %s, boot %d\nTold     %s\n", s.Started.UTC().Format(time.RFC3339), s.Boots, s.Time.UTC().Format(time.RFC3339))
	for _, phase := range slices.SortedFunc(maps.Keys(s.Elapsed), func(a, b string) int { return int(s.Elapsed[b] - s.Elapsed[a]) }) {
		sayf(w, "  %-10s %s\n", phase, time.Duration(s.Elapsed[phase])*time.Millisecond)
	}
	if s.Code != "" {
		i := codes.Lookup(codes.Code(s.Code))
		sayf(w, "Error    %s %s: %s\n         %s\nRemedy   %s\n", i.Code, i.Name, s.Message, i.Meaning, i.Remedy)
	}
	_, err := fmt.Fprintf(w, "Agent    %s\n", s.Agent)
	return err
}

// ended returns nil when the first boot is done, and else the exit code that says how it stands.
func ended(s *nodev1.BootStatus) error {
	switch s.State {
	case nodev1.BootDone:
		return nil
	case nodev1.BootFailed:
		return &exitError{code: ExitBootFailed}
	default:
		return &exitError{code: ExitNotDone}
	}
}

func exitCode(err error) int {
	if own := (*exitError)(nil); errors.As(err, &own) {
		return own.code
	}
	return ExitFailed
}
