package winhost

import (
	"slices"
	"strings"
)

// domainNames are what a domain that the machine is a member of is called. An empty one is not known.
type domainNames struct{ dns, netBIOS string }

// name by which the domain is told: its DNS name, if that is known.
func (n domainNames) name() string {
	if n.dns != "" {
		return n.dns
	}
	return n.netBIOS
}

// is says whether a domain that somebody names is this one.
func (n domainNames) is(domain string) bool {
	domain = strings.TrimSuffix(domain, ".")
	return domain != "" && slices.ContainsFunc([]string{n.dns, n.netBIOS}, func(s string) bool { return strings.EqualFold(s, domain) })
}
