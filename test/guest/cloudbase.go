package guest

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// This file restates rules of cloudbase-init 1.1.9: metadata service VMwareGuestInfo, plugins SetHostName and UserData.
// It is written from those rules, not with the code that renders user data, so that the two check each other.

// bootData is what cloudbase-init makes of the guestinfo variables.
type bootData struct {
	// instanceID is empty if the metadata has none; user data then runs at every boot.
	instanceID string
	// localHostname as in the metadata; empty leaves the random name that Windows Setup gave.
	localHostname string
	// userData, decoded; nil if there is none.
	userData []byte
}

// readGuestInfo plays the metadata service. An error means that cloudbase-init finds no metadata service, so that nothing
// runs until the next boot.
func readGuestInfo(guestinfo map[string]string) (bootData, error) {
	raw, err := guestVariable(guestinfo, "metadata")
	if err != nil {
		return bootData{}, err
	}
	if raw == nil {
		return bootData{}, errors.New("guestinfo.metadata is missing: cloudbase-init needs it to run anything")
	}
	var metadata any
	if err := yaml.Unmarshal(raw, &metadata); err != nil {
		return bootData{}, fmt.Errorf("guestinfo.metadata is not YAML: %w", err)
	}
	var data bootData
	if m, ok := metadata.(map[string]any); ok { // anything else is the same as an empty map
		data.instanceID = scalar(m["instance-id"])
		data.localHostname = scalar(m["local-hostname"])
	}
	if data.userData, err = guestVariable(guestinfo, "userdata"); err != nil {
		return bootData{}, err
	}
	// Any metadata service: user data that is gzip is unpacked once.
	if bytes.HasPrefix(data.userData, []byte{0x1f, 0x8b}) {
		if data.userData, err = gunzip(data.userData); err != nil {
			return bootData{}, fmt.Errorf("unpacking user data: %w", err)
		}
	}
	return data, nil
}

func scalar(v any) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

// guestVariable returns the decoded variable guestinfo.<key>; nil if it is missing or empty.
func guestVariable(guestinfo map[string]string, key string) ([]byte, error) {
	raw := guestinfo["guestinfo."+key]
	encoding := strings.TrimSpace(guestinfo["guestinfo."+key+".encoding"])
	var isBase64, isGzip bool
	switch encoding {
	case "gzip+base64", "gz+b64":
		isBase64, isGzip = true, true
	case "base64", "b64":
		isBase64 = true
	case "plaintext", "":
	default:
		return nil, fmt.Errorf("guestinfo.%s.encoding %q is none that cloudbase-init knows (gzip+base64, gz+b64, base64, b64, plaintext)", key, encoding)
	}
	if raw == "" {
		return nil, nil
	}
	if !isBase64 {
		// rpctool.exe prints the value through a text stream, with a final newline.
		return []byte(strings.ReplaceAll(raw, "\n", "\r\n") + "\r\n"), nil
	}
	data, err := base64.StdEncoding.DecodeString(base64Alphabet(raw))
	if err != nil {
		return nil, fmt.Errorf("decoding guestinfo.%s: %w", key, err)
	}
	if isGzip {
		if data, err = gunzip(data); err != nil {
			return nil, fmt.Errorf("unpacking guestinfo.%s: %w", key, err)
		}
	}
	return data, nil
}

// base64Alphabet drops what Python's b64decode ignores.
func base64Alphabet(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '+' || r == '/' || r == '=' {
			return r
		}
		return -1
	}, s)
}

func gunzip(data []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// userDataFormat is how the UserData plugin recognises user data.
type userDataFormat string

const (
	formatBatch       userDataFormat = "cmd script"
	formatCloudConfig userDataFormat = "cloud-config"
	formatMultipart   userDataFormat = "multipart"
	formatTemplate    userDataFormat = "jinja template"
	formatScript      userDataFormat = "script"
	// formatUnknown is skipped with no more than a line in a log.
	formatUnknown userDataFormat = "unknown"
)

// recognise plays the UserData plugin, in its order of tests.
func recognise(userData []byte) (userDataFormat, error) {
	if !utf8.Valid(userData) {
		return formatUnknown, errors.New("user data is not UTF-8")
	}
	head, _, _ := bytes.Cut(userData, []byte("\n\n"))
	match := func(pattern string) bool { return regexp.MustCompile(pattern).Match(userData) }
	switch {
	case bytes.Contains(head, []byte("Content-Type: multipart")):
		return formatMultipart, nil
	case match(`(?i)\A##\s*template:\s*jinja`):
		return formatTemplate, nil
	case bytes.HasPrefix(userData, []byte("#cloud-config")):
		return formatCloudConfig, nil
	case match(`\Arem\s+cmd\s`):
		return formatBatch, nil
	case match(`\A#!`), match(`\A#(ps1|ps1_sysnative|ps1_x86)\s`), match(`</?(script|powershell)>`):
		return formatScript, nil
	default:
		return formatUnknown, nil
	}
}

// maxComputerName is the length of a NetBIOS name.
const maxComputerName = 15

// computerName plays the SetHostName plugin and Windows: it returns the name that Windows gets. Windows Setup gave it a
// name already, which stays if the metadata has none.
func computerName(localHostname, setupName string) (string, error) {
	if localHostname == "" {
		return setupName, nil
	}
	name, _, _ := strings.Cut(localHostname, ".")
	if len(name) > maxComputerName {
		name = name[:maxComputerName]
	}
	if strings.HasSuffix(name, "-") {
		name = strings.TrimSuffix(name, "-") + "0"
	}
	if !regexp.MustCompile(`\A[A-Za-z0-9-]+\z`).MatchString(name) || regexp.MustCompile(`\A[0-9]+\z`).MatchString(name) {
		return "", fmt.Errorf("the computer name %q (local-hostname %q) is one that Windows refuses", name, localHostname)
	}
	return name, nil
}
