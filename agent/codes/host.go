package codes

// Codes of phase Host.
const (
	FolderNotMade         Code = "CAPW-0201"
	ComputerNameNotSet    Code = "CAPW-0202"
	ComputerNameRefused   Code = "CAPW-0203"
	ComputerNameNotTaken  Code = "CAPW-0204"
	FeatureNotEnabled     Code = "CAPW-0205"
	FeatureUnknown        Code = "CAPW-0206"
	FeatureNotTaken       Code = "CAPW-0207"
	TimeNotConfigured     Code = "CAPW-0208"
	TimeZoneUnknown       Code = "CAPW-0209"
	UserNotApplied        Code = "CAPW-0210"
	UserRefused           Code = "CAPW-0211"
	SSHKeysNotWritten     Code = "CAPW-0212"
	EnvironmentNotSet     Code = "CAPW-0213"
	EnvironmentRefused    Code = "CAPW-0214"
	CANotTrusted          Code = "CAPW-0215"
	CARefused             Code = "CAPW-0216"
	RegistryNotSet        Code = "CAPW-0217"
	RegistryRefused       Code = "CAPW-0218"
	FirewallNotConfigured Code = "CAPW-0219"
	FirewallRefused       Code = "CAPW-0220"
	DynamicPortsNotSet    Code = "CAPW-0221"
	DynamicPortsRefused   Code = "CAPW-0222"
	DomainNotJoined       Code = "CAPW-0223"
	DomainRefused         Code = "CAPW-0224"
	DomainNotTaken        Code = "CAPW-0225"
	DomainIsAnother       Code = "CAPW-0226"
)

func hostCodes() []Info {
	return []Info{
		{FolderNotMade, "FolderNotMade", Retryable, "A folder of the node cannot be made, or not be given its access control.",
			"The message names it. Check free space, and whether a file of that name is in the way."},
		{ComputerNameNotSet, "ComputerNameNotSet", Retryable, "The computer name cannot be set.",
			"The message holds Windows' answer."},
		{ComputerNameRefused, "ComputerNameRefused", Terminal, "Windows refuses the node's name as a computer name.",
			"The name must be at most 15 characters of a-z, 0-9 and -, and not only digits. Replace the Machine with a shorter MachineDeployment name."},
		{ComputerNameNotTaken, "ComputerNameNotTaken", Terminal, "The computer has another name than the node, even after a reboot.",
			"Something sets it back: another first-boot tool, an answer file, or a group policy. The message names both names."},
		{FeatureNotEnabled, "FeatureNotEnabled", Retryable, "A Windows feature cannot be enabled.",
			"The message holds Windows' answer; C:\\Windows\\Logs\\CBS\\CBS.log has more. Enable features in the image."},
		{FeatureUnknown, "FeatureUnknown", Terminal, "This Windows has no such feature.",
			"The message names it. Correct os.features; DISM /Online /Get-Features lists the names."},
		{FeatureNotTaken, "FeatureNotTaken", Terminal, "A Windows feature is not enabled, even after a reboot.",
			"The message names it; C:\\Windows\\Logs\\CBS\\CBS.log says why it was rolled back. Hyper-V needs a machine with nested virtualization."},
		{TimeNotConfigured, "TimeNotConfigured", Retryable, "Time zone or time servers cannot be set, or the time service does not start.",
			"The message holds Windows' answer. Service W32Time must not be disabled."},
		{TimeZoneUnknown, "TimeZoneUnknown", Terminal, "Windows does not know the time zone.",
			"Use a Windows name, such as \"W. Europe Standard Time\"; tzutil /l lists them."},
		{UserNotApplied, "UserNotApplied", Retryable, "A local account cannot be created or changed.",
			"The message holds Windows' answer."},
		{UserRefused, "UserRefused", Terminal, "Windows refuses a local account: its name, its password or a group.",
			"The message names it. Passwords must satisfy the password policy of the image; groups must exist."},
		{SSHKeysNotWritten, "SSHKeysNotWritten", Retryable, "A user's SSH keys cannot be written.",
			"The message names the file. A user who is no member of Administrators needs a profile on the machine."},
		{EnvironmentNotSet, "EnvironmentNotSet", Retryable, "An environment variable of the machine cannot be set.",
			"The message names it."},
		{EnvironmentRefused, "EnvironmentRefused", Terminal, "Windows refuses an environment variable.",
			"The message names it. Correct os.environment."},
		{CANotTrusted, "CANotTrusted", Retryable, "A certificate cannot be added to the machine's trusted roots.",
			"The message names it. A group policy may forbid to change the store."},
		{CARefused, "CARefused", Terminal, "A trusted CA of the document is not a certificate.",
			"The message says which. Correct os.trustedCAs."},
		{RegistryNotSet, "RegistryNotSet", Retryable, "A registry value cannot be set.",
			"The message names it. Check the key's access control; Windows' tamper protection guards some keys."},
		{RegistryRefused, "RegistryRefused", Terminal, "A registry value of the document cannot be: its key, type or value.",
			"The message names it. Correct os.registry."},
		{FirewallNotConfigured, "FirewallNotConfigured", Retryable, "A firewall rule cannot be made.",
			"The message names it. Service mpssvc must run, and group policy must allow local rules."},
		{FirewallRefused, "FirewallRefused", Terminal, "Windows refuses a firewall rule.",
			"The message names it. Correct os.firewall."},
		{DynamicPortsNotSet, "DynamicPortsNotSet", Retryable, "The range of dynamic ports cannot be set.",
			"The message holds Windows' answer."},
		{DynamicPortsRefused, "DynamicPortsRefused", Terminal, "Windows refuses the range of dynamic ports.",
			"Correct os.dynamicPorts: at least 255 ports from 1025 to 65535."},
		{DomainNotJoined, "DomainNotJoined", Retryable, "The machine cannot become a member of the domain now.",
			"The message holds Windows' answer; C:\\Windows\\debug\\netsetup.log has more. A domain controller must be reachable and the clock right."},
		{DomainRefused, "DomainRefused", Terminal, "The domain refuses the machine: credentials, organizational unit or offline blob are wrong.",
			"The message holds Windows' answer. Make the offline blob for exactly this computer name, or correct os.domainJoin."},
		{DomainNotTaken, "DomainNotTaken", Terminal, "The machine is not a member of the domain, even after a reboot.",
			"C:\\Windows\\debug\\netsetup.log says why."},
		{DomainIsAnother, "DomainIsAnother", Terminal, "The machine is a member of another domain already.",
			"The message names both. Make the image from a machine that is in no domain."},
	}
}
