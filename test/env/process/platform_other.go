//go:build unix && !linux

package process

import "syscall"

// sysProcAttr puts a child into a process group of its own, out of reach of the terminal's Ctrl-C.
func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// groupAlive reports whether a process of the group is left.
func groupAlive(pgid int) bool { return syscall.Kill(-pgid, 0) == nil }
