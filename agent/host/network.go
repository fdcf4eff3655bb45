package host

import (
	"context"
	"net"
	"net/netip"
)

// Network is the machine's network stack.
type Network interface {
	// Adapters returns the adapters except loopback, those without a MAC address too.
	Adapters(ctx context.Context) ([]Adapter, error)
	// Routes returns the routes that are in use.
	Routes(ctx context.Context) ([]Route, error)
	// Configure brings an adapter, by index, to what c says, and keeps it so over reboots.
	Configure(ctx context.Context, index uint32, c AdapterConfig) error
	// DynamicPorts returns the range of local ports for outgoing TCP connections of IPv4.
	DynamicPorts(ctx context.Context) (start, count uint16, err error)
	// SetDynamicPorts sets it for TCP over IPv4 and IPv6.
	SetDynamicPorts(ctx context.Context, start, count uint16) error
	// Resolve returns the addresses of a host name, by the machine's resolver.
	Resolve(ctx context.Context, name string) ([]netip.Addr, error)
	// DialContext opens a connection, as net.Dialer does. Network "pipe" is a named pipe whose address is its path.
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
	// Changes tells when addresses, routes or adapters may have changed, until ctx ends, when the channel is closed.
	Changes(ctx context.Context) (<-chan struct{}, error)
}

// Adapter is a network adapter.
type Adapter struct {
	// Index of the interface, Name as people see it, Description of the device.
	Index       uint32
	Name        string
	Description string
	// MAC in lower case with colons.
	MAC string
	// Up: the link works.
	Up bool
	// Virtual: made by HNS or Hyper-V (vEthernet), not a device of the machine.
	Virtual bool
	// DHCP for IPv4.
	DHCP bool
	// Addresses with prefix lengths; tentative and duplicate ones are left out.
	Addresses     []netip.Prefix
	DNSServers    []netip.Addr
	SearchDomains []string
	MTU           uint32
	// Metric of the interface for IPv4.
	Metric uint32
}

// AdapterConfig is what an adapter shall be. Nil and zero fields are left as they are.
type AdapterConfig struct {
	DHCP *bool
	// Addresses replace all manual ones. Gateways replace the default routes of the adapter.
	Addresses []netip.Prefix
	Gateways  []netip.Addr
	// Routes are added.
	Routes []Route
	// DNSServers and SearchDomains replace those that there are. Search domains are the machine's.
	DNSServers    []netip.Addr
	SearchDomains []string
	MTU           uint32
}

// Route is a route.
type Route struct {
	To netip.Prefix
	// Via is the next hop; unspecified for a network of the adapter itself.
	Via netip.Addr
	// Index of the interface, Metric of route plus interface.
	Index  uint32
	Metric uint32
}

// HNS is the Host Networking Service, the networks of containers. All of it is ErrNotSupported while the feature
// Containers is not enabled.
type HNS interface {
	// Networks returns all networks.
	Networks(ctx context.Context) ([]HNSNetwork, error)
	// CreateNetwork makes one from the JSON of a HostComputeNetwork (schema version 2) and returns it.
	CreateNetwork(ctx context.Context, settings []byte) (HNSNetwork, error)
	// DeleteNetwork removes one with its endpoints; a missing one is success.
	DeleteNetwork(ctx context.Context, id string) error
	// Endpoints returns the endpoints of a network.
	Endpoints(ctx context.Context, network string) ([]HNSEndpoint, error)
	// CreateEndpoint makes one in a network from the JSON of a HostComputeEndpoint.
	CreateEndpoint(ctx context.Context, network string, settings []byte) (HNSEndpoint, error)
	// DeleteEndpoint removes one; a missing one is success.
	DeleteEndpoint(ctx context.Context, id string) error
}

// HNSNetwork is a network of HNS.
type HNSNetwork struct {
	ID   string
	Name string
	// Type, such as L2Bridge, Overlay, NAT.
	Type string
	// Subnets are address prefixes, ManagementIP is the host's address in it.
	Subnets      []string
	ManagementIP string
}

// HNSEndpoint is an endpoint in an HNS network.
type HNSEndpoint struct {
	ID   string
	Name string
	IP   string
	MAC  string
}
