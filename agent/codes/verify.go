package codes

// Codes of phase Verify.
const (
	ServiceNotRunning   Code = "CAPW-0901"
	HealthzFailed       Code = "CAPW-0902"
	NodeNotReady        Code = "CAPW-0903"
	NodeUnreadable      Code = "CAPW-0904"
	NodeMissing         Code = "CAPW-0905"
	ServiceStateUnknown Code = "CAPW-0906"
)

func verifyCodes() []Info {
	return []Info{
		{ServiceNotRunning, "ServiceNotRunning", Retryable, "A declared service does not run.",
			"The message names it, with its exit code and the end of its log below C:\\var\\log."},
		{HealthzFailed, "HealthzFailed", Retryable, "The kubelet does not say that it is healthy.",
			"The message holds its answer; see C:\\var\\log\\kubelet\\kubelet.log."},
		{NodeNotReady, "NodeNotReady", Retryable, "The Node is registered but not Ready.",
			"The message is the Node's Ready condition. If it says that the network is not ready, the CNI has not been configured: see services.cni, or set boot.waitFor to Registered when a DaemonSet brings it."},
		{NodeUnreadable, "NodeUnreadable", Retryable, "The Node cannot be read with the node's own identity.",
			"Check the network to the API server; the authorizer Node must be on."},
		{NodeMissing, "NodeMissing", Retryable, "The Node does not exist: the kubelet has not registered it, or somebody has deleted it.",
			"See C:\\var\\log\\kubelet\\kubelet.log. A kubelet registers its Node only when it starts: restart the service, or replace the Machine."},
		{ServiceStateUnknown, "ServiceStateUnknown", Retryable, "The service control manager does not say what a service does.",
			"The message holds its answer."},
	}
}
