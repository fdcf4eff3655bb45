package imagecheck_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/imagecheck"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
)

const (
	cloudbase   = `C:\Program Files\Cloudbase Solutions\Cloudbase-Init`
	conf        = cloudbase + `\conf\cloudbase-init.conf`
	unattend    = cloudbase + `\conf\cloudbase-init-unattend.conf`
	complete    = `C:\Windows\Setup\Scripts\SetupComplete.cmd`
	rpctool     = `C:\Program Files\VMware\VMware Tools\rpctool.exe`
	toolsConf   = `C:\ProgramData\VMware\VMware Tools\tools.conf`
	uninstall   = `HKLM\SOFTWARE\Microsoft\Windows\CurrentVersion\Uninstall\{1}`
	memory      = `HKLM\SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management`
	updates     = `HKLM\SOFTWARE\Policies\Microsoft\Windows\WindowsUpdate\AU`
	shim        = layout.ContainerdDir + `\containerd-shim-runhcs-v1.exe`
	userData    = "cloudbaseinit.plugins.common.userdata.UserDataPlugin"
	hostName    = "cloudbaseinit.plugins.common.sethostname.SetHostNamePlugin"
	networkConf = "cloudbaseinit.plugins.common.networkconfig.NetworkConfigPlugin"
	volumes     = "cloudbaseinit.plugins.windows.extendvolumes.ExtendVolumesPlugin"
	goodConf    = "[DEFAULT]\n# a comment\nusername=capi\ninject_user_password=false\nfirst_logon_behaviour=no\ndebug=false\n" +
		"metadata_services=cloudbaseinit.metadata.services.vmwareguestinfoservice.VMwareGuestInfoService\n" +
		"plugins=" + hostName + ", " + networkConf + ",\n        " + volumes + ",\n        " + userData + "\n[other]\ndebug=true\n"
)

// says is a program that says something.
func says(text string) sim.Program {
	return func(_ context.Context, p *sim.Process) int {
		_, _ = fmt.Fprintln(p.Stdout, text)
		return 0
	}
}

// perfect is an image about which there is nothing to say.
func perfect() sim.Options {
	return sim.Options{
		Files: map[string]string{
			conf: goodConf, unattend: "[DEFAULT]\nallow_reboot=false\nplugins=cloudbaseinit.plugins.common.mtu.MTUPlugin\n",
			complete: `"C:\Program Files\Cloudbase Solutions\Cloudbase-Init\bin\..." net start cloudbase-init`, rpctool: "MZ", shim: "MZ",
		},
		Registry: []sim.RegistryValue{
			{Key: uninstall, Name: "DisplayName", Value: host.StringValue("Cloudbase-Init 1.1.9")},
			{Key: uninstall, Name: "DisplayVersion", Value: host.StringValue("1.1.9")},
			{Key: memory, Name: "PagingFiles", Value: host.Value{Type: host.MultiString, Texts: []string{`?:\pagefile.sys`}}},
			{Key: updates, Name: "NoAutoUpdate", Value: host.DWordValue(1)},
			{Key: `HKLM\SYSTEM\Setup`, Name: "CloneTag", Value: host.Value{Type: host.MultiString, Texts: []string{"Mon"}}},
			{Key: `HKLM\SYSTEM\Setup\Status\SysprepStatus`, Name: "GeneralizationState", Value: host.DWordValue(7)},
			{Key: `HKLM\SYSTEM\CurrentControlSet\Services\cloudbase-init`, Name: "ObjectName", Value: host.StringValue("LocalSystem")},
		},
		Services: []host.Service{
			{Name: "cloudbase-init", Argv: []string{`C:\x.exe`}, Start: host.StartManual},
			{Name: "WinDefend", Argv: []string{`C:\x.exe`}, Start: host.StartManual},
			{Name: "kubelet", Argv: []string{layout.Kubelet}, Start: host.StartManual},
		},
		Programs: map[string]sim.Program{
			layout.Kubelet: says("Kubernetes v1.36.3"), layout.Kubeadm: says("v1.36.3"),
			layout.Containerd:                      says("containerd github.com/containerd/containerd/v2 v2.2.0 0123456789abcdef"),
			layout.Agent:                           says("v0.1.0 (abc, go1.26, windows/amd64)"),
			layout.CNIBinDir + `\win-overlay.exe`:  says("CNI win-overlay plugin v1.7.1"),
			layout.CNIBinDir + `\azure-vnet.exe`:   says("Azure CNI"),
			`C:\Windows\System32\unrelated.exe`:    says("1.0.0"),
			layout.CNIBinDir + `\doc\win-read.exe`: says("9.9.9"),
		},
	}
}

func check(t *testing.T, o sim.Options, version string, prepare func(m *sim.Machine)) (out imagecheck.Report) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := sim.New(o)
		defer m.PowerOff()
		m.PowerOn(t.Context())
		if prepare != nil {
			prepare(m)
		}
		synctest.Wait() // until the services have started, or not
		before := m.Snapshot()
		out = imagecheck.Check(t.Context(), m.Host(), imagecheck.Options{KubernetesVersion: version})
		NewWithT(t).Expect(m.Snapshot()).To(Equal(before), "it changes nothing")
	})
	return out
}

func TestAPerfectImageHasNoFindings(t *testing.T) {
	g := NewWithT(t)
	r := check(t, perfect(), "v1.36.3", nil)
	g.Expect(r.Findings).To(BeEmpty())
	g.Expect(r.OK()).To(BeTrue())
	g.Expect(r.Versions).To(Equal(map[string]string{
		"kubelet": "v1.36.3", "kubeadm": "v1.36.3", "containerd": "v2.2.0", "capw-node": "v0.1.0", "cloudbase-init": "1.1.9",
		"cni/win-overlay": "v1.7.1", "cni/azure-vnet": "of an unknown version",
	}))
	g.Expect(r.Build).To(HavePrefix("10.0.20348."))
}

// change is one flaw of an otherwise perfect image.
type change struct {
	flaw     func(o *sim.Options)
	prepare  func(m *sim.Machine)
	version  string
	severity imagecheck.Severity
	id       string
	what     string
}

func without[T any](s []T, drop func(T) bool) []T { return slices.DeleteFunc(slices.Clone(s), drop) }

func noValue(o *sim.Options, name string) {
	o.Registry = without(o.Registry, func(v sim.RegistryValue) bool { return v.Name == name })
}

func setValue(o *sim.Options, name string, v host.Value) {
	for i := range o.Registry {
		if o.Registry[i].Name == name {
			o.Registry[i].Value = v
		}
	}
}

func noService(o *sim.Options, name string) {
	o.Services = without(o.Services, func(s host.Service) bool { return s.Name == name })
}

func replaceConf(from, to string) func(o *sim.Options) {
	return func(o *sim.Options) { o.Files[conf] = strings.ReplaceAll(o.Files[conf], from, to) }
}

func TestEveryFlawIsFoundAndNothingElse(t *testing.T) {
	const e, w, i = imagecheck.Error, imagecheck.Warning, imagecheck.Info
	for name, tc := range map[string]change{
		"Windows 2016":                     {flaw: func(o *sim.Options) { o.Info.Build = "10.0.14393" }, severity: e, id: "WindowsUnsupported", what: "14393"},
		"Windows 11":                       {flaw: func(o *sim.Options) { o.Info.InstallationType = "Client" }, severity: e, id: "WindowsUnsupported", what: "client"},
		"Windows 2019 with new Kubernetes": {flaw: func(o *sim.Options) { o.Info.Build = "10.0.17763" }, version: "v1.36.3", severity: w, id: "WindowsUndocumented", what: "v1.36.3"},
		"a pending reboot":                 {prepare: func(m *sim.Machine) { m.RequireReboot() }, severity: w, id: "RebootPending"},
		"an interrupted sysprep":           {flaw: func(o *sim.Options) { setValue(o, "GeneralizationState", host.DWordValue(4)) }, severity: e, id: "SysprepIncomplete", what: "4"},
		"not sealed":                       {flaw: func(o *sim.Options) { noValue(o, "CloneTag") }, severity: i, id: "NotSealed"},
		"no Containers":                    {flaw: func(o *sim.Options) { o.Features = map[string]sim.Feature{"Containers": {}} }, severity: w, id: "FeatureDisabled", what: "Containers"},
		"unknown Containers":               {flaw: func(o *sim.Options) { o.Features = map[string]sim.Feature{} }, severity: e, id: "FeatureUnknown"},
		"no page file":                     {flaw: func(o *sim.Options) { noValue(o, "PagingFiles") }, severity: w, id: "NoPageFile"},
		"an empty list of page files": {flaw: func(o *sim.Options) {
			setValue(o, "PagingFiles", host.Value{Type: host.MultiString, Texts: []string{""}})
		}, severity: w, id: "NoPageFile"},
		"automatic updates":        {flaw: func(o *sim.Options) { noValue(o, "NoAutoUpdate") }, severity: w, id: "AutomaticUpdates"},
		"updates turned on":        {flaw: func(o *sim.Options) { setValue(o, "NoAutoUpdate", host.DWordValue(0)) }, severity: w, id: "AutomaticUpdates"},
		"a disabled Administrator": {flaw: func(o *sim.Options) { o.Users = []host.User{{Name: "Administrator", Disabled: true}} }, severity: i, id: "AdministratorDisabled"},
		"no Defender":              {flaw: func(o *sim.Options) { noService(o, "WinDefend") }, severity: i, id: "DefenderMissing"},
		"no cloudbase-init":        {flaw: func(o *sim.Options) { delete(o.Files, conf) }, severity: e, id: "CloudbaseInitMissing"},
		"an old cloudbase-init":    {flaw: func(o *sim.Options) { setValue(o, "DisplayVersion", host.StringValue("1.1.4.0")) }, severity: w, id: "CloudbaseInitOld", what: "1.1.4.0"},
		"1.1.6":                    {flaw: func(o *sim.Options) { setValue(o, "DisplayVersion", host.StringValue("1.1.6")) }, severity: w, id: "CloudbaseInitOld"},
		"an old one by its package": {flaw: func(o *sim.Options) {
			noValue(o, "DisplayVersion")
			o.Files[cloudbase+`\Python\Lib\site-packages\cloudbase_init-1.1.4.dist-info\METADATA`] = ""
		}, severity: w, id: "CloudbaseInitOld", what: "1.1.4"},
		"no version of cloudbase-init": {flaw: func(o *sim.Options) { noValue(o, "DisplayVersion") }, severity: i, id: "CloudbaseInitVersionUnknown"},
		"no user data plug-in":         {flaw: replaceConf(userData, volumes), severity: e, id: "UserDataPluginMissing"},
		"user data first":              {flaw: replaceConf("plugins="+hostName, "plugins="+networkConf+","+volumes+","+userData+","+hostName), severity: w, id: "HostNameAfterUserData"},
		"no host name plug-in":         {flaw: replaceConf(hostName+", ", ""), severity: w, id: "HostNameAfterUserData"},
		"no network plug-in":           {flaw: replaceConf(networkConf+",", ""), severity: w, id: "NetworkAfterUserData"},
		"no volumes plug-in":           {flaw: replaceConf(volumes+",", ""), severity: w, id: "VolumesNotExtended"},
		"another data source":          {flaw: replaceConf("vmwareguestinfoservice.VMwareGuestInfoService", "configdrive.ConfigDriveService"), severity: e, id: "GuestInfoNotRead"},
		"the default data sources":     {flaw: replaceConf("metadata_services", "#"), severity: e, id: "GuestInfoNotRead"},
		"debug output":                 {flaw: replaceConf("debug=false", "debug = True"), severity: w, id: "CloudbaseInitDebug"},
		"no reboots":                   {flaw: replaceConf("debug=false", "allow_reboot=false"), severity: w, id: "CloudbaseInitNoReboot"},
		"a password that must change": {flaw: func(o *sim.Options) {
			replaceConf("inject_user_password=false", "inject_user_password=true")(o)
			replaceConf("first_logon_behaviour=no", "")(o)
			replaceConf("plugins=", "plugins=cloudbaseinit.plugins.common.setuserpassword.SetUserPasswordPlugin,")(o)
		}, severity: w, id: "PasswordMustChange"},
		"no service":           {flaw: func(o *sim.Options) { noService(o, "cloudbase-init") }, severity: e, id: "CloudbaseInitServiceMissing"},
		"nobody starts it":     {flaw: func(o *sim.Options) { delete(o.Files, complete) }, severity: e, id: "CloudbaseInitNotStarted", what: "on demand"},
		"it is disabled":       {flaw: func(o *sim.Options) { delete(o.Files, complete); o.Services[0].Start = host.StartDisabled }, severity: e, id: "CloudbaseInitNotStarted", what: "disabled"},
		"another account":      {flaw: func(o *sim.Options) { setValue(o, "ObjectName", host.StringValue(`.\cloudbase-init`)) }, severity: i, id: "CloudbaseInitAccount", what: `.\cloudbase-init`},
		"reboots in Setup":     {flaw: func(o *sim.Options) { o.Files[unattend] = "[DEFAULT]\nplugins=MTUPlugin\n" }, severity: w, id: "SpecializeReboots"},
		"passwords in Setup":   {flaw: func(o *sim.Options) { o.Files[unattend] += " , x.SetUserPasswordPlugin\n" }, severity: w, id: "SpecializePlugins", what: "SetUserPasswordPlugin"},
		"a cached answer file": {flaw: func(o *sim.Options) { o.Files[`C:\Windows\Panther\unattend.xml`] = "<unattend/>" }, severity: w, id: "CachedAnswerFile", what: "Panther"},
		"an answer file by name": {flaw: func(o *sim.Options) {
			o.Registry = append(o.Registry, sim.RegistryValue{Key: `HKLM\SYSTEM\Setup`, Name: "UnattendFile", Value: host.StringValue(`C:\a.xml`)})
		}, severity: w, id: "CachedAnswerFile", what: `C:\a.xml`},
		"no VMware Tools":             {flaw: func(o *sim.Options) { delete(o.Files, rpctool) }, severity: e, id: "VMwareToolsMissing"},
		"hidden addresses":            {flaw: func(o *sim.Options) { o.Files[toolsConf] = "[guestinfo]\r\nexclude-nics = antrea-*,vEthernet*\r\n" }, severity: w, id: "AddressesHidden"},
		"no kubelet":                  {flaw: func(o *sim.Options) { delete(o.Programs, layout.Kubelet) }, severity: w, id: "ProgramMissing", what: layout.Kubelet},
		"no kubelet of a version":     {flaw: func(o *sim.Options) { delete(o.Programs, layout.Kubelet) }, version: "v1.36.3", severity: e, id: "ProgramMissing", what: layout.Kubelet},
		"no kubeadm":                  {flaw: func(o *sim.Options) { delete(o.Programs, layout.Kubeadm) }, version: "v1.36.3", severity: i, id: "ProgramMissing", what: layout.Kubeadm},
		"no containerd":               {flaw: func(o *sim.Options) { delete(o.Programs, layout.Containerd) }, version: "v1.36.3", severity: e, id: "ProgramMissing", what: layout.Containerd},
		"no shim":                     {flaw: func(o *sim.Options) { delete(o.Files, shim) }, severity: e, id: "ProgramMissing", what: "shim"},
		"another kubelet":             {version: "v1.36.3", flaw: func(o *sim.Options) { o.Programs[layout.Kubelet] = says("Kubernetes v1.35.0") }, severity: e, id: "VersionDiffers", what: "v1.35.0"},
		"a kubelet that does not run": {flaw: func(o *sim.Options) { o.Programs[layout.Kubelet] = says("Illegal instruction") }, severity: e, id: "ProgramUnusable", what: "Illegal instruction"},
		"a kubelet for another machine": {flaw: func(o *sim.Options) {
			delete(o.Programs, layout.Kubelet)
			o.Files[layout.Kubelet] = "ELF"
		}, severity: e, id: "ProgramUnusable", what: layout.Kubelet},
		"an old containerd": {flaw: func(o *sim.Options) {
			o.Programs[layout.Containerd] = says("containerd github.com/containerd/containerd v1.5.9 x")
		}, severity: e, id: "ContainerdOld", what: "v1.5.9"},
		"no plug-ins": {flaw: func(o *sim.Options) {
			maps.DeleteFunc(o.Programs, func(path string, _ sim.Program) bool { return strings.HasPrefix(path, layout.CNIBinDir) })
		}, severity: i, id: "NoNetworkPlugins"},
		"nssm":                  {flaw: func(o *sim.Options) { o.Services[2].Argv = []string{`C:\k\nssm.exe`} }, severity: i, id: "ServiceWrapped", what: "kubelet"},
		"a kubelet that starts": {flaw: func(o *sim.Options) { o.Services[2].Start = host.StartAuto }, severity: w, id: "KubeletStarts"},
		"docker": {flaw: func(o *sim.Options) {
			o.Services = append(o.Services, host.Service{Name: "docker", Argv: []string{`C:\d.exe`}, Start: host.StartManual})
		}, severity: w, id: "ForeignService", what: "docker"},
		"a former node":               {flaw: func(o *sim.Options) { o.Files[layout.Kubeconfig] = "x" }, severity: e, id: "FormerNode", what: layout.Kubeconfig},
		"a former node's certificate": {flaw: func(o *sim.Options) { o.Files[layout.KubeletClientCert] = "x" }, severity: e, id: "FormerNode", what: layout.KubeletClientCert},
		"a former first boot":         {flaw: func(o *sim.Options) { o.Files[layout.Journal] = "x" }, severity: e, id: "FormerBoot", what: layout.Journal},
		"no agent":                    {flaw: func(o *sim.Options) { delete(o.Programs, layout.Agent) }, severity: i, id: "AgentMissing"},
		"an agent that does not run":  {flaw: func(o *sim.Options) { o.Programs[layout.Agent] = says("") }, severity: e, id: "ProgramUnusable", what: layout.Agent},
		"no right to read": {flaw: func(o *sim.Options) {
			o.Inject = func(c sim.Call) sim.Fault {
				if c.Op == "Files.Read" && c.Detail == toolsConf {
					return sim.Fault{Kind: sim.Fail}
				}
				return sim.Fault{}
			}
		}, severity: e, id: "Unreadable", what: toolsConf},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			o := perfect()
			if tc.flaw != nil {
				tc.flaw(&o)
			}
			r := check(t, o, tc.version, tc.prepare)
			g.Expect(r.Findings).To(HaveLen(1))
			g.Expect(r.Findings[0].Severity).To(Equal(tc.severity))
			g.Expect(r.Findings[0].ID).To(Equal(tc.id))
			g.Expect(r.Findings[0].What).To(ContainSubstring(tc.what))
			g.Expect(r.Findings[0].Remedy).To(HaveSuffix("."))
			g.Expect(r.OK()).To(Equal(tc.severity != imagecheck.Error))
		})
	}
}

func TestOtherPlatformsNeedNoVMwareTools(t *testing.T) {
	for name, tc := range map[string]struct {
		services string
		want     []string
	}{
		"EC2 by name":    {"metadata_services=cloudbaseinit.metadata.services.ec2service.EC2Service", nil},
		"EC2 by default": {"", nil},
		"EC2 left out":   {"metadata_services=cloudbaseinit.metadata.services.configdrive.ConfigDriveService", []string{"EC2NotRead"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := perfect()
			o.Info.Manufacturer = "Amazon EC2"
			delete(o.Files, rpctool)
			replaceConf("metadata_services=cloudbaseinit.metadata.services.vmwareguestinfoservice.VMwareGuestInfoService", tc.services)(&o)
			var got []string
			for _, f := range check(t, o, "", nil).Findings {
				got = append(got, f.ID)
			}
			NewWithT(t).Expect(got).To(Equal(tc.want))
		})
	}
}

func TestTheWorstStandsFirstAndBothFormsSayTheSame(t *testing.T) {
	g := NewWithT(t)
	o := perfect()
	delete(o.Programs, layout.Agent)
	noValue(&o, "PagingFiles")
	delete(o.Files, conf)
	r := check(t, o, "", nil)
	ids := []string{}
	for _, f := range r.Findings {
		ids = append(ids, f.ID)
	}
	g.Expect(ids).To(Equal([]string{"CloudbaseInitMissing", "NoPageFile", "AgentMissing"}))

	var raw, table bytes.Buffer
	g.Expect(r.WriteJSON(&raw)).To(Succeed())
	read := struct {
		OK bool
		imagecheck.Report
	}{}
	g.Expect(json.Unmarshal(raw.Bytes(), &read)).To(Succeed())
	g.Expect(read.OK).To(BeFalse())
	g.Expect(read.Report).To(Equal(r))

	g.Expect(r.WriteTable(&table)).To(Succeed())
	for _, f := range r.Findings {
		g.Expect(table.String()).To(And(ContainSubstring(f.ID), ContainSubstring(f.What), ContainSubstring(f.Remedy)))
	}
	g.Expect(table.String()).To(HaveSuffix("\n1 errors, 1 warnings\n"))
}

func TestAMachineThatSaysNothingIsAnError(t *testing.T) {
	o := perfect()
	o.Inject = func(c sim.Call) sim.Fault {
		if c.Op == "System.Info" {
			return sim.Fault{Kind: sim.Fail}
		}
		return sim.Fault{}
	}
	g := NewWithT(t)
	r := check(t, o, "", nil)
	g.Expect(r.OK()).To(BeFalse())
	g.Expect(r.Findings).To(ConsistOf(HaveField("ID", "Unreadable")))
}
