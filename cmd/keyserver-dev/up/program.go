// Package up starts a control plane, key servers and the manager on one machine, for development and for a first trial.
package up

import (
	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
)

// programName is the name of the program.
const programName = "keyserver-dev"

// Program returns the program keyserver-dev with its command "up".
func Program() program.Program {
	return program.Program{Name: programName, Root: func([]string) (*cobra.Command, error) {
		return program.Group(programName, "Run all of keyserver-operator on this machine, for development and for a first look",
			newUp(), program.NewVersion(programName)), nil
	}}
}
