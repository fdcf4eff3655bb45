package guest

import (
	"encoding/binary"
	"hash/fnv"
	"net"
	"net/netip"
	"strings"
	"sync"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
)

// All guests are in the network 10.64.0.0/10, whose first address is the gateway's.
const (
	networkAddress = 10<<24 | 64<<16
	networkBits    = 10
	networkHosts   = 1<<(32-networkBits) - 3 // without network, gateway and broadcast address
)

// gateway returns the default router of all guests, which is their DNS server, too.
func gateway() netip.Addr { return netip.AddrFrom4([4]byte{10, 64, 0, 1}) }

// addressPool is the DHCP server of all guests. The zero value is ready to use.
type addressPool struct {
	mu     sync.Mutex
	leased map[netip.Addr]bool
}

// lease returns an address that no other guest has. It depends on id alone, unless another id has that address already.
func (p *addressPool) lease(id string) netip.Addr {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // never fails
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leased == nil {
		p.leased = map[netip.Addr]bool{}
	}
	for n := h.Sum32() % networkHosts; ; n = (n + 1) % networkHosts {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], networkAddress+2+n)
		if a := netip.AddrFrom4(b); !p.leased[a] {
			p.leased[a] = true
			return a
		}
	}
}

// release gives addresses back.
func (p *addressPool) release(addrs []netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range addrs {
		delete(p.leased, a)
	}
}

// adapter returns an adapter that always has address from DHCP. Only the first one of a machine has a default route.
func adapter(mac string, address netip.Addr, first bool) sim.Adapter {
	lease := &sim.Lease{Addresses: []netip.Prefix{netip.PrefixFrom(address, networkBits)}, DNSServers: []netip.Addr{gateway()}}
	if first {
		lease.Gateways = []netip.Addr{gateway()}
	}
	return sim.Adapter{Adapter: host.Adapter{MAC: strings.ToLower(mac), DHCP: true}, Lease: lease}
}

// linkLocalAddress returns the EUI-64 link-local address of a MAC address.
func linkLocalAddress(mac string) netip.Addr {
	a := [16]byte{0xfe, 0x80, 11: 0xff, 12: 0xfe}
	if hw, err := net.ParseMAC(mac); err == nil && len(hw) == 6 {
		copy(a[8:11], hw[:3])
		copy(a[13:], hw[3:])
		a[8] ^= 0x02
	}
	return netip.AddrFrom16(a)
}
