package resident

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"

	"github.com/capw-dev/cluster-api-provider-windows/agent/cni"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/services"
)

const (
	// recoveryTime is how long a service that failed is left to the SCM, whose slowest restart takes a minute, after it did
	// anything with it last. To start it as well would be worse than useless: every failure makes the SCM plan one more restart.
	recoveryTime = 90 * time.Second
	// firstPause is the pause after the first attempt to put a service right; it doubles up to maxPause, and begins anew when
	// the service has been as declared for calmTime.
	firstPause = 15 * time.Second
	maxPause   = 5 * time.Minute
	calmTime   = 10 * time.Minute
)

// neverStarted is the exit code of a service that has not run in this boot (ERROR_SERVICE_NEVER_STARTED).
const neverStarted = 1077

// keeper is what the resident knows.
type keeper struct {
	run     *engine.Run
	desired []host.Service
	report  func(Drift)
	watched map[string]*watched
	again   time.Duration // until the next look
	pruned  time.Time
	waiting string // what was said last about a network that is awaited
}

// watched is what it knows of one service.
type watched struct {
	attempts int
	until    time.Time // no attempt before
	fine     time.Time // since when it is as declared; zero: it is not
	failed   time.Time // when it was seen first that it had failed; zero: it has not
	changed  time.Time // when the SCM told a change last
	told     Drift     // the last that was reported
}

// keep looks at all services once, in the order in which they start.
func (k *keeper) keep(ctx context.Context) {
	log := logr.FromContextOrDiscard(ctx)
	if err := cni.Configure(ctx, k.run); err != nil {
		log.Error(err, "Keeping the configuration of the pod network")
	}
	if err := services.ConfigureExporter(ctx, k.run); err != nil {
		log.Error(err, "Keeping the configuration of windows_exporter")
	}
	for _, s := range services.Without(k.desired, services.KubeProxy) {
		k.service(ctx, s, false)
	}
	if err := cni.Complete(ctx, k.run); err != nil {
		k.awaits(ctx, err)
	}
	proxy := services.Only(k.desired, services.KubeProxy)
	if len(proxy) == 0 {
		return
	}
	err := cni.PrepareKubeProxy(ctx, k.run)
	if err != nil {
		k.awaits(ctx, err)
	}
	for _, s := range proxy {
		k.service(ctx, s, err != nil)
	}
}

// awaits says what the pod network lacks, once, and has it looked at again soon.
func (k *keeper) awaits(ctx context.Context, err error) {
	k.sooner(recheck)
	if k.waiting == err.Error() {
		return
	}
	k.waiting = err.Error()
	log := logr.FromContextOrDiscard(ctx)
	if cni.Waiting(err) {
		log.Info("Waiting for the pod network", "reason", err.Error())
	} else {
		log.Error(err, "Preparing the pod network")
	}
}

// service looks at one service. A blocked one is not started.
func (k *keeper) service(ctx context.Context, want host.Service, blocked bool) {
	if ctx.Err() != nil {
		return
	}
	w := k.watched[want.Name]
	drift, err := k.differs(ctx, want)
	if err == nil && drift.Kind != "" && !blocked {
		var why string
		why, err = services.Blocked(ctx, k.run, want)
		blocked = why != ""
	}
	switch {
	case err != nil:
		k.sooner(recheck)
		logr.FromContextOrDiscard(ctx).Error(err, "Looking at a service", "service", want.Name)
	case drift.Kind == "":
		k.calm(w)
	default:
		w.fine = time.Time{}
		if !k.mayWait(ctx, w, drift, blocked) {
			k.restore(ctx, w, want, drift, blocked)
		}
	}
}

// calm remembers that a service is as declared.
func (k *keeper) calm(w *watched) {
	w.failed = time.Time{}
	if w.fine.IsZero() {
		w.fine = time.Now()
	}
	if time.Since(w.fine) >= calmTime {
		*w = watched{fine: w.fine, changed: w.changed}
	}
}

// differs returns how a service differs from what it shall be. Kind "": it does not, or not for long, as it starts or stops
// right now.
func (k *keeper) differs(ctx context.Context, want host.Service) (Drift, error) {
	drift := Drift{Service: want.Name}
	have, err := k.run.Host.Services.Get(ctx, want.Name)
	if errors.Is(err, host.ErrNotFound) {
		drift.Kind = Deleted
		return drift, nil
	}
	if err != nil {
		return drift, err
	}
	if !want.Equal(have) {
		drift.Kind, drift.Detail = Changed, difference(want, have)
		return drift, nil
	}
	status, err := k.run.Host.Services.Status(ctx, want.Name)
	switch {
	case err != nil:
		return drift, err
	case status.State == host.ServiceStarting, status.State == host.ServiceStopping:
		k.sooner(recheck)
	case status.State == host.ServiceRunning:
	default:
		drift.Kind, drift.ExitCode = Stopped, status.ExitCode
		if drift.ExitCode != 0 && drift.ExitCode != neverStarted {
			drift.Kind = Failed
		}
	}
	return drift, nil
}

// mayWait says that nothing shall be done about a difference now.
func (k *keeper) mayWait(ctx context.Context, w *watched, drift Drift, blocked bool) bool {
	if blocked && (drift.Kind == Stopped || drift.Kind == Failed) {
		k.sooner(recheck)
		return true
	}
	if drift.ExitCode != 0 { // the SCM starts it, again or for the first time in this boot
		if w.failed.IsZero() {
			w.failed = time.Now()
			if drift.Kind == Failed {
				k.tell(ctx, w, drift)
			}
		}
		last := w.failed
		if w.changed.After(last) {
			last = w.changed
		}
		if left := recoveryTime - time.Since(last); left > 0 {
			k.sooner(left)
			return true
		}
	}
	if left := time.Until(w.until); left > 0 {
		k.sooner(left)
		return true
	}
	return false
}

// restore puts a service right, up to its start if it is blocked.
func (k *keeper) restore(ctx context.Context, w *watched, want host.Service, drift Drift, blocked bool) {
	act := services.Ensure
	if blocked {
		act = services.Register
	}
	err := act(ctx, k.run, want)
	pause := min(firstPause<<min(w.attempts, 10), maxPause)
	w.attempts++
	w.until = time.Now().Add(pause)
	w.failed = time.Time{}
	drift.Restored, drift.Err = err == nil, err
	k.tell(ctx, w, drift)
	if err != nil {
		k.sooner(pause)
		return
	}
	k.sooner(settle) // it may have taken others down with it
}
