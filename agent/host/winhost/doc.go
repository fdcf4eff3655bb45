// Package winhost fills the host interface with the native Windows API.
//
// No localized output of a command is read: where Windows has an interface in a DLL, that is called; a program runs only
// where there is none, and its exit code counts.
//
// Its Windows tests run under Wine as well as on Windows. Wine says yes to some calls and does nothing, so these are proven
// on Windows only:
//
//   - Access control: that a file made with an ACL has it, that SetACL is handed on to what a folder holds.
//   - The service control manager's delayed start, recovery actions, service environment, dependencies, and
//     its notifications: with Options.Lenient they are kept in the registry, and Changes polls.
//   - Reading and writing keys of TrustedInstaller with the backup privileges.
//   - The records of the event log, guestinfo, serial ports, reboots, the pending computer name, links.
package winhost
