package kubeadm

import (
	"fmt"
	"strconv"
	"strings"
)

// FlagsVariable is the variable in the file of kubelet flags.
const FlagsVariable = "KUBELET_KUBEADM_ARGS"

// ParseFlags returns the kubelet flags in the file kubeadm-flags.env. kubeadm writes them as one Go string literal, so that
// each backslash is doubled, and joined with spaces, so that a value with a space cannot be told from two flags: that is an
// error.
func ParseFlags(content []byte) ([]string, error) {
	for line := range strings.Lines(string(content)) {
		literal, ours := strings.CutPrefix(strings.TrimSpace(line), FlagsVariable+"=")
		if !ours {
			continue
		}
		joined, err := strconv.Unquote(literal)
		if err != nil {
			return nil, fmt.Errorf("%s is no Go string: %s", FlagsVariable, literal)
		}
		var flags []string
		for flag := range strings.FieldsSeq(joined) {
			if !strings.HasPrefix(flag, "--") || len(flag) == len("--") {
				return nil, fmt.Errorf("%s: %q is no flag, but part of a value with spaces: %s", FlagsVariable, flag, joined)
			}
			flags = append(flags, flag)
		}
		return flags, nil
	}
	return nil, fmt.Errorf("there is no %s", FlagsVariable)
}
