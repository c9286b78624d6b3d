// Package program builds the program and runs it as its users do: as a separate process, through its command
// line, its output and its listeners.
package program

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// module is the import path of the main package.
const module = "github.com/keyserver-operator/keyserver-operator"

// Variable is an environment variable with the path of a built keyserver-operator. The other programs are in the same
// directory. "make test" links them once for all suites. If it is not set, a suite builds its own programs.
const Variable = "RIG_PROGRAM"

// Program is a built binary. Remove it when the tests are done.
type Program struct {
	Path string
	own  string // directory of the binary, which Remove deletes; empty if the binary was built elsewhere
}

// At returns the program at a path.
func At(path string) Program { return Program{Path: path} }

// Build compiles all programs once with the flags of "make build", or uses existing programs. It returns
// keyserver-operator. If symbols is true, the program keeps the names of functions, which a profiler needs.
func Build(symbols bool) (Program, error) {
	if path := os.Getenv(Variable); path != "" {
		_, err := os.Stat(path)
		return At(path), err
	}
	var flags []string
	if !symbols {
		flags = stripped
	}
	return build(flags, module, module+"/cmd/...")
}

// Named returns another program in the same directory.
func (p Program) Named(name string) Program { return At(filepath.Join(filepath.Dir(p.Path), name)) }

// stripped are the flags that remove symbol tables.
var stripped = []string{"-ldflags", "-s -w"}

// BuildChanged compiles the program with the content of some files replaced. files maps paths, relative to the root of
// the module, to content. The caller must remove the program after the tests.
func BuildChanged(files map[string]string) (_ Program, err error) {
	root, err := rig.Root()
	if err != nil {
		return Program{}, err
	}
	dir, err := os.MkdirTemp("", "keyserver-operator-")
	if err != nil {
		return Program{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var overlay struct{ Replace map[string]string }
	overlay.Replace = map[string]string{}
	for path, text := range files {
		in := filepath.Join(dir, strconv.Itoa(len(overlay.Replace)))
		if err := os.WriteFile(in, []byte(text), 0o600); err != nil {
			return Program{}, err
		}
		overlay.Replace[filepath.Join(root, path)] = in
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		return Program{}, err
	}
	in := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(in, list, 0o600); err != nil {
		return Program{}, err
	}
	return build(append([]string{"-overlay", in}, stripped...), module)
}

func build(flags []string, packages ...string) (Program, error) {
	dir, err := os.MkdirTemp("", "keyserver-operator-")
	if err != nil {
		return Program{}, err
	}
	p := Program{filepath.Join(dir, "keyserver-operator"), dir}
	args := append([]string{"build", "-trimpath", "-buildvcs=false", "-o", dir + "/"}, flags...)
	cmd := exec.Command("go", append(args, packages...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return Program{}, errors.Join(fmt.Errorf("build the program: %w\n%s", err, out), p.Remove())
	}
	return p, nil
}

// Main implements TestMain: it builds the program, runs the tests, and deletes what it built. It returns the
// exit code.
func Main(m *testing.M, built *Program, symbols bool) int {
	var err error
	if *built, err = Build(symbols); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = built.Remove() }() // a file that stays in the temporary directory fails no test
	return m.Run()
}

// Remove deletes the binary, if Build or BuildChanged built it.
func (p Program) Remove() error {
	if p.own == "" {
		return nil
	}
	return os.RemoveAll(p.own)
}

// Environment returns the environment of the tests without variables of a user's own key server.
func Environment() []string {
	return slices.DeleteFunc(os.Environ(), func(line string) bool { return strings.HasPrefix(line, "KEYSERVER_") })
}

// Run runs a command to its end and returns its standard output. The error contains the standard error of the command.
func (p Program) Run(args ...string) (string, error) {
	if err := DependOnSources(); err != nil {
		return "", err
	}
	var out, errOut strings.Builder
	cmd := exec.Command(p.Path, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = Environment(), &out, &errOut
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w\n%s%s", strings.Join(args, " "), err, out.String(), errOut.String())
	}
	return out.String(), nil
}
