// Package vsphere is the infrastructure.Platform for VMs on VMware vSphere.
//
// It asks a vCenter as little as it can. There is one session per vCenter and credentials. Over it runs one property
// collector, a long poll, which watches exactly our VMs and our running tasks. What it reports is the cache from which
// Observe and Ensure answer without any call, and it wakes the reconciler of the WindowsMachine concerned. A VM is created
// by a single CloneVM_Task that carries hardware, network, guest data, owner mark and power-on.
//
// Nothing that matters is kept in memory only. The instance UUID of a VM is a function of the UID of its WindowsMachine,
// its name is unique in its folder, and it carries an owner mark, so that a platform which knows nothing, after any crash,
// finds the VM of a WindowsMachine, never makes a second one, and never touches anything that is not its own.
package vsphere
