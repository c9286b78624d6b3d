package recipes

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	_ "github.com/keyserver-operator/keyserver-operator/test/rig/controlplane" // for test/kustomize, which a recipe runs
	_ "github.com/keyserver-operator/keyserver-operator/test/rig/system"
)

const module = "github.com/keyserver-operator/keyserver-operator"

// TestAddAKind follows the recipe. Without either of two files, a command must fail.
func TestAddAKind(t *testing.T) {
	at := follow(t, "kind.txtar", "Add a kind")
	at.fails(t, "internal/operator/export/templateddirectory.go", "test", "-vet=off", "./internal/operator/export")
	at.fails(t, "config/samples/templateddirectory.yaml", "test", "-vet=off", "./config")
}

// TestAddAForwardedRoute follows the recipe. Without either of two files, a command must fail.
func TestAddAForwardedRoute(t *testing.T) {
	at := follow(t, "route.txtar", "Add a route", "Add a forwarded route")
	at.fails(t, "internal/engine/peer/keyage.go", "build", "./internal/engine/peer")
	at.fails(t, "internal/engine/verified/keyage.go", "build", "./httpapi/internal/operations")
}

// copied is the directory of a copy of the repository.
type copied string

// name matches the definition of a placeholder in capitals, in the comment of an archive.
var name = regexp.MustCompile(`(?m)^([A-Z]{3,}) is (\w+)$`)

// follow applies the additions of a file to a copy of the repository, generates, builds, and runs the tests
// that the last recipe names as a proof and that need Go only.
func follow(t *testing.T, additions string, recipes ...string) copied {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("testdata", additions))
	if err != nil {
		t.Fatal(err)
	}
	capitals := map[string]string{}
	for _, m := range name.FindAllStringSubmatch(string(archive.Comment), -1) {
		capitals[m[1]] = m[2]
	}
	var all []step
	var proof []string
	for _, title := range recipes {
		text, err := section(contributing(t), title)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, steps(text, capitals)...)
		if m := proofs.FindStringSubmatch(text); m != nil {
			proof = strings.Fields(m[1])
		}
	}
	var names, touched []string
	for _, file := range archive.Files {
		names = append(names, file.Name)
		if strings.HasSuffix(file.Name, ".go") {
			touched = append(touched, module+"/"+filepath.ToSlash(filepath.Dir(file.Name))) // in either module
		}
	}
	for _, difference := range differences(all, names) {
		t.Error(difference)
	}
	if t.Failed() {
		t.FailNow()
	}

	at := copyOf(t)
	for _, file := range archive.Files {
		at.add(t, file.Name, string(file.Data))
	}
	slices.Sort(touched)
	at.run(t, "make", "-s", "generate")
	at.run(t, "go", "list", "-export", "./...") // compiles like go build, without linking
	at.run(t, "go", append([]string{"vet"}, slices.Compact(touched)...)...)
	at.run(t, "go", append([]string{"test", "-vet=off"}, proof...)...)
	return at
}

// copyOf copies the files that git tracks or would add.
func copyOf(t *testing.T) copied {
	t.Helper()
	list, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	at := copied(t.TempDir())
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		from := filepath.Join(root, name)
		info, err := os.Lstat(from)
		if os.IsNotExist(err) { // deleted, but still in the index
			continue
		}
		if err == nil && info.Mode()&os.ModeSymlink != 0 {
			t.Fatalf("%s is a symbolic link", name)
		}
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		at.write(t, name, text, info.Mode().Perm())
	}
	return at
}

func (c copied) write(t *testing.T, name string, text []byte, mode os.FileMode) {
	t.Helper()
	to := filepath.Join(string(c), name)
	if err := os.MkdirAll(filepath.Dir(to), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, text, mode); err != nil {
		t.Fatal(err)
	}
}

// add writes a new file, or changes an existing file. Each line "@@ find" is followed by a text that occurs once in the
// file. The line "@@ replace" is followed by the new text.
func (c copied) add(t *testing.T, name, text string) {
	t.Helper()
	if !strings.HasPrefix(text, "@@ find\n") {
		if _, err := os.Stat(filepath.Join(string(c), name)); err == nil {
			t.Fatalf("%s already exists", name)
		}
		c.write(t, name, []byte(text), 0o600)
		return
	}
	old, err := os.ReadFile(filepath.Join(string(c), name))
	if err != nil {
		t.Fatal(err)
	}
	changed := string(old)
	for change := range strings.SplitSeq(strings.TrimPrefix(text, "@@ find\n"), "\n@@ find\n") {
		find, replace, ok := strings.Cut(change, "\n@@ replace\n")
		if n := strings.Count(changed, find); !ok || n != 1 {
			t.Fatalf("%s has %d times %q, want once", name, n, find)
		}
		changed = strings.Replace(changed, find, strings.TrimSuffix(replace, "\n"), 1)
	}
	c.write(t, name, []byte(changed), 0o600)
}

// command returns a command in the copy, with the flags of the Makefile.
func (c copied) command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = string(c)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false", "MAKEFLAGS=", "GOWORK=off")
	return cmd
}

func (c copied) run(t *testing.T, name string, args ...string) {
	t.Helper()
	start := time.Now()
	if out, err := c.command(t, name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	t.Logf("%s %s: %v", name, strings.Join(args, " "), time.Since(start).Round(time.Second))
}

// fails checks that the command fails without a file.
func (c copied) fails(t *testing.T, file string, goCommand ...string) {
	t.Helper()
	path, away := filepath.Join(string(c), file), filepath.Join(t.TempDir(), "away")
	if err := os.Rename(path, away); err != nil {
		t.Fatal(err)
	}
	if out, err := c.command(t, "go", goCommand...).CombinedOutput(); err == nil {
		t.Errorf("go %s passes without %s:\n%s", strings.Join(goCommand, " "), file, out)
	}
	if err := os.Rename(away, path); err != nil {
		t.Fatal(err)
	}
}
