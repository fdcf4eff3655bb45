package cloudbase

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// MaxGuestInfo is the size in bytes up to which a guestinfo value is delivered. VMware publishes no limit. 65535 is what
// vSphere documents for the value of a vApp property, and the messages between a guest and its host, which carry these
// values, are limited to 64 KiB in open-vm-tools (GUESTMSG_MAX_IN_SIZE). A longer value might be cut or never arrive
// without anyone being told, so it is refused here.
const MaxGuestInfo = 65535

// guestInfoEncoding is the encoding of all values, in one of the spellings that cloudbase-init knows; it refuses all
// metadata for any other. Values are never plain text: rpctool.exe, which prints them to cloudbase-init, changes line ends.
const guestInfoEncoding = "gzip+base64"

var instanceIDPattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$`)

// KeyValue is one entry of a VM's extraConfig.
type KeyValue struct {
	Key, Value string
}

// TooLargeError says that something exceeds what can be delivered to a guest.
type TooLargeError struct {
	// What is too large.
	What string
	// Size as delivered and its limit, in bytes.
	Size, Limit int
}

// Error implements error.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s has %d bytes, more than the %d that can be delivered", e.What, e.Size, e.Limit)
}

// Metadata returns the metadata of a guest. instanceID is what cloudbase-init remembers its work by: it runs user data
// once per instanceID, so it must never change in the life of a VM and never be used by another one. computerName becomes
// the Windows computer name, with a reboot, before user data runs.
func Metadata(instanceID, computerName string) ([]byte, error) {
	// cloudbase-init makes a registry key of it, in which a backslash would separate keys.
	if !instanceIDPattern.MatchString(instanceID) {
		return nil, fmt.Errorf("instance ID %q must match %s", instanceID, instanceIDPattern)
	}
	if msgs := nodev1.ValidateComputerName(computerName); len(msgs) > 0 {
		return nil, fmt.Errorf("computer name %q: %s", computerName, strings.Join(msgs, "; "))
	}
	// JSON is what cloudbase-init tries first; as YAML it means the same.
	return json.Marshal(struct {
		InstanceID    string `json:"instance-id"`
		LocalHostname string `json:"local-hostname"`
	}{instanceID, computerName})
}

// GuestInfo returns the extraConfig that delivers metadata and user data to cloudbase-init's VMwareGuestInfoService. It
// must be set before the VM is powered on: cloudbase-init looks for it once in a boot. User data may be of any kind; if
// it is gzip already, it is not compressed again. The error is a *TooLargeError if an encoded value exceeds MaxGuestInfo.
func GuestInfo(metadata, userData []byte) ([]KeyValue, error) {
	var all []KeyValue
	for _, part := range []struct {
		what, key string
		data      []byte
	}{
		{"metadata", "guestinfo.metadata", metadata},
		{"user data", "guestinfo.userdata", userData},
	} {
		compressed := part.data
		if !isGzip(compressed) {
			compressed = compress(compressed)
		}
		value := base64.StdEncoding.EncodeToString(compressed)
		if len(value) > MaxGuestInfo {
			return nil, &TooLargeError{What: part.what + " with " + guestInfoEncoding, Size: len(value), Limit: MaxGuestInfo}
		}
		all = append(all, KeyValue{part.key, value}, KeyValue{part.key + ".encoding", guestInfoEncoding})
	}
	return all, nil
}

func isGzip(data []byte) bool { return bytes.HasPrefix(data, []byte{0x1f, 0x8b}) }
