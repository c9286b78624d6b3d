package sqlstore

import (
	"context"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// storedLife is the life of a key as its columns have it. lineage is zero for the
// first key of a line.
type storedLife struct {
	state              string
	lineage            keyserver.ID
	generation         int
	exportable         int64
	stateAt, destroyAt int64 // microseconds, 0 for none
}

func (l storedLife) of(key keyserver.ID) keyserver.KeyLife {
	life := keyserver.KeyLife{
		State: keyserver.KeyState(l.state), Lineage: l.lineage, Generation: l.generation, Exportable: l.exportable != 0,
		StateAt: someTime(l.stateAt), DestroyAt: someTime(l.destroyAt),
	}
	if life.Lineage.IsZero() {
		life.Lineage = key
	}
	return life
}

func columnsOf(key keyserver.ID, life keyserver.KeyLife) storedLife {
	columns := storedLife{
		state: string(life.State), lineage: life.Lineage, generation: life.Generation, exportable: flag(life.Exportable),
		stateAt: micros(life.StateAt), destroyAt: micros(life.DestroyAt),
	}
	if life.Lineage == key {
		columns.lineage = keyserver.ID{}
	}
	return columns
}

// someTime is a time of a column in which 0 is none.
func someTime(micro int64) time.Time {
	if micro == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micro).UTC()
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// keysOfLine reads the keys of a line, oldest first.
var keysOfLine = storedKeyQuery(`(k.id = $1 OR k.lineage = $1)`)

// KeyLine reads the keys of the line that begins with a key, oldest first; none
// where that is no first key.
func (r reads) KeyLine(ctx context.Context, first keyserver.ID) ([]KeyRecord, error) {
	list, err := r.storedKeys(ctx, keysOfLine, first[:])
	if err != nil {
		return nil, err
	}
	line := make([]KeyRecord, 0, len(list))
	for _, k := range list {
		if k.Life.Lineage == first {
			line = append(line, k.KeyRecord)
		}
	}
	slices.SortFunc(line, func(a, b KeyRecord) int { return a.Life.Generation - b.Life.Generation })
	return line, nil
}
