// Command lint is golangci-lint with the Kubernetes API linter (KAL) compiled in, so that one pinned binary checks
// everything.
package main

import (
	"fmt"
	"os"
	"runtime/debug"

	"github.com/golangci/golangci-lint/v2/pkg/commands"
	"github.com/golangci/golangci-lint/v2/pkg/exitcodes"
	_ "sigs.k8s.io/kube-api-linter" // registers the linter "kubeapilinter"
)

func main() {
	info := commands.BuildInfo{Version: "unknown", Commit: "unknown"}
	if build, ok := debug.ReadBuildInfo(); ok {
		info.GoVersion = build.GoVersion
		for _, dep := range build.Deps {
			if dep.Path == "github.com/golangci/golangci-lint/v2" {
				info.Version = dep.Version
			}
		}
	}
	if err := commands.Execute(info); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "lint: %v\n", err)
		os.Exit(exitcodes.Failure)
	}
}
