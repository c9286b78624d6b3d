package commands

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

// TestReadVerifier: a key is taken as it is, as it is answered, and from a file of either.
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
			got, err := readVerifier(flag)
			if (err == nil) != tc.taken || err == nil && got.Name() != "keys.example/log" {
				t.Errorf("%q of %q: %v", flag, tc.text, err)
			}
		}
	}
}

// TestFiltersThatLieAreInTheFirstLine: nobody reads intact, and stops there.
func TestFiltersThatLieAreInTheFirstLine(t *testing.T) {
	for _, tc := range []struct {
		filters error
		first   string
	}{
		{nil, "audit trail intact: 3 rows in 1 chains\n"},
		{errors.New("they lie"), "the rows of the audit trail are intact, and what finds them is not: 3 rows in 1 chains\n"},
	} {
		var out strings.Builder
		f := verification{chains: audit.Report{Chains: 1, Rows: 3}, filters: tc.filters}
		if err := f.show(&out); !errors.Is(err, tc.filters) || !strings.HasPrefix(out.String(), tc.first) {
			t.Errorf("%v\n%s", err, out.String())
		}
	}
}
