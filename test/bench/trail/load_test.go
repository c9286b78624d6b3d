package trail

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlite"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

var columns = strings.Fields(`seq time outcome reason principal_id object request_id position hash previous session_id address chain
	operation system_id kind filename actor_system actor_id acting_for times approval_id`)

// varying is the number of leading columns that differ between rows.
const (
	varying = 12
	alike   = `, 1, 'hmacData', 1, 'password', '', 0, NULL, '', 1, NULL`
)

// chunk is the number of rows in a commit, and of leaves that the tree keeps in memory.
const chunk = 1 << 17

// principalCount is the number of principals, and of keys. A session lasts for sessionRows rows.
const (
	principalCount = 64
	sessionRows    = 1_000_000
)

// One of each rarely rows has the rare values, which the filters of the test select.
const (
	rarely      = 1_000_003
	rareAddress = "198.51.100.7"
	rareObject  = "00000000000000ff"
)

var rareSession = values.IDFromUint64(0xffff)

// source makes the rows of one chain, as HMACs of principals would. Each is a hundredth of a second
// after the previous one, and one in a hundred is refused.
type source struct {
	last   audit.Head
	seq    int64
	end    int64 // last row of the chunk
	at     time.Time
	row    [1]keyserver.AuditEntry
	buf    []byte
	args   []any
	recent *tree.Recent
	blocks blocks
}

func hexID(n uint64) string { return hex.EncodeToString(binary.BigEndian.AppendUint64(nil, n)) }

func (s *source) Next() bool {
	if s.seq == s.end {
		return false
	}
	s.seq++
	n := uint64(s.seq)
	row := keyserver.AuditEntry{
		Seq: s.seq, Time: s.at.Add(time.Duration(s.seq) * 10 * time.Millisecond), Operation: "hmacData", Outcome: keyserver.Allowed,
		Principal: keyserver.PrincipalRef{System: 1, ID: values.IDFromUint64(n%principalCount + 10)},
		Object:    hexID((n*7%principalCount + 1) * 0x1e3779b97f4a7c15), Kind: keyserver.PasswordSession,
		RequestID: hexID(n * 0x5851f42d4c957f2d), Address: "192.0.2.17", Session: values.IDFromUint64(n/sessionRows*principalCount + n%principalCount + 1<<20),
		Chain: s.last.Chain, Position: s.last.Position + 1, Previous: s.last.Hash,
	}
	switch {
	case n%rarely == 0:
		row.Outcome, row.Reason = keyserver.Failed, "storeUnavailable"
		row.Address, row.Object, row.Session = rareAddress, rareObject, rareSession
	case n%100 == 0:
		row.Outcome, row.Reason = keyserver.Refused, "aclDenied"
	}
	row.Hash, s.buf = audit.Sum(s.buf, &row)
	s.last = audit.Head{Chain: row.Chain, Position: row.Position, Hash: row.Hash}
	s.row[0] = row
	s.recent.Written(s.row[:])
	s.blocks.add(&row)
	return true
}

func (s *source) Values() ([]any, error) {
	e := &s.row[0]
	s.args = append(s.args[:0], e.Seq, e.Time.UnixMicro(), string(e.Outcome), e.Reason, e.Principal.ID[:], e.Object, e.RequestID,
		e.Position, e.Hash[:], e.Previous[:], e.Session[:], e.Address, e.Chain,
		e.Operation, int64(1), string(e.Kind), "", int64(0), nil, "", int64(1), nil)
	return s.args, nil
}

func (s *source) Err() error { return nil }

// blocks computes the index of the rows, as the server would within an hour. The command audit verify checks the index.
type blocks struct {
	rows             int64
	earliest, latest int64
	keys             map[string][2]int64 // by column number and value
	noted, notedKeys [][]any             // rows of audit_blocks and audit_block_keys
}

const blockRows = 16_384

func (b *blocks) add(e *keyserver.AuditEntry) {
	n := (e.Seq - 1) % blockRows
	if at := e.Time.UnixMicro(); b.rows == 0 {
		b.earliest, b.latest, b.keys = at, at, map[string][2]int64{}
	} else {
		b.earliest, b.latest = min(b.earliest, at), max(b.latest, at)
	}
	b.rows++
	values := [...]string{string(e.Principal.ID[:]), e.Reason, e.Operation, string(e.Outcome), e.Object, e.Address, string(e.Session[:])}
	for i, value := range values {
		if value == "" || i == 6 && e.Session.IsZero() {
			continue
		}
		key := string(rune(i+1)) + value[:min(len(value), 32)]
		if of, ok := b.keys[key]; ok {
			b.keys[key] = [2]int64{of[0], n}
		} else {
			b.keys[key] = [2]int64{n, n}
		}
	}
	if n < blockRows-1 {
		return
	}
	block := e.Seq/blockRows - 1
	b.noted = append(b.noted, []any{block, b.earliest, b.latest})
	for key, of := range b.keys {
		b.notedKeys = append(b.notedKeys, []any{block, int64(key[0]), []byte(key[1:]), of[0], of[1]})
	}
	b.rows = 0
}

// interval is the time between two extensions of the tree.
const interval = 200 * time.Millisecond

// loader appends to the log of a database that no server uses.
type loader struct {
	*testing.T
	store *sqlstore.Store
	tree  *tree.Tree
	from  *source
	rows  int64
}

// load appends rows up to a number, with their tree and their index.
func (b *bench) load(rows int64) string {
	b.Helper()
	store, err := sqlstore.Open(b.Context(), b.cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			b.Error(err)
		}
	}()
	recent := tree.NewRecent()
	l := &loader{T: b.T, store: store, rows: rows, from: &source{
		recent: recent, at: time.Now().Add(-time.Duration(rows+1) * 10 * time.Millisecond).Add(-48 * time.Hour),
	}}
	l.tree = tree.New(tree.Config{
		Store: store, Signer: b.signer(store), Recent: recent, Interval: interval, Clock: time.Now, Logger: slog.New(slog.DiscardHandler),
		Alarm: func(p string) { b.Error(p) }, RowAlarm: func(_ int64, p string) { b.Error(p) },
	})
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan struct{})
	go func() {
		l.tree.Run(ctx)
		close(ended)
	}()
	defer func() {
		stop()
		<-ended
	}()
	there, err := store.AuditRange(ctx, 0, 1000, 1000)
	if err != nil || len(there) == 1000 {
		b.Fatal(err, len(there))
	}
	for i := range there {
		l.from.blocks.add(&there[i])
	}
	if b.cfg.URL != "" {
		l.postgres(b.cfg.URL)
	} else {
		l.sqlite(b.cfg.Dir)
	}
	return ""
}

const state = `SELECT s.value, c.chain, c.position, c.head FROM sequences s, audit_chains c WHERE s.name = 'audit' AND c.chain = 1`

// chunks calls write for each chunk, and waits until the audit tree contains the chunk.
func (l *loader) chunks(write func()) {
	for l.from.seq < l.rows {
		l.from.end = min(l.rows, (l.from.seq/chunk+1)*chunk)
		write()
		l.from.blocks.noted, l.from.blocks.notedKeys = nil, nil
		for l.tree.Size() < l.from.seq {
			if err := l.tree.Failing(); err != nil {
				l.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		for more := l.store.Shared(); more; { // creates partitions
			var err error
			if more, err = l.store.SweepAudit(l.Context()); err != nil {
				l.Fatal(err)
			}
		}
		if l.from.seq%(chunk*16) == 0 {
			l.Logf("%s %d rows", time.Now().Format(time.TimeOnly), l.from.seq)
		}
	}
}

func (l *loader) postgres(url string) {
	conn, err := pgx.Connect(l.Context(), url)
	if err != nil {
		l.Fatal(err)
	}
	defer conn.Close(l.Context())
	var head []byte
	if err := conn.QueryRow(l.Context(), state).Scan(&l.from.seq, &l.from.last.Chain, &l.from.last.Position, &head); err != nil {
		l.Fatal(err)
	}
	copy(l.from.last.Hash[:], head)
	l.chunks(func() {
		tx, err := conn.Begin(l.Context())
		if err != nil {
			l.Fatal(err)
		}
		for _, c := range []struct {
			table   string
			columns []string
			rows    func() pgx.CopyFromSource
		}{
			{"audit", columns, func() pgx.CopyFromSource { return l.from }},
			{"audit_block_keys", keyColumns, func() pgx.CopyFromSource { return pgx.CopyFromRows(l.from.blocks.notedKeys) }},
			{"audit_blocks", blockColumns, func() pgx.CopyFromSource { return pgx.CopyFromRows(l.from.blocks.noted) }},
		} {
			if _, err := tx.CopyFrom(l.Context(), pgx.Identifier{c.table}, c.columns, c.rows()); err != nil {
				l.Fatal(err)
			}
		}
		for _, s := range ends(l.from, fmt.Sprintf(`'\x%x'`, l.from.last.Hash)) {
			if _, err := tx.Exec(l.Context(), s); err != nil {
				l.Fatal(err)
			}
		}
		if err := tx.Commit(l.Context()); err != nil {
			l.Fatal(err)
		}
	})
}

var (
	keyColumns   = strings.Fields("block kind key first_row last_row")
	blockColumns = strings.Fields("block earliest latest")
)

func (l *loader) sqlite(dir string) {
	file := url.URL{Scheme: "file", OmitHost: true, Path: filepath.Join(dir, sqlite.DatabaseFile), RawQuery: "_synchronous=OFF&_busy_timeout=60000"}
	db, err := sql.Open("sqlite", file.String())
	if err != nil {
		l.Fatal(err)
	}
	defer db.Close()
	var head []byte
	if err := db.QueryRowContext(l.Context(), state).Scan(&l.from.seq, &l.from.last.Chain, &l.from.last.Position, &head); err != nil {
		l.Fatal(err)
	}
	copy(l.from.last.Hash[:], head)
	const together = 16
	ctx := context.WithoutCancel(l.Context()) // for a cancellable context, the driver starts a goroutine per statement
	marks := func(n int) string { return "?" + strings.Repeat(",?", n-1) }
	l.chunks(func() {
		tx, err := db.BeginTx(l.Context(), nil)
		if err != nil {
			l.Fatal(err)
		}
		exec := func(text string, args ...any) {
			if _, err := tx.ExecContext(ctx, text, args...); err != nil {
				l.Fatal(err)
			}
		}
		rows := "INSERT INTO audit (" + strings.Join(columns, ",") + ") VALUES (" + marks(varying) + alike + ")"
		insert, err := tx.PrepareContext(ctx, rows+strings.Repeat(", ("+marks(varying)+alike+")", together-1))
		if err != nil {
			l.Fatal(err)
		}
		defer insert.Close()
		var args []any
		for l.from.Next() {
			row, _ := l.from.Values() // never fails
			args = append(args, row[:varying]...)
			for i := len(args) - varying; i < len(args); i++ {
				if b, ok := args[i].([]byte); ok {
					args[i] = bytes.Clone(b) // the buffer is reused for the next row
				}
			}
			if len(args) == together*varying {
				if _, err := insert.ExecContext(ctx, args...); err != nil {
					l.Fatal(err)
				}
				args = args[:0]
			}
		}
		for ; len(args) > 0; args = args[varying:] {
			exec(rows, args[:varying]...)
		}
		slices.SortFunc(l.from.blocks.notedKeys, func(a, b []any) int {
			return cmp.Or(cmp.Compare(a[0].(int64), b[0].(int64)), cmp.Compare(a[1].(int64), b[1].(int64)), bytes.Compare(a[2].([]byte), b[2].([]byte)))
		})
		for _, key := range l.from.blocks.notedKeys {
			exec("INSERT INTO audit_block_keys ("+strings.Join(keyColumns, ",")+") VALUES ("+marks(len(keyColumns))+")", key...)
		}
		for _, block := range l.from.blocks.noted {
			exec("INSERT INTO audit_blocks ("+strings.Join(blockColumns, ",")+") VALUES ("+marks(len(blockColumns))+")", block...)
		}
		for _, s := range ends(l.from, fmt.Sprintf(`x'%x'`, l.from.last.Hash)) {
			exec(s)
		}
		if err := tx.Commit(); err != nil {
			l.Fatal(err)
		}
	})
	if _, err := db.ExecContext(l.Context(), "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		l.Fatal(err)
	}
}

// ends returns the statements that record the end of the log.
func ends(s *source, hash string) []string {
	return []string{
		fmt.Sprintf(`UPDATE sequences SET value = %d WHERE name = 'audit'`, s.seq),
		fmt.Sprintf(`UPDATE audit_chains SET position = %d, head = %s WHERE chain = 1`, s.last.Position, hash),
	}
}
