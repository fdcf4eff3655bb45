package faultloop

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
)

// shownDifferences is how many differences are told in full.
const shownDifferences = 3

// Diff tells the first differences of two snapshots, except what ignore says; "" if there is none.
func Diff(want, got sim.Snapshot, ignore func(key string) bool) string {
	keys := maps.Clone(want)
	maps.Copy(keys, got)
	differ := []string{}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		w, wanted := want[key]
		g, have := got[key]
		if (w != g || wanted != have) && (ignore == nil || !ignore(key)) {
			differ = append(differ, describe(key, w, wanted, g, have))
		}
	}
	if more := len(differ) - shownDifferences; more > 0 {
		differ = append(differ[:shownDifferences], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(differ, "\n")
}

func describe(key, want string, wanted bool, got string, have bool) string {
	switch {
	case !have:
		return fmt.Sprintf("%s is missing; it should be %s", key, excerpt(want, 0))
	case !wanted:
		return fmt.Sprintf("%s should not be; it is %s", key, excerpt(got, 0))
	}
	at := 0
	for at < min(len(want), len(got)) && want[at] == got[at] {
		at++
	}
	return fmt.Sprintf("%s differs at byte %d\n  it is     %s\n  should be %s", key, at, excerpt(got, at), excerpt(want, at))
}

// excerpt returns what is around a place.
func excerpt(text string, at int) string {
	const before, after = 40, 160
	from, to := max(0, at-before), min(len(text), at+after)
	out := fmt.Sprintf("%q", text[from:to])
	if from > 0 {
		out = "…" + out
	}
	if to < len(text) {
		out += "…"
	}
	return out
}
