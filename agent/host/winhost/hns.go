package winhost

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// The documents of the Host Compute Network API, as far as they matter here. Field names are read whatever their case is.
// https://learn.microsoft.com/virtualization/api/hcn/hns_schema

// hcnNetwork is a HostComputeNetwork.
type hcnNetwork struct {
	ID       string
	Name     string
	Type     string
	Ipams    []hcnIpam
	Policies []hcnPolicy
}

type hcnIpam struct {
	Subnets []hcnSubnet
}

type hcnSubnet struct {
	IPAddressPrefix string `json:"IpAddressPrefix"`
}

type hcnPolicy struct {
	Type     string
	Settings struct {
		ProviderAddress string
	}
}

// hcnEndpoint is a HostComputeEndpoint.
type hcnEndpoint struct {
	ID                 string
	Name               string
	HostComputeNetwork string
	IPConfigurations   []hcnAddress `json:"IpConfigurations"`
	MacAddress         string
}

type hcnAddress struct {
	IPAddress string `json:"IpAddress"`
}

func readHCNNetwork(document string) (hcnNetwork, error) {
	// It leaves out the type that has the number 0.
	n := hcnNetwork{Type: "NAT"}
	if err := json.Unmarshal([]byte(document), &n); err != nil {
		return hcnNetwork{}, fmt.Errorf("read HNS network: %w", err)
	}
	return n, nil
}

// network returns it without a management IP, but for one of type Overlay, which says it as a policy.
func (n hcnNetwork) network() host.HNSNetwork {
	out := host.HNSNetwork{ID: n.ID, Name: n.Name, Type: n.Type, Subnets: n.subnets()}
	for _, p := range n.Policies {
		if p.Type == "ProviderAddress" {
			out.ManagementIP = p.Settings.ProviderAddress
		}
	}
	return out
}

func (n hcnNetwork) subnets() []string {
	out := []string{}
	for _, i := range n.Ipams {
		for _, s := range i.Subnets {
			out = append(out, s.IPAddressPrefix)
		}
	}
	return out
}

// same says whether a network is what these settings make.
func (n hcnNetwork) same(settings hcnNetwork) bool {
	return n.Name == settings.Name && strings.EqualFold(n.Type, settings.Type) && slices.Equal(n.subnets(), settings.subnets())
}

// external networks are bridged to an adapter of the machine, and so have a management IP some time after they were made.
func (n hcnNetwork) external() bool {
	return slices.ContainsFunc([]string{"L2Bridge", "L2Tunnel", "Overlay", "Transparent"},
		func(t string) bool { return strings.EqualFold(t, n.Type) })
}

// managementIP reads it from the answer of version 1 of the API, which alone tells it for all types.
func managementIP(answer string) (string, error) {
	a := struct {
		Success bool
		Error   string
		Output  struct{ ManagementIP string }
	}{}
	if err := json.Unmarshal([]byte(answer), &a); err != nil {
		return "", fmt.Errorf("read the answer of HNS: %w", err)
	}
	if !a.Success {
		return "", fmt.Errorf("HNS: %s", a.Error)
	}
	return a.Output.ManagementIP, nil
}

func readHCNEndpoint(document string) (hcnEndpoint, error) {
	e := hcnEndpoint{}
	if err := json.Unmarshal([]byte(document), &e); err != nil {
		return hcnEndpoint{}, fmt.Errorf("read HNS endpoint: %w", err)
	}
	return e, nil
}

func (e hcnEndpoint) endpoint() host.HNSEndpoint {
	// As everywhere in the host, in lower case with colons.
	out := host.HNSEndpoint{ID: e.ID, Name: e.Name, MAC: strings.ToLower(strings.ReplaceAll(e.MacAddress, "-", ":"))}
	if len(e.IPConfigurations) > 0 {
		out.IP = e.IPConfigurations[0].IPAddress
	}
	return out
}

// same says whether an endpoint is what these settings make.
func (e hcnEndpoint) same(settings hcnEndpoint) bool {
	return e.Name != "" && e.Name == settings.Name &&
		(len(settings.IPConfigurations) == 0 || slices.Equal(e.IPConfigurations, settings.IPConfigurations))
}

// hcnMessage returns what an error document of the API says, or all of it.
func hcnMessage(document string) string {
	m := struct{ Error string }{}
	if json.Unmarshal([]byte(document), &m) == nil && m.Error != "" {
		return m.Error
	}
	return document
}
