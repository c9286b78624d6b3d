package cli

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// headText is how a head is printed and given back.
func headText(h audit.Head) string { return fmt.Sprintf("%d:%d:%x", h.Chain, h.Position, h.Hash) }

// readHeads reads what --expect-head was given.
func readHeads(texts []string) ([]audit.Head, error) {
	var all []audit.Head
	for _, text := range texts {
		h, ok := readHead(text)
		if !ok {
			return nil, usagef("--expect-head is %q; it must be CHAIN:POSITION:HASH, as audit verify prints a head", text)
		}
		all = append(all, h)
	}
	return all, nil
}

func readHead(text string) (h audit.Head, ok bool) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return h, false
	}
	var err error
	if h.Chain, err = strconv.ParseInt(parts[0], 10, 64); err != nil {
		return h, false
	}
	if h.Position, err = strconv.ParseInt(parts[1], 10, 64); err != nil {
		return h, false
	}
	hash, err := hex.DecodeString(parts[2])
	copy(h.Hash[:], hash)
	return h, err == nil && len(hash) == len(h.Hash) && h.Chain > 0 && h.Position > 0
}

// watchedTrail is a trail that notes, while it is verified, where its chains
// end and which of the expected rows it has. The verification says of a row
// that it has its hash.
type watchedTrail struct {
	audit.Trail
	expected []audit.Head
	heads    []audit.Head // where a chain without rows has none
	have     []audit.Head
}

func (t *watchedTrail) AuditSnapshot(ctx context.Context) (audit.Snapshot, error) {
	snapshot, err := t.Trail.AuditSnapshot(ctx)
	for _, h := range snapshot.Heads {
		if h.Position > 0 {
			t.heads = append(t.heads, h)
		}
	}
	return snapshot, err
}

func (t *watchedTrail) AuditRange(ctx context.Context, after, last int64, limit int) ([]keyserver.AuditEntry, error) {
	rows, err := t.Trail.AuditRange(ctx, after, last, limit)
	for i := range rows {
		h := audit.Head{Chain: rows[i].Chain, Position: rows[i].Position, Hash: rows[i].Hash}
		if slices.Contains(t.expected, h) {
			t.have = append(t.have, h)
		}
	}
	return rows, err
}

// lost are the expected rows that the trail does not have.
func (t *watchedTrail) lost() []audit.Head {
	return slices.DeleteFunc(slices.Clone(t.expected), func(h audit.Head) bool { return slices.Contains(t.have, h) })
}
