package codes

// Codes of the agent itself.
const (
	Internal          Code = "CAPW-0001"
	DocumentInvalid   Code = "CAPW-0002"
	TooManyReboots    Code = "CAPW-0003"
	DeadlineExceeded  Code = "CAPW-0004"
	JournalUnreadable Code = "CAPW-0005"
	StateNotWritable  Code = "CAPW-0006"
	StepHung          Code = "CAPW-0007"
	AlreadyConfigured Code = "CAPW-0008"
	ServiceNotMade    Code = "CAPW-0009"
)

func agentCodes() []Info {
	return []Info{
		{Internal, "Internal", Retryable, "Something failed in a way that the agent does not know.",
			"Read the message; report it with C:\\var\\log\\capw-node\\capw-node.log if it makes no sense."},
		{DocumentInvalid, "DocumentInvalid", Terminal, "The node document cannot be read, or can never become a node.",
			"The message names the field. Controller and agent may be of different releases: use an agent as new as the controller, then replace the Machine."},
		{TooManyReboots, "TooManyReboots", Terminal, "Windows still wants a reboot after the last one that the document allows.",
			"The message says what asks for it. Put features and computer name into the image, or raise boot.maxBoots."},
		{DeadlineExceeded, "DeadlineExceeded", Terminal, "The first boot took longer than the document allows.",
			"The message names the step that was waited for and its last error; raise boot.deadlineSeconds if it is only slow."},
		{JournalUnreadable, "JournalUnreadable", Retryable, "Neither the journal nor its backup can be read; what was done before is unknown.",
			"Check the disk. \"capw-node bootstrap\" starts anew; every step is safe to repeat."},
		{StateNotWritable, "StateNotWritable", Retryable, "The agent cannot write C:\\ProgramData\\capw.",
			"Check free space and access control of the folder."},
		{StepHung, "StepHung", Retryable, "A call into Windows did not return in its time; the agent restarts itself.",
			"The message names the step. A storage or WMI provider of the image may hang."},
		{AlreadyConfigured, "AlreadyConfigured", Terminal, "This machine was made a node by another document already.",
			"Run \"capw-node reset\" first, or replace the machine. An image must be sealed before it has joined a cluster."},
		{ServiceNotMade, "ServiceNotMade", Retryable, "The agent cannot register or start its own Windows service.",
			"The message holds the answer of the service control manager."},
	}
}
