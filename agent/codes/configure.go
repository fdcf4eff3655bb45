package codes

// Codes of phase Configure.
const (
	FileNotWritten       Code = "CAPW-0501"
	CommandFailed        Code = "CAPW-0502"
	CommandTimeout       Code = "CAPW-0503"
	RuntimeConfigInvalid Code = "CAPW-0504"
	RegistryInvalid      Code = "CAPW-0505"
	PauseImageUnknown    Code = "CAPW-0506"
)

func configureCodes() []Info {
	return []Info{
		{FileNotWritten, "FileNotWritten", Retryable, "A file could not be written.",
			"The message has path and the answer of Windows. Check free space, and that the path is no folder."},
		{CommandFailed, "CommandFailed", Terminal, "A command of the document ended with an exit code other than 0, or could not be started.",
			"The message has exit code and the end of its output. Correct the command, or set onFailure: Continue."},
		{CommandTimeout, "CommandTimeout", Terminal, "A command of the document did not end in its time, and was killed.",
			"Raise timeoutSeconds, or find out what it waits for: nobody can answer a prompt."},
		{RuntimeConfigInvalid, "RuntimeConfigInvalid", Terminal, "The configuration of containerd cannot be made.",
			"The message says what is wrong, most often in containerRuntime.extraTOML or with a version of containerd that the agent does not know."},
		{RegistryInvalid, "RegistryInvalid", Terminal, "A registry of the document cannot be configured.",
			"The message names the registry and the field."},
		{PauseImageUnknown, "PauseImageUnknown", Terminal, "There is no pause image for this build of Windows.",
			"Set containerRuntime.pauseImage to an image of that build, or use a build that Kubernetes supports."},
	}
}
