package hostprep

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
)

// need is something that takes effect at the next boot.
type need struct {
	r      *engine.Run
	what   string
	bootID string
}

// newNeed returns the need for a reboot for what, which is also the reason that people read.
func newNeed(ctx context.Context, r *engine.Run, what string) (need, error) {
	info, err := r.Host.System.Info(ctx)
	if err != nil {
		return need{}, codes.New(codes.HostUnreadable, "reading which boot this is: %w", err)
	}
	return need{r: r, what: what, bootID: info.BootID}, nil
}

// remember makes durable that this boot is the one in which the need arose.
//
// Where Windows shows that something waits for a reboot, it is called after the act, so that a crash between the two costs
// another attempt. Where it does not, it is called before the act: whoever finds the act done must know whether the boot that
// it needs is over.
func (n need) remember(ctx context.Context) error {
	if n.pending() {
		return nil
	}
	before := n.r.Facts.RebootsFor
	n.r.Facts.RebootsFor = map[string]string{n.what: n.bootID}
	for what, boot := range before {
		if what != n.what {
			n.r.Facts.RebootsFor[what] = boot
		}
	}
	if err := n.r.Save(ctx); err != nil {
		n.r.Facts.RebootsFor = before // else the next attempt would take it for durable
		return fmt.Errorf("remembering that %s needs a reboot: %w", n.what, err)
	}
	return nil
}

// pending says whether the need arose in this boot.
func (n need) pending() bool { return n.r.Facts.RebootsFor[n.what] == n.bootID }

// request asks for the reboot if the need arose in this boot.
func (n need) request() {
	if n.pending() {
		n.r.RequestReboot(n.what)
	}
}

// met says whether the machine has booted since the need arose.
func (n need) met() bool {
	since := n.r.Facts.RebootsFor[n.what]
	return since != "" && since != n.bootID
}

// heedPendingReboot grants Windows one reboot that it waits for by itself, such as one to finish updates: features and drivers
// may not work before. Some images wait for ever, so that a second one would be in vain.
func heedPendingReboot(ctx context.Context, r *engine.Run) error {
	n, err := newNeed(ctx, r, "what Windows itself waits for")
	if err != nil {
		return err
	}
	pending, err := r.Host.System.RebootPending(ctx)
	if err != nil {
		return codes.New(codes.HostUnreadable, "reading whether Windows waits for a reboot: %w", err)
	}
	switch {
	case !pending:
		return nil
	case n.met():
		logr.FromContextOrDiscard(ctx).Info("Windows still waits for a reboot; the first boot goes on without one")
		return nil
	}
	if err := n.remember(ctx); err != nil {
		return err
	}
	n.request()
	return nil
}
