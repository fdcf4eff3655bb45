// Package status hands the status of a first boot to everybody outside who may read it: a file, the event log, the hypervisor
// and a serial port. No reader that is missing, and none that hangs, stops a first boot.
package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// GuestInfoKey is the variable that the hypervisor shows.
const GuestInfoKey = "guestinfo.capw.status"

// patience is how long one reader may take.
const patience = 10 * time.Second

// Event IDs in the Application log.
const (
	eventProgress uint32 = 1
	eventDone     uint32 = 2
	eventWaiting  uint32 = 3
	eventFailed   uint32 = 4
)

// Reporter writes statuses. It is not safe for concurrent use.
type Reporter struct {
	host  *host.Host
	sinks []*sink
}

// sink is one place to write to.
type sink struct {
	name  string
	write func(ctx context.Context, s nodev1.BootStatus, line string) error
	// off: it is not there, or it hung once; then it is left alone.
	off bool
}

// New returns a Reporter. port is a serial port such as COM1; empty: none.
func New(h *host.Host, port string) *Reporter {
	r := &Reporter{host: h}
	r.sinks = []*sink{
		{name: "guestinfo", write: func(ctx context.Context, _ nodev1.BootStatus, line string) error {
			return h.Reporting.SetGuestInfo(ctx, GuestInfoKey, line)
		}},
		{name: "file", write: func(ctx context.Context, _ nodev1.BootStatus, line string) error {
			return h.Files.Write(ctx, layout.Status, []byte(line+"\n"), host.ACLSystem)
		}},
		{name: "event log", write: r.event},
	}
	if port != "" {
		r.sinks = append(r.sinks, &sink{name: port, write: func(ctx context.Context, _ nodev1.BootStatus, line string) error {
			return h.Reporting.SerialLine(ctx, port, line)
		}})
	}
	return r
}

// Report writes s everywhere. It returns soon, whatever happens there; failures are logged.
func (r *Reporter) Report(ctx context.Context, s nodev1.BootStatus) {
	log := logr.FromContextOrDiscard(ctx)
	s.Message = Shorten(s.Message)
	line, err := json.Marshal(s)
	if err != nil {
		log.Error(err, "Encoding the status")
		return
	}
	for _, k := range r.sinks {
		if k.off {
			continue
		}
		switch err := k.try(ctx, s, string(line)); {
		case errors.Is(err, host.ErrNotSupported):
			k.off = true
			log.V(1).Info("Status is not reported there", "reader", k.name, "reason", err.Error())
		case errors.Is(err, errHung):
			k.off = true
			log.Error(err, "Status is no longer reported there", "reader", k.name)
		case err != nil:
			log.Error(err, "Reporting the status", "reader", k.name)
		}
	}
}

var errHung = errors.New("it hangs")

func (k *sink) try(ctx context.Context, s nodev1.BootStatus, line string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- k.write(ctx, s, line) }()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
	}
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case err := <-result:
		return err
	case <-t.C:
		return fmt.Errorf("writing to %s: %w", k.name, errHung)
	}
}

// event writes what a person would look for in the event log: ends of phases, and errors.
func (r *Reporter) event(ctx context.Context, s nodev1.BootStatus, _ string) error {
	text := fmt.Sprintf("Phase %s, boot %d of node %s", s.Phase, s.Boots, s.Node)
	if s.Step != "" {
		text += fmt.Sprintf(", step %s, attempt %d", s.Step, s.Attempt)
	}
	if s.Code != "" {
		info := codes.Lookup(codes.Code(s.Code))
		text += fmt.Sprintf("\r\n%s %s: %s\r\nMeaning: %s\r\nRemedy: %s", info.Code, info.Name, s.Message, info.Meaning, info.Remedy)
	} else if s.Message != "" {
		text += "\r\n" + s.Message
	}
	switch s.State {
	case nodev1.BootFailed:
		return r.host.Reporting.Event(ctx, host.EventError, eventFailed, "First boot FAILED. "+text)
	case nodev1.BootWaiting:
		return r.host.Reporting.Event(ctx, host.EventWarning, eventWaiting, "First boot waits. "+text)
	case nodev1.BootDone:
		return r.host.Reporting.Event(ctx, host.EventInformation, eventDone, "First boot is done. "+text)
	default:
		return r.host.Reporting.Event(ctx, host.EventInformation, eventProgress, "First boot. "+text)
	}
}

// Shorten returns the beginning of a message that fits into a status.
func Shorten(message string) string {
	runes := []rune(strings.ToValidUTF8(message, "?"))
	if len(runes) <= nodev1.MaxStatusMessage {
		return string(runes)
	}
	return string(runes[:nodev1.MaxStatusMessage-3]) + "..."
}

// Last returns the last status of this machine; fs.ErrNotExist if there is none.
func Last(ctx context.Context, files host.Files) (*nodev1.BootStatus, error) {
	raw, err := files.Read(ctx, layout.Status)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return nil, fmt.Errorf("reading the status: %w", err)
	}
	s := &nodev1.BootStatus{}
	if err := json.Unmarshal(raw, s); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", layout.Status, err)
	}
	return s, nil
}
