package v1alpha1

import (
	"encoding/hex"
	"encoding/pem"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (o *OSInfo) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if o.Build != "" && !windowsBuild.MatchString(o.Build) {
		errs = append(errs, field.Invalid(path.Child("build"), o.Build, "must be a Windows build, such as 10.0.20348"))
	}
	for i, server := range o.NTPServers {
		if server == "" || strings.ContainsAny(server, " ,\t\r\n") {
			errs = append(errs, field.Invalid(path.Child("ntpServers").Index(i), server, "must be a host name or an address"))
		}
	}
	for i := range o.Users {
		errs = append(errs, o.Users[i].validate(path.Child("users").Index(i))...)
	}
	for name, value := range map[string]string{"http": o.Proxy.HTTP, "https": o.Proxy.HTTPS} {
		// A proxy may need a user; it is the one URL that may hold one.
		if value != "" && !strings.HasPrefix(value, "http://") && !strings.HasPrefix(value, "https://") {
			errs = append(errs, field.Invalid(path.Child("proxy", name), redactURL(value), "must be an http or https URL"))
		}
	}
	for i, ca := range o.TrustedCAs {
		if block, _ := pem.Decode([]byte(ca)); block == nil || block.Type != "CERTIFICATE" {
			errs = append(errs, field.Invalid(path.Child("trustedCAs").Index(i), "<PEM>", "must be a certificate in PEM"))
		}
	}
	for name := range o.Environment {
		errs = append(errs, variable(path.Child("environment"), name)...)
	}
	for i := range o.Registry {
		errs = append(errs, o.Registry[i].validate(path.Child("registry").Index(i))...)
	}
	for i := range o.Firewall {
		errs = append(errs, o.Firewall[i].validate(path.Child("firewall").Index(i))...)
	}
	errs = append(errs, o.DynamicPorts.validate(path.Child("dynamicPorts"))...)
	errs = append(errs, oneOf(path.Child("defender"), o.Defender, "Exclude", "None")...)
	if p := o.PageFile; p.InitialMiB < 0 || p.MaximumMiB < p.InitialMiB {
		errs = append(errs, field.Invalid(path.Child("pageFile"), p, "maximumMiB must be at least initialMiB, and neither negative"))
	}
	if o.DomainJoin != nil {
		errs = append(errs, o.DomainJoin.validate(path.Child("domainJoin"))...)
	}
	for i, plugin := range o.CCGPlugins {
		at := path.Child("ccgPlugins").Index(i)
		if !clsid.MatchString(plugin.CLSID) {
			errs = append(errs, field.Invalid(at.Child("clsid"), plugin.CLSID, "must be a class ID in braces"))
		}
		errs = append(errs, windowsPath(at.Child("path"), plugin.Path)...)
	}
	return append(errs, o.LogRotation.validate(path.Child("logRotation"))...)
}

func (u *User) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if !account.MatchString(u.Name) || strings.Trim(u.Name, ". ") == "" {
		errs = append(errs, field.Invalid(path.Child("name"), u.Name, "must have at most 20 characters, none of them "+`"/\[]:;|=,+*?<>@`))
	}
	for i, key := range u.SSHAuthorizedKeys {
		if strings.TrimSpace(key) == "" || strings.ContainsAny(key, "\r\n") {
			errs = append(errs, field.Invalid(path.Child("sshAuthorizedKeys").Index(i), key, "must be one line"))
		}
	}
	return errs
}

func (v *RegistryValue) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if upper := strings.ToUpper(v.Key); !strings.HasPrefix(upper, `HKLM\`) && !strings.HasPrefix(upper, `HKU\`) || strings.Contains(v.Key, `\\`) || strings.HasSuffix(v.Key, `\`) {
		errs = append(errs, field.Invalid(path.Child("key"), v.Key, `must begin with HKLM\ or HKU\`))
	}
	if v.Type == "" {
		errs = append(errs, field.Required(path.Child("type"), "what the value is"))
	}
	errs = append(errs, oneOf(path.Child("type"), v.Type, "String", "ExpandString", "MultiString", "DWord", "QWord", "Binary")...)
	var err error
	switch v.Type {
	case "DWord":
		_, err = strconv.ParseUint(v.Value, 10, 32)
	case "QWord":
		_, err = strconv.ParseUint(v.Value, 10, 64)
	case "Binary":
		_, err = hex.DecodeString(v.Value)
	}
	if err != nil {
		errs = append(errs, field.Invalid(path.Child("value"), v.Value, "must be a "+v.Type+": decimal, or hexadecimal for Binary"))
	}
	return errs
}

func (r *FirewallRule) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r.Name == "" || strings.ContainsAny(r.Name, "|\r\n") {
		errs = append(errs, field.Invalid(path.Child("name"), r.Name, "must be one line without |"))
	}
	if r.Protocol == "" {
		errs = append(errs, field.Required(path.Child("protocol"), "TCP or UDP"))
	}
	errs = append(errs, oneOf(path.Child("protocol"), r.Protocol, "TCP", "UDP")...)
	for i, p := range r.Ports {
		if !ports.MatchString(p) {
			errs = append(errs, field.Invalid(path.Child("ports").Index(i), p, "must be a port or a range, such as 30000-32767"))
			continue
		}
		low, high, ok := strings.Cut(p, "-")
		if !ok {
			high = low
		}
		l, _ := strconv.Atoi(low)
		h, _ := strconv.Atoi(high)
		if l < 1 || h > 65535 || l > h {
			errs = append(errs, field.Invalid(path.Child("ports").Index(i), p, "must be 1 to 65535, in order"))
		}
	}
	if r.Program != "" {
		errs = append(errs, windowsPath(path.Child("program"), r.Program)...)
	}
	for i, cidr := range r.RemoteAddresses {
		errs = append(errs, prefix(path.Child("remoteAddresses").Index(i), cidr)...)
	}
	return errs
}

func (p *PortRange) validate(path *field.Path) field.ErrorList {
	// Windows wants at least 255 ports.
	if *p != (PortRange{}) && (p.Start < 1025 || p.Count < 255 || p.Start+p.Count > 65536) {
		return field.ErrorList{field.Invalid(path, *p, "must have at least 255 ports from 1025 to 65535")}
	}
	return nil
}

func (d *DomainJoin) validate(path *field.Path) field.ErrorList {
	switch {
	case d.OfflineBlob != "" && (d.Domain != "" || d.OU != "" || d.Username != "" || d.Password != ""):
		return field.ErrorList{field.Forbidden(path.Child("domain"), "the offline blob says it all")}
	case d.OfflineBlob != "" && !isBase64(d.OfflineBlob):
		return field.ErrorList{field.Invalid(path.Child("offlineBlob"), "<hidden>", "must be base64")}
	case d.OfflineBlob == "" && (d.Domain == "" || d.Username == "" || d.Password == ""):
		return field.ErrorList{field.Required(path, "offlineBlob, or domain, username and password")}
	}
	return nil
}

func (f *File) validate(path *field.Path) field.ErrorList {
	errs := windowsPath(path.Child("path"), f.Path)
	return append(errs, oneOf(path.Child("acl"), f.ACL, ACLSystem, ACLUsersRead)...)
}

func (n *NodeIPInfo) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	families := map[bool]bool{}
	for i, cidr := range n.CIDRs {
		at := path.Child("cidrs").Index(i)
		p, err := netip.ParsePrefix(cidr)
		switch {
		case err != nil:
			errs = append(errs, prefix(at, cidr)...)
		case families[p.Addr().Is4()]:
			errs = append(errs, field.Invalid(at, cidr, "must be the only one of its family"))
		default:
			families[p.Addr().Is4()] = true
		}
	}
	if n.MAC != "" {
		errs = append(errs, mac(path.Child("mac"), n.MAC)...)
	}
	return errs
}

func (n *NetworkInfo) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i := range n.Adapters {
		a, at := &n.Adapters[i], path.Child("adapters").Index(i)
		errs = append(errs, mac(at.Child("mac"), a.MAC)...)
		if seen[strings.ToLower(a.MAC)] {
			errs = append(errs, field.Duplicate(at.Child("mac"), a.MAC))
		}
		seen[strings.ToLower(a.MAC)] = true
		errs = append(errs, oneOf(at.Child("dhcp"), a.DHCP, "Enabled", "Disabled")...)
		for j, addr := range a.Addresses {
			errs = append(errs, prefix(at.Child("addresses").Index(j), addr)...)
		}
		families := map[bool]bool{}
		for j, gateway := range a.Gateways {
			at := at.Child("gateways").Index(j)
			addr, err := netip.ParseAddr(gateway)
			switch {
			case err != nil:
				errs = append(errs, address(at, gateway)...)
			case families[addr.Is4()]:
				errs = append(errs, field.Invalid(at, gateway, "must be the only one of its family"))
			default:
				families[addr.Is4()] = true
			}
		}
		for j, r := range a.Routes {
			at := at.Child("routes").Index(j)
			errs = append(errs, prefix(at.Child("to"), r.To)...)
			errs = append(errs, address(at.Child("via"), r.Via)...)
			errs = append(errs, between(at.Child("metric"), r.Metric, 0, 9999)...)
		}
		for j, server := range a.DNSServers {
			errs = append(errs, address(at.Child("dnsServers").Index(j), server)...)
		}
		if a.MTU != 0 {
			errs = append(errs, between(at.Child("mtu"), a.MTU, 576, 65535)...)
		}
	}
	return errs
}

func mac(path *field.Path, value string) field.ErrorList {
	if hw, err := net.ParseMAC(value); err != nil || len(hw) != 6 || strings.ContainsAny(value, ".-") {
		return field.ErrorList{field.Invalid(path, value, "must be a MAC address, such as 00:50:56:aa:bb:01")}
	}
	return nil
}
