package tree

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

type memory struct {
	mu      sync.Mutex
	rows    []keyserver.AuditEntry
	tiles   map[place][]byte
	head    audit.TreeHead
	growing func() // called before tiles are stored
}

func (m *memory) AuditTree(context.Context) (audit.TreeHead, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.head, nil
}

func (m *memory) CosignedAuditTree(context.Context) (audit.TreeHead, error) {
	return audit.TreeHead{}, nil
}

func (m *memory) AuditTile(_ context.Context, level int, index int64) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return bytes.Clone(m.tiles[place{level, index}]), nil
}

func (m *memory) AuditEnd(context.Context) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return int64(len(m.rows)), nil
}

func (m *memory) AuditRange(_ context.Context, after, last int64, limit int) ([]keyserver.AuditEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last = min(last, int64(len(m.rows)), after+int64(limit))
	if after >= last {
		return nil, nil
	}
	return slices.Clone(m.rows[after:last]), nil
}

func (m *memory) GrowAuditTree(_ context.Context, size int64, tiles []audit.Tile, head audit.TreeHead, still func() bool) (bool, error) {
	if m.growing != nil {
		m.growing()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.head.Size != size || !still() {
		return false, nil
	}
	for _, t := range tiles {
		m.tiles[place{t.Level, t.Index}] = bytes.Clone(t.Hashes)
	}
	m.head = head
	return true, nil
}

func (m *memory) write(n int) []keyserver.AuditEntry {
	m.mu.Lock()
	defer m.mu.Unlock()
	from := len(m.rows)
	for range n {
		row := keyserver.AuditEntry{
			Seq: int64(len(m.rows) + 1), Time: time.Unix(1_700_000_000, 0).UTC(), Operation: "hmacData", Outcome: keyserver.Allowed,
			Chain: 1, Position: int64(len(m.rows) + 1),
		}
		row.Hash, _ = audit.Sum(nil, &row)
		m.rows = append(m.rows, row)
	}
	return slices.Clone(m.rows[from:])
}

type bench struct {
	*memory
	signer *Signer
	alarms []string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	pair, err := NewKey(rand.Reader, Origin("keys", 7))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ReadKey(pair)
	if err != nil {
		t.Fatal(err)
	}
	begin, err := Begin(signer, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return &bench{memory: &memory{tiles: map[place][]byte{}, head: begin}, signer: signer}
}

func (b *bench) tree() *Tree {
	return New(Config{
		Store: b.memory, Signer: b.signer, Recent: NewRecent(), Interval: time.Hour, Clock: time.Now,
		Logger: slog.New(slog.DiscardHandler), Alarm: func(p string) { b.alarms = append(b.alarms, p) },
		RowAlarm: func(_ int64, p string) { b.alarms = append(b.alarms, p) },
	})
}

// TestATreeThatWasTamperedWithDoesNotGrow checks that no rows are added to the tree if the database contradicts a tree
// that this process has verified or signed.
func TestATreeThatWasTamperedWithDoesNotGrow(t *testing.T) {
	for name, c := range map[string]struct {
		tamper func(m *memory)
		fresh  bool // a new process detects it, too
		says   string
	}{
		"a hash":           {func(m *memory) { m.tiles[place{0, 1}][3] ^= 1 }, true, "its hashes do not match"},
		"a tile cut":       {func(m *memory) { m.tiles[place{0, 1}] = m.tiles[place{0, 1}][:32] }, true, "bytes, but needs"},
		"the root":         {func(m *memory) { m.head.Root[0] ^= 1 }, true, "not signed"},
		"the checkpoint":   {func(m *memory) { m.head.Checkpoint[0] ^= 1; m.head.Size++ }, true, ""},
		"rolled back":      {func(m *memory) { m.head = audit.TreeHead{} }, false, "it has 0 rows, but had 300"},
		"a row not yet in": {func(m *memory) { m.rows[305].Operation = "login" }, true, "row 306 differs from the row that was written"},
		"a row not yet in, its hash, too": {func(m *memory) {
			m.rows[305].Operation = "login"
			m.rows[305].Hash, _ = audit.Sum(nil, &m.rows[305])
			m.rows = slices.Delete(m.rows, 307, 308)
		}, true, "row 308 is missing"},
	} {
		for _, fresh := range []bool{false, true} {
			if fresh && !c.fresh {
				continue
			}
			b := newBench(t)
			b.write(300)
			tree := b.tree()
			tree.catchUp(t.Context())
			if tree.Failing() != nil || tree.Size() != 300 {
				t.Fatalf("%s: %d rows, %v", name, tree.Size(), tree.Failing())
			}
			b.write(20)
			c.tamper(b.memory)
			if fresh {
				tree = b.tree()
			}
			tree.catchUp(t.Context())
			if err := tree.Failing(); !errors.Is(err, ErrInconsistent) || !strings.Contains(err.Error(), c.says) || len(b.alarms) == 0 {
				t.Errorf("%s, fresh %v: %v, alarms %v", name, fresh, err, b.alarms)
			}
		}
	}
}

// TestRowsOfThisProcessAreTakenAsTheyWereWritten checks that the tree does not change if a row is changed in the
// database before it is added to the tree.
func TestRowsOfThisProcessAreTakenAsTheyWereWritten(t *testing.T) {
	b := newBench(t)
	tree := b.tree()
	rows := b.write(10)
	tree.Recent.Written(rows)
	b.rows[4].Operation = "login"
	b.rows[4].Hash, _ = audit.Sum(nil, &b.rows[4])
	tree.catchUp(t.Context())
	receipt, err := tree.Receipt(t.Context(), 5)
	if err != nil {
		t.Fatal(err)
	}
	if err := VerifyReceipt(receipt, &rows[4], b.signer.Verifier); err != nil {
		t.Error(err)
	}
	if err := VerifyReceipt(receipt, &b.rows[4], b.signer.Verifier); err == nil {
		t.Error("the receipt proves a row that was changed")
	}
}

// TestGrowth compares the tree with the tree of the library, hash by hash, at sizes at which tiles of two levels become
// full.
func TestGrowth(t *testing.T) {
	b := newBench(t)
	tree := b.tree()
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		var out []tlog.Hash
		for _, i := range indexes {
			out = append(out, stored[i])
		}
		return out, nil
	})
	for _, n := range []int{1, 2, 252, 1, 1, 255, 512, 64_000, 800} {
		for _, row := range b.write(n) {
			leaf, _ := audit.Leaf(nil, &row)
			more, err := tlog.StoredHashesForRecordHash(row.Seq-1, leaf, reader)
			if err != nil {
				t.Fatal(err)
			}
			stored = append(stored, more...)
		}
		tree.catchUp(t.Context())
		size := int64(len(b.rows))
		want, err := tlog.TreeHash(size, reader)
		if err != nil {
			t.Fatal(err)
		}
		head, err := Open(b.head.Checkpoint, b.signer.Verifier)
		if err != nil || head.Size != size || head.Root != want {
			t.Fatalf("%d rows: %d, %v, %v", size, head.Size, head.Root == want, err)
		}
		for _, seq := range []int64{1, size/2 + 1, size} {
			receipt, err := tree.Receipt(t.Context(), seq)
			if err != nil {
				t.Fatal(err)
			}
			if err := VerifyReceipt(receipt, &b.rows[seq-1], b.signer.Verifier); err != nil {
				t.Errorf("row %d of %d: %v", seq, size, err)
			}
		}
	}
	if _, err := tree.Receipt(t.Context(), int64(len(b.rows))+1); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("a row that is not there: %v", err)
	}
}

// TestTiles checks that only tiles of the signed tree are returned.
func TestTiles(t *testing.T) {
	b := newBench(t)
	b.write(600)
	tree := b.tree()
	tree.catchUp(t.Context())
	for _, c := range []struct {
		level int
		index int64
		width int
		there bool
	}{
		{0, 0, 256, true}, {0, 2, 88, true}, {0, 2, 1, true}, {1, 0, 2, true},
		{0, 2, 89, false}, {0, 2, 256, false}, {1, 0, 3, false}, {1, 1, 1, false}, {2, 0, 1, false}, {63, 0, 1, false}, {0, 1 << 60, 256, false},
	} {
		hashes, err := tree.Tile(t.Context(), c.level, c.index, c.width)
		if c.there != (err == nil && len(hashes) == 32*c.width) || !c.there && fault.CodeOf(err) != fault.NotFound {
			t.Errorf("%+v: %d bytes, %v", c, len(hashes), err)
		}
	}
	bundle, err := tree.Entries(t.Context(), 2, 88)
	if err != nil {
		t.Fatal(err)
	}
	first := bundle[2 : 2+binary.BigEndian.Uint16(bundle)]
	if want, _ := audit.Leaf(nil, &b.rows[512]); tlog.RecordHash(first) != want {
		t.Error("the first entry of the bundle is not row 513")
	}
}

// TestRowsStayThroughAGrowthThatFails checks that the leaves of this process's rows are kept if adding them fails.
func TestRowsStayThroughAGrowthThatFails(t *testing.T) {
	b := newBench(t)
	tree := b.tree()
	rows := b.write(10)
	tree.Recent.Written(rows)
	b.rows[4].Operation = "login"
	b.rows[4].Hash, _ = audit.Sum(nil, &b.rows[4])
	away := errors.New("away")
	tree.Store = failing{b.memory, away}
	tree.catchUp(t.Context())
	if !errors.Is(tree.Failing(), away) {
		t.Fatalf("the growth did not fail: %v", tree.Failing())
	}
	tree.Store = b.memory
	tree.catchUp(t.Context())
	receipt, err := tree.Receipt(t.Context(), 5)
	if err != nil {
		t.Fatal(err)
	}
	if err := VerifyReceipt(receipt, &rows[4], b.signer.Verifier); err != nil {
		t.Error(err)
	}
}

// TestLeavesOfRowsThatAreGone resets the database, so that other rows get the numbers of lost rows. The tree must
// contain the other rows, even if the reset happens while it adds rows.
func TestLeavesOfRowsThatAreGone(t *testing.T) {
	for name, growing := range map[string]bool{"before a growth": false, "during one": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			tree := b.tree()
			tree.Recent.Written(b.write(10))
			goBack := func() {
				b.growing = nil
				b.mu.Lock()
				b.rows = b.rows[:4]
				b.mu.Unlock()
				b.write(6)
				for i := 4; i < 10; i++ {
					b.rows[i].Object = "another"
					b.rows[i].Hash, _ = audit.Sum(nil, &b.rows[i])
				}
				tree.Recent.Reset()
			}
			if growing {
				b.growing = goBack
			} else {
				goBack()
			}
			tree.catchUp(t.Context())
			receipt, err := tree.Receipt(t.Context(), 7)
			if err != nil {
				t.Fatal(err)
			}
			if err := VerifyReceipt(receipt, &b.rows[6], b.signer.Verifier); err != nil {
				t.Error(err)
			}
		})
	}
}

// failing is a database that fails to store a tree.
type failing struct {
	*memory
	err error
}

func (f failing) GrowAuditTree(context.Context, int64, []audit.Tile, audit.TreeHead, func() bool) (bool, error) {
	return false, f.err
}

// TestRowsAreLookedAtAgain checks that a row which is changed after it was added to the tree is detected: a new row by
// the next check, an old row when the checks reach it.
func TestRowsAreLookedAtAgain(t *testing.T) {
	for name, c := range map[string]struct {
		tamper func(m *memory)
		looks  int
		says   string
	}{
		"a new row": {func(m *memory) { m.rows[8999].Operation = "login" }, 1, "row 9000 of the audit log differs"},
		"dropped":   {func(m *memory) { m.rows[8998] = m.rows[8999]; m.rows[8998].Seq = 9000 }, 1, "row 8999 of the audit log is missing"},
		"swapped": {func(m *memory) {
			m.rows[8996].Seq, m.rows[8997].Seq = 8998, 8997
			m.rows[8996], m.rows[8997] = m.rows[8997], m.rows[8996]
		}, 1, "row 8997 of the audit log differs"},
		"an old row": {func(m *memory) { m.rows[3000].Operation = "login" }, 3, "row 3001 of the audit log differs"},
		"with its hash": {func(m *memory) {
			m.rows[3000].Operation = "login"
			leaf, _ := audit.Leaf(nil, &m.rows[3000])
			copy(m.tiles[place{0, 3000 / 256}][3000%256*32:], leaf[:])
		}, 3, "do not lead to the root"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			tree := b.tree()
			for i := range b.write(9000) {
				b.rows[i].Object = string(rune('a' + i%26))
				b.rows[i].Hash, _ = audit.Sum(nil, &b.rows[i])
			}
			tree.catchUp(t.Context())
			c.tamper(b.memory)
			for n := 1; n <= c.looks; n++ {
				if len(b.alarms) > 0 {
					t.Fatalf("before the look %d: %v", n, b.alarms)
				}
				tree.checkStoredRows(t.Context())
			}
			if len(b.alarms) != 1 || !strings.Contains(b.alarms[0], c.says) {
				t.Errorf("alarms %v instead of %q", b.alarms, c.says)
			}
		})
	}
}

// TestACheckpointThatIsGone checks that no process signs the existing rows again if the checkpoint was deleted or
// replaced by the checkpoint of an empty tree.
func TestACheckpointThatIsGone(t *testing.T) {
	for name, tamper := range map[string]func(m *memory){
		"gone":       func(m *memory) { m.head = audit.TreeHead{} },
		"of no rows": func(m *memory) { m.head.Size, m.head.Root = 0, [32]byte{} },
		"of no rows, with the root of such": func(m *memory) {
			m.head.Size = 0
			m.head.Root, _ = tlog.TreeHash(0, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			first := b.tree()
			b.write(10)
			first.catchUp(t.Context())
			if first.Size() != 10 || len(b.alarms) > 0 {
				t.Fatalf("%d rows, %v", first.Size(), b.alarms)
			}
			tamper(b.memory)
			b.tiles = map[place][]byte{}
			next := b.tree()
			next.catchUp(t.Context())
			if len(b.alarms) != 1 || next.Size() != 0 || b.head.Size != 0 {
				t.Errorf("the tree has %d rows, alarms %v", next.Size(), b.alarms)
			}
		})
	}
}
