package codes

// Codes of phase Services.
const (
	ServiceInvalid       Code = "CAPW-0801"
	ServiceNotRegistered Code = "CAPW-0802"
	ServiceNotStarted    Code = "CAPW-0803"
	ServiceNotStopped    Code = "CAPW-0804"
	PodNetworkInvalid    Code = "CAPW-0805"
	PodNetworkNotWritten Code = "CAPW-0806"
	PodNetworkMissing    Code = "CAPW-0807"
	NodeSubnetMissing    Code = "CAPW-0808"
	SourceVIPNotTaken    Code = "CAPW-0809"
	ServiceFileNotMade   Code = "CAPW-0810"
)

func servicesCodes() []Info {
	return []Info{
		{ServiceInvalid, "ServiceInvalid", Terminal, "A service of the document can never run.",
			"The message names the service and what is wrong with it; correct services of the WindowsConfig."},
		{ServiceNotRegistered, "ServiceNotRegistered", Retryable, "The service control manager does not take the configuration of a service.",
			"The message holds its answer. A service that is marked for deletion is kept by whoever has it open, such as services.msc."},
		{ServiceNotStarted, "ServiceNotStarted", Retryable, "A service does not start, or its program ends before it runs.",
			"Read the service's log in C:\\var\\log\\<service>; the message holds the exit code. A missing program is an artifact that is not in the image."},
		{ServiceNotStopped, "ServiceNotStopped", Retryable, "A service that must start again with another configuration does not stop.",
			"The message holds the answer of the service control manager."},
		{PodNetworkInvalid, "PodNetworkInvalid", Terminal, "The pod network of the document cannot be configured.",
			"The message names the field of services.cni that is missing or wrong."},
		{PodNetworkNotWritten, "PodNetworkNotWritten", Retryable, "The configuration of the pod network could not be written.",
			"The message names the file. Check free space and that the path is no folder."},
		{PodNetworkMissing, "PodNetworkMissing", Retryable, "The network of pods does not exist in the Host Networking Service yet.",
			"The CNI's service makes it: read its log in C:\\var\\log. It often waits for the Node's pod range or for permission to read Nodes."},
		{NodeSubnetMissing, "NodeSubnetMissing", Retryable, "The Node has no subnet for its pods yet, or it cannot be read.",
			"The cluster's network allocates it: check that hybrid overlay is enabled in OVN-Kubernetes and that its cluster subnets are not used up."},
		{SourceVIPNotTaken, "SourceVIPNotTaken", Retryable, "kube-proxy's source address could not be taken from the pod network.",
			"The message holds the answer of the Host Networking Service; services.kubeProxy.sourceVIP sets one by hand."},
		{ServiceFileNotMade, "ServiceFileNotMade", Retryable, "A configuration file of a service could not be written.",
			"The message names the file. Check free space and that the path is no folder."},
	}
}
