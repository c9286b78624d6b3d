// Package script runs the program as a user at a terminal does: each file under testdata is a session. commands_test.go
// has commands that a terminal does not have.
package script

import (
	"io"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/keyserver-operator/keyserver-operator/cmd/keyserver-dev/up"
	"github.com/keyserver-operator/keyserver-operator/internal/commands"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/agent"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/kmsplugin"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// Each program is this test binary under the program's name, so that the race detector also covers the server.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"keyserver-operator":         func() { exit(commands.Main) },
		"keyserver-agent":            func() { exit(agent.Program(kmsplugin.Command()).Run) },
		"keyserver-dev":              func() { exit(up.Program().Run) },
		"keyserverctl":               client,
		"kubectl-keyserver":          client,
		"kubectl_complete-keyserver": client,
		"without-privileges":         func() { os.Exit(withoutPrivileges(os.Args[1:])) },
	})
}

func exit(program func(args []string, in io.Reader, out, errOut io.Writer) (code int)) {
	os.Exit(program(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// client runs the command-line client, under the name of the started program.
func client() {
	p, args := ctl.Program(os.Args[0], os.Args[1:])
	os.Exit(p.Run(args, os.Stdin, os.Stdout, os.Stderr))
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		Setup:               setup,
		Cmds:                scriptCommands,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

// setup gives each script a separate address and no listener for peers. $NL is a newline, and
// $PROGRAM is the binary that runs as keyserver-operator.
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
