// Package program builds the program and runs it as its users do: as a process
// of its own, known only by its command line, its output and its listeners.
package program

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// module is the package of main.go.
const module = "github.com/keyserver-operator/keyserver-operator"

// Program is a built binary. Remove it when the tests are done.
type Program struct{ Path string }

// Build compiles the program once, with the flags of "make build". symbols
// keeps the names of functions, which a profiler needs.
func Build(symbols bool) (Program, error) {
	dir, err := os.MkdirTemp("", "keyserver-operator-")
	if err != nil {
		return Program{}, err
	}
	p := Program{filepath.Join(dir, "keyserver-operator")}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-o", p.Path}
	if !symbols {
		args = append(args, "-ldflags", "-s -w")
	}
	cmd := exec.Command("go", append(args, module)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return Program{}, errors.Join(fmt.Errorf("build the program: %w\n%s", err, out), p.Remove())
	}
	return p, nil
}

// Remove deletes the binary.
func (p Program) Remove() error { return os.RemoveAll(filepath.Dir(p.Path)) }

// Run runs a command to its end and answers its standard output. An error says
// what the command wrote to standard error.
func (p Program) Run(args ...string) (string, error) {
	if err := DependOnSources(); err != nil {
		return "", err
	}
	var out, errOut strings.Builder
	cmd := exec.Command(p.Path, args...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w\n%s%s", strings.Join(args, " "), err, out.String(), errOut.String())
	}
	return out.String(), nil
}
