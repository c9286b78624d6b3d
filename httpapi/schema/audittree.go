package schema

import (
	"errors"
	"strconv"

	"golang.org/x/mod/sumdb/tlog"
)

// AuditKey is what verifies the checkpoints of the audit tree.
type AuditKey struct {
	Origin string `json:"origin" doc:"The name of the log, which begins each checkpoint."`
	Key    string `json:"key" doc:"The public key, as C2SP signed-note spells one (vkey)."`
}

// ByRow is a request that names a row of the audit trail.
type ByRow struct {
	Seq RowNumber `path:"seq" json:"-" doc:"The row's place in the trail."`
}

// RowNumber is the place of a row in the trail, over all chains.
type RowNumber int64

var errRowNumber = errors.New("must be an integer from 1 to 9007199254740992 without sign or leading zeros")

// MarshalText spells the number.
func (n RowNumber) MarshalText() ([]byte, error) { return strconv.AppendInt(nil, int64(n), 10), nil }

// UnmarshalText refuses every other spelling.
func (n *RowNumber) UnmarshalText(text []byte) error {
	parsed, err := parseInteger(text, MaxExactInteger)
	if err != nil || parsed == 0 {
		return errRowNumber
	}
	*n = RowNumber(parsed) //nolint:gosec // bounded above
	return nil
}

// AuditHashesRequest names a tile of hashes.
type AuditHashesRequest struct {
	Level TreeLevel `path:"level" json:"-" doc:"0 is that of the rows' own hashes; a hash of the next one stands for a whole tile."`
	Tile  TilePlace `path:"tile,rest" json:"-" doc:"The tile, as C2SP tlog-tiles spells it: it may have slashes, as they are or as %2F."`
}

// AuditEntriesRequest names a tile whose rows are asked for.
type AuditEntriesRequest struct {
	Tile TilePlace `path:"tile,rest" json:"-" doc:"The tile of level 0, as C2SP tlog-tiles spells it: it may have slashes, as they are or as %2F."`
}

// TreeLevel is a level of tiles.
type TreeLevel int

const maxTreeLevel = 63

var errTreeLevel = errors.New("must be an integer from 0 to 63 without sign or leading zeros, or entries")

// MarshalText spells the level.
func (l TreeLevel) MarshalText() ([]byte, error) { return strconv.AppendInt(nil, int64(l), 10), nil }

// UnmarshalText refuses every other spelling.
func (l *TreeLevel) UnmarshalText(text []byte) error {
	parsed, err := parseInteger(text, maxTreeLevel)
	if err != nil {
		return errTreeLevel
	}
	*l = TreeLevel(parsed) //nolint:gosec // bounded above
	return nil
}

// TileHeight is the number of levels of a tree that a tile stands for, and
// TileWidth how many hashes a full one has.
const (
	TileHeight = 8
	TileWidth  = 1 << TileHeight
)

// TilePlace is a tile in its level, by the part of its path that C2SP tlog-tiles has
// behind the level: x001/067 is the tile 1067, 067.p/8 the first 8 hashes of tile 67.
type TilePlace struct {
	Index int64
	Width int
}

var errTilePlace = errors.New("must be a tile as C2SP tlog-tiles spells it, for instance 067, x001/067, or 067.p/8 for the first 8 of it")

func (t TilePlace) tile() tlog.Tile { return tlog.Tile{H: TileHeight, N: t.Index, W: t.Width} }

// levelPath is how the tiles of level 0 are spelt by package tlog, before their place.
const levelPath = "tile/8/0/"

// String spells the place.
func (t TilePlace) String() string { return t.tile().Path()[len(levelPath):] }

// MarshalText spells the place.
func (t TilePlace) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText refuses every other spelling.
func (t *TilePlace) UnmarshalText(text []byte) error {
	const most = 64
	if len(text) > most {
		return errTilePlace
	}
	tile, err := tlog.ParseTilePath(levelPath + string(text))
	if err != nil {
		return errTilePlace
	}
	*t = TilePlace{Index: tile.N, Width: tile.W}
	return nil
}
