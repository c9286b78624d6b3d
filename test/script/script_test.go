// Package script runs the program as a person at a terminal does: each file
// under testdata is a session. The commands that a terminal does not have are
// in commands_test.go.
package script

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/keyserver-operator/keyserver-operator/internal/commands"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// The program is this test binary under its name, so that the race detector
// sees the server, too.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"keyserver-operator":         program,
		"kubectl-keyserver":          program,
		"kubectl_complete-keyserver": program,
		"without-privileges":         func() { os.Exit(withoutPrivileges(os.Args[1:])) },
	})
}

// program runs by the name that it was started by.
func program() { os.Exit(commands.Run(os.Args[0], os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		Setup:               setup,
		Cmds:                scriptCommands,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

// setup gives each script an address of its own, no listener for peers, in $NL a newline,
// and in $PROGRAM the binary that runs as keyserver-operator.
func setup(env *testscript.Env) error {
	address, err := rig.FindAddress("127.0.0.1")
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	env.Setenv("ADDR", address)
	env.Setenv("PROGRAM", program)
	env.Setenv("KEYSERVER_EXTERNAL_LISTEN", "")
	env.Setenv("NL", "\n")
	env.Values[remembered{}] = map[string]string{}
	return nil
}
