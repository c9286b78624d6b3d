package schema

import (
	"errors"
	"strconv"

	"golang.org/x/mod/sumdb/tlog"
)

// AuditKey is the public key that verifies the checkpoints of the audit tree.
type AuditKey struct {
	Origin string `json:"origin" doc:"Name of the log. Each checkpoint begins with it."`
	Key    string `json:"key" doc:"Public key in the format of C2SP signed-note (vkey)."`
}

// ByRow is a request that names a row of the audit log.
type ByRow struct {
	Seq RowNumber `path:"seq" json:"-" doc:"Position of the row in the audit log."`
}

// RowNumber is the position of a row in the audit log, over all chains.
type RowNumber int64

var errRowNumber = errors.New("must be an integer from 1 to 9007199254740992 without sign or leading zeros")

// MarshalText encodes the number.
func (n RowNumber) MarshalText() ([]byte, error) { return strconv.AppendInt(nil, int64(n), 10), nil }

// UnmarshalText accepts only the canonical spelling.
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
	Level TreeLevel `path:"level" json:"-" doc:"Level of the tile. Level 0 has the hashes of the rows. Each hash of a higher level covers a full tile of the level below."`
	Tile  TilePlace `path:"tile,rest" json:"-" doc:"Tile in the format of C2SP tlog-tiles. It may contain slashes, plain or as %2F."`
}

// AuditEntriesRequest names a tile and requests its rows.
type AuditEntriesRequest struct {
	Tile TilePlace `path:"tile,rest" json:"-" doc:"Tile of level 0 in the format of C2SP tlog-tiles. It may contain slashes, plain or as %2F."`
}

// TreeLevel is a level of tiles.
type TreeLevel int

const maxTreeLevel = 63

var errTreeLevel = errors.New("must be an integer from 0 to 63 without sign or leading zeros, or entries")

// MarshalText encodes the level.
func (l TreeLevel) MarshalText() ([]byte, error) { return strconv.AppendInt(nil, int64(l), 10), nil }

// UnmarshalText accepts only the canonical spelling.
func (l *TreeLevel) UnmarshalText(text []byte) error {
	parsed, err := parseInteger(text, maxTreeLevel)
	if err != nil {
		return errTreeLevel
	}
	*l = TreeLevel(parsed) //nolint:gosec // bounded above
	return nil
}

// TileHeight is the number of tree levels in a tile, and TileWidth the number of
// hashes in a full one.
const (
	TileHeight = 8
	TileWidth  = 1 << TileHeight
)

// TilePlace is a tile in its level. Its text is the part of its C2SP tlog-tiles path after the level: x001/067 is tile
// 1067, and 067.p/8 is the first 8 hashes of tile 67.
type TilePlace struct {
	Index int64
	Width int
}

var errTilePlace = errors.New("must be a tile as C2SP tlog-tiles spells it, for instance 067, x001/067, or 067.p/8 for the first 8 of it")

func (t TilePlace) tile() tlog.Tile { return tlog.Tile{H: TileHeight, N: t.Index, W: t.Width} }

// levelPath is the beginning of each path of level 0 in package tlog.
const levelPath = "tile/8/0/"

// String returns the text of the tile in a path.
func (t TilePlace) String() string { return t.tile().Path()[len(levelPath):] }

// MarshalText encodes the place.
func (t TilePlace) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText accepts only the canonical spelling.
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
