package resident

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// DriftKind says how a service differs from what the document declares.
type DriftKind string

// Kinds of drift.
const (
	// Deleted: the service is not registered.
	Deleted DriftKind = "Deleted"
	// Changed: its configuration is another one; Detail says in what.
	Changed DriftKind = "Changed"
	// Stopped: somebody has stopped it.
	Stopped DriftKind = "Stopped"
	// Failed: its program has ended with ExitCode. The SCM starts it again; the resident if the SCM does not.
	Failed DriftKind = "Failed"
)

// Drift is a difference between a service and what the document declares.
type Drift struct {
	Service string
	Kind    DriftKind
	Detail  string
	// ExitCode of a service that has failed.
	ExitCode uint32
	// Restored: it is as declared again. Err is why not; nil for a failure that is left to the SCM.
	Restored bool
	Err      error
	// Time when it was seen.
	Time time.Time
}

// Events in the Application log.
const (
	eventRestored    = 1100
	eventNotRestored = 1101
	eventFailed      = 1102
)

// String is what people read.
func (d Drift) String() string {
	var what string
	switch d.Kind {
	case Deleted:
		what = "was deleted"
	case Changed:
		what = "was changed (" + d.Detail + ")"
	case Stopped:
		what = "was stopped"
	case Failed:
		what = fmt.Sprintf("has failed with exit code %d", d.ExitCode)
	}
	switch {
	case d.Err != nil:
		return fmt.Sprintf("Service %s %s, and could not be restored: %v", d.Service, what, d.Err)
	case d.Restored:
		return fmt.Sprintf("Service %s %s, and was restored", d.Service, what)
	default:
		return fmt.Sprintf("Service %s %s", d.Service, what)
	}
}

// tell reports a difference, unless it was said already.
func (k *keeper) tell(ctx context.Context, w *watched, d Drift) {
	d.Time = time.Now()
	if !d.Restored && d.String() == w.told.String() {
		return
	}
	w.told = d
	log := logr.FromContextOrDiscard(ctx).WithValues("service", d.Service, "drift", d.Kind, "detail", d.Detail)
	level, id := host.EventWarning, uint32(eventRestored)
	switch {
	case d.Err != nil:
		level, id = host.EventError, eventNotRestored
		log.Error(d.Err, "A service differs from the document and could not be restored")
	case d.Restored:
		log.Info("A service differed from the document and was restored", "exitCode", d.ExitCode)
	default:
		id = eventFailed
		log.Info("A service has failed", "exitCode", d.ExitCode)
	}
	if err := k.run.Host.Reporting.Event(ctx, level, id, d.String()); err != nil {
		log.Error(err, "Writing to the event log")
	}
	if k.report != nil {
		k.report(d)
	}
}

// difference names the parts in which a service's configuration differs. Values are left out: arguments and variables of
// additional services may hold secrets.
func difference(want, have host.Service) string {
	var parts []string
	add := func(part string, equal bool) {
		if !equal {
			parts = append(parts, part)
		}
	}
	add("display name", want.DisplayName == have.DisplayName)
	add("description", want.Description == have.Description)
	add("command line", slices.Equal(want.Argv, have.Argv))
	add(fmt.Sprintf("start type %s", have.Start), want.Start == have.Start)
	add("dependencies", slices.Equal(want.DependsOn, have.DependsOn))
	add("recovery", slices.Equal(want.Restart, have.Restart) && want.ResetAfter == have.ResetAfter)
	add("environment", slices.Equal(want.Environment, have.Environment))
	add("name", want.Name == have.Name)
	return strings.Join(parts, ", ")
}
