package imagecheck

import (
	"context"
	"errors"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

const (
	cloudbaseDir     = `C:\Program Files\Cloudbase Solutions\Cloudbase-Init`
	cloudbaseConf    = cloudbaseDir + `\conf\cloudbase-init.conf`
	cloudbaseSpecial = cloudbaseDir + `\conf\cloudbase-init-unattend.conf`
	setupComplete    = `C:\Windows\Setup\Scripts\SetupComplete.cmd`
)

// cloudbaseInit looks at the program that runs the first-boot script.
func (c *checker) cloudbaseInit(ctx context.Context) {
	text, ok := c.file(ctx, cloudbaseConf)
	if !ok {
		c.add(Error, "CloudbaseInitMissing", "Install cloudbase-init 1.1.7 or newer.", "there is no %s: nothing runs the user data", cloudbaseConf)
		return
	}
	c.cloudbaseVersion(ctx)
	conf := parseConf(text)
	c.cloudbasePlugins(conf)
	c.cloudbaseSource(conf)
	if isTrue(conf["debug"]) {
		c.add(Warning, "CloudbaseInitDebug", "Set debug=false in "+cloudbaseConf+".",
			"debug=true: cloudbase-init writes what scripts say, and much of the user data, to a log that users of the machine can read")
	}
	if v, ok := conf["allow_reboot"]; ok && !isTrue(v) {
		c.add(Warning, "CloudbaseInitNoReboot", "Remove allow_reboot from "+cloudbaseConf+".",
			"allow_reboot=%s: a new host name waits for the agent's reboot", v)
	}
	if isTrue(conf["inject_user_password"]) && !strings.EqualFold(conf["first_logon_behaviour"], "no") && hasPlugin(conf["plugins"], "SetUserPasswordPlugin") {
		c.add(Warning, "PasswordMustChange", "Set first_logon_behaviour=no, or inject_user_password=false.",
			"cloudbase-init makes the administrator's password expire at the first logon, which blocks whoever logs on without a console")
	}
	c.cloudbaseService(ctx)
	c.cloudbaseSpecialize(ctx)
}

// cloudbaseVersion: only since 1.1.5 the data source for VMware reads network data, and only since 1.1.7 without known faults.
func (c *checker) cloudbaseVersion(ctx context.Context) {
	text := c.installedVersion(ctx)
	v, err := version.ParseGeneric(text)
	if err != nil {
		c.add(Info, "CloudbaseInitVersionUnknown", "Use 1.1.7 or newer.", "the version of cloudbase-init cannot be told")
		return
	}
	c.report.Versions["cloudbase-init"] = text
	if v.LessThan(version.MustParseGeneric("1.1.7")) {
		c.add(Warning, "CloudbaseInitOld", "Install 1.1.7 or newer; image-builder: cloudbase_init_version.",
			"cloudbase-init %s: until 1.1.4 it ignores network data, until 1.1.6 some of it makes it fail; static addresses are then set by the agent, and a script that must be downloaded first cannot be", text)
	}
}

// installedVersion returns the version by Windows' list of programs, or else by the Python package.
func (c *checker) installedVersion(ctx context.Context) string {
	const uninstall = `HKLM\SOFTWARE\Microsoft\Windows\CurrentVersion\Uninstall`
	_, keys, err := c.Registry.Names(ctx, uninstall)
	if err != nil && !errors.Is(err, host.ErrNotFound) {
		c.unreadable(uninstall, err)
	}
	for _, key := range keys {
		if name, _ := c.value(ctx, uninstall+`\`+key, "DisplayName"); strings.HasPrefix(strings.ToLower(name.Text), "cloudbase-init") {
			if v, ok := c.value(ctx, uninstall+`\`+key, "DisplayVersion"); ok {
				return v.Text
			}
		}
	}
	const packages = cloudbaseDir + `\Python\Lib\site-packages`
	entries, err := c.Files.List(ctx, packages)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.unreadable(packages, err)
	}
	for _, e := range entries {
		if m := regexp.MustCompile(`(?i)^cloudbase[-_]init-([0-9.]+?)[.-](dist|egg|py)`).FindStringSubmatch(e.Name); m != nil {
			return m[1]
		}
	}
	return ""
}

// cloudbasePlugins: without a list, cloudbase-init's own is in a good order.
func (c *checker) cloudbasePlugins(conf map[string]string) {
	list, ok := conf["plugins"]
	if !ok {
		return
	}
	userData := pluginIndex(list, "UserDataPlugin")
	if userData < 0 {
		c.add(Error, "UserDataPluginMissing", "Add cloudbaseinit.plugins.common.userdata.UserDataPlugin to plugins in "+cloudbaseConf+".",
			"cloudbase-init does not run user data")
		return
	}
	if i := pluginIndex(list, "SetHostNamePlugin"); i < 0 || i > userData {
		c.add(Warning, "HostNameAfterUserData", "Put cloudbaseinit.plugins.common.sethostname.SetHostNamePlugin before UserDataPlugin in plugins.",
			"cloudbase-init runs user data before it has set the host name: the agent renames the computer, which takes one more reboot")
	}
	if i := pluginIndex(list, "NetworkConfigPlugin"); i < 0 || i > userData {
		c.add(Warning, "NetworkAfterUserData", "Put cloudbaseinit.plugins.common.networkconfig.NetworkConfigPlugin before UserDataPlugin in plugins.",
			"cloudbase-init runs user data before it has configured static addresses: an agent that must be downloaded cannot be")
	}
	if pluginIndex(list, "ExtendVolumesPlugin") < 0 {
		c.add(Warning, "VolumesNotExtended", "Add cloudbaseinit.plugins.windows.extendvolumes.ExtendVolumesPlugin to plugins.",
			"a machine with a larger disk than the image does not use the rest of it")
	}
}

// cloudbaseSource: without a list, cloudbase-init's own has EC2, but not VMware.
func (c *checker) cloudbaseSource(conf map[string]string) {
	list, listed := conf["metadata_services"]
	switch {
	case c.vmware() && !hasPlugin(list, "VMwareGuestInfoService"):
		c.add(Error, "GuestInfoNotRead", "Set metadata_services=cloudbaseinit.metadata.services.vmwareguestinfoservice.VMwareGuestInfoService in "+cloudbaseConf+".",
			"cloudbase-init does not look for its data in guestinfo, where vSphere machines get it")
	case strings.HasPrefix(c.info.Manufacturer, "Amazon") && listed && !hasPlugin(list, "EC2Service"):
		c.add(Error, "EC2NotRead", "Add cloudbaseinit.metadata.services.ec2service.EC2Service to metadata_services in "+cloudbaseConf+".",
			"cloudbase-init does not look for its data where EC2 has it")
	}
}

// cloudbaseService: until a machine is set up the service must not run; SetupComplete.cmd then makes it start.
func (c *checker) cloudbaseService(ctx context.Context) {
	const name = "cloudbase-init"
	s, ok := c.service(ctx, name)
	if !ok {
		c.add(Error, "CloudbaseInitServiceMissing", "Install cloudbase-init anew.", "there is no service %s", name)
		return
	}
	script, _ := c.file(ctx, setupComplete)
	started := strings.Contains(strings.ToLower(script), name)
	switch {
	case s.Start == host.StartDisabled && !started:
		c.add(Error, "CloudbaseInitNotStarted", "Run cloudbase-init's bin\\SetSetupComplete.cmd, or make its service start automatically.", "the service %s is disabled", name)
	case s.Start == host.StartManual && !started:
		c.add(Error, "CloudbaseInitNotStarted", "Run cloudbase-init's bin\\SetSetupComplete.cmd, or make its service start automatically.",
			"the service %s starts on demand, and %s does not start it", name, setupComplete)
	}
	account, _ := c.value(ctx, `HKLM\SYSTEM\CurrentControlSet\Services\`+name, "ObjectName")
	if account.Text != "" && !strings.EqualFold(account.Text, "LocalSystem") {
		c.add(Info, "CloudbaseInitAccount", "Install with RUN_SERVICE_AS_LOCAL_SYSTEM=1, if security policies remove local administrators.",
			"cloudbase-init runs as %s, which must stay a member of Administrators", account.Text)
	}
}

// cloudbaseSpecialize looks at the run within Windows Setup. Whatever fails there fails for ever: Setup reboots and tries again.
func (c *checker) cloudbaseSpecialize(ctx context.Context) {
	text, ok := c.file(ctx, cloudbaseSpecial)
	if !ok {
		return
	}
	conf := parseConf(text)
	if v, ok := conf["allow_reboot"]; !ok || isTrue(v) {
		c.add(Warning, "SpecializeReboots", "Set allow_reboot=false in "+cloudbaseSpecial+".", "cloudbase-init may reboot within Windows Setup, which then begins anew")
	}
	for _, plugin := range []string{"SetUserPasswordPlugin", "CreateUserPlugin", "UserDataPlugin"} {
		if hasPlugin(conf["plugins"], plugin) {
			c.add(Warning, "SpecializePlugins", "Leave only MTUPlugin (and SetHostNamePlugin) in plugins of "+cloudbaseSpecial+".",
				"%s runs within Windows Setup: when it fails, the machine reboots without end", plugin)
		}
	}
}

// answerFiles: a copy in the image wins over one that comes with the machine.
func (c *checker) answerFiles(ctx context.Context) {
	for _, path := range []string{`C:\Windows\Panther\Unattend\Unattend.xml`, `C:\Windows\Panther\unattend.xml`} {
		if c.exists(ctx, path) {
			c.add(Warning, "CachedAnswerFile", "Remove it before sealing, if machines get an answer file of their own (format Unattend).",
				"%s is in the image: Windows Setup prefers it to an answer file on media", path)
		}
	}
	if v, ok := c.value(ctx, `HKLM\SYSTEM\Setup`, "UnattendFile"); ok && v.Text != "" {
		c.add(Warning, "CachedAnswerFile", `Remove the value UnattendFile of HKLM\SYSTEM\Setup.`, "Windows Setup is told to use the answer file %s", v.Text)
	}
}

// parseConf reads the section DEFAULT of a file of oslo.config: name=value, where indented lines go on with the value.
func parseConf(text string) map[string]string {
	out, section, name := map[string]string{}, "DEFAULT", ""
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "" || strings.HasPrefix(trimmed, "#") || strings.HasPrefix(trimmed, ";"):
		case strings.HasPrefix(trimmed, "["):
			section, name = strings.Trim(trimmed, "[]"), ""
		case section != "DEFAULT":
		case (line[0] == ' ' || line[0] == '\t') && name != "":
			out[name] += " " + trimmed
		default:
			key, value, _ := strings.Cut(trimmed, "=")
			name = strings.ToLower(strings.TrimSpace(key))
			out[name] = strings.TrimSpace(value)
		}
	}
	return out
}

func isTrue(value string) bool {
	return slices.Contains([]string{"1", "on", "true", "yes"}, strings.ToLower(value))
}

// pluginIndex returns where in a list of Python classes one is first; -1: nowhere.
func pluginIndex(list, class string) int {
	return slices.IndexFunc(strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' }), func(name string) bool {
		return name[strings.LastIndexByte(name, '.')+1:] == class
	})
}

func hasPlugin(list, class string) bool { return pluginIndex(list, class) >= 0 }
