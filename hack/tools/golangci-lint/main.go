// Command golangci-lint is golangci-lint with the linter of Kubernetes API types as a plugin. "golangci-lint custom"
// would build the same, but downloads from GitHub instead of the Go module proxy.
package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/golangci/golangci-lint/v2/pkg/commands"
	"github.com/golangci/golangci-lint/v2/pkg/exitcodes"
	_ "sigs.k8s.io/kube-api-linter"
)

func main() {
	if err := commands.Execute(buildInfo()); err != nil {
		fmt.Fprintln(os.Stderr, "The command is terminated due to an error:", err)
		os.Exit(exitcodes.Failure)
	}
}

// buildInfo returns the pinned versions for the command "version".
func buildInfo() commands.BuildInfo {
	info := commands.BuildInfo{Version: "unknown", Commit: "unknown", Date: "(unknown)"}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return info
	}
	info.GoVersion = build.GoVersion
	for _, module := range build.Deps {
		switch module.Path {
		case "github.com/golangci/golangci-lint/v2":
			info.Version = strings.TrimPrefix(module.Version, "v")
		case "sigs.k8s.io/kube-api-linter":
			info.Commit = module.Path + " " + module.Version
		}
	}
	return info
}
