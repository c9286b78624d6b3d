package trail

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// startVariable is the number of rows of the log in TestStart. There are a tenth as many keys.
const startVariable = "BENCH_START_ROWS"

// TestStart measures the start of a key server with many keys and a long log, after an orderly stop
// and after a SIGKILL.
func TestStart(t *testing.T) {
	rows, err := strconv.ParseInt(os.Getenv(startVariable), 10, 64)
	if err != nil {
		t.Skipf("a measurement: give the number of rows as %s", startVariable)
	}
	t.Run("sqlite", func(t *testing.T) {
		dir := t.TempDir()
		(&bench{T: t, cfg: sqlstore.Config{Dir: dir}, dir: dir}).starts(rows)
	})
	t.Run("postgres", func(t *testing.T) {
		url := pgtest.DurableDatabase(t)
		(&bench{t, sqlstore.Config{URL: url}, t.TempDir(), []string{"--database-url", url}}).starts(rows)
	})
}

func (b *bench) starts(rows int64) {
	b.serve("first start", nil)
	b.say("load", func() string { return b.load(rows) })
	b.say(fmt.Sprintf("%d keys", rows/10), func() string { b.keys(rows / 10); return "" })
	b.Logf("%s", b.size(rows))
	for range 5 {
		b.serve("start", nil)
	}
	for range 5 {
		s, err := built.Serve(b.dir, b.args...)
		if err != nil {
			b.Fatal(err)
		}
		s.Kill()
		b.serve("start after kill -9", nil)
	}
}

// keys makes keys by SQL, each with an ACL of one entry. They have no MACs, because a start reads none of them.
func (b *bench) keys(n int64) {
	series, id, bytes, zero := `(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT i FROM n) n`,
		`unhex(printf('%%016x', i * 8796093022208 + %d))`, `randomblob(96)`, `zeroblob(8)`
	if b.cfg.URL != "" {
		series, id, bytes, zero = `generate_series(1::bigint, %d::bigint) n(i)`, `int8send(i * 8796093022208 + %d)`, `decode(repeat(md5(i::text), 6), 'hex')`, `int8send(0)`
	}
	at := func(kind int) string { return fmt.Sprintf(id, kind) }
	from := fmt.Sprintf(series, n)
	b.exec(`INSERT INTO stored_keys (id, algorithm, key_bytes, wrapped, acl_id, created_at) SELECT ` +
		at(1) + `, 'HMAC-SHA384', 48, ` + bytes + `, ` + at(2) + `, 0 FROM ` + from)
	b.exec(`INSERT INTO acl_entries (id, acl_id, system_id, principal_id, rights, max_usage, used, user_right, start_stamp, end_stamp) SELECT ` +
		at(3) + `, ` + at(2) + `, 1, ` + at(4) + `, 7, -1, 0, 0, ` + zero + `, ` + zero + ` FROM ` + from)
}
