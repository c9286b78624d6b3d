package audit_test

import (
	"bytes"
	"encoding/hex"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func sample() keyserver.AuditEntry {
	return keyserver.AuditEntry{
		Seq: 3, Time: time.UnixMicro(1_800_000_000_000_001), Operation: "op", Outcome: keyserver.Refused, Reason: "re",
		Principal: keyserver.PrincipalRef{System: 4, ID: values.IDFromUint64(5)}, Object: "ob", Kind: keyserver.PasswordSession,
		RequestID: "id", Filename: "fi", Chain: 1, Position: 2, Previous: [32]byte{6},
	}
}

// TestEncodingIsPermanent checks that the encoding does not change, because rows in databases are verified with it
// forever.
func TestEncodingIsPermanent(t *testing.T) {
	e := sample()
	sum, encoded := audit.Sum(nil, &e)
	const wantEncoding = "01" + "0600000000000000000000000000000000000000000000000000000000000000" + // version, previous
		"0000000000000001" + "0000000000000002" + "0000000000000003" + "0006651728988001" + // chain, position, seq, time
		"000000026f70" + "0000000772656675736564" + "000000027265" + "0000000000000004" + "0000000000000005" +
		"000000026f62" + "0000000870617373776f7264" + "000000026964" + "000000026669"
	if got := hex.EncodeToString(encoded); got != wantEncoding {
		t.Errorf("the encoding is\n%s, want\n%s", got, wantEncoding)
	}
	const wantSum = "8677647c64351a98a33a12b4fe5a5b0b3b711b0b865a5ecc41c8332d0cb05fa5"
	if got := hex.EncodeToString(sum[:]); got != wantSum {
		t.Errorf("the hash is %s, want %s", got, wantSum)
	}
	if again, _ := audit.Sum(encoded, &e); again != sum {
		t.Error("the scratch buffer must not matter")
	}
}

// TestEncodingIsUnambiguous checks that no two audit rows have the same encoding.
func TestEncodingIsUnambiguous(t *testing.T) {
	original := sample()
	base := audit.AppendEncoding(nil, &original)
	for name, change := range map[string]func(*keyserver.AuditEntry){
		"seq":                      func(e *keyserver.AuditEntry) { e.Seq++ },
		"time":                     func(e *keyserver.AuditEntry) { e.Time = e.Time.Add(time.Microsecond) },
		"operation":                func(e *keyserver.AuditEntry) { e.Operation = "oq" },
		"outcome":                  func(e *keyserver.AuditEntry) { e.Outcome = keyserver.Allowed },
		"reason":                   func(e *keyserver.AuditEntry) { e.Reason = "" },
		"system":                   func(e *keyserver.AuditEntry) { e.Principal.System++ },
		"principal":                func(e *keyserver.AuditEntry) { e.Principal.ID[7]++ },
		"object":                   func(e *keyserver.AuditEntry) { e.Object = "" },
		"kind":                     func(e *keyserver.AuditEntry) { e.Kind = "" },
		"request id":               func(e *keyserver.AuditEntry) { e.RequestID = "" },
		"file name":                func(e *keyserver.AuditEntry) { e.Filename = "" },
		"chain":                    func(e *keyserver.AuditEntry) { e.Chain++ },
		"position":                 func(e *keyserver.AuditEntry) { e.Position++ },
		"actor":                    func(e *keyserver.AuditEntry) { e.Actor.ID[7]++ },
		"system of the actor":      func(e *keyserver.AuditEntry) { e.Actor.System++ },
		"address":                  func(e *keyserver.AuditEntry) { e.Address = "192.0.2.1" },
		"session":                  func(e *keyserver.AuditEntry) { e.Session[7]++ },
		"purpose":                  func(e *keyserver.AuditEntry) { e.For = "192.0.2.1" },
		"count":                    func(e *keyserver.AuditEntry) { e.Count = 2 },
		"approval":                 func(e *keyserver.AuditEntry) { e.Approval[7]++ },
		"previous":                 func(e *keyserver.AuditEntry) { e.Previous[31]++ },
		"texts that flow together": func(e *keyserver.AuditEntry) { e.RequestID, e.Filename = "idf", "i" },
		"a text in the next field": func(e *keyserver.AuditEntry) { e.Operation, e.Reason, e.Outcome = "", "op", "refusedre" },
	} {
		e := original
		change(&e)
		if bytes.Equal(base, audit.AppendEncoding(nil, &e)) {
			t.Errorf("%s: the encoding does not change", name)
		}
	}
}
