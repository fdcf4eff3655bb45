package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// sysProcAttr puts a child into a process group of its own, out of reach of the terminal's Ctrl-C, and lets the kernel
// kill it when its parent thread ends.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// groupAlive reports whether a process of the group still runs. A zombie does not, though the kernel lets it be signalled:
// how soon orphans are reaped is up to process 1, which in a container may be anything.
func groupAlive(pgid int) bool {
	if syscall.Kill(-pgid, 0) == syscall.ESRCH {
		return false
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		return true // no /proc to know better
	}
	for _, path := range stats {
		stat, err := os.ReadFile(filepath.Clean(path))
		if err != nil {
			continue // ended meanwhile
		}
		// "pid (name) state ppid pgrp ...", where name may contain anything.
		var state string
		var ppid, pgrp int
		if _, err := fmt.Sscan(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), &state, &ppid, &pgrp); err != nil {
			continue
		}
		if pgrp == pgid && state != "Z" && state != "X" {
			return true
		}
	}
	return false
}
