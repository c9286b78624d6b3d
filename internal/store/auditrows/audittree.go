package auditrows

import (
	"context"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// newestTree is the name of the row with the current size and root of the audit tree.
const newestTree = "newest"

// AuditTree returns the current tree head of the audit tree: its size, root hash and checkpoint. The result is zero if
// there is no tree yet.
func (r Reads) AuditTree(ctx context.Context) (audit.TreeHead, error) {
	return r.treeHead(ctx, newestTree)
}

func (r Reads) treeHead(ctx context.Context, name string) (audit.TreeHead, error) {
	var head audit.TreeHead
	err := r.sql.Row(ctx, `SELECT size, root, at, checkpoint FROM audit_tree WHERE name = $1`, []any{name},
		&head.Size, sqldb.Untrusted(head.Root[:]), sqldb.IntoTime(&head.At), &head.Checkpoint)
	if errors.Is(err, sqldb.ErrNotFound) {
		err = nil
	}
	return head, err
}

// AuditTile returns the hashes of a tile of the audit tree, or nil if there is no such tile. The tile may be
// incomplete.
func (r Reads) AuditTile(ctx context.Context, level int, index int64) ([]byte, error) {
	var hashes []byte
	err := r.sql.Row(ctx, `SELECT hashes FROM audit_tiles WHERE level = $1 AND place = $2`, []any{level, index}, &hashes)
	if errors.Is(err, sqldb.ErrNotFound) {
		err = nil
	}
	return hashes, err
}

// AuditEnd returns the greatest sequence number among the rows of the audit log, or 0 if
// there are none.
func (r Reads) AuditEnd(ctx context.Context) (int64, error) {
	var end int64
	err := r.sql.Row(ctx, `SELECT coalesce(max(seq), 0) FROM audit`, nil, &end)
	return end, err
}

// GrowAuditTree stores tiles and a new tree head, and reports whether it did. It stores them only if the tree has the
// given size and the function still, which may be nil, returns true. It calls this function in the transaction. If the
// database was replaced by another one, the hooks of OnChange run before this call.
func (t *AuditLog) GrowAuditTree(ctx context.Context, size int64, tiles []audit.Tile, head audit.TreeHead, still func() bool) (done bool, err error) {
	err = t.db.Transact(ctx, func(in sqldb.Statements) ([]keyserver.Change, error) {
		now, err := NewReads(in).AuditTree(ctx)
		if done = err == nil && now.Size == size && (still == nil || still()); !done {
			return nil, err
		}
		for _, tile := range tiles {
			_, err := in.Exec(ctx, `INSERT INTO audit_tiles (level, place, hashes) VALUES ($1, $2, $3)
				ON CONFLICT (level, place) DO UPDATE SET hashes = excluded.hashes`, tile.Level, tile.Index, tile.Hashes)
			if err != nil {
				return nil, err
			}
		}
		return nil, NewWrites(in).putTreeHead(ctx, newestTree, head)
	})
	return done && err == nil, err
}

// BeginAuditTree stores the tree head of a tree that has no rows yet.
func (w Writes) BeginAuditTree(ctx context.Context, head audit.TreeHead) error {
	return w.putTreeHead(ctx, newestTree, head)
}

func (w Writes) putTreeHead(ctx context.Context, name string, head audit.TreeHead) error {
	_, err := w.in.Exec(ctx, `INSERT INTO audit_tree (name, size, root, at, checkpoint) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (name) DO UPDATE SET size = excluded.size, root = excluded.root, at = excluded.at, checkpoint = excluded.checkpoint`,
		name, head.Size, head.Root[:], head.At.UnixMicro(), head.Checkpoint)
	return err
}

// cosignedTree is the name of the row with the newest tree head that has a quorum of cosignatures.
const cosignedTree = "cosigned"

// CosignedAuditTree returns the newest tree head that a quorum has cosigned, or zero if there is none yet.
func (r Reads) CosignedAuditTree(ctx context.Context) (audit.TreeHead, error) {
	return r.treeHead(ctx, cosignedTree)
}

// CosignAuditTree adds cosignatures to a tree head. The function add gets the stored checkpoint of the same tree head,
// or head.Checkpoint if none is stored. add returns the checkpoint with more cosignatures, and whether these are a
// quorum.
func (t *AuditLog) CosignAuditTree(ctx context.Context, head audit.TreeHead, add func(stored []byte) (checkpoint []byte, quorum bool, err error)) error {
	return t.db.Transact(ctx, func(in sqldb.Statements) ([]keyserver.Change, error) {
		var quorum bool
		for _, name := range []string{newestTree, cosignedTree} {
			stored, err := NewReads(in).treeHead(ctx, name)
			if err != nil {
				return nil, err
			}
			if stored.Size != head.Size || stored.Root != head.Root {
				stored = audit.TreeHead{Size: stored.Size}
			}
			known := stored.Checkpoint
			if known == nil {
				known = head.Checkpoint
			}
			if head.Checkpoint, quorum, err = add(known); err != nil {
				return nil, err
			}
			if stored.Checkpoint == nil && (name == newestTree || !quorum || stored.Size > head.Size) {
				continue
			}
			if err := NewWrites(in).putTreeHead(ctx, name, head); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
}
