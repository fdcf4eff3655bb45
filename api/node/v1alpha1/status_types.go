package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BootStatus is the one line that a node writes about its first boot, after each phase and at each failure, as compact
// JSON: to a file, the event log, and the hypervisor (guestinfo.capw.status). It holds no secrets. Readers must not trust
// it: the guest can write anything.
type BootStatus struct {
	// APIVersion of this format.
	APIVersion string `json:"v"`
	// Phase that runs, or ran last, and the step in it.
	Phase string `json:"phase"`
	Step  string `json:"step,omitempty"`
	// State is Running, Waiting (a step failed and is tried again), Rebooting, Failed (nothing more will be tried) or Done.
	State BootState `json:"state"`
	// Attempt of the step, from 1.
	Attempt int32 `json:"attempt,omitempty"`
	// Code and Message of the error that is waited for or that ended the boot. Message has at most 240 characters.
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	// BootID tells boots apart; Boots counts them from 1.
	BootID string `json:"bootID,omitempty"`
	Boots  int32  `json:"boots,omitempty"`
	// Node is the node's name, IPs its addresses.
	Node string   `json:"node,omitempty"`
	IPs  []string `json:"ips,omitempty"`
	// Started is when the first boot began, Time when this was written.
	Started metav1.Time `json:"started"`
	Time    metav1.Time `json:"time"`
	// Elapsed is how long each finished phase took, in milliseconds.
	Elapsed map[string]int64 `json:"elapsed,omitempty"`
	// Agent is the agent's version.
	Agent string `json:"agent,omitempty"`
}

// BootState says where a first boot stands.
type BootState string

// States of a first boot.
const (
	BootRunning   BootState = "Running"
	BootWaiting   BootState = "Waiting"
	BootRebooting BootState = "Rebooting"
	BootFailed    BootState = "Failed"
	BootDone      BootState = "Done"
)

// MaxStatusMessage is the longest Message of a BootStatus, in characters.
const MaxStatusMessage = 240
