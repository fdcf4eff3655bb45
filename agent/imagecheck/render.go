package imagecheck

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// WriteJSON writes the report for programs, with a field "ok" that says what OK does.
func (r Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(struct {
		OK bool `json:"ok"`
		Report
	}{r.OK(), r})
}

// WriteTable writes the report for people.
func (r Report) WriteTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s) on %s\n", r.Product, r.Build, r.Platform)
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		fmt.Fprintf(&b, "%s %s\n", name, r.Versions[name])
	}
	if len(r.Findings) > 0 {
		b.WriteByte('\n')
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(t, "SEVERITY\tID\tWHAT") // to memory
		for _, f := range r.Findings {
			_, _ = fmt.Fprintf(t, "%s\t%s\t%s\n\t\t%s\n", f.Severity, f.ID, f.What, "-> "+f.Remedy)
		}
		_ = t.Flush()
	}
	count := map[Severity]int{}
	for _, f := range r.Findings {
		count[f.Severity]++
	}
	fmt.Fprintf(&b, "\n%d errors, %d warnings\n", count[Error], count[Warning])
	_, err := io.WriteString(w, b.String())
	return err
}
