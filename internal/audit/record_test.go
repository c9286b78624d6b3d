package audit_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// drawRow returns a random row with a valid hash, in any of the encodings.
func drawRow(rt *rapid.T) keyserver.AuditEntry {
	text := rapid.SampledFrom([]string{"", "a", "ü and more"})
	id := func(label string) keyserver.ID {
		return values.IDFromUint64(rapid.SampledFrom([]uint64{0, 1, 1 << 63}).Draw(rt, label))
	}
	ref := func(label string) keyserver.PrincipalRef {
		return keyserver.PrincipalRef{System: keyserver.SystemID(rapid.Uint32().Draw(rt, label)), ID: id(label)}
	}
	e := keyserver.AuditEntry{
		Seq: rapid.Int64().Draw(rt, "seq"), Time: time.UnixMicro(rapid.Int64Range(0, 1<<52).Draw(rt, "time")).UTC(),
		Operation: text.Draw(rt, "operation"), Outcome: keyserver.Outcome(text.Draw(rt, "outcome")), Reason: text.Draw(rt, "reason"),
		Principal: ref("principal"), Object: text.Draw(rt, "object"), Kind: keyserver.SessionKind(text.Draw(rt, "kind")),
		RequestID: text.Draw(rt, "request"), Filename: text.Draw(rt, "file"), UsedKey: id("used"),
		Chain: rapid.Int64().Draw(rt, "chain"), Position: rapid.Int64().Draw(rt, "position"),
	}
	if rapid.Bool().Draw(rt, "acted") {
		e.Actor = ref("actor")
	}
	if rapid.Bool().Draw(rt, "full") {
		e.Address, e.Session, e.For, e.Count, e.Approval = "192.0.2.1", id("session"), text.Draw(rt, "for"), rapid.Int64Range(1, 9).Draw(rt, "count"), id("approval")
	}
	e.Previous[3] = 7
	e.Hash, _ = audit.Sum(nil, &e)
	return e
}

func TestRecords(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rows := rapid.SliceOfN(rapid.Custom(drawRow), 1, 4).Draw(rt, "rows")
		var raw []byte
		var ends []int
		for i := range rows {
			raw = audit.AppendRecord(raw, &rows[i])
			ends = append(ends, len(raw))
		}
		got, err := audit.ReadRecords(nil, raw)
		if err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(rows, got); diff != "" {
			rt.Fatal(diff)
		}
		cut := rapid.IntRange(1, ends[0]-1).Draw(rt, "cut")
		if got, err := audit.ReadRecords(nil, raw[:cut]); err == nil {
			rt.Fatalf("%d of %d bytes are %d rows", cut, ends[0], len(got))
		}
	})
}
