//go:build windows

package winhost

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
	winreg "golang.org/x/sys/windows/registry"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// users uses the network management functions of netapi32.dll.
// https://learn.microsoft.com/windows/win32/api/lmaccess/
type users struct{ registry host.Registry }

func newUsers(registry host.Registry) *users { return &users{registry: registry} }

// profileListKey has a key for each profile, named by the SID of its user.
const profileListKey = `HKLM\SOFTWARE\Microsoft\Windows NT\CurrentVersion\ProfileList`

// Codes of lmerr.h.
const (
	nerrGroupNotFound    = syscall.Errno(2220)
	nerrUserNotFound     = syscall.Errno(2221)
	nerrBadUsername      = syscall.Errno(2202)
	nerrUserExists       = syscall.Errno(2224)
	nerrPasswordTooShort = syscall.Errno(2245)
)

// userInfo1 is USER_INFO_1.
type userInfo1 struct {
	name        *uint16
	password    *uint16
	passwordAge uint32
	privilege   uint32
	homeDir     *uint16
	comment     *uint16
	flags       uint32
	scriptPath  *uint16
}

// userPrivUser is USER_PRIV_USER, the only one that is allowed for a new account.
const userPrivUser = 1

func (s *users) Get(ctx context.Context, name string) (host.User, error) {
	if err := ctx.Err(); err != nil {
		return host.User{}, err
	}
	u, _, err := s.get(ctx, name)
	return u, err
}

// get also returns the flags of the account.
func (s *users) get(ctx context.Context, name string) (u host.User, flags uint32, err error) {
	wide, err := windows.UTF16PtrFromString(name)
	if err != nil {
		return host.User{}, 0, fmt.Errorf("user %q: %w: %w", name, host.ErrInvalid, err)
	}
	err = userInformation(wide, 1, func(p unsafe.Pointer) {
		info := (*userInfo1)(p)
		u.Name, flags = windows.UTF16PtrToString(info.name), info.flags
	})
	if err == nil {
		err = userInformation(wide, 10, func(p unsafe.Pointer) {
			u.FullName = windows.UTF16PtrToString((*windows.UserInfo10)(p).FullName)
		})
	}
	if err != nil {
		return host.User{}, 0, accountFailed(err, "read user %q", name)
	}
	u.Disabled = flags&accountDisabled != 0
	if u.Groups, err = localGroups(wide); err != nil {
		return host.User{}, 0, accountFailed(err, "read the groups of user %q", name)
	}
	if u.ProfileDir, err = s.profileDir(ctx, accountSID(u.Name)); err != nil {
		return host.User{}, 0, err
	}
	return u, flags, nil
}

// Apply gives a new account a password that nobody knows if there is none. It leaves an empty full name as it is. It makes
// the account's profile, because where that will be is known only when it is there.
func (s *users) Apply(ctx context.Context, u host.User) error {
	if err := checkUser(u); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	have, flags, err := s.get(ctx, u.Name)
	switch {
	case errors.Is(err, host.ErrNotFound):
		if err := addUser(u); err != nil {
			return err
		}
		flags = accountFlags(newAccountFlags, u)
	case err != nil:
		return err
	case u.Password != "":
		if err := setUser(u.Name, 1003, unsafe.Pointer(&struct{ password *uint16 }{utf16Pointer(u.Password)})); err != nil {
			return accountFailed(err, "set the password of user %q", u.Name)
		}
	}
	if want := accountFlags(flags, u); want != flags {
		if err := setUser(u.Name, 1008, unsafe.Pointer(&struct{ flags uint32 }{want})); err != nil {
			return accountFailed(err, "enable or disable user %q", u.Name)
		}
	}
	if u.FullName != "" && u.FullName != have.FullName {
		if err := setUser(u.Name, 1011, unsafe.Pointer(&struct{ fullName *uint16 }{utf16Pointer(u.FullName)})); err != nil {
			return accountFailed(err, "set the full name of user %q", u.Name)
		}
	}
	for _, g := range u.Groups {
		if err := addToGroup(u.Name, g); err != nil {
			return err
		}
	}
	if err := s.makeProfile(ctx, u.Name); err != nil {
		return err
	}
	return flushAccounts()
}

// Delete leaves the account's profile, which may hold what somebody wants to keep.
func (s *users) Delete(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	wide, err := windows.UTF16PtrFromString(name)
	if err != nil {
		return fmt.Errorf("user %q: %w: %w", name, host.ErrInvalid, err)
	}
	err = callCode(proc("netapi32.dll", "NetUserDel"), 0, uintptr(unsafe.Pointer(wide)))
	if err != nil && !errors.Is(err, nerrUserNotFound) {
		return accountFailed(err, "delete user %q", name)
	}
	return flushAccounts()
}

func addUser(u host.User) error {
	password := u.Password
	if password == "" {
		var err error
		if password, err = randomPassword(); err != nil {
			return err
		}
	}
	info := userInfo1{name: utf16Pointer(u.Name), password: utf16Pointer(password), privilege: userPrivUser, flags: accountFlags(newAccountFlags, u)}
	err := callCode(proc("netapi32.dll", "NetUserAdd"), 0, 1, uintptr(unsafe.Pointer(&info)), 0)
	return accountFailed(err, "create user %q", u.Name)
}

// userInformation reads what NetUserGetInfo says at a level.
func userInformation(name *uint16, level uint32, read func(unsafe.Pointer)) error {
	var buffer *byte
	if err := windows.NetUserGetInfo(nil, name, level, &buffer); err != nil {
		return err
	}
	defer func() { _ = windows.NetApiBufferFree(buffer) }()
	read(unsafe.Pointer(buffer))
	return nil
}

func setUser(name string, level uint32, info unsafe.Pointer) error {
	return callCode(proc("netapi32.dll", "NetUserSetInfo"), 0, uintptr(unsafe.Pointer(utf16Pointer(name))), uintptr(level), uintptr(info), 0)
}

// localGroups returns the groups that an account is a member of, by SID where there is one.
func localGroups(name *uint16) ([]string, error) {
	const whole = ^uint32(0) // MAX_PREFERRED_LENGTH
	var buffer *byte
	var count, total uint32
	err := callCode(proc("netapi32.dll", "NetUserGetLocalGroups"), 0, uintptr(unsafe.Pointer(name)), 0, 0,
		uintptr(unsafe.Pointer(&buffer)), uintptr(whole), uintptr(unsafe.Pointer(&count)), uintptr(unsafe.Pointer(&total)))
	if errors.Is(err, nerrUserNotFound) { // it went meanwhile; or under Wine, where it never has groups
		return nil, nil
	}
	if err != nil || buffer == nil {
		return nil, err
	}
	defer func() { _ = windows.NetApiBufferFree(buffer) }()
	out := []string{}
	for _, g := range unsafe.Slice((**uint16)(unsafe.Pointer(buffer)), count) {
		group := windows.UTF16PtrToString(g)
		if sid, _, _, err := windows.LookupSID("", group); err == nil {
			group = sid.String()
		}
		out = append(out, group)
	}
	return out, nil
}

// addToGroup makes an account a member of a local group.
func addToGroup(name, group string) error {
	local, err := groupName(group)
	if err != nil {
		return accountFailed(err, "find group %s", group)
	}
	wide, err := windows.UTF16PtrFromString(local)
	if err != nil {
		return fmt.Errorf("group %q: %w: %w", group, host.ErrInvalid, err)
	}
	member := struct{ name *uint16 }{utf16Pointer(qualified(name))} // LOCALGROUP_MEMBERS_INFO_3
	err = callCode(proc("netapi32.dll", "NetLocalGroupAddMembers"), 0, uintptr(unsafe.Pointer(wide)), 3,
		uintptr(unsafe.Pointer(&member)), 1)
	if errors.Is(err, windows.ERROR_MEMBER_IN_ALIAS) {
		return nil
	}
	return accountFailed(err, "add user %q to group %q", name, local)
}

// groupName returns what this Windows calls a group.
func groupName(group string) (string, error) {
	text := groupSID(group)
	if text == "" {
		return group, nil
	}
	sid, err := windows.StringToSid(text)
	if err != nil {
		return "", fmt.Errorf("%w: %w", host.ErrInvalid, err)
	}
	name, _, _, err := sid.LookupAccount("")
	return name, err
}

// qualified returns an account's name with that of the machine, so that a domain, or the machine, of the same name is not
// meant.
func qualified(name string) string {
	machine, err := windows.ComputerName()
	if err != nil {
		return name
	}
	return machine + `\` + name
}

// accountSID returns the SID of a local account; nil if Windows does not say.
func accountSID(name string) *windows.SID {
	sid, _, _, err := windows.LookupSID("", qualified(name))
	if err != nil {
		return nil
	}
	return sid
}

// profileDir returns where the profile of an account is; empty if there is none.
func (s *users) profileDir(ctx context.Context, sid *windows.SID) (string, error) {
	if sid == nil {
		return "", nil
	}
	v, err := s.registry.Get(ctx, profileListKey+`\`+sid.String(), "ProfileImagePath")
	if errors.Is(err, host.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return winreg.ExpandString(v.Text)
}

func (s *users) makeProfile(ctx context.Context, name string) error {
	sid := accountSID(name)
	if sid == nil {
		return nil
	}
	if dir, err := s.profileDir(ctx, sid); err != nil || dir != "" {
		return err
	}
	path := make([]uint16, windows.MAX_PATH)
	err := callHRESULT(proc("userenv.dll", "CreateProfile"), uintptr(unsafe.Pointer(utf16Pointer(sid.String()))),
		uintptr(unsafe.Pointer(utf16Pointer(name))), uintptr(unsafe.Pointer(&path[0])), uintptr(len(path)))
	if errors.Is(err, windows.ERROR_ALREADY_EXISTS) {
		return nil
	}
	return accountFailed(err, "make the profile of user %q", name)
}

// flushAccounts makes durable what changed in the account database.
func flushAccounts() error {
	err := flushHive(`HKLM\SAM`)
	if errors.Is(err, host.ErrNotFound) { // Wine has none
		return nil
	}
	return err
}

// accountFailed is failed with the codes of accounts. Passwords are never part of what was attempted.
func accountFailed(err error, format string, args ...any) error {
	var code syscall.Errno
	if !errors.As(err, &code) {
		return failed(err, format, args...)
	}
	var meaning error
	switch code {
	case nerrUserNotFound, nerrGroupNotFound, windows.ERROR_NO_SUCH_ALIAS, windows.ERROR_NONE_MAPPED:
		meaning = host.ErrNotFound
	case nerrBadUsername, nerrUserExists, nerrPasswordTooShort, windows.ERROR_PASSWORD_RESTRICTION:
		meaning = host.ErrInvalid
	}
	if meaning != nil {
		err = fmt.Errorf("%w: %w", meaning, err)
	}
	return failed(err, format, args...)
}
