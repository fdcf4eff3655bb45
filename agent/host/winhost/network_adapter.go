package winhost

import (
	"net/netip"
	"strings"
)

// virtualAdapter says whether an adapter was made by a virtual switch on this machine, rather than being a device of it.
//
// component is the ID of its driver in the registry, "" if it is not known. That of the switch's own adapters begins with
// vms_, while a machine that is itself a guest of Hyper-V has vmbus\ devices. Without it the names decide, which are not
// translated.
func virtualAdapter(component, name, description string) bool {
	if component != "" {
		return strings.HasPrefix(strings.ToLower(component), "vms_")
	}
	return strings.HasPrefix(description, "Hyper-V Virtual ") || strings.HasPrefix(name, "vEthernet")
}

// searchList reads a list of domains as it is in the registry, between commas or spaces.
func searchList(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

// placeholderDNS says whether a DNS server is one of the well-known site-local addresses that Windows shows for an adapter
// that has none for IPv6.
func placeholderDNS(a netip.Addr) bool {
	return netip.MustParsePrefix("fec0:0:0:ffff::/126").Contains(a.WithZone(""))
}
