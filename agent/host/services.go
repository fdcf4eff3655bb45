package host

import (
	"context"
	"slices"
	"time"
)

// Services is the service control manager (SCM).
type Services interface {
	// Get returns the configuration of one; ErrNotFound if there is none.
	Get(ctx context.Context, name string) (Service, error)
	// Apply creates or changes one. It neither starts nor stops it: a running one has the new command line when it starts
	// again.
	Apply(ctx context.Context, s Service) error
	// Delete stops and removes one; a missing one is success.
	Delete(ctx context.Context, name string) error
	// Status tells what one does; ErrNotFound if there is none.
	Status(ctx context.Context, name string) (ServiceStatus, error)
	// Start starts one and waits until it runs. A running one is success. One that its program ends before it runs is an
	// error with the exit code.
	Start(ctx context.Context, name string) error
	// Stop stops one and those that depend on it, and waits until its process is gone. A stopped one is success.
	Stop(ctx context.Context, name string) error
	// Changes tells names of services among those given whose state changed, until ctx ends, when the channel is closed.
	// It may tell a name once for several changes, and too often, but never too seldom.
	Changes(ctx context.Context, names []string) (<-chan string, error)
}

// Service is the configuration of a service that runs as LocalSystem in a process of its own.
type Service struct {
	Name        string
	DisplayName string
	Description string
	// Argv is the program's absolute path, and its arguments, which are quoted for it.
	Argv []string
	// Start says when it starts.
	Start StartType
	// DependsOn are services that the SCM starts before it.
	DependsOn []string
	// Restart are the pauses before the first, second and every later restart after a failure; empty: none.
	Restart []time.Duration
	// ResetAfter is the time without a failure after which the count begins again. Default: one hour.
	ResetAfter time.Duration
	// Environment are variables, NAME=value, of its process beside those of the machine, sorted.
	Environment []string
}

// StartType says when a service starts.
type StartType string

// Start types.
const (
	StartAuto        StartType = "Auto"
	StartAutoDelayed StartType = "AutoDelayed"
	StartManual      StartType = "Manual"
	StartDisabled    StartType = "Disabled"
)

// Equal says whether two configurations are the same to the SCM.
func (s Service) Equal(o Service) bool {
	return s.Name == o.Name && s.DisplayName == o.DisplayName && s.Description == o.Description && s.Start == o.Start &&
		s.ResetAfter == o.ResetAfter && slices.Equal(s.Argv, o.Argv) && slices.Equal(s.DependsOn, o.DependsOn) &&
		slices.Equal(s.Restart, o.Restart) && slices.Equal(s.Environment, o.Environment)
}

// ServiceStatus is what a service does.
type ServiceStatus struct {
	State ServiceState
	// PID of its process; 0 when it is stopped.
	PID uint32
	// ExitCode of the last end: 0 for a clean one. For a service-specific code it is that code.
	ExitCode uint32
}

// ServiceState of a service. One whose process is gone is Stopped, whatever the SCM says.
type ServiceState string

// Service states.
const (
	ServiceStopped  ServiceState = "Stopped"
	ServiceStarting ServiceState = "Starting"
	ServiceRunning  ServiceState = "Running"
	ServiceStopping ServiceState = "Stopping"
	ServicePaused   ServiceState = "Paused"
)
