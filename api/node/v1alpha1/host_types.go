package v1alpha1

// OSInfo is how Windows is prepared.
type OSInfo struct {
	// Build that the image must have, such as 10.0.20348; empty: any that Kubernetes supports.
	Build string `json:"build,omitempty"`
	// Features are Windows features. Default: Containers, and Microsoft-Hyper-V when HyperVBuilds are wanted.
	Features []string `json:"features,omitempty"`
	// TimeZone is a Windows name, such as "W. Europe Standard Time"; empty: as in the image.
	TimeZone string `json:"timeZone,omitempty"`
	// NTPServers; empty: as in the image.
	NTPServers []string `json:"ntpServers,omitempty"`
	// Users are created, or given password, groups and keys.
	Users []User `json:"users,omitempty"`
	// Proxy is set for the machine: every service started afterwards has it.
	Proxy ProxyInfo `json:"proxy,omitzero"`
	// TrustedCAs, PEM, become root certificates of the machine.
	TrustedCAs []string `json:"trustedCAs,omitempty"`
	// Environment variables of the machine.
	Environment map[string]string `json:"environment,omitempty"`
	// Registry values.
	Registry []RegistryValue `json:"registry,omitempty"`
	// Firewall rules beside those that the services need.
	Firewall []FirewallRule `json:"firewall,omitempty"`
	// DynamicPorts is the range for outgoing TCP connections. Default: 34000 and the 31536 from there, as HNS reserves
	// ports in Windows' own range.
	DynamicPorts PortRange `json:"dynamicPorts,omitzero"`
	// Defender is Exclude (containerd, kubelet and the folder of images are excluded from scans) or None. Default: Exclude.
	Defender string `json:"defender,omitempty"`
	// PageFile; left out: as in the image.
	PageFile PageFile `json:"pageFile,omitzero"`
	// DomainJoin; left out: none.
	DomainJoin *DomainJoin `json:"domainJoin,omitempty"`
	// CCGPlugins are registered for group managed service accounts on hosts outside the domain.
	CCGPlugins []CCGPlugin `json:"ccgPlugins,omitempty"`
	// LogRotation of all logs. Its fields have their own defaults.
	LogRotation LogRotation `json:"logRotation,omitzero"`
}

// User is a local account.
type User struct {
	Name     string `json:"name"`
	FullName string `json:"fullName,omitempty"`
	// Password; empty: a random one that nobody knows. Secret.
	Password string `json:"password,omitempty"`
	// Groups by name or SID; S-1-5-32-544 is Administrators in every language.
	Groups []string `json:"groups,omitempty"`
	// SSHAuthorizedKeys are written where Windows OpenSSH reads them: for members of Administrators that is one file for all.
	SSHAuthorizedKeys []string `json:"sshAuthorizedKeys,omitempty"`
}

// ProxyInfo is the proxy of the machine.
type ProxyInfo struct {
	HTTP    string   `json:"http,omitempty"`
	HTTPS   string   `json:"https,omitempty"`
	NoProxy []string `json:"noProxy,omitempty"`
}

// RegistryValue is one value in the registry.
type RegistryValue struct {
	// Key with its hive, such as HKLM\SOFTWARE\Example.
	Key string `json:"key"`
	// Name; empty: the key's default value.
	Name string `json:"name,omitempty"`
	// Type is String, ExpandString, MultiString, DWord, QWord or Binary.
	Type string `json:"type"`
	// Value as text: decimal for numbers, hexadecimal for Binary.
	Value string `json:"value,omitempty"`
	// Values of a MultiString.
	Values []string `json:"values,omitempty"`
}

// FirewallRule lets traffic in.
type FirewallRule struct {
	Name string `json:"name"`
	// Protocol is TCP or UDP.
	Protocol string `json:"protocol"`
	// Ports, such as 10250 or 30000-32767; empty: all.
	Ports []string `json:"ports,omitempty"`
	// Program whose traffic it is; empty: any.
	Program string `json:"program,omitempty"`
	// RemoteAddresses, CIDRs; empty: all.
	RemoteAddresses []string `json:"remoteAddresses,omitempty"`
}

// PortRange is Start and the Count-1 ports after it.
type PortRange struct {
	Start int32 `json:"start,omitempty"`
	Count int32 `json:"count,omitempty"`
}

// PageFile is the size of the page file on C:.
type PageFile struct {
	// InitialMiB and MaximumMiB; both 0: as in the image.
	InitialMiB int32 `json:"initialMiB,omitempty"`
	MaximumMiB int32 `json:"maximumMiB,omitempty"`
}

// DomainJoin makes the host a member of an Active Directory domain.
type DomainJoin struct {
	// OfflineBlob is what djoin /provision made for this computer name, base64. Secret.
	OfflineBlob string `json:"offlineBlob,omitempty"`
	// Domain, OU, Username and Password join online. Password is secret.
	Domain   string `json:"domain,omitempty"`
	OU       string `json:"ou,omitempty"`
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
}

// CCGPlugin is a Container Credential Guard plug-in, a COM server.
type CCGPlugin struct {
	// CLSID in braces.
	CLSID string `json:"clsid"`
	// Path of the DLL.
	Path string `json:"path"`
}

// NetworkInfo is the configuration of adapters. An adapter that is not listed is left as it is.
type NetworkInfo struct {
	Adapters []AdapterInfo `json:"adapters,omitempty"`
}

// AdapterInfo is one adapter.
type AdapterInfo struct {
	// MAC finds it, such as 00:50:56:aa:bb:01.
	MAC string `json:"mac"`
	// DHCP is Enabled or Disabled. Default: Disabled when Addresses are given, else as it is.
	DHCP string `json:"dhcp,omitempty"`
	// Addresses with prefix length.
	Addresses []string `json:"addresses,omitempty"`
	// Gateways, at most one per family.
	Gateways []string `json:"gateways,omitempty"`
	Routes   []Route  `json:"routes,omitempty"`
	// DNSServers and SearchDomains; empty: as they are.
	DNSServers    []string `json:"dnsServers,omitempty"`
	SearchDomains []string `json:"searchDomains,omitempty"`
	// MTU in bytes; 0: as it is.
	MTU int32 `json:"mtu,omitempty"`
}

// Route is a static route.
type Route struct {
	To     string `json:"to"`
	Via    string `json:"via"`
	Metric int32  `json:"metric,omitempty"`
}

// FileACL says who may read a file.
type FileACL string

const (
	// ACLSystem is SYSTEM and Administrators, nobody else.
	ACLSystem FileACL = "System"
	// ACLUsersRead lets SYSTEM and Administrators change, Users read and execute.
	ACLUsersRead FileACL = "UsersRead"
)

// File is a file to be written.
type File struct {
	// Path, absolute, with backslashes.
	Path string `json:"path"`
	// Content. Secret.
	Content []byte `json:"content"`
	// ACL. Default: System.
	ACL FileACL `json:"acl,omitempty"`
}

// Command is run once, as SYSTEM.
type Command struct {
	// Name for logs. Default: the first of Args.
	Name string `json:"name,omitempty"`
	// Args are program and arguments, as they are: no shell reads them.
	Args []string `json:"args,omitempty"`
	// Script is run by cmd.exe (Shell: Cmd) or PowerShell instead of Args. May hold secrets.
	Script string `json:"script,omitempty"`
	// Shell is Cmd or PowerShell. Default: Cmd.
	Shell string `json:"shell,omitempty"`
	// TimeoutSeconds. Default: 300.
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
	// OnFailure is Fail or Continue. Default: Fail.
	OnFailure string `json:"onFailure,omitempty"`
}

// BootInfo bounds the first boot.
type BootInfo struct {
	// MaxBoots is how often the agent may reboot the host before the join. Default: 3.
	MaxBoots int32 `json:"maxBoots,omitempty"`
	// DeadlineSeconds from the start of the agent to Done. Default: 3600.
	DeadlineSeconds int32 `json:"deadlineSeconds,omitempty"`
	// StatusPort is a serial port that status lines are also written to, such as COM1; empty: none.
	StatusPort string `json:"statusPort,omitempty"`
	// WaitFor says what ends the first boot: Ready (the Node is Ready) or Registered (it exists; a network that comes
	// later makes it Ready). Default: Ready.
	WaitFor string `json:"waitFor,omitempty"`
}
