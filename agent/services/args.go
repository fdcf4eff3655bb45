package services

import (
	"slices"
	"strings"
)

// MergeArgs returns flags with extra ones, each one argument. A flag among extra takes the place of the same flag in args,
// whether it is written with one dash or two, with = or with the value as the next argument; other arguments are appended.
func MergeArgs(args, extra []string) []string {
	out := groups(args)
	var appended [][]string
	for _, e := range groups(extra) {
		name := flagName(e[0])
		if name != "" {
			out = slices.DeleteFunc(out, func(g []string) bool { return flagName(g[0]) == name })
		}
		appended = append(appended, e)
	}
	return slices.Concat(append(out, appended...)...)
}

// groups returns arguments so that a flag and the value that follows it are together.
func groups(args []string) [][]string {
	var out [][]string
	for i := 0; i < len(args); i++ {
		group := args[i : i+1 : i+1]
		if flagName(args[i]) != "" && !strings.Contains(args[i], "=") && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			group = args[i : i+2 : i+2]
			i++
		}
		out = append(out, group)
	}
	return out
}

// flagName returns the name of a flag without dashes and value, or "" for what is no flag.
func flagName(arg string) string {
	if !strings.HasPrefix(arg, "-") {
		return ""
	}
	name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	return name
}
