package winhost

import (
	"slices"
	"strings"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// aclOf returns the access control that a security descriptor, in the text form that Windows writes, stands for:
// ACLInherited when it is none of ours. expect gives the text that Windows writes for an SDDL of ours, which may name
// rights and groups in another way.
func aclOf(descriptor string, folder bool, expect func(sddl string) string) host.ACL {
	for _, acl := range []host.ACL{host.ACLSystem, host.ACLUsersRead} {
		if equalDACL(descriptor, expect(acl.SDDL(folder))) {
			return acl
		}
	}
	return host.ACLInherited
}

// equalDACL says whether two security descriptors in text form grant the same, and are both protected. The order of
// entries that only allow has no meaning.
func equalDACL(a, b string) bool {
	protectedA, entriesA := parseDACL(a)
	protectedB, entriesB := parseDACL(b)
	return protectedA && protectedB && slices.Equal(entriesA, entriesB)
}

// parseDACL returns the entries of the part "D:<flags>(entry)(entry)" of a security descriptor, sorted.
func parseDACL(descriptor string) (protected bool, entries []string) {
	_, dacl, found := strings.Cut(descriptor, "D:")
	if !found {
		return false, nil
	}
	dacl, _, _ = strings.Cut(dacl, "S:") // no entry of ours holds a colon
	flags, rest, _ := strings.Cut(dacl, "(")
	for entry := range strings.SplitSeq(rest, "(") {
		if entry = strings.TrimSuffix(entry, ")"); entry != "" {
			entries = append(entries, entry)
		}
	}
	slices.Sort(entries)
	return strings.Contains(flags, "P"), entries
}
