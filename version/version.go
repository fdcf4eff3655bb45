// Package version tells which build of CAPW runs.
package version

import (
	"fmt"
	"runtime"
)

// Set by -ldflags "-X .../version.gitVersion=v0.1.0 -X .../version.gitCommit=<hash>", see the Makefile.
var (
	gitVersion = "v0.0.0-dev"
	gitCommit  = ""
)

// Info describes a build.
type Info struct {
	// Version is the release, such as v0.1.0.
	Version string `json:"version"`
	// Commit is the source commit; empty when the build does not know it.
	Commit string `json:"commit,omitempty"`
	// GoVersion and Platform of the build.
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
}

// Get returns the description of the running build.
func Get() Info {
	return Info{Version: gitVersion, Commit: gitCommit, GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
}

// String returns one line for people.
func (i Info) String() string {
	commit := i.Commit
	if commit == "" {
		commit = "unknown commit"
	}
	return fmt.Sprintf("%s (%s, %s, %s)", i.Version, commit, i.GoVersion, i.Platform)
}
