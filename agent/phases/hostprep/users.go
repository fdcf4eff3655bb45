package hostprep

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// administratorsKeys is where sshd reads the keys of all members of Administrators, see OpenSSH for Windows' default
// sshd_config. It ignores the file if others can write it.
const administratorsKeys = `C:\ProgramData\ssh\administrators_authorized_keys`

func setUpUsers(ctx context.Context, r *engine.Run) error {
	for _, u := range r.Doc.OS.Users {
		if err := setUpUser(ctx, r, u); err != nil {
			return err
		}
		if len(u.SSHAuthorizedKeys) == 0 {
			continue
		}
		if err := authorizeKeys(ctx, r, u); err != nil {
			return err
		}
	}
	return nil
}

func setUpUser(ctx context.Context, r *engine.Run, u nodev1.User) error {
	want := host.User{Name: u.Name, FullName: u.FullName, Password: u.Password, Groups: u.Groups}
	have, err := r.Host.Users.Get(ctx, u.Name)
	switch {
	case err == nil && want.FullName == "":
		want.FullName = have.FullName
	case errors.Is(err, host.ErrNotFound):
		if want.Password == "" {
			// One that nobody knows. Three kinds of characters satisfy Windows' own password policy.
			want.Password = rand.Text() + "-a1"
		}
		// Reset deletes only an account that was not there before.
		if err := r.Trace(ctx, engine.Trace{Kind: engine.TraceUser, Name: u.Name}); err != nil {
			return fmt.Errorf("remembering the account %s: %w", u.Name, err)
		}
	case err != nil:
		return codes.New(codes.UserNotApplied, "looking for the account %s: %w", u.Name, err)
	}
	if err := r.Host.Users.Apply(ctx, want); err != nil {
		if errors.Is(err, host.ErrNotFound) { // a group
			return codes.New(codes.UserRefused, "setting up the account %s: %w", u.Name, err)
		}
		return refused(err, codes.UserRefused, codes.UserNotApplied, "setting up the account %s", u.Name)
	}
	return nil
}

// authorizeKeys puts a user's keys where sshd looks for them. Keys that are there already stay.
func authorizeKeys(ctx context.Context, r *engine.Run, u nodev1.User) error {
	have, err := r.Host.Users.Get(ctx, u.Name)
	if err != nil {
		return codes.New(codes.UserNotApplied, "reading the account %s: %w", u.Name, err)
	}
	if slices.Contains(have.Groups, host.AdministratorsSID) {
		// Whoever administers the machine reads the folder; what is in it has its own access control.
		return addKeys(ctx, r, administratorsKeys, host.ACLSystem, host.ACLUsersRead, u.SSHAuthorizedKeys)
	}
	if have.ProfileDir == "" {
		return codes.New(codes.SSHKeysNotWritten, "the account %s has no profile yet", u.Name)
	}
	path := layout.Join(have.ProfileDir, ".ssh", "authorized_keys")
	return addKeys(ctx, r, path, host.ACLInherited, host.ACLInherited, u.SSHAuthorizedKeys)
}

// addKeys adds lines that are missing to a file of keys.
func addKeys(ctx context.Context, r *engine.Run, path string, acl, folderACL host.ACL, keys []string) error {
	failed := func(doing string, err error) error {
		return codes.New(codes.SSHKeysNotWritten, "%s %s: %w", doing, path, err)
	}
	before, err := r.Host.Files.Read(ctx, path)
	exists := !errors.Is(err, fs.ErrNotExist)
	if err != nil && exists {
		return failed("reading", err)
	}
	after := withKeys(before, keys)
	if exists {
		have, err := r.Host.Files.ACL(ctx, path)
		if err != nil {
			return failed("reading the access control of", err)
		}
		if bytes.Equal(before, after) && (have == acl || acl == host.ACLInherited) {
			return nil
		}
	} else {
		if err := ensureFolder(ctx, r, layout.Dir(path), folderACL); err != nil {
			return err
		}
		if err := r.Trace(ctx, engine.Trace{Kind: engine.TraceFile, Name: path}); err != nil {
			return fmt.Errorf("remembering that %s is new: %w", path, err)
		}
	}
	if err := r.Host.Files.Write(ctx, path, after, acl); err != nil {
		return failed("writing", err)
	}
	return nil
}

// ensureFolder makes a folder that is missing; one that is there is not this agent's to change.
func ensureFolder(ctx context.Context, r *engine.Run, path string, acl host.ACL) error {
	if have, err := r.Host.Files.Stat(ctx, path); err == nil && have.Dir {
		return nil
	}
	return makeFolder(ctx, r, folder{path, acl})
}

// withKeys returns the content of a file of keys with those that are missing.
func withKeys(content []byte, keys []string) []byte {
	out := slices.Clone(content)
	for _, key := range keys {
		key = strings.TrimSpace(key)
		known := false
		for line := range strings.Lines(string(out)) {
			known = known || strings.TrimSpace(line) == key
		}
		if known {
			continue
		}
		if len(out) > 0 && out[len(out)-1] != '\n' {
			out = append(out, '\n')
		}
		out = append(append(out, key...), '\n')
	}
	return out
}
