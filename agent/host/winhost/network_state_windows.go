//go:build windows

package winhost

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// networkClassKey is where the drivers of network adapters are, by number.
const networkClassKey = `HKLM\SYSTEM\CurrentControlSet\Control\Class\{4d36e972-e325-11ce-bfc1-08002be10318}`

// ipAdapterDHCPv4Enabled is IP_ADAPTER_DHCP_ENABLED of IP_ADAPTER_ADDRESSES.Flags.
const ipAdapterDHCPv4Enabled = 0x4

// readAdapters returns the adapters except loopback.
func readAdapters() ([]*windows.IpAdapterAddresses, error) {
	const flags = windows.GAA_FLAG_SKIP_ANYCAST | windows.GAA_FLAG_SKIP_MULTICAST
	// The size that the documentation recommends to begin with; it grows when an adapter comes in between.
	size := uint32(15 << 10)
	for {
		buffer := make([]uint64, (size+7)/8) // aligned for the structures in it
		first := (*windows.IpAdapterAddresses)(unsafe.Pointer(&buffer[0]))
		err := windows.GetAdaptersAddresses(windows.AF_UNSPEC, flags, 0, first, &size)
		switch {
		case err == nil:
			adapters := []*windows.IpAdapterAddresses{}
			for a := first; a != nil; a = a.Next {
				if a.IfType != windows.IF_TYPE_SOFTWARE_LOOPBACK {
					adapters = append(adapters, a)
				}
			}
			return adapters, nil
		case errors.Is(err, windows.ERROR_NO_DATA):
			return nil, nil
		case !errors.Is(err, windows.ERROR_BUFFER_OVERFLOW):
			return nil, failed(err, "read the network adapters")
		}
	}
}

// indexOf returns an adapter's index. The two families have the same since Windows Vista; 0 is that of a family that is
// not bound.
func indexOf(a *windows.IpAdapterAddresses) uint32 {
	if a.IfIndex != 0 {
		return a.IfIndex
	}
	return a.Ipv6IfIndex
}

func addressesOf(a *windows.IpAdapterAddresses) []addressState {
	out := []addressState{}
	for u := a.FirstUnicastAddress; u != nil; u = u.Next {
		addr, ok := netip.AddrFromSlice(u.Address.IP())
		if !ok {
			continue
		}
		state := addressState{Prefix: netip.PrefixFrom(addr, int(u.OnLinkPrefixLength)), stage: stageUsable,
			manual: u.PrefixOrigin == windows.IpPrefixOriginManual}
		switch u.DadState {
		case windows.IpDadStateTentative, windows.IpDadStateInvalid:
			state.stage = stageTentative
		case windows.IpDadStateDuplicate:
			state.stage = stageDuplicate
		}
		out = append(out, state)
	}
	return out
}

func dnsOf(a *windows.IpAdapterAddresses) []netip.Addr {
	out := []netip.Addr{}
	for s := a.FirstDnsServerAddress; s != nil; s = s.Next {
		if addr, ok := netip.AddrFromSlice(s.Address.IP()); ok && !placeholderDNS(addr) {
			out = append(out, addr)
		}
	}
	return out
}

// ipSettings returns the MTU and the metric of one family on an adapter; zeros if the family is not bound to it.
func ipSettings(a *windows.IpAdapterAddresses, family uint16) (mtu, metric uint32, err error) {
	index, metric := a.IfIndex, a.Ipv4Metric
	if family == windows.AF_INET6 {
		index, metric = a.Ipv6IfIndex, a.Ipv6Metric
	}
	if index == 0 {
		return 0, 0, nil
	}
	row := windows.MibIpInterfaceRow{Family: family, InterfaceIndex: index}
	// Not by its wrapper, which panics under Wine, where it is missing.
	err = callCode(proc("iphlpapi.dll", "GetIpInterfaceEntry"), uintptr(unsafe.Pointer(&row)))
	switch {
	case err == nil:
		return row.NlMtu, row.Metric, nil
	case errors.Is(err, windows.ERROR_NOT_FOUND), errors.Is(err, windows.ERROR_FILE_NOT_FOUND):
		return 0, 0, nil
	case errors.Is(err, host.ErrNotSupported):
		return a.Mtu, metric, nil
	}
	return 0, 0, failed(err, "read the IP settings of adapter %d", index)
}

// readRoutes returns the routes of all adapters.
func readRoutes() ([]windows.MibIpForwardRow2, error) {
	var table *windows.MibIpForwardTable2
	if err := windows.GetIpForwardTable2(windows.AF_UNSPEC, &table); err != nil {
		return nil, failed(err, "read the routes")
	}
	defer windows.FreeMibTable(unsafe.Pointer(table))
	return slices.Clone(table.Rows()), nil
}

// addrOf reads a SOCKADDR_INET; the zero Addr for another family.
func addrOf(s *windows.RawSockaddrInet) netip.Addr {
	switch s.Family {
	case windows.AF_INET:
		return netip.AddrFrom4((*windows.RawSockaddrInet4)(unsafe.Pointer(s)).Addr)
	case windows.AF_INET6:
		return netip.AddrFrom16((*windows.RawSockaddrInet6)(unsafe.Pointer(s)).Addr)
	}
	return netip.Addr{}
}

func routeOf(row *windows.MibIpForwardRow2) routeState {
	return routeState{
		to:     netip.PrefixFrom(addrOf(&row.DestinationPrefix.Prefix), int(row.DestinationPrefix.PrefixLength)),
		via:    addrOf(&row.NextHop),
		metric: row.Metric,
		manual: row.Origin == windows.NlroManual,
	}
}

// state returns what Windows shows of an adapter.
func (n *network) state(ctx context.Context, index uint32) (adapterState, error) {
	adapters, err := readAdapters()
	if err != nil {
		return adapterState{}, err
	}
	i := slices.IndexFunc(adapters, func(a *windows.IpAdapterAddresses) bool { return indexOf(a) == index })
	if i < 0 {
		return adapterState{}, fmt.Errorf("network adapter %d: %w", index, host.ErrNotFound)
	}
	a := adapters[i]
	s := adapterState{index: index, dhcp: a.Flags&ipAdapterDHCPv4Enabled != 0, addresses: addressesOf(a), dns: dnsOf(a)}
	if s.mtu4, _, err = ipSettings(a, windows.AF_INET); err != nil {
		return adapterState{}, err
	}
	if s.mtu6, _, err = ipSettings(a, windows.AF_INET6); err != nil {
		return adapterState{}, err
	}
	rows, err := readRoutes()
	if err != nil {
		return adapterState{}, err
	}
	for i := range rows {
		if rows[i].InterfaceIndex == index {
			s.routes = append(s.routes, routeOf(&rows[i]))
		}
	}
	s.search, err = n.searchDomains(ctx)
	return s, err
}

// searchDomains returns those of the machine.
func (n *network) searchDomains(ctx context.Context) ([]string, error) {
	v, err := n.registry.Get(ctx, tcpipKey, searchListValue)
	if err != nil && !errors.Is(err, host.ErrNotFound) {
		return nil, err
	}
	return searchList(v.Text), nil
}

// components returns the driver's ID of each adapter, by its GUID in lower case.
func (n *network) components(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	_, subkeys, err := n.registry.Names(ctx, networkClassKey)
	if errors.Is(err, host.ErrNotFound) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	for _, sub := range subkeys {
		key := networkClassKey + `\` + sub
		adapter, err := n.registry.Get(ctx, key, "NetCfgInstanceId")
		if err != nil {
			continue // not an adapter, such as the subkey Properties
		}
		if component, err := n.registry.Get(ctx, key, "ComponentId"); err == nil {
			out[strings.ToLower(adapter.Text)] = component.Text
		}
	}
	return out, ctx.Err()
}

func adapterOf(a *windows.IpAdapterAddresses, components map[string]string, search []string) (host.Adapter, error) {
	name, description := windows.UTF16PtrToString(a.FriendlyName), windows.UTF16PtrToString(a.Description)
	guid := strings.ToLower(windows.BytePtrToString(a.AdapterName))
	out := host.Adapter{
		Index:         indexOf(a),
		Name:          name,
		Description:   description,
		MAC:           net.HardwareAddr(a.PhysicalAddress[:a.PhysicalAddressLength]).String(),
		Up:            a.OperStatus == windows.IfOperStatusUp,
		Virtual:       virtualAdapter(components[guid], name, description),
		DHCP:          a.Flags&ipAdapterDHCPv4Enabled != 0,
		DNSServers:    dnsOf(a),
		SearchDomains: search,
		MTU:           a.Mtu,
		Metric:        a.Ipv4Metric,
	}
	for _, addr := range addressesOf(a) {
		if addr.stage == stageUsable {
			out.Addresses = append(out.Addresses, addr.Prefix)
		}
	}
	if suffix := windows.UTF16PtrToString(a.DnsSuffix); len(search) == 0 && suffix != "" {
		out.SearchDomains = []string{suffix}
	}
	mtu, metric, err := ipSettings(a, windows.AF_INET)
	if mtu != 0 {
		out.MTU, out.Metric = mtu, metric
	}
	return out, err
}
