// Package host is the small set of facts and acts of one Windows machine that the node agent is made of.
//
// The agent knows Windows only through a Host. On Windows, package winhost fills it with the native API; everywhere else,
// package sim fills it with a simulated machine that loses its power, and whose calls fail, wherever a test wants.
//
// Rules that every implementation keeps:
//
//   - Every act is idempotent: to ask for what is already so succeeds and changes nothing.
//   - A call returns when its effect is durable: a power cut right after it loses nothing.
//   - Paths are absolute Windows paths with backslashes.
//   - A call ends soon after its context does, except where Windows itself hangs.
//   - Errors wrap the ones of this package where one fits, and the cause.
package host

import (
	"context"
	"errors"
	"net"
	"time"
)

// Errors that callers tell apart.
var (
	// ErrNotFound: there is no such service, user, registry value, certificate, network. Files use fs.ErrNotExist.
	ErrNotFound = errors.New("not found")
	// ErrNotSupported: this Windows cannot do it at all.
	ErrNotSupported = errors.New("not supported by this Windows")
	// ErrBusy: it can be done, but not now, such as while the service database is locked.
	ErrBusy = errors.New("busy")
	// ErrInvalid: Windows refuses the value; no repetition helps.
	ErrInvalid = errors.New("refused by Windows")
)

// Host is one Windows machine.
type Host struct {
	System       System
	Files        Files
	Processes    Processes
	Services     Services
	Registry     Registry
	Network      Network
	HNS          HNS
	Firewall     Firewall
	Features     Features
	Users        Users
	Certificates Certificates
	Volumes      Volumes
	Domain       Domain
	Reporting    Reporting
}

// System is the machine and its Windows.
type System interface {
	// Info returns what does not change while Windows runs.
	Info(ctx context.Context) (Info, error)
	// ComputerName returns the DNS host name that Windows has now, and the one that it has after the next boot. Case as set.
	ComputerName(ctx context.Context) (now, next string, err error)
	// SetComputerName sets the name that Windows has after the next boot. ErrInvalid for one that it refuses.
	SetComputerName(ctx context.Context, name string) error
	// TimeZone returns the Windows name of the time zone.
	TimeZone(ctx context.Context) (string, error)
	// SetTimeZone takes effect at once. ErrInvalid for an unknown name.
	SetTimeZone(ctx context.Context, name string) error
	// Environment returns the machine's environment variables, names as they are written.
	Environment(ctx context.Context) (map[string]string, error)
	// SetEnvironment sets a variable of the machine, or deletes it with nil, for processes started from now on; services
	// see it after the next boot, or when they are started by a process that has it. Names are case-insensitive.
	SetEnvironment(ctx context.Context, name string, value *string) error
	// RebootPending says whether Windows itself waits for a reboot (component servicing, computer name, file renames).
	RebootPending(ctx context.Context) (bool, error)
	// Reboot asks Windows to reboot now, and returns at once. The caller ends; it must be ready to be killed.
	Reboot(ctx context.Context, reason string) error
}

// Info describes a machine.
type Info struct {
	// Build is major.minor.build, such as 10.0.20348; Revision is the update level (UBR).
	Build    string
	Revision uint32
	// ProductName, such as "Windows Server 2022 Datacenter"; InstallationType, such as "Server Core"; Server is false for
	// client editions.
	ProductName      string
	InstallationType string
	Server           bool
	// Arch as in GOARCH.
	Arch string
	// CPUs and MemoryBytes of the machine.
	CPUs        int
	MemoryBytes uint64
	// UUID is SMBIOS's system UUID as 16 raw bytes in the order of the firmware table; Serial is its serial number;
	// Manufacturer and Product name the platform, such as "VMware, Inc." and "VMware7,1".
	UUID         [16]byte
	Serial       string
	Manufacturer string
	Product      string
	// BootID differs for every boot of Windows, and stays while it runs. BootTime is when it began.
	BootID   string
	BootTime time.Time
	// SystemDrive, such as C:, and SystemRoot, such as C:\Windows.
	SystemDrive string
	SystemRoot  string
}

// Domain is the membership in Active Directory.
type Domain interface {
	// Joined returns the DNS or NetBIOS name of the domain that the machine is a member of, or "".
	Joined(ctx context.Context) (string, error)
	// JoinOffline applies the blob of djoin /provision, decoded. It takes effect at the next boot.
	JoinOffline(ctx context.Context, blob []byte) error
	// Join makes the machine a member with a user's credentials. It takes effect at the next boot.
	Join(ctx context.Context, domain, ou, username, password string) error
}

// Reporting is how a machine tells the outside what happens.
type Reporting interface {
	// Event writes to the Application log under source CAPW.
	Event(ctx context.Context, level EventLevel, id uint32, message string) error
	// SetGuestInfo sets a variable that the hypervisor can read, such as guestinfo.capw.status. ErrNotSupported without one.
	SetGuestInfo(ctx context.Context, key, value string) error
	// GuestInfo reads one. ErrNotFound if it is not set, ErrNotSupported without a hypervisor that has them.
	GuestInfo(ctx context.Context, key string) (string, error)
	// SerialLine writes a line to a serial port, such as COM1. ErrNotSupported without the port.
	SerialLine(ctx context.Context, port, line string) error
}

// EventLevel of an event log record.
type EventLevel string

// Event levels.
const (
	EventInformation EventLevel = "Information"
	EventWarning     EventLevel = "Warning"
	EventError       EventLevel = "Error"
)

// Processes starts programs.
type Processes interface {
	// Run starts a program, waits for its end and returns what it said. An exit code other than 0 is not an error. When ctx
	// ends, the program and its children are killed and the error is ctx's.
	Run(ctx context.Context, c Command) (Result, error)
}

// Command is a program to be run.
type Command struct {
	// Argv: the program's absolute path, and its arguments, which are quoted for it.
	Argv []string
	// Dir is its working folder. Default: the system drive's root.
	Dir string
	// Env are variables, NAME=value, beside those of the machine.
	Env []string
	// Stdin is given to it.
	Stdin []byte
}

// Result is how a program ended.
type Result struct {
	ExitCode int
	// Output is the end of what it wrote to stdout and stderr, at most 64 KiB each.
	Stdout, Stderr []byte
}

// Volumes are the attached file systems.
type Volumes interface {
	// List returns the volumes that have a drive letter.
	List(ctx context.Context) ([]Volume, error)
}

// Volume is one file system.
type Volume struct {
	// Root, such as D:\.
	Root       string
	Label      string
	FileSystem string
	// Kind of drive.
	Kind VolumeKind
	// FreeBytes and TotalBytes.
	FreeBytes, TotalBytes uint64
}

// VolumeKind says what a volume is on.
type VolumeKind string

// Kinds of volumes.
const (
	VolumeFixed     VolumeKind = "Fixed"
	VolumeRemovable VolumeKind = "Removable"
	VolumeCDROM     VolumeKind = "CDROM"
	VolumeOther     VolumeKind = "Other"
)

// Certificates is the machine's store of trusted roots (LocalMachine\ROOT).
type Certificates interface {
	// Roots returns the SHA-256 fingerprints, lower-case hexadecimal, of the certificates in it.
	Roots(ctx context.Context) ([]string, error)
	// AddRoot adds a certificate (DER).
	AddRoot(ctx context.Context, der []byte) error
	// RemoveRoot removes the one with the SHA-256 fingerprint; a missing one is success.
	RemoveRoot(ctx context.Context, fingerprint string) error
}

// Features are optional parts of Windows.
type Features interface {
	// State returns the state of one. ErrNotFound if this Windows does not know it.
	State(ctx context.Context, name string) (FeatureState, error)
	// Enable enables one and those it needs. It says whether it works only after a reboot.
	Enable(ctx context.Context, name string) (reboot bool, err error)
}

// FeatureState of a feature.
type FeatureState string

// States of features.
const (
	FeatureDisabled FeatureState = "Disabled"
	FeatureEnabled  FeatureState = "Enabled"
	// FeaturePending: enabled after the next boot.
	FeaturePending FeatureState = "Pending"
)

// Users are local accounts.
type Users interface {
	// Get returns one; ErrNotFound if there is none.
	Get(ctx context.Context, name string) (User, error)
	// Apply creates or changes one. Group memberships are added, never taken away.
	Apply(ctx context.Context, u User) error
	// Delete removes one; a missing one is success.
	Delete(ctx context.Context, name string) error
}

// User is a local account.
type User struct {
	Name     string
	FullName string
	// Password is set when it is not empty, and never returned.
	Password string
	// Groups by SID or name. Get returns SIDs where there is one.
	Groups []string
	// Disabled accounts cannot log on.
	Disabled bool
	// ProfileDir is where its profile is, or will be; empty if nobody knows yet.
	ProfileDir string
}

// AdministratorsSID is the group of administrators in every language.
const AdministratorsSID = "S-1-5-32-544"

// Firewall is Windows Defender Firewall.
type Firewall interface {
	// Rules returns the names of the inbound rules that this agent made (those of its group).
	Rules(ctx context.Context) ([]string, error)
	// Apply creates or replaces a rule that lets traffic in, in all profiles.
	Apply(ctx context.Context, r FirewallRule) error
	// Delete removes a rule of the agent's group; a missing one is success.
	Delete(ctx context.Context, name string) error
}

// FirewallRule lets traffic in.
type FirewallRule struct {
	Name string
	// Protocol is TCP or UDP; Ports such as 10250 or 30000-32767, empty for all; Program its path, empty for any;
	// RemoteAddresses CIDRs, empty for all.
	Protocol        string
	Ports           []string
	Program         string
	RemoteAddresses []string
}

// Dialer opens connections. Its method is that of net.Dialer.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}
