package codes

// Codes of phase Network.
const (
	NetworkUnreadable     Code = "CAPW-0301"
	HNSNotCleaned         Code = "CAPW-0302"
	AdapterMissing        Code = "CAPW-0303"
	AdapterNotConfigured  Code = "CAPW-0304"
	AdapterRefused        Code = "CAPW-0305"
	DefaultRouteMissing   Code = "CAPW-0306"
	NodeAddressMissing    Code = "CAPW-0307"
	NameNotResolved       Code = "CAPW-0308"
	APIServerUnreachable  Code = "CAPW-0309"
	APIServerNotTLS       Code = "CAPW-0310"
	ClockDiffers          Code = "CAPW-0311"
	NetworkConfigRejected Code = "CAPW-0312"
)

func networkCodes() []Info {
	return []Info{
		{NetworkUnreadable, "NetworkUnreadable", Retryable, "Windows does not tell its adapters or routes.",
			"The message names the call. Service iphlpsvc or the network driver may not be up."},
		{HNSNotCleaned, "HNSNotCleaned", Retryable, "A network of containers that is left from before this boot cannot be removed.",
			"The message names it. Service hns must answer; \"hnsdiag list networks\" shows what there is."},
		{AdapterMissing, "AdapterMissing", Retryable, "There is no network adapter with the MAC address that the document names.",
			"The message lists the adapters that there are. Check the driver (vmxnet3 needs VMware Tools) and the MAC addresses of the machine."},
		{AdapterNotConfigured, "AdapterNotConfigured", Retryable, "A network adapter does not take its configuration.",
			"The message says what differs. Another machine may have the address (duplicate address detection)."},
		{AdapterRefused, "AdapterRefused", Terminal, "Windows refuses the configuration of a network adapter.",
			"The message says what. Correct addresses, gateways, routes or MTU."},
		{DefaultRouteMissing, "DefaultRouteMissing", Retryable, "There is no default route.",
			"The message lists adapters and addresses; 169.254.x.x means that no DHCP server answered. Check port group, DHCP and gateway."},
		{NodeAddressMissing, "NodeAddressMissing", Retryable, "No address of the machine is one that the node may report.",
			"The message lists the addresses. Correct node.ip, or the network of the machine."},
		{NameNotResolved, "NameNotResolved", Retryable, "The name of the API server cannot be resolved.",
			"The message names it and the DNS servers. Check those, and the name."},
		{APIServerUnreachable, "APIServerUnreachable", Retryable, "No connection to the API server can be made.",
			"The message has address and cause. Check route, firewalls and the control plane's load balancer."},
		{APIServerNotTLS, "APIServerNotTLS", Retryable, "What answers at the API server's address does not speak TLS.",
			"The message has the cause. A proxy or load balancer without a working control plane may answer, or the port is wrong."},
		{ClockDiffers, "ClockDiffers", Retryable, "The machine's clock differs from the API server's so much that certificates would not be valid.",
			"The message has the difference. Set os.ntpServers, or correct the host's clock; a whole number of hours means that the hardware clock is taken for local time (RealTimeIsUniversal)."},
		{NetworkConfigRejected, "NetworkConfigRejected", Terminal, "An address in the document's network configuration cannot be read.",
			"The message names it. Correct network or node.ip."},
	}
}
