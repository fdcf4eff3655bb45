//go:build windows

package winhost

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// domain uses the join functions of netapi32.dll.
// https://learn.microsoft.com/windows/win32/api/lmjoin/
type domain struct{}

func newDomain() *domain { return &domain{} }

const (
	// netSetupProvisionOnlineCaller is NETSETUP_PROVISION_ONLINE_CALLER: the Windows that runs, not an image.
	netSetupProvisionOnlineCaller = 0x40000000
	// netSetupJoinDomain and netSetupAccountCreate are NETSETUP_JOIN_DOMAIN and NETSETUP_ACCT_CREATE.
	netSetupJoinDomain    = 0x1
	netSetupAccountCreate = 0x2

	nerrSetupAlreadyJoined = syscall.Errno(2691)
)

// dsRoleInformation is DSROLE_PRIMARY_DOMAIN_INFO_BASIC.
type dsRoleInformation struct {
	role    uint32
	flags   uint32
	netBIOS *uint16
	dns     *uint16
	forest  *uint16
	guid    windows.GUID
}

func (d *domain) Joined(ctx context.Context) (string, error) {
	names, err := d.names(ctx)
	return names.name(), err
}

// names returns those of the domain that the machine is a member of; none if it is in a workgroup.
func (d *domain) names(ctx context.Context) (domainNames, error) {
	if err := ctx.Err(); err != nil {
		return domainNames{}, err
	}
	var name *uint16
	var status uint32
	if err := windows.NetGetJoinInformation(nil, &name, &status); err != nil {
		return domainNames{}, failed(err, "read the domain membership")
	}
	defer func() { _ = windows.NetApiBufferFree((*byte)(unsafe.Pointer(name))) }()
	if status != windows.NetSetupDomainName {
		return domainNames{}, nil
	}
	names := domainNames{netBIOS: windows.UTF16PtrToString(name)}
	var info *dsRoleInformation
	const basic = 1 // DsRolePrimaryDomainInfoBasic
	// Between a join and the boot it may not know yet; the other name serves.
	if err := callCode(proc("netapi32.dll", "DsRoleGetPrimaryDomainInformation"), 0, basic, uintptr(unsafe.Pointer(&info))); err == nil && info != nil {
		names.dns = windows.UTF16PtrToString(info.dns)
		_, _, _ = proc("netapi32.dll", "DsRoleFreeMemory").Call(uintptr(unsafe.Pointer(info)))
	}
	return names, nil
}

// JoinOffline does nothing on a machine that is a member of a domain: the blob does not say of which it would be one.
func (d *domain) JoinOffline(ctx context.Context, blob []byte) error {
	if len(blob) == 0 {
		return fmt.Errorf("join the domain offline: %w: the blob is empty", host.ErrInvalid)
	}
	if names, err := d.names(ctx); err != nil || names.name() != "" {
		return err
	}
	windowsDir, err := windows.GetSystemWindowsDirectory()
	if err != nil {
		return failed(err, "find the folder of Windows")
	}
	err = callCode(proc("netapi32.dll", "NetRequestOfflineDomainJoin"), uintptr(unsafe.Pointer(&blob[0])), uintptr(len(blob)),
		netSetupProvisionOnlineCaller, uintptr(unsafe.Pointer(utf16Pointer(windowsDir))))
	if errors.Is(err, nerrSetupAlreadyJoined) {
		return nil
	}
	if err := joinFailed(err, "join the domain offline"); err != nil {
		return err
	}
	return flushHive(tcpipKey) // the membership is in the same hive
}

func (d *domain) Join(ctx context.Context, domain, ou, username, password string) error {
	names, err := d.names(ctx)
	if err != nil {
		return err
	}
	switch {
	case names.is(domain):
		return nil
	case names.name() != "":
		return fmt.Errorf("join domain %s: %w: the machine is a member of %s", domain, host.ErrInvalid, names.name())
	}
	var wide [4]*uint16
	for i, text := range []string{domain, ou, username, password} {
		if text == "" {
			continue
		}
		if wide[i], err = windows.UTF16PtrFromString(text); err != nil {
			return fmt.Errorf("join domain %s: %w: NUL in a name or the password", domain, host.ErrInvalid)
		}
	}
	err = callCode(proc("netapi32.dll", "NetJoinDomain"), 0, uintptr(unsafe.Pointer(wide[0])), uintptr(unsafe.Pointer(wide[1])),
		uintptr(unsafe.Pointer(wide[2])), uintptr(unsafe.Pointer(wide[3])), netSetupJoinDomain|netSetupAccountCreate)
	if err := joinFailed(err, "join domain %s as %s", domain, username); err != nil {
		return err
	}
	return flushHive(tcpipKey)
}

// joinFailed is failed with the codes of domains. That a domain is not found may be a name server that is not there yet.
func joinFailed(err error, format string, args ...any) error {
	var code syscall.Errno
	if errors.As(err, &code) {
		switch code {
		case windows.ERROR_LOGON_FAILURE, windows.ERROR_ACCESS_DENIED, windows.ERROR_PASSWORD_EXPIRED,
			windows.ERROR_ACCOUNT_DISABLED, windows.ERROR_INVALID_DATA:
			err = fmt.Errorf("%w: %w", host.ErrInvalid, err)
		}
	}
	return failed(err, format, args...)
}
