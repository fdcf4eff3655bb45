// Package codes is the one table of what can go wrong on a node. Logs, status and documentation use its codes and names.
//
// A code is never given another meaning. The file of a phase declares its codes as constants and describes them in one
// function that Table collects.
package codes

import (
	"errors"
	"fmt"
	"slices"
)

// Code names one kind of failure, such as CAPW-0701. The first two digits say where: 00 agent, 01 Preflight, 02 Host,
// 03 Network, 04 Artifacts, 05 Configure, 06 Runtime, 07 Join, 08 Services, 09 Verify, 10 Done.
type Code string

// Class says what the agent does about a failure.
type Class string

const (
	// Retryable says that the step is tried again until its budget, or the deadline of the first boot, ends.
	Retryable Class = "Retryable"
	// Terminal says that nothing on this node will change it; the first boot has failed.
	Terminal Class = "Terminal"
)

// Info describes a code.
type Info struct {
	Code Code
	// Name in CamelCase, as used for reasons of conditions.
	Name string
	Class
	// Meaning and Remedy are sentences for the person who carries the pager.
	Meaning string
	Remedy  string
}

// Table returns all codes in order.
func Table() []Info {
	return slices.Concat(agentCodes(), preflightCodes(), hostCodes(), networkCodes(), artifactsCodes(), configureCodes(),
		runtimeCodes(), joinCodes(), servicesCodes(), verifyCodes(), doneCodes())
}

// Lookup returns the description of a code; that of Internal for one that is not in the table.
func Lookup(code Code) Info {
	table := Table()
	i := slices.IndexFunc(table, func(i Info) bool { return i.Code == code })
	if i < 0 {
		return Lookup(Internal)
	}
	return table[i]
}

// Error is a failure with its code.
type Error struct {
	Code Code
	// Err says what was attempted and why it failed. It holds no secrets.
	Err error
}

// New returns an error with a code. format and args are those of fmt.Errorf: %w keeps the cause.
func New(code Code, format string, args ...any) error {
	return &Error{Code: code, Err: fmt.Errorf(format, args...)}
}

// Error implements error: "CAPW-0701 EndpointUnreachable: <message>".
func (e *Error) Error() string {
	return fmt.Sprintf("%s %s: %s", e.Code, Lookup(e.Code).Name, e.Err.Error())
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Of returns the description of err's outermost code, and its message without the code. An error without a code is Internal.
func Of(err error) (Info, string) {
	if coded := (*Error)(nil); errors.As(err, &coded) {
		return Lookup(coded.Code), coded.Err.Error()
	}
	return Lookup(Internal), err.Error()
}
