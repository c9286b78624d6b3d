package tree

import (
	"bytes"
	"context"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
)

// A full tile has 256 hashes. Each hash is a leaf (level 0), or the root of a tile of the level below.
const (
	height    = 8
	tileWidth = 1 << height
	tileSize  = tileWidth * tlog.HashSize
)

// growth adds leaves to a tree. It keeps in memory the tiles that are not full, and the tiles that have become full.
type growth struct {
	open []audit.Tile // the last tile of each level, by level
	full []audit.Tile // tiles that became full
	size int64
}

// newGrowth reads those tiles of a tree of a given size that are not full.
func newGrowth(ctx context.Context, store Store, size int64) (*growth, error) {
	g := &growth{size: size}
	for level, left := 0, size; left > 0; level, left = level+1, left>>height {
		t := audit.Tile{Level: level, Index: left >> height}
		if width := int(left % tileWidth); width > 0 {
			hashes, err := readTile(ctx, store, tlog.Tile{H: height, L: level, N: t.Index, W: width})
			if err != nil {
				return nil, err
			}
			t.Hashes = hashes
		}
		g.open = append(g.open, t)
	}
	return g, nil
}

// add appends a leaf. The hash of a full tile is added to the level above.
func (g *growth) add(leaf tlog.Hash) error {
	g.size++
	for level := 0; ; level++ {
		if level == len(g.open) {
			g.open = append(g.open, audit.Tile{Level: level})
		}
		t := &g.open[level]
		if t.Hashes == nil {
			t.Hashes = make([]byte, 0, tileSize)
		}
		t.Hashes = append(t.Hashes, leaf[:]...)
		if len(t.Hashes) < tileSize {
			return nil
		}
		var err error
		if leaf, err = tileRoot(*t); err != nil {
			return err
		}
		g.full = append(g.full, *t)
		g.open[level] = audit.Tile{Level: level, Index: t.Index + 1}
	}
}

// tileRoot returns the hash of a full tile in the level above.
func tileRoot(t audit.Tile) (tlog.Hash, error) {
	whole := tlog.Tile{H: height, L: t.Level, N: t.Index, W: tileWidth}
	var halves [2]tlog.Hash
	for i := range halves {
		var err error
		index := tlog.StoredHashIndex(height*t.Level+height-1, 2*t.Index+int64(i))
		if halves[i], err = tlog.HashFromTile(whole, t.Hashes, index); err != nil {
			return tlog.Hash{}, err
		}
	}
	return tlog.NodeHash(halves[0], halves[1]), nil
}

// tiles returns the tiles to store: those that have become full, and those that are not full.
func (g *growth) tiles() []audit.Tile {
	all := g.full
	for _, t := range g.open {
		if len(t.Hashes) > 0 {
			all = append(all, t)
		}
	}
	return all
}

func (g *growth) root(ctx context.Context, store Store) (tlog.Hash, error) {
	fresh := make(map[place][]byte)
	for _, t := range g.tiles() {
		fresh[place{t.Level, t.Index}] = t.Hashes
	}
	return tlog.TreeHash(g.size, hashes(ctx, store, fresh))
}

// rootOfOpenTiles returns the root of the current tree. It needs only the tiles that are not full, because they contain the hash
// of each full tile.
func (g *growth) rootOfOpenTiles() (tlog.Hash, error) {
	fresh := make(map[place][]byte)
	for _, t := range g.open {
		fresh[place{t.Level, t.Index}] = t.Hashes
	}
	return tlog.TreeHash(g.size, hashes(context.Background(), emptyReader{}, fresh))
}

// emptyReader is a Reader of an empty tree.
type emptyReader struct{ Reader }

func (emptyReader) AuditTile(context.Context, int, int64) ([]byte, error) { return nil, nil }

func (g *growth) clone() *growth {
	c := &growth{size: g.size}
	for _, t := range g.open {
		c.open = append(c.open, audit.Tile{Level: t.Level, Index: t.Index, Hashes: bytes.Clone(t.Hashes)})
	}
	return c
}

// Hashes returns a reader of single hashes of the tree of a store.
func Hashes(ctx context.Context, store Store) tlog.HashReader { return hashes(ctx, store, nil) }

// place is the level and index of a tile in a tree.
type place struct {
	level int
	index int64
}

// hashes returns a reader of single hashes of a tree. It uses the tiles in at, and reads all other tiles from the
// store.
func hashes(ctx context.Context, store Reader, at map[place][]byte) tlog.HashReader {
	if at == nil {
		at = map[place][]byte{}
	}
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(indexes))
		for i, index := range indexes {
			t := tlog.TileForIndex(height, index)
			data := at[place{t.L, t.N}]
			if len(data) < t.W*tlog.HashSize {
				var err error
				if data, err = readTile(ctx, store, t); err != nil {
					return nil, err
				}
				at[place{t.L, t.N}] = data
			}
			t.W = len(data) / tlog.HashSize
			hash, err := tlog.HashFromTile(t, data, index)
			if err != nil {
				return nil, err
			}
			out[i] = hash
		}
		return out, nil
	})
}

// readTile reads the first hashes of a tile, as many as its width.
func readTile(ctx context.Context, store Reader, t tlog.Tile) ([]byte, error) {
	data, err := store.AuditTile(ctx, t.L, t.N)
	if err != nil {
		return nil, fmt.Errorf("read tile %d of level %d of the audit tree: %w", t.N, t.L, err)
	}
	if len(data) < t.W*tlog.HashSize {
		return nil, fmt.Errorf("%w: tile %d of level %d has %d bytes, but needs %d", ErrInconsistent, t.N, t.L, len(data), t.W*tlog.HashSize)
	}
	return data[:t.W*tlog.HashSize], nil
}
