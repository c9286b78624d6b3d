// Package keyservertest tests the module httpapi/keyservertest: with its own tests, and as a user does, with the examples
// of docs/guides/test-with-a-key-server.md in an empty directory.
package keyservertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
	"github.com/keyserver-operator/keyserver-operator/test/rig/markdown"
	_ "github.com/keyserver-operator/keyserver-operator/test/rig/system"
)

const (
	path = "github.com/keyserver-operator/keyserver-operator"
	page = "docs/guides/test-with-a-key-server.md"
)

// sources lists the sources of the module.
var sources = []string{"go.mod", "api", "clients/go", "config", "controllers", "httpapi", "internal"}

func TestOwnTests(t *testing.T) {
	t.Parallel()
	controlplane.Need(t)
	rig.DependsOn(t, sources...)
	shell(t, filepath.Join(root(t), "httpapi", "keyservertest"), "go test -count=1 ./...")
}

// TestExamples copies the examples into an empty module, and runs the commands of the page. The module gets the packages
// from the checkout instead of the module proxy.
func TestExamples(t *testing.T) {
	t.Parallel()
	controlplane.Need(t)
	rig.DependsOn(t, append(sources, page)...)
	text, err := os.ReadFile(filepath.Join(root(t), page))
	rig.Must(t, err)
	dir := t.TempDir()
	shell(t, dir, "go mod init example.com/shop\ngo mod edit"+
		" -replace="+path+"="+root(t)+
		" -replace="+path+"/clients/go="+filepath.Join(root(t), "clients", "go")+
		" -replace="+path+"/httpapi/keyservertest="+filepath.Join(root(t), "httpapi", "keyservertest"))
	names := regexp.MustCompile("save this as `([a-z_]+_test\\.go)`").FindAllStringSubmatch(string(text), -1)
	var examples, commands []string
	for _, b := range markdown.Fences(string(text)) {
		switch b.Language {
		case "go":
			examples = append(examples, b.Text)
		case "sh":
			commands = append(commands, b.Text)
		}
	}
	if len(names) != 2 || len(examples) != len(names) || len(commands) == 0 {
		t.Fatalf("%s has %d names of files, %d examples and %d blocks of commands", page, len(names), len(examples), len(commands))
	}
	for i, name := range names {
		rig.Must(t, os.WriteFile(filepath.Join(dir, name[1]), []byte(examples[i]), 0o600))
	}
	shell(t, dir, "export GOPROXY=off\n"+commands[0]) // adds the module, which the proxy does not have yet
	for _, command := range commands[1:] {
		shell(t, dir, command)
	}
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := rig.Root()
	rig.Must(t, err)
	return dir
}

// shell runs commands in a directory, and fails the test with their output.
func shell(t *testing.T, dir, commands string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-euc", commands)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", commands, err, out)
	}
}
