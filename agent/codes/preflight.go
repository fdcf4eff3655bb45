package codes

// Codes of phase Preflight.
const (
	HostUnreadable          Code = "CAPW-0101"
	WindowsUnsupported      Code = "CAPW-0102"
	WindowsBuildDiffers     Code = "CAPW-0103"
	ArchitectureUnsupported Code = "CAPW-0104"
	MachineTooSmall         Code = "CAPW-0105"
	DiskSpaceLow            Code = "CAPW-0106"
	ProviderIDUnknown       Code = "CAPW-0107"
	MemberAlready           Code = "CAPW-0108"
	LeftoversNotRemoved     Code = "CAPW-0109"
)

func preflightCodes() []Info {
	return []Info{
		{HostUnreadable, "HostUnreadable", Retryable, "Windows does not say what machine it is, or what is on it.",
			"The message names the call. Look into the System event log; the registry or the disk of the image may be damaged."},
		{WindowsUnsupported, "WindowsUnsupported", Terminal, "Kubernetes does not run on this Windows.",
			"The message names it. Use an image of Windows Server 2019 (10.0.17763) or newer, no client edition."},
		{WindowsBuildDiffers, "WindowsBuildDiffers", Terminal, "The image is of another Windows build than the document wants; containers of the wanted build would not start on it.",
			"The message names both builds. Correct os.build, or use another image."},
		{ArchitectureUnsupported, "ArchitectureUnsupported", Terminal, "The machine's processor architecture is not the one that the node shall have.",
			"The message names both. Use an image and machine of the right architecture, or correct the label kubernetes.io/arch."},
		{MachineTooSmall, "MachineTooSmall", Terminal, "The machine has too few processors or too little memory for a Windows node.",
			"The message has the figures. Give the machine more; 2 processors and 4 GiB are a sensible least."},
		{DiskSpaceLow, "DiskSpaceLow", Retryable, "The system drive has too little free space for programs, images and logs.",
			"The message has the figures. Use a larger disk, and see that the image extends its volume (cloudbase-init: ExtendVolumesPlugin)."},
		{ProviderIDUnknown, "ProviderIDUnknown", Terminal, "The provider ID cannot be told from the firmware of this machine.",
			"The message says what the firmware says. Where a cloud controller manager sets the provider ID, say so: node.providerID None."},
		{MemberAlready, "MemberAlready", Terminal, "The machine is a node already: of another cluster, or with another name. Its image was made after it had joined.",
			"The message names the file. Make the image from a machine that never joined, or run \"capw-node reset\" before it is sealed."},
		{LeftoversNotRemoved, "LeftoversNotRemoved", Retryable, "What a former node left behind on the disk cannot be removed.",
			"The message names the folder. See which process keeps it open."},
	}
}
