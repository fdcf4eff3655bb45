package codes

// Codes of phase Runtime.
const (
	RuntimeNotStarted   Code = "CAPW-0601"
	RuntimeDied         Code = "CAPW-0602"
	RuntimeNotAnswering Code = "CAPW-0603"
	RuntimeNotReady     Code = "CAPW-0604"
	RuntimeOtherVersion Code = "CAPW-0605"
)

func runtimeCodes() []Info {
	return []Info{
		{RuntimeNotStarted, "RuntimeNotStarted", Retryable, "The containerd service could not be registered or started.",
			"The message has the answer of the service control manager and the end of containerd's log."},
		{RuntimeDied, "RuntimeDied", Retryable, "containerd ended soon after its start.",
			"The message has the end of its log. Check containerRuntime.extraTOML and that the feature Containers is enabled."},
		{RuntimeNotAnswering, "RuntimeNotAnswering", Retryable, "containerd runs, but does not answer on its named pipe.",
			"Read C:\\var\\log\\containerd\\containerd.log. With management Existing, the image must serve the CRI on \\\\.\\pipe\\containerd-containerd."},
		{RuntimeNotReady, "RuntimeNotReady", Retryable, "containerd answers, and says that it cannot run containers yet.",
			"The message has its reason; read C:\\var\\log\\containerd\\containerd.log."},
		{RuntimeOtherVersion, "RuntimeOtherVersion", Retryable, "The containerd that answers is not the one that is installed.",
			"The message has both versions. Another containerd may own the pipe: look for a second service in the image."},
	}
}
