package commands

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
)

// TestAuditVerifyRefuses checks that audit verify rejects flags that do not apply to its source, before it reads
// anything.
func TestAuditVerifyRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("text\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, key, err := note.GenerateKey(rand.Reader, "keys/audit/1")
	if err != nil {
		t.Fatal(err)
	}
	url := "file://" + dir
	head := "1:2:" + strings.Repeat("ab", 32)
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--archive", url}, "--key is missing"},
		{[]string{"--archive", ""}, "--key is missing"}, // an empty variable does not select the database
		{[]string{"--archive", "", "--key", key}, "--archive: the URL must be"},
		{[]string{"--archive", dir, "--key", key}, "--archive: the URL must be"},
		{[]string{"--archive", url, "--key", key, "--data-dir", dir}, "--data-dir applies to a database or a key server"},
		{[]string{"--archive", url, "--key", key, "--database-url", "postgres://host/db"}, "--database-url applies to a database or a key server"},
		{[]string{"--archive", url, "--key", key, "--server", "https://keys.example"}, "--server applies to a database or a key server"},
		{[]string{"--archive", url, "--key", key, "--ca-file", file}, "--ca-file applies to a database or a key server"},
		{[]string{"--archive", url, "--key", key, "--username", "auditor"}, "--username applies to a database or a key server"},
		{[]string{"--archive", url, "--key", key, "--password-file", file}, "--password-file applies to a database or a key server"},
		{[]string{"--archive", url, "--key", key, "--expect-head", head}, "--expect-head applies to a database or a key server"},
		{[]string{"--archive", url, "--key", file}, "contains no key"},
		{[]string{"--archive", url, "--key", key, "--checkpoint", file}, "--checkpoint " + file},
		{[]string{"--server", "https://keys.example", "--password-file", file, "--data-dir", dir}, "--data-dir applies to a database"},
		{[]string{"--server", "https://keys.example", "--password-file", file, "--expect-head", head}, "--expect-head applies to a database"},
		{[]string{"--data-dir", dir, "--username", "auditor"}, "--username applies only with --server"},
	} {
		var out, errOut strings.Builder
		if code := Main(append([]string{"audit", "verify"}, tc.args...), nil, &out, &errOut); code == program.ExitOK || !strings.Contains(errOut.String(), tc.want) || out.Len() > 0 {
			t.Errorf("%q: exit code %d, %s%s, want %q", tc.args, code, out.String(), errOut.String(), tc.want)
		}
	}
}
