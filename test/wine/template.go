//go:build linux

package wine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/capw-dev/cluster-api-provider-windows/test/env/assets"
)

// release is what tells one Windows Server from another.
type release struct {
	build    int
	revision int
	product  string
	display  string
}

func releases() []release {
	return []release{
		{17763, 5936, "Windows Server 2019 Datacenter", "1809"},
		{20348, 2527, "Windows Server 2022 Datacenter", "21H2"},
		{26100, 1742, "Windows Server 2025 Datacenter", "24H2"},
	}
}

// registry returns what makes Wine report r. CurrentVersion is 6.3 on a real Windows, but Wine takes the kernel's version
// from it; without the rest Wine is a Windows 7.
func (r release) registry() string {
	return fmt.Sprintf(`REGEDIT4

[HKEY_CURRENT_USER\Software\Wine]
"Version"=-

[HKEY_LOCAL_MACHINE\Software\Microsoft\Windows NT\CurrentVersion]
"ProductName"="%s"
"CurrentVersion"="10.0"
"CurrentBuild"="%d"
"CurrentBuildNumber"="%[2]d"
"CurrentMajorVersionNumber"=dword:0000000a
"CurrentMinorVersionNumber"=dword:00000000
"UBR"=dword:%08x
"InstallationType"="Server Core"
"EditionID"="ServerDatacenter"
"DisplayVersion"="%s"
"ReleaseId"="%[4]s"
"CSDVersion"=""

[HKEY_LOCAL_MACHINE\System\CurrentControlSet\Control\ProductOptions]
"ProductType"="ServerNT"

[HKEY_LOCAL_MACHINE\System\CurrentControlSet\Control\Windows]
"CSDVersion"=dword:00000000
`, r.product, r.build, r.revision, r.display)
}

// templateFormat changes when what makeTemplate does changes.
const templateFormat = "1"

// template returns the folder with the prefix of a Windows that was never used. It is made once per Wine and release.
func template(ctx context.Context, r release, log io.Writer) (string, error) {
	version, err := installed(ctx)
	if err != nil {
		return "", err
	}
	cache, err := assets.CacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{templateFormat, version, r.registry(), bootScript}, "\x00")))
	dir := filepath.Join(cache, "wine", fmt.Sprintf("%d-%s", r.build, hex.EncodeToString(sum[:8])))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	unlock, err := assets.Lock(ctx, dir+".lock", nil)
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	begin := time.Now()
	_, _ = fmt.Fprintf(log, "making a %s of Wine (first time only) ...\n", r.product)
	making := dir + ".tmp" // of someone who was killed, or ours: we hold the lock
	if err := os.RemoveAll(making); err != nil {
		return "", fmt.Errorf("removing an unfinished template: %w", err)
	}
	if err := makeTemplate(ctx, making, r); err != nil {
		return "", fmt.Errorf("making a %s of Wine: %w", r.product, errors.Join(err, os.RemoveAll(making)))
	}
	if err := os.Rename(making, dir); err != nil {
		return "", fmt.Errorf("keeping the template: %w", err)
	}
	_, _ = fmt.Fprintf(log, "made it in %s\n", time.Since(begin).Round(100*time.Millisecond))
	return dir, nil
}

// installed returns the version of Wine.
func installed(ctx context.Context) (string, error) {
	var missing []string
	for _, program := range []string{"/usr/bin/wine", "/usr/bin/wineserver", "/usr/bin/nsenter", "/usr/bin/setpriv", "/usr/bin/perl"} {
		if _, err := os.Stat(program); err != nil {
			missing = append(missing, program)
		}
	}
	if len(missing) > 0 {
		return "", fmt.Errorf("%s not found: apt-get install --no-install-recommends wine wine64 util-linux perl-base", strings.Join(missing, ", "))
	}
	if os.Geteuid() != 0 {
		return "", errors.New("machines need root, for mounts and a host name of their own")
	}
	cmd := exec.CommandContext(ctx, "/usr/bin/wine", "--version")
	cmd.Env = environment()
	out, err := cmd.Output() // Debian's script tells on standard error that there is no 32-bit Wine
	if err != nil {
		return "", fmt.Errorf("asking Wine for its version: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// environment of every program of Wine. All of it becomes part of the Windows environment, so there is no more than needed.
func environment() []string {
	return []string{
		"PATH=/usr/bin:/bin",
		"HOME=" + inside + "/home",
		"USER=root", "LOGNAME=root", "LANG=C.UTF-8",
		"WINEPREFIX=" + inside + "/prefix",
		"WINEARCH=win64",
		"WINEDEBUG=-all",
		// Neither .NET nor a browser; and programs that tests put in the place of Wine's own are not Wine's own.
		"WINEDLLOVERRIDES=mscoree,mshtml=;netsh.exe,dism.exe,powershell.exe,shutdown.exe=n,b",
	}
}

func makeTemplate(ctx context.Context, dir string, r release) error {
	if err := layOut(dir, identity{name: "template"}); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(dir, "prefix"), 0o700); err != nil {
		return err
	}
	n, err := newNamespace(ctx, dir, "template")
	if err != nil {
		return err
	}
	defer n.close()
	if err := os.WriteFile(filepath.Join(dir, "release.reg"), []byte(r.registry()), 0o600); err != nil {
		return err
	}
	for _, argv := range [][]string{
		{"/usr/bin/wine", "wineboot", "--init"},
		{"/usr/bin/wine", "regedit", "/S", `Z:\mnt\release.reg`},
		{"/usr/bin/wineserver", "-k"},
		{"/usr/bin/wineserver", "-w"},
	} {
		// Without pipes: the services that it starts would hold them.
		cmd := n.command(ctx, inside, environment(), argv)
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
		}
	}
	return adapt(filepath.Join(dir, "prefix"))
}

// adapt makes a new prefix self-contained, small, and fit for programs of Go.
func adapt(prefix string) error {
	// Without a drive for Linux's root, /var/lib/kubelet is C:\var\lib\kubelet, as on Windows. With it, it would be Linux's.
	devices, err := filepath.Glob(filepath.Join(prefix, "dosdevices", "*"))
	if err != nil {
		return err
	}
	for _, d := range devices {
		if filepath.Base(d) == "c:" {
			continue
		}
		if err := os.Remove(d); err != nil {
			return err
		}
	}
	builtin, err := filepath.Glob("/usr/lib/*/wine/x86_64-windows")
	if err != nil {
		return err
	}
	err = filepath.WalkDir(filepath.Join(prefix, "drive_c"), func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil || entry.IsDir():
			return err
		case entry.Type()&fs.ModeSymlink != 0: // Documents and the like, which lead to Linux's home
			return errors.Join(os.Remove(path), os.Mkdir(path, 0o755))
		default:
			return linkBuiltin(path, builtin)
		}
	})
	if err != nil {
		return err
	}
	// Every program of Go needs it, and Wine 8 does not have it.
	dll, err := forwarder("bcryptprimitives.dll", map[string]string{"ProcessPrng": "advapi32.SystemFunction036"})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(prefix, "drive_c", "windows", "system32", "bcryptprimitives.dll"), dll, 0o644)
}

// linkBuiltin replaces a copy of one of Wine's own files by a link: 20 MB to copy per machine instead of 700.
func linkBuiltin(path string, builtin []string) error {
	for _, dir := range builtin {
		original := filepath.Join(dir, filepath.Base(path))
		same, err := sameContent(path, original)
		if err != nil {
			return err
		}
		if same {
			return errors.Join(os.Remove(path), os.Symlink(original, path))
		}
	}
	return nil
}

func sameContent(a, b string) (bool, error) {
	have, err := os.Stat(b)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	want, err := os.Stat(a)
	if err != nil || want.Size() != have.Size() {
		return false, err
	}
	x, err := os.ReadFile(filepath.Clean(a))
	if err != nil {
		return false, err
	}
	y, err := os.ReadFile(filepath.Clean(b))
	return bytes.Equal(x, y), err
}
