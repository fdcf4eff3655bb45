package imagecheck

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/preflight"
)

func (c *checker) windows(ctx context.Context) {
	if err := preflight.Supported(c.info); err != nil {
		code, message := codes.Of(err)
		c.add(Error, "WindowsUnsupported", code.Remedy, "%s", message)
	} else if preflight.Undocumented(c.info.Build, c.o.KubernetesVersion) {
		c.add(Warning, "WindowsUndocumented", "Build the image from Windows Server 2022 or 2025.",
			"the documentation of Kubernetes %s does not name %s any more", c.o.KubernetesVersion, c.info.ProductName)
	}
	pending, err := c.System.RebootPending(ctx)
	if err != nil {
		c.unreadable("whether Windows waits for a reboot", err)
	} else if pending {
		c.add(Warning, "RebootPending", "Reboot before sealing; every first boot would have to, otherwise.", "Windows waits for a reboot")
	}
}

// sealing: Windows Setup gives every machine its own identity only if the image was generalized.
func (c *checker) sealing(ctx context.Context) {
	// 7 is the state of an image that is fully set up; cloudbase-init waits for it without end.
	state, ok := c.value(ctx, `HKLM\SYSTEM\Setup\Status\SysprepStatus`, "GeneralizationState")
	if ok && state.Number != 7 {
		c.add(Error, "SysprepIncomplete", `Look into C:\Windows\System32\Sysprep\Panther\setuperr.log, and build the image anew.`,
			"sysprep was interrupted: GeneralizationState is %d, not 7, and cloudbase-init waits for that", state.Number)
	}
	if _, ok := c.value(ctx, `HKLM\SYSTEM\Setup`, "CloneTag"); !ok {
		c.add(Info, "NotSealed", "As the last thing, run sysprep /generalize /oobe /shutdown with cloudbase-init's Unattend.xml.",
			"the image is not generalized yet")
	}
}

func (c *checker) features(ctx context.Context) {
	const name = "Containers"
	state, err := c.Features.State(ctx, name)
	switch {
	case errors.Is(err, host.ErrNotFound):
		c.add(Error, "FeatureUnknown", "Use an edition of Windows Server that has it.", "this Windows has no feature %s", name)
	case err != nil:
		c.unreadable("the feature "+name, err)
	case state == host.FeatureDisabled:
		c.add(Warning, "FeatureDisabled", "Run Install-WindowsFeature Containers, and reboot.", "the feature %s is not enabled: every first boot takes minutes and a reboot for it", name)
	case state == host.FeaturePending:
		c.add(Warning, "FeaturePending", "Reboot before sealing.", "the feature %s is enabled only after a reboot", name)
	}
}

// pageFile: Windows ends no process that takes too much memory, so that it needs a reserve.
func (c *checker) pageFile(ctx context.Context) {
	files, _ := c.value(ctx, `HKLM\SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management`, "PagingFiles")
	if !slices.ContainsFunc(files.Texts, func(entry string) bool { return strings.TrimSpace(entry) != "" }) {
		c.add(Warning, "NoPageFile", "Let Windows manage the page file, or set os.pageFile.",
			"there is no page file: when memory runs out, programs of Windows and Kubernetes fail at random")
	}
}

func (c *checker) updates(ctx context.Context) {
	v, _ := c.value(ctx, `HKLM\SOFTWARE\Policies\Microsoft\Windows\WindowsUpdate\AU`, "NoAutoUpdate")
	if v.Number != 1 {
		c.add(Warning, "AutomaticUpdates", `Set HKLM\SOFTWARE\Policies\Microsoft\Windows\WindowsUpdate\AU, NoAutoUpdate (DWord) to 1, and roll out new images instead.`,
			"Windows installs updates and reboots by itself, without draining the node")
	}
}

func (c *checker) administrator(ctx context.Context) {
	u, err := c.Users.Get(ctx, "Administrator")
	switch {
	case errors.Is(err, host.ErrNotFound): // renamed
	case err != nil:
		c.unreadable("the account Administrator", err)
	case u.Disabled:
		c.add(Info, "AdministratorDisabled", "Nothing, as long as cloudbase-init's plug-ins do not need the account.", "the account Administrator is disabled")
	}
}

func (c *checker) defender(ctx context.Context) {
	_, err := c.Services.Status(ctx, "WinDefend")
	switch {
	case errors.Is(err, host.ErrNotFound):
		c.add(Info, "DefenderMissing", "Nothing, if something else protects the machine.", "Windows Defender is not installed")
	case err != nil:
		c.unreadable("service WinDefend", err)
	}
}
