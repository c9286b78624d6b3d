package sqlstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// TestTrailsThatDoNotFitTogether checks that no writer starts if the tables of the audit log
// contradict each other, and that the error names the problem.
func TestTrailsThatDoNotFitTogether(t *testing.T) {
	for name, tc := range map[string]struct{ change, says string }{
		"counter put back":  {`UPDATE sequences SET value = 2 WHERE name = 'audit'`, "its last row is 5, but the table sequences says 2"},
		"counter far ahead": {`UPDATE sequences SET value = 9223372036854775806 WHERE name = 'audit'`, "the table sequences says 9223372036854775806"},
		"no chain":          {`DELETE FROM audit_chains`, "audit_chains has no chain"},
		"no beginning":      {`DELETE FROM audit_extent`, "audit_extent does not name"},
		"before the first":  {`UPDATE audit_extent SET first = -5`, "audit_extent does not name"},
	} {
		for kind, d := range migratedKinds {
			t.Run(name+"/"+kind, func(t *testing.T) {
				d := d(t)
				s := d.open(t)
				appendRows(t, s, 5)
				closeStore(t, s)
				d.tamper(t, tc.change)
				s = d.open(t)
				defer closeStore(t, s)
				_, err := s.ClaimChain(t.Context())
				if !errors.Is(err, sqlstore.ErrUnusable) || !strings.Contains(err.Error(), tc.says) {
					t.Errorf("%v, want %q", err, tc.says)
				}
			})
		}
	}
}
