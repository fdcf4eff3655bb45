package hostprep

import (
	"context"
	"strings"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

func setTimeZone(ctx context.Context, r *engine.Run) error {
	want := r.Doc.OS.TimeZone
	have, err := r.Host.System.TimeZone(ctx)
	if err != nil {
		return codes.New(codes.HostUnreadable, "reading the time zone: %w", err)
	}
	if strings.EqualFold(have, want) {
		return nil
	}
	if err := r.Host.System.SetTimeZone(ctx, want); err != nil {
		return refused(err, codes.TimeZoneUnknown, codes.TimeNotConfigured, "setting the time zone %q", want)
	}
	return nil
}

// setTimeServers makes the Windows time service ask the document's servers, from every boot on: outside a domain it is only
// started now and then otherwise. See "Windows Time service tools and settings" in Microsoft's documentation.
func setTimeServers(ctx context.Context, r *engine.Run) error {
	const key = `HKLM\SYSTEM\CurrentControlSet\Services\W32Time`
	peers := make([]string, 0, len(r.Doc.OS.NTPServers))
	for _, server := range r.Doc.OS.NTPServers {
		peers = append(peers, server+",0x8") // in client mode
	}
	err := apply(ctx, r, []setting{
		{key + `\Parameters`, "NtpServer", host.StringValue(strings.Join(peers, " "))},
		{key + `\Parameters`, "Type", host.StringValue("NTP")},
		{key, "Start", host.DWordValue(2)},
	}, nil)
	if err != nil {
		return err
	}
	// Always, as a crash may have come between the values and the service's next start, when it reads them.
	if err := r.Host.Services.Stop(ctx, "W32Time"); err != nil {
		return codes.New(codes.TimeNotConfigured, "stopping the time service: %w", err)
	}
	if err := r.Host.Services.Start(ctx, "W32Time"); err != nil {
		return codes.New(codes.TimeNotConfigured, "starting the time service: %w", err)
	}
	return nil
}
