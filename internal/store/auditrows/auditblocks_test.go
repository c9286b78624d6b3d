package auditrows

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
)

// fillVictim is an environment variable with the directory of the database. It is set
// only in the process that TestFillKilled kills.
const fillVictim = "SQLSTORE_FILL_VICTIM"

// TestFillVictim stores blocks until it is killed. TestFillKilled runs it in a separate
// process.
func TestFillVictim(t *testing.T) {
	dir := os.Getenv(fillVictim)
	if dir == "" {
		t.Skip("runs only as the process that TestFillKilled kills")
	}
	s, err := Open(t.Context(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	for {
		emptyBlocks(t, s)
		for more := true; more; {
			fmt.Println("next")
			if more, err = s.FillAuditBlock(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// manyObjects gives each row a different object, so that storing a block takes long.
func manyObjects(t *testing.T, s *Store) {
	t.Helper()
	if _, err := s.db.ExecCommitted(t.Context(), `UPDATE audit SET object = 'object ' || seq`); err != nil {
		t.Fatal(err)
	}
}

func blocksOf(t *testing.T, s *Store) (blocks, keyless int) {
	t.Helper()
	err := s.db.Row(t.Context(), `SELECT count(*), (SELECT count(*) FROM (SELECT DISTINCT block FROM audit_block_keys) k WHERE NOT EXISTS (SELECT 1 FROM audit_blocks b WHERE b.block = k.block)) FROM audit_blocks`,
		nil, &blocks, &keyless)
	if err != nil {
		t.Fatal(err)
	}
	return blocks, keyless
}

// agree fails the test if a stored block contradicts its rows.
func agree(t *testing.T, s *Store) {
	t.Helper()
	wrong, err := s.reads.DisagreeingAuditBlocks(t.Context(), 10)
	if err != nil || len(wrong) > 0 {
		t.Errorf("blocks %v do not say what is in their rows, %v", wrong, err)
	}
}

// TestFillKilled checks that a killed process leaves no incomplete block, and that the
// next process continues.
func TestFillKilled(t *testing.T) {
	t.Parallel()
	cfg := Config{Dir: t.TempDir()}
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	fillTrail(t, s)
	manyObjects(t, s)
	for round := range 6 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFillVictim$", "-test.v")
		cmd.Env = append(os.Environ(), fillVictim+"="+cfg.Dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for range 1 + round%3 {
			for lines.Scan() && lines.Text() != "next" {
			}
		}
		time.Sleep(time.Duration(round*40) * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if s, err = Open(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		blocks, without := blocksOf(t, s)
		t.Logf("round %d: %d blocks", round, blocks)
		if without > 1 { // keys are stored first; no query reads the keys of a missing block
			t.Errorf("round %d: there are keys of %d blocks that are not noted", round, without)
		}
		agree(t, s)
		fillBlocks(t, s, trailRows/auditBlock-blocks)
		agree(t, s)
		if _, without := blocksOf(t, s); without != 0 {
			t.Errorf("round %d: there are keys of %d blocks that were noted never", round, without)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestFillTogether checks that concurrent replicas store each block once.
func TestFillTogether(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	var replicas []*Store
	for range 2 {
		s, err := Open(t.Context(), Config{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		replicas = append(replicas, s)
	}
	fillTrail(t, replicas[0])
	manyObjects(t, replicas[0])
	var all sync.WaitGroup
	for _, s := range replicas {
		all.Go(func() {
			for range 2 * trailRows / auditBlock { // more calls than blocks
				if _, err := s.FillAuditBlock(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if blocks, without := blocksOf(t, replicas[0]); blocks != trailRows/auditBlock || without != 0 {
		t.Errorf("%d blocks were noted, and keys of %d others", blocks, without)
	}
	agree(t, replicas[1])
}

// TestBlocksTampered checks that DisagreeingAuditBlocks detects tampered blocks.
func TestBlocksTampered(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	fillTrail(t, s)
	for text, want := range map[string][]int64{
		`DELETE FROM audit_block_keys WHERE block = 1 AND kind = 7 AND key = x'0000000000000013'`:         {1},
		`UPDATE audit_block_keys SET last_row = last_row - 1 WHERE block = 2 AND kind = 4`:                {2},
		`INSERT INTO audit_block_keys (block, kind, key, first_row, last_row) VALUES (0, 2, x'61', 1, 1)`: {0},
		`UPDATE audit_blocks SET latest = earliest WHERE block = 0`:                                       {0},
		`DELETE FROM audit_blocks WHERE block = 1`:                                                        {1},
		`INSERT INTO audit_blocks (block, earliest, latest) VALUES (-5, 1, 2)`:                            {-5},
		`UPDATE audit SET address = '192.0.2.77' WHERE seq = 20000`:                                       {1},
	} {
		emptyBlocks(t, s)
		fillBlocks(t, s, trailRows/auditBlock)
		agree(t, s)
		if _, err := s.db.ExecCommitted(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		if got, err := s.reads.DisagreeingAuditBlocks(t.Context(), 10); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: blocks %v disagree, want %v, %v", text, got, want, err)
		}
	}
	emptyBlocks(t, s)
	if _, err := s.db.ExecCommitted(t.Context(), `INSERT INTO audit_blocks (block, earliest, latest) VALUES (-5, 1, 2)`); err != nil {
		t.Fatal(err)
	}
	fillBlocks(t, s, trailRows/auditBlock)
	if got, err := s.reads.DisagreeingAuditBlocks(t.Context(), 10); err != nil || !slices.Equal(got, []int64{-5}) {
		t.Errorf("behind a block before the first one: blocks %v disagree, %v", got, err)
	}
}

// TestBlocksPruned checks that blocks are deleted with their rows. After that, filters and
// new blocks must still be correct.
func TestBlocksPruned(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, s *Store) {
		fillTrail(t, s)
		fillBlocks(t, s, trailRows/auditBlock)
		const first = 2*auditBlock + 1
		for _, text := range []string{`DELETE FROM audit WHERE seq < $1`, `UPDATE audit_extent SET first = $1`} {
			if _, err := s.db.ExecCommitted(t.Context(), text, first); err != nil {
				t.Fatal(err)
			}
		}
		for _, before := range []int64{1, auditBlock, first, first} { // the first two remove nothing
			for {
				more, err := s.PruneAuditBlocks(t.Context(), before)
				if err != nil {
					t.Fatal(err)
				}
				if !more {
					break
				}
			}
			want := 3
			if before == first {
				want = 1
			}
			if blocks, without := blocksOf(t, s); blocks != want || without != 0 {
				t.Errorf("pruned before %d: there are %d blocks, and keys of %d others", before, blocks, without)
			}
		}
		late := values.IDFromUint64(2)
		filter := keyserver.AuditFilter{Principal: &late, Limit: 1000}
		want := plainly(t, s, `principal_id = $1`, filter)
		if got := seqsOf(t, s.reads, filter, auditBudget); !slices.Equal(want, got) {
			t.Errorf("%d rows, want %d", len(got), len(want))
		}
		emptyBlocks(t, s)
		fillBlocks(t, s, 1) // from the first row that exists
		agree(t, s)
	})
}
