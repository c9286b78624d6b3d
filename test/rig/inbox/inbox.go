// Package inbox is a strict receiver of the audit log. It stores the rows that an audit sink sends. With only the
// public key of the log, it verifies that no row is missing.
package inbox

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"sync"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
)

// Event has the fields of an OCSF event that the inbox reads.
type Event struct {
	ClassUID int `json:"class_uid"`
	TypeUID  int `json:"type_uid"`
	Metadata struct {
		Version  string `json:"version"`
		UID      string `json:"uid"`
		Sequence int64  `json:"sequence"`
	} `json:"metadata"`
	RawData  string `json:"raw_data"`
	Unmapped struct {
		Extent *tree.Extent `json:"extent"`
	} `json:"unmapped"`
}

// Inbox has the received rows. It is safe for concurrent use.
type Inbox struct {
	mu         sync.Mutex
	rows       map[int64][]byte
	seals      []tree.Extent
	last       int64 // the highest sequence number
	Duplicates int   // rows received more than once
}

// Take stores an event. It rejects a row that leaves a gap after the last row, and a row that differs from an earlier
// row with the same number.
func (b *Inbox) Take(text []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rows == nil {
		b.rows = map[int64][]byte{}
	}
	var e Event
	if err := json.Unmarshal(text, &e); err != nil {
		return fmt.Errorf("%w: %.80s", err, text)
	}
	if e.Unmapped.Extent != nil {
		b.seals = append(b.seals, *e.Unmapped.Extent)
		return nil
	}
	raw, err := base64.StdEncoding.DecodeString(e.RawData)
	if err != nil {
		return err
	}
	seq := e.Metadata.Sequence
	if seq < 1 || seq > b.last+1 {
		return fmt.Errorf("the row %d came behind %d", seq, b.last)
	}
	if before, there := b.rows[seq]; there {
		b.Duplicates++
		if string(before) != string(raw) {
			return fmt.Errorf("the row %d came as another one", seq)
		}
	}
	b.rows[seq] = raw
	b.last = max(b.last, seq)
	return nil
}

// Last returns the highest sequence number received.
func (b *Inbox) Last() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last
}

// Forget deletes a received row, like a receiver that loses data.
func (b *Inbox) Forget(seq int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.rows, seq)
}

// Proven returns the number of the last row that is proven: signatures by the log's key cover all rows up to it. It
// returns an error if a row that a signature covers is missing or was changed.
func (b *Inbox) Proven(key note.Verifier) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	empty, _ := tlog.TreeHash(0, nil)
	roots := map[int64]tlog.Hash{0: empty}
	last := int64(0)
	for _, seal := range b.seals {
		var leaves []tlog.Hash
		for seq := seal.First; seq <= seal.Last; seq++ {
			raw, there := b.rows[seq]
			if !there {
				return last, fmt.Errorf("the row %d lacks", seq)
			}
			leaves = append(leaves, tlog.RecordHash(raw))
		}
		if err := seal.VerifyLeaves(leaves, key); err != nil {
			return last, err
		}
		if before, known := roots[seal.First-1]; !known || before != seal.Before {
			return last, fmt.Errorf("the rows from %d on do not continue what came before", seal.First)
		}
		roots[seal.Last] = seal.After
		last = max(last, seal.Last)
	}
	return last, nil
}
