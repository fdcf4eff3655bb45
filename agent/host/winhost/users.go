package winhost

import (
	"crypto/rand"
	"fmt"
	"math/big"
	"strings"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// Flags of an account, of lmaccess.h.
const (
	accountScript           = 0x0001  // UF_SCRIPT, without which none is made
	accountDisabled         = 0x0002  // UF_ACCOUNTDISABLE
	accountNormal           = 0x0200  // UF_NORMAL_ACCOUNT
	accountPasswordNoExpiry = 0x10000 // UF_DONT_EXPIRE_PASSWD
)

// newAccountFlags are those of an account before anything is said about it. Its password does not expire: nobody would be
// there to change it.
const newAccountFlags = accountScript | accountNormal | accountPasswordNoExpiry

// accountFlags returns the flags of an account that is to be as u says, from those that it has.
func accountFlags(have uint32, u host.User) uint32 {
	flags := have &^ accountDisabled
	if u.Disabled {
		flags |= accountDisabled
	}
	return flags
}

// checkUser refuses what is no local account. The rules are those of lmaccess.h and of the user interface.
func checkUser(u host.User) error {
	refuse := func(why string) error { return fmt.Errorf("user %q: %s: %w", u.Name, why, host.ErrInvalid) }
	switch {
	case u.Name == "" || len([]rune(u.Name)) > 20:
		return refuse("its name must have 1 to 20 characters")
	case strings.ContainsAny(u.Name, "\"/\\[]:;|=,+*?<>@\x00") || strings.Trim(u.Name, " .") == "":
		return refuse("its name has characters that Windows does not allow")
	case strings.ContainsRune(u.Password+u.FullName, 0):
		return refuse("its full name or password contains NUL")
	}
	return nil
}

// groupSID returns the SID of a group that is given as a SID or by the English name of one that every Windows has, whatever
// it is called in its language. Empty for another name, which is then the group's own.
func groupSID(group string) string {
	if len(group) > 4 && strings.EqualFold(group[:4], "S-1-") {
		return strings.ToUpper(group)
	}
	// https://learn.microsoft.com/windows-server/identity/ad-ds/manage/understand-security-identifiers
	switch strings.ToLower(group) {
	case "administrators":
		return host.AdministratorsSID
	case "users":
		return "S-1-5-32-545"
	case "guests":
		return "S-1-5-32-546"
	case "power users":
		return "S-1-5-32-547"
	case "backup operators":
		return "S-1-5-32-551"
	case "remote desktop users":
		return "S-1-5-32-555"
	case "network configuration operators":
		return "S-1-5-32-556"
	case "performance monitor users":
		return "S-1-5-32-558"
	case "performance log users":
		return "S-1-5-32-559"
	case "event log readers":
		return "S-1-5-32-573"
	case "hyper-v administrators":
		return "S-1-5-32-578"
	case "remote management users":
		return "S-1-5-32-580"
	default:
		return ""
	}
}

// randomPassword returns one that nobody knows: 32 characters of four classes, which meets the complexity that Windows
// asks for by default.
func randomPassword() (string, error) {
	// No characters that look alike matter: nobody reads it.
	classes := []string{"abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", "!#$%&()*+-./:;<=>?@[]^_{|}~"}
	all := strings.Join(classes, "")
	out := make([]byte, 0, 32)
	pick := func(from string) error {
		i, err := rand.Int(rand.Reader, big.NewInt(int64(len(from))))
		if err != nil {
			return fmt.Errorf("make a password: %w", err)
		}
		out = append(out, from[i.Int64()])
		return nil
	}
	for _, class := range classes {
		if err := pick(class); err != nil {
			return "", err
		}
	}
	for len(out) < cap(out) {
		if err := pick(all); err != nil {
			return "", err
		}
	}
	return string(out), nil
}
