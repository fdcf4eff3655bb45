package hostprep

import (
	"context"
	"encoding/base64"
	"strings"

	"github.com/go-logr/logr"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
)

// joinDomain makes the machine a member of the document's domain. It waits for the computer name, by which the domain knows
// the machine: until then it does nothing, as a reboot has been asked for already.
func joinDomain(ctx context.Context, r *engine.Run) error {
	want := r.Doc.OS.DomainJoin
	joined, err := r.Host.Domain.Joined(ctx)
	if err != nil {
		return codes.New(codes.HostUnreadable, "reading which domain the machine is in: %w", err)
	}
	n, err := newNeed(ctx, r, "the membership in a domain")
	if err != nil {
		return err
	}
	begun := need{r: r, what: "the attempt to join a domain", bootID: n.bootID}
	if joined != "" {
		// A name without dots is a NetBIOS name, which can be anything.
		if want.Domain != "" && strings.Contains(joined, ".") && !strings.EqualFold(joined, want.Domain) {
			return codes.New(codes.DomainIsAnother, "the machine is a member of %s, the document wants %s", joined, want.Domain)
		}
		if begun.pending() { // Windows may show the domain before it is in effect
			r.RequestReboot(n.what)
		}
		return nil
	}
	if ready, err := named(ctx, r); err != nil || !ready {
		return err
	}
	switch {
	case n.met():
		return codes.New(codes.DomainNotTaken, "the machine is in no domain, although it was joined to one before this boot")
	case n.pending():
		n.request()
		return nil
	}
	if err := begun.remember(ctx); err != nil {
		return err
	}
	logr.FromContextOrDiscard(ctx).Info("Joining a domain", "domain", want.Domain, "offline", want.OfflineBlob != "")
	if want.OfflineBlob != "" {
		var blob []byte
		if blob, err = base64.StdEncoding.DecodeString(want.OfflineBlob); err != nil {
			return codes.New(codes.DomainRefused, "os.domainJoin.offlineBlob is not base64") // the cause would show some of it
		}
		err = r.Host.Domain.JoinOffline(ctx, blob)
	} else {
		err = r.Host.Domain.Join(ctx, want.Domain, want.OU, want.Username, want.Password)
	}
	if err != nil {
		return refused(err, codes.DomainRefused, codes.DomainNotJoined, "joining the domain %s", want.Domain)
	}
	if err := n.remember(ctx); err != nil {
		return err
	}
	n.request()
	return nil
}
