package witness

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestTamperedDatabase changes the database of a running server. The server itself reports the kind of each change. The
// peer also detects a forged newest checkpoint.
func TestTamperedDatabase(t *testing.T) {
	do := func(t *testing.T, db *sql.DB, statements ...string) {
		for _, s := range statements {
			_, err := db.ExecContext(t.Context(), s)
			rig.Must(t, err)
		}
	}
	for name, c := range map[string]struct {
		tamper func(t *testing.T, db *sql.DB, seq int64) // changes one of the last rows, which is in the tree
		object string
		peer   string
	}{
		"a changed row": {tamper: func(t *testing.T, db *sql.DB, seq int64) {
			do(t, db, fmt.Sprintf(`UPDATE audit SET operation = 'nothing' WHERE seq = %d`, seq))
		}, object: "audit_tree row %d"},
		"a dropped row": {tamper: func(t *testing.T, db *sql.DB, seq int64) {
			do(t, db, fmt.Sprintf(`DELETE FROM audit WHERE seq = %d`, seq))
		}, object: "audit_tree row %d"},
		"swapped rows": {tamper: func(t *testing.T, db *sql.DB, seq int64) {
			do(t, db, fmt.Sprintf(`UPDATE audit SET seq = -1 WHERE seq = %d`, seq), fmt.Sprintf(`UPDATE audit SET seq = %d WHERE seq = %d`, seq, seq+1),
				fmt.Sprintf(`UPDATE audit SET seq = %d WHERE seq = -1`, seq+1))
		}, object: "audit_tree row %d"},
		"a tail cut off": {tamper: func(t *testing.T, db *sql.DB, seq int64) {
			do(t, db, fmt.Sprintf(`DELETE FROM audit WHERE seq >= %d`, seq))
		}, object: "audit_tree row %d"},
		"a forged head": {tamper: func(t *testing.T, db *sql.DB, _ int64) {
			// The statement forges the checkpoint only if the database still has the one that was read. Otherwise the loop tries
			// again with the new one.
			for {
				size, checkpoint := head(t, db, "newest")
				text, lines, _ := strings.Cut(string(checkpoint), "\n\n")
				forged := strings.Replace(text+"\n", fmt.Sprintf("\n%d\n", size), fmt.Sprintf("\n%d\n", size+7), 1)
				own, _, _ := strings.Cut(lines, "\n")
				done, err := db.ExecContext(t.Context(), `UPDATE audit_tree SET size = $1, checkpoint = $2 WHERE name = 'newest' AND size = $3`,
					size+7, []byte(strings.TrimSuffix(forged, "\n")+"\n\n"+own+"\n"), size)
				rig.Must(t, err)
				if rows, err := done.RowsAffected(); err == nil && rows == 1 {
					return
				}
			}
		}, object: "audit_tree", peer: "logForged"},
	} {
		t.Run(name, func(t *testing.T) {
			for kind, database := range databases {
				t.Run(kind, func(t *testing.T) {
					liar, watcher := pair(t, database)
					liar.write(t, 10)
					grown(t, liar, watcher)
					db := liar.database(t)
					size, _ := head(t, db, "newest")
					c.tamper(t, db, size-5)
					want := c.object
					if strings.Contains(want, "%d") {
						want = fmt.Sprintf(want, size-5)
					}
					until(t, "the alarm about "+want, func() bool {
						page, err := liar.Admin(t).ListAuditEntries(t.Context(), schema.AuditQuery{Operation: "storeTampered"})
						rig.Must(t, err)
						for _, e := range page.Entries {
							if strings.TrimSpace(e.Object) == want {
								return true
							}
						}
						return false
					})
					if c.peer != "" {
						watcher.found(t, liar, c.peer)
					}
				})
			}
		})
	}
}

// TestAWitnessThatIsAwayDelaysNothing stops a witness. The tree still grows and is signed, and rows have receipts. When
// the witness runs again, it continues to cosign.
func TestAWitnessThatIsAwayDelaysNothing(t *testing.T) {
	liar, watcher := pair(t, databases["SQLite"])
	watcher.Stop(t)
	db := liar.database(t)
	before, _ := head(t, db, "newest")
	liar.write(t, 5)
	until(t, "a newer checkpoint", func() bool { size, _ := head(t, db, "newest"); return size > before })
	size, _ := head(t, db, "newest")
	if _, err := liar.Admin(t).GetAuditReceipt(t.Context(), schema.ByRow{Seq: schema.RowNumber(size)}); err != nil {
		t.Error(err)
	}
	watcher.Restart(t)
	grown(t, liar, watcher)
}
