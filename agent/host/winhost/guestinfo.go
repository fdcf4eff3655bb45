package winhost

import (
	"fmt"
	"strings"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// guestInfoLimit is how much of a value fits into a command line of Windows (32,767 characters) beside the rest.
const guestInfoLimit = 30_000

// guestInfoSet and guestInfoGet return the requests of the guest RPC protocol of VMware; a request is one argument.
func guestInfoSet(key, value string) (string, error) {
	if len(value) > guestInfoLimit || strings.ContainsRune(value, 0) {
		return "", fmt.Errorf("set %q: %w: a value has up to %d bytes, and no NUL", key, host.ErrInvalid, guestInfoLimit)
	}
	return "info-set " + key + " " + value, checkGuestInfoKey(key)
}

func guestInfoGet(key string) (string, error) { return "info-get " + key, checkGuestInfoKey(key) }

// checkGuestInfoKey: a guest may write below guestinfo. only, and a blank ends the key.
func checkGuestInfoKey(key string) error {
	if rest, found := strings.CutPrefix(key, "guestinfo."); !found || rest == "" || strings.ContainsAny(key, " \t\r\n\x00") {
		return fmt.Errorf("%q is no key of guestinfo: %w", key, host.ErrInvalid)
	}
	return nil
}

// noSuchGuestInfo is the hypervisor's answer, in English on every Windows, for a variable that is not set.
func noSuchGuestInfo(output string) bool { return strings.Contains(output, "No value found") }
