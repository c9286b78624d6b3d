package commands

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
)

// TestRawDatabaseURLIsRefused checks that each command rejects a database URL with an unescaped password, before it
// uses the URL. The error must not contain a part of the password.
func TestRawDatabaseURLIsRefused(t *testing.T) {
	needs := map[string][]string{
		"serve":            {},
		"audit verify":     {},
		"backup":           {"--to", "file:///nowhere", "--recipient", "age1", "--server", "https://localhost", "--password-file", "nowhere"},
		"custody recovery": {},
		"custody restore":  {},
		"restore":          {"--from", "nowhere", "--identity", "nowhere"},
		"doctor":           {},
		"migrate":          {"--from", "sqlite", "--to", "postgres"},
	}
	root, err := newRoot(nil)
	if err != nil {
		t.Fatal(err)
	}
	takes := map[string]bool{}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.LocalFlags().Lookup("database-url") != nil {
			takes[strings.TrimPrefix(cmd.CommandPath(), root.Name()+" ")] = true
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
	const raw = "postgres://user:12@sec/ret#word@127.0.0.1/db"
	for path := range takes {
		args, listed := needs[path]
		if !listed {
			t.Errorf("%s takes --database-url; add what else it needs", path)
			continue
		}
		args = append(strings.Fields(path), args...)
		refused := func(t *testing.T, args []string) {
			var out bytes.Buffer
			code := Main(args, strings.NewReader(""), &out, &out)
			if text := out.String(); code != program.ExitUsage || !strings.Contains(text, "percent-encode") || strings.Contains(text, "sec") || strings.Contains(text, "word@") {
				t.Errorf("exit code %d: %s", code, text)
			}
		}
		t.Run(path+"/flag", func(t *testing.T) {
			t.Chdir(t.TempDir())
			refused(t, append(args, "--database-url", raw))
		})
		t.Run(path+"/variable", func(t *testing.T) {
			t.Chdir(t.TempDir())
			t.Setenv("KEYSERVER_DATABASE_URL", raw)
			refused(t, args)
		})
	}
}
