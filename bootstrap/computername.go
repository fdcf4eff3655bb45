package bootstrap

import (
	"crypto/sha256"
	"fmt"
	"math/big"
	"strings"
)

const (
	// minComputerName keeps clear of the two-letter abbreviations of security identifiers (BA, SY, ...), which Active
	// Directory cannot tell from a computer of that name; DNS host names have two characters at least.
	minComputerName = 3
	// maxComputerName is NetBIOS' limit. cloudbase-init and Windows cut longer names, which makes them collide.
	maxComputerName = 15
	// maxPrefix leaves at least 9 characters of base 36, 46.5 bits, for the hash.
	maxPrefix = 5
	// emptyPrefix stands where a machine name has no usable character.
	emptyPrefix = "win"
)

// ComputerName returns the name that the VM, the Windows computer and the Node of a Machine share. It depends on nothing
// but its arguments. The result
//
//   - has 3 to 15 characters and is a lower-case RFC 1123 label, so it is a NetBIOS name, a DNS label and a Node name;
//   - is never all digits and never a name that Windows or Active Directory reserves
//     (https://learn.microsoft.com/troubleshoot/windows-server/active-directory/naming-conventions-for-computer-domain-site-ou);
//   - differs for different Machines of a namespace.
//
// A machine name that already is such a name is returned as it is. Any other is replaced by a hashed name of exactly 15
// characters: up to 5 recognisable characters of the machine name, "-", and the SHA-256 of namespace, cluster and
// machine name in base 36, cut to the 9 to 13 characters that remain.
//
// A name that is passed through cannot equal a hashed one: every hashed name has 15 characters and its last "-" among
// the first 6 of them, as base 36 has no "-", and a machine name of that shape is never passed through. Two hashed names
// are equal with a probability of 2^-46.5 or less; for a cluster of 10,000 Machines whose names all begin alike, the
// probability that any two are is less than one in a million. Machines of different namespaces share a name only if
// their own names are equal and passed through.
func ComputerName(namespace, cluster, machine string) string {
	if passesThrough(machine) {
		return machine
	}
	prefix := cleanPrefix(machine)
	hash := base36(namespace, cluster, machine)
	return prefix + "-" + hash[len(hash)-(maxComputerName-len(prefix)-1):]
}

// passesThrough says whether a machine name can be the computer name.
func passesThrough(name string) bool {
	return len(name) >= minComputerName && len(name) <= maxComputerName && isLabel(name) &&
		!allDigits(name) && !looksHashed(name) && !reserved(name)
}

// looksHashed says whether a label has the shape of a hashed name: 15 characters, the last "-" behind a prefix of 1 to 5.
func looksHashed(label string) bool {
	dash := strings.LastIndexByte(label, '-')
	return len(label) == maxComputerName && dash >= 1 && dash <= maxPrefix
}

// isLabel says whether s is a lower-case RFC 1123 label, but for the length.
func isLabel(s string) bool {
	if s == "" || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isAlphanumeric(c) && c != '-' {
			return false
		}
	}
	return true
}

func isAlphanumeric(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }

func allDigits(s string) bool { return strings.Trim(s, "0123456789") == "" }

// cleanPrefix returns the first characters of the machine name that can begin a label, at least one.
func cleanPrefix(machine string) string {
	var prefix strings.Builder
	for _, r := range strings.ToLower(machine) {
		switch {
		case prefix.Len() == maxPrefix:
			return strings.TrimRight(prefix.String(), "-")
		case r < 0x80 && isAlphanumeric(byte(r)):
			prefix.WriteRune(r)
		case prefix.Len() > 0: // "." and the like separate words
			prefix.WriteByte('-')
		}
	}
	if cleaned := strings.TrimRight(prefix.String(), "-"); cleaned != "" {
		return cleaned
	}
	return emptyPrefix
}

// base36 returns the SHA-256 of its arguments in base 36. Each is preceded by its length, so that no two lists of
// arguments have the same input.
func base36(parts ...string) string {
	var input []byte
	for _, p := range parts {
		input = fmt.Appendf(input, "%d:%s,", len(p), p)
	}
	sum := sha256.Sum256(input)
	// The zeros make sure that there are enough digits even for the smallest number.
	return strings.Repeat("0", maxComputerName) + new(big.Int).SetBytes(sum[:]).Text(36)
}

// reserved says whether Windows or Active Directory gives the name a meaning of its own. Hashed names contain a "-" and
// have 15 characters, which no reserved name does.
func reserved(name string) bool {
	switch name {
	// The table of reserved words of Microsoft's naming conventions; those with a space in them cannot be labels.
	case "anonymous", "batch", "builtin", "dialup", "domain", "enterprise", "interactive", "internet", "local", "network",
		"null", "proxy", "restricted", "self", "server", "service", "system", "users", "world",
		// RFC 952, from the same page.
		"gateway", "tac":
		return true
	// Names of DOS devices, which cannot be part of a path (https://learn.microsoft.com/windows/win32/fileio/naming-a-file).
	case "con", "prn", "aux", "nul",
		"com0", "com1", "com2", "com3", "com4", "com5", "com6", "com7", "com8", "com9",
		"lpt0", "lpt1", "lpt2", "lpt3", "lpt4", "lpt5", "lpt6", "lpt7", "lpt8", "lpt9":
		return true
	// A computer and a local account cannot share a name; and localhost resolves to the loopback address.
	case "administrator", "guest", "defaultaccount", "localhost":
		return true
	}
	return false
}
