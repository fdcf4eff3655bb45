// Package cbi lets the real cloudbase-init consume what a VM would be given, on Linux and over a make-believe Windows:
// it is an independent judge of our metadata and user data. driver.py says what of it is real.
package cbi

import (
	"bytes"
	"context"
	_ "embed" // for driver.py and requirements.txt
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed driver.py
var driver []byte

// Guest is a VM whose image has cloudbase-init, as Kubernetes' image-builder makes them, and that was never booted.
type Guest struct {
	// GuestInfo is the part of the VM's extraConfig that begins with "guestinfo.".
	GuestInfo map[string]string `json:"guestInfo"`
	// Hostname that the image comes up with.
	Hostname string `json:"hostname"`
	// NICs of the VM.
	NICs []NIC `json:"nics"`
	// Rules give the exit codes of the processes that cloudbase-init starts; one that no rule matches exits with 0.
	Rules []Rule `json:"rules"`
	// PowerCycles are done one after the other, each when the guest asks for no more reboot. A map replaces GuestInfo
	// before the VM is powered on again, nil leaves it.
	PowerCycles []map[string]string `json:"powerCycles"`
}

// NIC is a network adapter.
type NIC struct {
	// MAC address, with colons.
	MAC string `json:"mac"`
	// Name of the adapter in Windows.
	Name string `json:"name"`
}

// Rule gives exit codes to the processes whose command line or script it matches. The first rule that matches counts.
type Rule struct {
	// Match is a regular expression of Python.
	Match string `json:"match"`
	// ExitCodes of the first, second, ... process; the last one repeats.
	ExitCodes []int `json:"exitCodes"`
}

// Report says what happened.
type Report struct {
	// Boots is their number.
	Boots int `json:"boots"`
	// RebootLoop is true if the guest still wanted to reboot after the sixth boot in a row.
	RebootLoop bool `json:"rebootLoop"`
	// Hostname in the last boot.
	Hostname string `json:"hostname"`
	// Users are the names of the local accounts after the last boot.
	Users []string `json:"users"`
	// Files on drive C: after the last boot, by full path.
	Files map[string][]byte `json:"files"`
	// Renames of the computer, in order; each is in force from the next boot on.
	Renames []Rename `json:"renames"`
	// Reboots are the numbers of the boots that ended with cloudbase-init rebooting the guest.
	Reboots []int `json:"reboots"`
	// Executions are the processes that cloudbase-init started, in order, without those that read guestinfo.
	Executions []Execution `json:"executions"`
	// Plugins that had their turn, in order.
	Plugins []PluginRun `json:"plugins"`
	// Log is what cloudbase-init logged, on all levels.
	Log []LogEntry `json:"log"`
}

// Rename is one change of the computer name.
type Rename struct {
	// Boot is the number of the boot, from 1.
	Boot int `json:"boot"`
	// Name is the new name.
	Name string `json:"name"`
}

// Execution is one process that cloudbase-init started.
type Execution struct {
	// Boot is the number of the boot, from 1.
	Boot int `json:"boot"`
	// CommandLine as Windows gets it, with the shell if it is started through one.
	CommandLine string `json:"commandLine"`
	// ExitCode that the process was given.
	ExitCode int `json:"exitCode"`
	// ScriptPath is the last argument that is a file, and Script what that file holds when the process starts.
	ScriptPath string `json:"scriptPath"`
	Script     []byte `json:"script"`
}

// PluginRun is one turn of a plugin.
type PluginRun struct {
	// Boot is the number of the boot, from 1.
	Boot int `json:"boot"`
	// Name of the plugin, such as UserDataPlugin.
	Name string `json:"name"`
	// Skipped is true if cloudbase-init remembers that it is done for this instance-id.
	Skipped bool `json:"skipped"`
	// Succeeded is false if it raised an exception.
	Succeeded bool `json:"succeeded"`
	// Reboot is true if it asked for one.
	Reboot bool `json:"reboot"`
	// Done is true if cloudbase-init will not run it again for this instance-id.
	Done bool `json:"done"`
}

// LogEntry is one line of cloudbase-init's log.
type LogEntry struct {
	// Boot is the number of the boot, from 1.
	Boot int `json:"boot"`
	// Level is DEBUG, INFO, WARNING or ERROR.
	Level string `json:"level"`
	// Logger is the module below cloudbaseinit.
	Logger string `json:"logger"`
	// Message without time and level.
	Message string `json:"message"`
}

// Run boots the guest until cloudbase-init asks for no more reboot, and again for each of its power cycles. The first
// call on a machine installs cloudbase-init into the cache of the user.
func Run(ctx context.Context, guest Guest) (*Report, error) {
	python, err := ensureVenv(ctx)
	if err != nil {
		return nil, fmt.Errorf("installing cloudbase-init: %w", err)
	}
	dir, err := os.MkdirTemp("", "capw-cbi-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	script := filepath.Join(dir, "driver.py")
	if err := os.WriteFile(script, driver, 0o600); err != nil {
		return nil, err
	}
	job, err := json.Marshal(guest)
	if err != nil {
		return nil, err
	}

	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, python, "-I", "-B", script)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(job), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("running cloudbase-init: %w\n%s", err, stderr.Bytes())
	}
	report := &Report{}
	if err := json.Unmarshal(stdout.Bytes(), report); err != nil {
		return nil, fmt.Errorf("reading the report of cloudbase-init: %w", err)
	}
	return report, nil
}

// Problems returns the log entries of level WARNING and ERROR.
func (r *Report) Problems() []LogEntry {
	var problems []LogEntry
	for _, entry := range r.Log {
		if entry.Level == "WARNING" || entry.Level == "ERROR" {
			problems = append(problems, entry)
		}
	}
	return problems
}
