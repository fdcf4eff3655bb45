package artifact

import (
	"fmt"
	"strings"
	"unicode"
)

// entryPath returns where an archive's entry goes below the destination, with backslashes; "" if strip removes all of it.
// Its error says why Windows could take the name for something else than a file below the destination: see
// https://learn.microsoft.com/windows/win32/fileio/naming-a-file.
func entryPath(name string, strip int) (string, error) {
	trimmed := strings.TrimSuffix(strings.TrimPrefix(name, "./"), "/")
	if trimmed == "" || trimmed == "." {
		return "", nil
	}
	parts := strings.Split(trimmed, "/")
	for _, part := range parts {
		if err := checkName(part); err != nil {
			return "", fmt.Errorf("entry %q: %w", name, err)
		}
	}
	if len(parts) <= strip {
		return "", nil
	}
	return strings.Join(parts[strip:], `\`), nil
}

// checkName refuses what is no plain file name on Windows.
func checkName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("an absolute path, or an empty name in it")
	case name == "." || name == "..":
		return fmt.Errorf("%q in it", name)
	case len(name) > 255:
		return fmt.Errorf("a name of %d bytes", len(name))
	case strings.IndexFunc(name, func(r rune) bool { return r < ' ' || r == unicode.ReplacementChar }) >= 0:
		return fmt.Errorf("a character that no name can have")
	case strings.ContainsAny(name, `\:<>"|?*`):
		return fmt.Errorf("one of \\ : < > \" | ? * in it (a path, a drive or a stream to Windows)")
	case strings.HasSuffix(name, ".") || strings.HasSuffix(name, " "):
		return fmt.Errorf("a name that ends with a dot or a space, which Windows drops")
	case isDevice(name):
		return fmt.Errorf("%q is a device to Windows", name)
	}
	return nil
}

// isDevice says whether a name means a device, with or without an extension.
func isDevice(name string) bool {
	stem, _, _ := strings.Cut(name, ".")
	stem = strings.ToUpper(strings.TrimRight(stem, " "))
	switch stem {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$", "CLOCK$":
		return true
	}
	port, ok := strings.CutPrefix(stem, "COM")
	if !ok {
		port, ok = strings.CutPrefix(stem, "LPT")
	}
	return ok && len([]rune(port)) == 1 && strings.ContainsAny(port, "0123456789¹²³")
}

// folded returns the same for names that are the same to Windows.
func folded(path string) string { return strings.ToLower(strings.ToUpper(path)) }
