package winhost

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// Values of the firewall's interface.
// https://learn.microsoft.com/windows/win32/api/icftypes/
const (
	// replacedMark stands between the name of a rule that is being removed and what makes it unique. A power cut may leave
	// one.
	replacedMark = " (replaced) "

	firewallTCP         = 6          // NET_FW_IP_PROTOCOL_TCP
	firewallUDP         = 17         // NET_FW_IP_PROTOCOL_UDP
	firewallInbound     = 1          // NET_FW_RULE_DIR_IN
	firewallAllow       = 1          // NET_FW_ACTION_ALLOW
	firewallAllProfiles = 0x7fffffff // NET_FW_PROFILE2_ALL
	firewallAny         = "*"
)

// firewallSettings are a rule as the firewall has it.
type firewallSettings struct {
	name string
	// program is empty for any.
	program  string
	protocol int32
	// ports and addresses are between commas, * for all.
	ports, addresses string
	direction        int32
	action           int32
	profiles         int32
	enabled          bool
}

// firewallSettingsOf returns the request that a rule stands for.
func firewallSettingsOf(r host.FirewallRule) (firewallSettings, error) {
	refuse := func(what string) (firewallSettings, error) {
		return firewallSettings{}, fmt.Errorf("firewall rule %q: %s: %w", r.Name, what, host.ErrInvalid)
	}
	// The interface forbids | in names, and "all" as a name.
	if r.Name == "" || strings.Contains(r.Name, "|") || strings.EqualFold(r.Name, "all") || strings.Contains(r.Name, replacedMark) {
		return refuse("its name")
	}
	s := firewallSettings{name: r.Name, program: r.Program, direction: firewallInbound, action: firewallAllow,
		profiles: firewallAllProfiles, enabled: true, ports: firewallAny, addresses: firewallAny}
	switch strings.ToUpper(r.Protocol) {
	case "TCP":
		s.protocol = firewallTCP
	case "UDP":
		s.protocol = firewallUDP
	default:
		return refuse("protocol " + strconv.Quote(r.Protocol))
	}
	for _, p := range r.Ports {
		if !validPorts(p) {
			return refuse("ports " + strconv.Quote(p))
		}
	}
	for _, a := range r.RemoteAddresses {
		if _, ok := parseRemote(a); !ok {
			return refuse("remote address " + strconv.Quote(a))
		}
	}
	if len(r.Ports) > 0 {
		s.ports = strings.Join(r.Ports, ",")
	}
	if len(r.RemoteAddresses) > 0 {
		s.addresses = strings.Join(r.RemoteAddresses, ",")
	}
	return s, nil
}

// ruleName returns the name that a rule was given, and whether it is being removed.
func ruleName(name string) (base string, replaced bool) {
	base, _, replaced = strings.Cut(name, replacedMark)
	return base, replaced
}

// validPorts says whether a text is a port or a range of ports.
func validPorts(text string) bool {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	from, err := strconv.ParseUint(first, 10, 16)
	if err != nil || from == 0 {
		return false
	}
	to, err := strconv.ParseUint(last, 10, 16)
	return err == nil && from <= to
}

// same says whether two are the same to the firewall, which writes ports and addresses in its own way.
func (s firewallSettings) same(o firewallSettings) bool {
	return strings.EqualFold(s.name, o.name) && strings.EqualFold(s.program, o.program) && s.protocol == o.protocol &&
		slices.Equal(sortedList(s.ports), sortedList(o.ports)) && slices.Equal(remotes(s.addresses), remotes(o.addresses)) &&
		s.direction == o.direction && s.action == o.action && s.profiles == o.profiles && s.enabled == o.enabled
}

func sortedList(text string) []string {
	out := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
	slices.Sort(out)
	if len(out) == 0 {
		return []string{firewallAny}
	}
	return out
}

// remotes are the addresses of a list, in one form.
func remotes(text string) []string {
	out := sortedList(text)
	for i, a := range out {
		if p, ok := parseRemote(a); ok {
			out[i] = p
		}
	}
	slices.Sort(out)
	return out
}

// parseRemote returns the first and last address of an address, network (with length or mask) or range.
func parseRemote(text string) (string, bool) {
	if first, last, ok := strings.Cut(text, "-"); ok {
		from, err1 := netip.ParseAddr(first)
		to, err2 := netip.ParseAddr(last)
		return from.String() + "-" + to.String(), err1 == nil && err2 == nil && from.Is4() == to.Is4() && from.Compare(to) <= 0
	}
	p, ok := parseNetwork(text)
	if !ok {
		return "", false
	}
	p = p.Masked()
	last := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(last)*8; bit++ {
		last[bit/8] |= 0x80 >> (bit % 8)
	}
	to, _ := netip.AddrFromSlice(last)
	return p.Addr().String() + "-" + to.String(), true
}

func parseNetwork(text string) (netip.Prefix, bool) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p, true
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	address, mask, _ := strings.Cut(text, "/")
	a, err1 := netip.ParseAddr(address)
	m, err2 := netip.ParseAddr(mask)
	if err1 != nil || err2 != nil || !a.Is4() || !m.Is4() {
		return netip.Prefix{}, false
	}
	ones, bits := net.IPMask(m.AsSlice()).Size()
	return netip.PrefixFrom(a, ones), bits != 0
}
