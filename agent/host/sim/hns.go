package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// virtualOffset is between the index of an adapter and that of the vEthernet adapter which took over its addresses.
const virtualOffset = 1000

// hnsState is what HNS keeps.
type hnsState struct {
	created  int // numbers the IDs
	networks []hnsNetwork
}

type hnsNetwork struct {
	host.HNSNetwork

	adapter   uint32 // that it is on; 0: none
	settings  string
	endpoints []host.HNSEndpoint
}

// hns fills host.HNS.
type hns struct{ p *Process }

func hnsCall[T any](ctx context.Context, p *Process, op, detail string, act func(s *hnsState) (T, error)) (T, error) {
	return locked(ctx, p, "HNS."+op, detail, func() (T, error) {
		if f, _ := p.m.disk.features.get("Containers"); f.State != host.FeatureEnabled {
			var zero T
			return zero, fmt.Errorf("HNS: the feature Containers is not enabled: %w", host.ErrNotSupported)
		}
		return act(&p.m.disk.hns)
	})
}

func (x hns) Networks(ctx context.Context) ([]host.HNSNetwork, error) {
	return hnsCall(ctx, x.p, "Networks", "", func(s *hnsState) ([]host.HNSNetwork, error) {
		out := []host.HNSNetwork{}
		for _, n := range s.networks {
			n.Subnets = slices.Clone(n.Subnets)
			out = append(out, n.HNSNetwork)
		}
		return out, nil
	})
}

// networkSettings is the part of a HostComputeNetwork that the simulation understands.
type networkSettings struct {
	Name  string
	Type  string
	Ipams []struct {
		Subnets []struct{ IpAddressPrefix string } //nolint:revive // HNS spells it so
	}
	Policies []struct {
		Type     string
		Settings struct{ NetworkAdapterName string }
	}
	SchemaVersion struct{ Major, Minor int }
}

func (x hns) CreateNetwork(ctx context.Context, settings []byte) (host.HNSNetwork, error) {
	return hnsCall(ctx, x.p, "CreateNetwork", "", func(*hnsState) (host.HNSNetwork, error) {
		return x.p.m.createHNSNetwork(settings)
	})
}

func (m *Machine) createHNSNetwork(settings []byte) (host.HNSNetwork, error) {
	var want networkSettings
	if err := json.Unmarshal(settings, &want); err != nil {
		return host.HNSNetwork{}, fmt.Errorf("HNS network: %w: %w", err, host.ErrInvalid)
	}
	types := []string{"NAT", "ICS", "Internal", "Private", "L2Bridge", "L2Tunnel", "Overlay", "Transparent"}
	at := slices.IndexFunc(types, func(t string) bool { return strings.EqualFold(t, want.Type) })
	if at < 0 || want.SchemaVersion.Major != 2 || want.Name == "" {
		return host.HNSNetwork{}, fmt.Errorf("HNS network %q: type %q, schema version %d: %w",
			want.Name, want.Type, want.SchemaVersion.Major, host.ErrInvalid)
	}
	s := &m.disk.hns
	if slices.ContainsFunc(s.networks, func(n hnsNetwork) bool { return n.Name == want.Name }) {
		return host.HNSNetwork{}, fmt.Errorf("HNS network %s: there is one already: %w", want.Name, host.ErrInvalid)
	}
	n := hnsNetwork{HNSNetwork: host.HNSNetwork{ID: s.id(), Name: want.Name, Type: types[at]}, settings: string(settings)}
	for _, ipam := range want.Ipams {
		for _, subnet := range ipam.Subnets {
			if _, err := netip.ParsePrefix(subnet.IpAddressPrefix); err != nil {
				return host.HNSNetwork{}, fmt.Errorf("HNS network %s: %w: %w", want.Name, err, host.ErrInvalid)
			}
			n.Subnets = append(n.Subnets, subnet.IpAddressPrefix)
		}
	}
	if at >= slices.Index(types, "L2Bridge") {
		if err := m.attach(&n, want); err != nil {
			return host.HNSNetwork{}, err
		}
	}
	s.networks = append(s.networks, n)
	m.boot.notify(networkChange)
	return n.HNSNetwork, nil
}

// attach puts a network on an adapter: the one that its policy names, or the first with an address.
func (m *Machine) attach(n *hnsNetwork, want networkSettings) error {
	name := ""
	for _, p := range want.Policies {
		if p.Type == "NetAdapterName" {
			name = p.Settings.NetworkAdapterName
		}
	}
	for _, index := range m.adapterIndexes() {
		a, _ := m.disk.adapters[index].current(nil)
		if len(a.Addresses) == 0 || name != "" && !strings.EqualFold(a.Name, name) {
			continue
		}
		n.adapter, n.ManagementIP = index, a.Addresses[0].Addr().String()
		return nil
	}
	return fmt.Errorf("HNS network %s: no adapter %q with an address: %w", n.Name, name, host.ErrNotFound)
}

// id returns a new GUID.
func (s *hnsState) id() string {
	s.created++
	return fmt.Sprintf("00000000-0000-4000-8000-%012x", s.created)
}

// on says whether a network has taken over the addresses of an adapter.
func (s *hnsState) on(adapter uint32) bool {
	return slices.ContainsFunc(s.networks, func(n hnsNetwork) bool { return n.adapter == adapter && adapter != 0 })
}

// internalAdapters returns the adapters of the networks that are not on an adapter of the machine.
func (s *hnsState) internalAdapters() []host.Adapter {
	out := []host.Adapter{}
	for i, n := range s.networks {
		if n.adapter != 0 || len(n.Subnets) == 0 {
			continue
		}
		prefix := netip.MustParsePrefix(n.Subnets[0])
		out = append(out, host.Adapter{
			Index: uint32(2*virtualOffset + i), Name: "vEthernet (" + n.Name + ")", //nolint:gosec // few
			Description: "Hyper-V Virtual Ethernet Container Adapter", MAC: fmt.Sprintf("00:15:5d:00:00:%02x", i+1), Up: true,
			Virtual: true, Addresses: []netip.Prefix{netip.PrefixFrom(prefix.Masked().Addr().Next(), prefix.Bits())},
			MTU: 1500, Metric: 5000,
		})
	}
	return out
}

func (x hns) DeleteNetwork(ctx context.Context, id string) error {
	_, err := hnsCall(ctx, x.p, "DeleteNetwork", id, func(s *hnsState) (struct{}, error) {
		s.networks = slices.DeleteFunc(s.networks, func(n hnsNetwork) bool { return strings.EqualFold(n.ID, id) })
		x.p.boot.notify(networkChange)
		return struct{}{}, nil
	})
	return err
}

func (s *hnsState) network(id string) (*hnsNetwork, error) {
	for i := range s.networks {
		if strings.EqualFold(s.networks[i].ID, id) {
			return &s.networks[i], nil
		}
	}
	return nil, fmt.Errorf("HNS network %s: %w", id, host.ErrNotFound)
}

func (x hns) Endpoints(ctx context.Context, network string) ([]host.HNSEndpoint, error) {
	return hnsCall(ctx, x.p, "Endpoints", network, func(s *hnsState) ([]host.HNSEndpoint, error) {
		n, err := s.network(network)
		if err != nil {
			return nil, err
		}
		return append([]host.HNSEndpoint{}, n.endpoints...), nil
	})
}

// endpointSettings is the part of a HostComputeEndpoint that the simulation understands.
type endpointSettings struct {
	Name             string
	MacAddress       string
	IpConfigurations []struct{ IpAddress string } //nolint:revive // HNS spells it so
	SchemaVersion    struct{ Major, Minor int }
}

func (x hns) CreateEndpoint(ctx context.Context, network string, settings []byte) (host.HNSEndpoint, error) {
	return hnsCall(ctx, x.p, "CreateEndpoint", network, func(s *hnsState) (host.HNSEndpoint, error) {
		n, err := s.network(network)
		if err != nil {
			return host.HNSEndpoint{}, err
		}
		var want endpointSettings
		if err := json.Unmarshal(settings, &want); err != nil {
			return host.HNSEndpoint{}, fmt.Errorf("HNS endpoint: %w: %w", err, host.ErrInvalid)
		}
		if want.SchemaVersion.Major != 2 {
			return host.HNSEndpoint{}, fmt.Errorf("HNS endpoint: schema version %d: %w", want.SchemaVersion.Major, host.ErrInvalid)
		}
		return s.createEndpoint(n, want)
	})
}

func (s *hnsState) createEndpoint(n *hnsNetwork, want endpointSettings) (host.HNSEndpoint, error) {
	e := host.HNSEndpoint{ID: s.id(), Name: want.Name, MAC: want.MacAddress}
	setDefault(&e.MAC, fmt.Sprintf("00-15-5D-00-01-%02X", s.created%256))
	if len(want.IpConfigurations) > 0 {
		e.IP = want.IpConfigurations[0].IpAddress
	}
	used := func(ip string) bool {
		return slices.ContainsFunc(n.endpoints, func(have host.HNSEndpoint) bool { return have.IP == ip })
	}
	if e.IP != "" && used(e.IP) {
		return host.HNSEndpoint{}, fmt.Errorf("HNS endpoint %s: address %s is in use: %w", e.Name, e.IP, host.ErrInvalid)
	}
	if e.IP == "" && len(n.Subnets) > 0 {
		ip := netip.MustParsePrefix(n.Subnets[0]).Masked().Addr().Next().Next() // the first is the gateway
		for used(ip.String()) {
			ip = ip.Next()
		}
		e.IP = ip.String()
	}
	n.endpoints = append(n.endpoints, e)
	return e, nil
}

func (x hns) DeleteEndpoint(ctx context.Context, id string) error {
	_, err := hnsCall(ctx, x.p, "DeleteEndpoint", id, func(s *hnsState) (struct{}, error) {
		for i := range s.networks {
			n := &s.networks[i]
			n.endpoints = slices.DeleteFunc(n.endpoints, func(e host.HNSEndpoint) bool { return strings.EqualFold(e.ID, id) })
		}
		return struct{}{}, nil
	})
	return err
}
