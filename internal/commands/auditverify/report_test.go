package auditverify

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
)

// TestReadVerifier: a key is accepted as plain text, as a response of the server, and from a file with either.
func TestReadVerifier(t *testing.T) {
	_, key, err := note.GenerateKey(rand.Reader, "keys.example/log")
	if err != nil {
		t.Fatal(err)
	}
	answer := `{"origin":"keys.example/log","key":"` + key + `"}` + "\n"
	for _, tc := range []struct {
		text  string
		taken bool
	}{
		{key, true}, {key + "\n", true}, {answer, true},
		{`{"origin":"keys.example/log"}`, false}, {`{"keys":"` + key + `"}`, false}, {`["` + key + `"]`, false}, {"", false},
	} {
		file := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(file, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, flag := range []string{tc.text, file} {
			got, err := ReadVerifier(flag)
			if (err == nil) != tc.taken || err == nil && got.Name() != "keys.example/log" {
				t.Errorf("%q of %q: %v", flag, tc.text, err)
			}
		}
	}
}

// TestFiltersThatLieAreInTheFirstLine checks that the first line of the report says that filters are wrong.
func TestFiltersThatLieAreInTheFirstLine(t *testing.T) {
	for _, tc := range []struct {
		filters error
		first   string
	}{
		{nil, "audit log intact: 3 rows in 1 chains\n"},
		{errors.New("they lie"), "the rows of the audit log are intact, but the filter index is not: 3 rows in 1 chains\n"},
	} {
		var out strings.Builder
		f := Report{Chains: audit.Report{Chains: 1, Rows: 3}, Filters: tc.filters}
		if err := f.Show(&out); !errors.Is(err, tc.filters) || !strings.HasPrefix(out.String(), tc.first) {
			t.Errorf("%v\n%s", err, out.String())
		}
	}
}

// TestCheckExtent checks that the first row follows an archived row, that it begins a segment, and that a row records
// the removal of earlier rows.
func TestCheckExtent(t *testing.T) {
	for _, tc := range []struct {
		extent audit.Extent
		pruned bool
		want   string
	}{
		{audit.Extent{First: 1}, false, ""},
		{audit.Extent{First: 2}, true, "removed: row 2 is recorded as the first one, and row 0 as the last one in the archive"},
		{audit.Extent{First: -65_535}, true, "removed: row -65535 is recorded"},
		{audit.Extent{First: 1000, Archived: 999}, true, "removed: row 1000 is recorded as the first one, but no segment"},
		{audit.Extent{First: 65_537, Archived: 65_536}, false, "no row pruneAudit under the checkpoint records the removal of the rows 1-65536"},
		{audit.Extent{First: 65_537, Archived: 65_536}, true, ""},
		{audit.Extent{First: 65_537, Archived: 131_072}, true, ""},
		{audit.Extent{First: 65_538, Archived: 65_536}, true, "and row 65536 as the last one in the archive"},
	} {
		if got := checkExtent(tc.extent, tc.pruned); (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%+v: %s, want %q", tc.extent, got, tc.want)
		}
	}
}
