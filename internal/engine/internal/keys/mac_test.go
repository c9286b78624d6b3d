package keys_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

func macOf(f *enginetest.Fixture, by keyserver.Caller, line keyserver.HiddenLink, message string) (keyserver.MAC, error) {
	return f.MAC(ctx, by, keyserver.MACRequest{Lineage: line, Message: text(message)})
}

func verifyOf(f *enginetest.Fixture, by keyserver.Caller, choice keyserver.KeyChoice, mac [keyserver.MACSize]byte, message string) (keyserver.MACVerdict, error) {
	return f.VerifyMAC(ctx, by, keyserver.MACCheck{KeyChoice: choice, Message: text(message), MAC: func() [keyserver.MACSize]byte { return mac }})
}

// TestMACOfALine checks that the first key identifies a lineage, and that the newest enabled key makes the MAC.
func TestMACOfALine(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		line := f.Mint(t, f.Admin, nil)
		stranger := f.Add(t, keyserver.PasswordPrincipal, "stranger", []keyserver.ID{keyserver.RoleExchanger}, nil)
		nobody := f.Add(t, keyserver.PasswordPrincipal, "nobody", nil, nil)
		aes := enginetest.Must(f.MintKey(ctx, f.Admin, keyserver.NewKey{Algorithm: keyserver.AES256}))(t).Link
		mac := func(by keyserver.Caller, line keyserver.HiddenLink) error {
			_, err := macOf(f, by, line, "m")
			return err
		}

		f.Refused(t, mac(f.Admin, values.NewHiddenLink(f.Prepared.System, values.IDFromUint64(5))), fault.KeyNotFound, fault.ReasonObjectNotFound)
		f.Refused(t, mac(f.Admin, "odd"), fault.KeyNotFound, fault.ReasonObjectNotFound)
		f.Refused(t, mac(nobody, line), fault.AccessDenied, fault.ReasonRoleDenied)
		f.Refused(t, mac(stranger, line), fault.ACLDenied, fault.ReasonACLDenied)
		f.Refused(t, mac(f.Admin, aes), fault.InvalidArgument, fault.ReasonInvalidArgument)
		f.Refused(t, mac(stranger, aes), fault.ACLDenied, fault.ReasonACLDenied)
		f.Grant(t, line, stranger.Principal, keyserver.Read, keyserver.NoUsageLimit)

		first := enginetest.Must(macOf(f, f.Admin, line, "m"))(t)
		if first.Link != line || first.Generation != 1 {
			t.Errorf("the first generation: %+v", first)
		}
		if same := enginetest.Must(f.HMAC(ctx, f.Admin, keyserver.HMACRequest{Link: line, Message: text("m")}))(t); same != first.Sum {
			t.Error("mac and hmac differ")
		}
		second := f.AddSuccessor(t, line, keyserver.KeyEnabled)
		f.Refused(t, mac(f.Admin, second), fault.KeyNotFound, fault.ReasonObjectNotFound) // not the first key
		for _, state := range []keyserver.KeyState{keyserver.KeyVerifyOnly, keyserver.KeyDisabled, keyserver.KeyDestroying, keyserver.KeyDestroyed} {
			f.AddSuccessor(t, line, state)
		}
		for _, by := range []keyserver.Caller{f.Admin, stranger} {
			if got := enginetest.Must(macOf(f, by, line, "m"))(t); got.Link != second || got.Generation != 2 || got.Sum == first.Sum {
				t.Errorf("the newest enabled: %+v", got)
			}
			if row := f.LastRow(t); row.Operation != "macData" || row.Object != second.Base64() {
				t.Errorf("the row is of %s, %s; want the key that was used, %s", row.Operation, row.Object, second)
			}
		}
	})
}

// TestALineWithoutAnEnabledKey checks that only callers that the ACL allows learn that a lineage has no enabled key.
func TestALineWithoutAnEnabledKey(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		stranger := f.Add(t, keyserver.PasswordPrincipal, "stranger", []keyserver.ID{keyserver.RoleExchanger}, nil)
		limited := f.Add(t, keyserver.PasswordPrincipal, "limited", []keyserver.ID{keyserver.RoleExchanger}, nil)
		for _, state := range []keyserver.KeyState{keyserver.KeyVerifyOnly, keyserver.KeyDisabled, keyserver.KeyDestroying, keyserver.KeyDestroyed} {
			line := storeKey(t, f, keyserver.HMACSHA384, state)
			key := keyserver.KeyChoice{Key: line}
			_, err := macOf(f, stranger, line, "m")
			f.Refused(t, err, fault.ACLDenied, fault.ReasonACLDenied)
			_, err = macOf(f, f.Admin, line, "m")
			f.Refused(t, err, fault.KeyDisabled, fault.ReasonKeyDisabled)
			f.Grant(t, line, limited.Principal, keyserver.Read, 1)
			_, err = macOf(f, limited, line, "m")
			f.Refused(t, err, fault.KeyDisabled, fault.ReasonKeyDisabled)
			if entry, _ := enginetest.Must(f.ACL(ctx, f.Admin, line))(t).Entry(limited.Principal); entry.Used != 0 {
				t.Errorf("%s: a refused use was counted", state)
			}
			for _, choice := range []keyserver.KeyChoice{key, {Lineage: line}} {
				_, err = verifyOf(f, f.Admin, choice, noMAC(), "m")
				if state == keyserver.KeyVerifyOnly {
					if err != nil {
						t.Errorf("%s: %v", state, err)
					}
					continue
				}
				f.Refused(t, err, fault.KeyDisabled, fault.ReasonKeyDisabled)
			}
		}
	})
}

// storeKey stores a key of the administrator in a given state.
func storeKey(t *testing.T, f *enginetest.Fixture, algorithm keyserver.Algorithm, state keyserver.KeyState) keyserver.HiddenLink {
	t.Helper()
	link := enginetest.Must(f.MintKey(ctx, f.Admin, keyserver.NewKey{Algorithm: algorithm}))(t).Link
	_, id, _ := link.Split()
	record, acl, err := f.Store.KeyWithACL(ctx, id)
	enginetest.Must(acl, err)(t)
	if record.ID, err = values.NewID(f.Random); err != nil {
		t.Fatal(err)
	}
	record.ACL = enginetest.Must(values.NewID(f.Random))(t)
	for i := range acl.Entries {
		acl.Entries[i].ID = enginetest.Must(values.NewID(f.Random))(t)
	}
	record.Life = keyserver.FirstLife(record.ID)
	record.Life.State = state
	record.Wrapped = enginetest.Must(f.Config.Keyring.Wrap(record.ID, f.Prepared.System, make([]byte, record.KeyBytes)))(t)
	if state == keyserver.KeyDestroyed {
		record.Wrapped = nil
	}
	if err := f.Store.Update(ctx, func(tx *sqlstore.Tx) error { return tx.InsertKey(ctx, record, acl.Entries...) }); err != nil {
		t.Fatal(err)
	}
	return values.NewHiddenLink(f.Prepared.System, record.ID)
}

// TestVerifyMAC checks that a verification finds the key that made the MAC, among the keys that may verify.
func TestVerifyMAC(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		line := f.Mint(t, f.Admin, nil)
		made := []keyserver.MAC{enginetest.Must(macOf(f, f.Admin, line, "m"))(t)}
		for range 2 {
			f.AddSuccessor(t, line, keyserver.KeyEnabled)
			made = append(made, enginetest.Must(macOf(f, f.Admin, line, "m"))(t))
		}
		newest := made[2].UsedKey
		byLine := keyserver.KeyChoice{Lineage: line}
		for _, mac := range made {
			for _, choice := range []keyserver.KeyChoice{byLine, {Key: mac.Link}} {
				got := enginetest.Must(verifyOf(f, f.Admin, choice, mac.Sum, "m"))(t)
				if diff := cmp.Diff(keyserver.MACVerdict{UsedKey: mac.UsedKey, Valid: true}, got); diff != "" {
					t.Errorf("generation %d (-want +got):\n%s", mac.Generation, diff)
				}
			}
		}
		flipped := made[0].Sum
		flipped[keyserver.MACSize-1] ^= 1
		for name, tc := range map[string]struct {
			choice  keyserver.KeyChoice
			mac     [keyserver.MACSize]byte
			message string
			named   keyserver.UsedKey
		}{
			"Flipped":      {byLine, flipped, "m", newest},
			"Zero":         {byLine, noMAC(), "m", newest},
			"OtherMessage": {byLine, made[0].Sum, "n", newest},
			"OtherKey":     {keyserver.KeyChoice{Key: made[1].Link}, made[0].Sum, "m", made[1].UsedKey},
		} {
			got := enginetest.Must(verifyOf(f, f.Admin, tc.choice, tc.mac, tc.message))(t)
			if got.Valid || got.UsedKey != tc.named {
				t.Errorf("%s: got %+v", name, got)
			}
		}
		// Keys that may not verify do not count for the limit MaxVerificationKeys. Keys beyond the limit are not tried.
		for range keyserver.MaxVerificationKeys - 3 {
			f.AddSuccessor(t, line, keyserver.KeyVerifyOnly)
		}
		f.AddSuccessor(t, line, keyserver.KeyDisabled)
		if !enginetest.Must(verifyOf(f, f.Admin, byLine, made[0].Sum, "m"))(t).Valid {
			t.Errorf("the oldest of %d is not tried", keyserver.MaxVerificationKeys)
		}
		f.AddSuccessor(t, line, keyserver.KeyEnabled)
		if enginetest.Must(verifyOf(f, f.Admin, byLine, made[0].Sum, "m"))(t).Valid || !enginetest.Must(verifyOf(f, f.Admin, byLine, made[1].Sum, "m"))(t).Valid {
			t.Errorf("more or less than %d are tried", keyserver.MaxVerificationKeys)
		}
	})
}

// TestVerifyMACMindsEachList checks that a verification by lineage counts one use, of the newest key. An older key is
// not tried if its ACL denies the caller.
func TestVerifyMACMindsEachList(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		line := f.Mint(t, f.Admin, nil)
		old := enginetest.Must(macOf(f, f.Admin, line, "m"))(t)
		second := f.AddSuccessor(t, line, keyserver.KeyEnabled)
		user := f.Add(t, keyserver.PasswordPrincipal, "user", []keyserver.ID{keyserver.RoleExchanger}, nil)
		verify := func() (keyserver.MACVerdict, error) {
			return verifyOf(f, user, keyserver.KeyChoice{Lineage: line}, old.Sum, "m")
		}
		f.Grant(t, line, user.Principal, keyserver.Read, keyserver.NoUsageLimit)
		_, err := verify()
		f.Refused(t, err, fault.ACLDenied, fault.ReasonACLDenied) // the ACL of the newest key decides
		f.Grant(t, second, user.Principal, keyserver.Read, 2)
		if !enginetest.Must(verify())(t).Valid {
			t.Error("the older key is not tried")
		}
		if err := f.RevokeACL(ctx, f.Admin, keyserver.ACLRevocation{Link: line, Principal: user.Principal}); err != nil {
			t.Fatal(err)
		}
		if got := enginetest.Must(verify())(t); got.Valid || got.Link != second {
			t.Errorf("a key whose list shuts him out was tried: %+v", got)
		}
		_, err = verify()
		f.Refused(t, err, fault.ACLDenied, fault.ReasonACLDenied) // no uses are left
	})
}

// commits counts commits of one row and of several rows.
type commits struct {
	gate.Auditor
	alone, together atomic.Int32
}

func (c *commits) Write(ctx context.Context, entry keyserver.AuditEntry) error {
	c.alone.Add(1)
	return c.Auditor.Write(ctx, entry)
}

func (c *commits) WriteAll(ctx context.Context, entries []keyserver.AuditEntry) error {
	c.together.Add(1)
	return c.Auditor.WriteAll(ctx, entries)
}

// inOneCommit calls do, checks that it writes n audit rows in one commit, and returns them.
func inOneCommit(t *testing.T, f *enginetest.Fixture, n int, do func(*engine.Engine)) []keyserver.AuditEntry {
	t.Helper()
	cfg, count := f.Config, &commits{Auditor: f.Config.Auditor}
	cfg.Auditor = count
	before := len(f.AllRows(t))
	do(engine.New(cfg))
	rows := f.AllRows(t)[before:]
	if count.together.Load() != 1 || count.alone.Load() != 0 || len(rows) != n {
		t.Fatalf("%d rows in %d commits and %d of one row each", len(rows), count.together.Load(), count.alone.Load())
	}
	return rows
}

// TestMACBatch checks that each item of a batch has its own result or error and its own audit row, and that one commit
// writes all rows.
func TestMACBatch(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		line, aes := f.Mint(t, f.Admin, nil), enginetest.Must(f.MintKey(ctx, f.Admin, keyserver.NewKey{Algorithm: keyserver.AES256}))(t).Link
		f.AddSuccessor(t, line, keyserver.KeyEnabled)
		disabled := storeKey(t, f, keyserver.HMACSHA384, keyserver.KeyDisabled)
		limited := f.Add(t, keyserver.PasswordPrincipal, "limited", []keyserver.ID{keyserver.RoleExchanger}, nil)
		f.Grant(t, line, limited.Principal, keyserver.Read, keyserver.NoUsageLimit)
		few := f.Mint(t, f.Admin, nil)
		f.Grant(t, few, limited.Principal, keyserver.Read, 2)
		f.Grant(t, aes, limited.Principal, keyserver.Read, keyserver.NoUsageLimit)
		f.Grant(t, disabled, limited.Principal, keyserver.Read, keyserver.NoUsageLimit)
		second := enginetest.Must(macOf(f, f.Admin, line, "m"))(t).Link
		f.Grant(t, second, limited.Principal, keyserver.Read, keyserver.NoUsageLimit)

		nobody := f.Add(t, keyserver.PasswordPrincipal, "nobody", nil, nil)
		_, err := f.MACBatch(ctx, nobody, []keyserver.MACItem{{Lineage: line}})
		f.Refused(t, err, fault.AccessDenied, fault.ReasonRoleDenied)

		foreign := values.NewHiddenLink(9, values.IDFromUint64(1))
		items := []struct {
			line   keyserver.HiddenLink
			code   fault.Code
			reason fault.Reason
		}{
			{line, "", ""}, {"odd", fault.KeyNotFound, fault.ReasonObjectNotFound}, {few, "", ""}, {aes, fault.InvalidArgument, fault.ReasonInvalidArgument},
			{few, "", ""}, {few, fault.ACLDenied, fault.ReasonACLDenied}, {disabled, fault.KeyDisabled, fault.ReasonKeyDisabled},
			{foreign, fault.InvalidArgument, fault.ReasonNotForwarded}, {f.Mint(t, f.Admin, nil), fault.ACLDenied, fault.ReasonACLDenied}, {line, "", ""},
		}
		batch := make([]keyserver.MACItem, len(items))
		for i, item := range items {
			batch[i] = keyserver.MACItem{Lineage: item.line, Data: fmt.Appendf(nil, "message %d", i)}
		}
		var answers []keyserver.MACResult
		rows := inOneCommit(t, f, len(items), func(e *engine.Engine) { answers = enginetest.Must(e.MACBatch(ctx, limited, batch))(t) })
		for i, item := range items {
			if got := fault.CodeOf(answers[i].Err); got != item.code || rows[i].Reason != string(item.reason) || rows[i].Operation != "macData" {
				t.Errorf("item %d: %q, row %s %s; want %q and %q", i, got, rows[i].Outcome, rows[i].Reason, item.code, item.reason)
			}
			if item.code != "" {
				continue
			}
			check := enginetest.Must(verifyOf(f, f.Admin, keyserver.KeyChoice{Key: answers[i].Link}, answers[i].Sum, string(batch[i].Data)))(t)
			if !check.Valid || check.Generation != answers[i].Generation {
				t.Errorf("item %d: the MAC is not that of its message: %+v", i, answers[i].UsedKey)
			}
		}
		if answers[0].Link != second || answers[2].Link != few {
			t.Errorf("got the keys %s and %s", answers[0].Link, answers[2].Link)
		}
	})
}

// TestVerifyMACBatch checks that each item of a batch has its own verdict or error and its own audit row, and that one
// commit writes all rows.
func TestVerifyMACBatch(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		line, few := f.Mint(t, f.Admin, nil), f.Mint(t, f.Admin, nil)
		older := enginetest.Must(macOf(f, f.Admin, line, "m"))(t)
		f.AddSuccessor(t, line, keyserver.KeyEnabled)
		newer := enginetest.Must(macOf(f, f.Admin, line, "m"))(t)
		once := enginetest.Must(macOf(f, f.Admin, few, "m"))(t)
		limited := f.Add(t, keyserver.PasswordPrincipal, "limited", []keyserver.ID{keyserver.RoleExchanger}, nil)
		for _, link := range []keyserver.HiddenLink{line, newer.Link} {
			f.Grant(t, link, limited.Principal, keyserver.Read, keyserver.NoUsageLimit)
		}
		f.Grant(t, few, limited.Principal, keyserver.Read, 1)
		check := func(choice keyserver.KeyChoice, mac keyserver.MAC, message string) keyserver.MACCheck {
			return keyserver.MACCheck{KeyChoice: choice, Message: text(message), MAC: func() [keyserver.MACSize]byte { return mac.Sum }}
		}
		nobody := f.Add(t, keyserver.PasswordPrincipal, "nobody", nil, nil)
		_, err := f.VerifyMACBatch(ctx, nobody, []keyserver.MACCheck{check(keyserver.KeyChoice{Key: line}, older, "m")})
		f.Refused(t, err, fault.AccessDenied, fault.ReasonRoleDenied)

		foreign := values.NewHiddenLink(9, values.IDFromUint64(1))
		items := []struct {
			check  keyserver.MACCheck
			key    keyserver.HiddenLink // that the verdict names
			valid  bool
			code   fault.Code
			reason fault.Reason
		}{
			{check: check(keyserver.KeyChoice{Lineage: line}, older, "m"), key: older.Link, valid: true},
			{check: check(keyserver.KeyChoice{Lineage: line}, newer, "m"), key: newer.Link, valid: true},
			{check: check(keyserver.KeyChoice{Key: newer.Link}, older, "m"), key: newer.Link},
			{check: check(keyserver.KeyChoice{Lineage: line}, older, "other"), key: newer.Link},
			{check: check(keyserver.KeyChoice{Key: few}, once, "m"), key: few, valid: true},
			{check: check(keyserver.KeyChoice{Key: few}, once, "m"), code: fault.ACLDenied, reason: fault.ReasonACLDenied}, // no uses are left
			{check: check(keyserver.KeyChoice{Lineage: "odd"}, once, "m"), code: fault.KeyNotFound, reason: fault.ReasonObjectNotFound},
			{check: check(keyserver.KeyChoice{Lineage: foreign}, once, "m"), code: fault.InvalidArgument, reason: fault.ReasonNotForwarded},
			{check: check(keyserver.KeyChoice{Key: foreign}, once, "m"), code: fault.InvalidArgument, reason: fault.ReasonNotForwarded},
			{check: check(keyserver.KeyChoice{Lineage: line}, older, "m"), key: older.Link, valid: true},
		}
		batch := make([]keyserver.MACCheck, len(items))
		for i, item := range items {
			batch[i] = item.check
		}
		var verdicts []keyserver.MACVerdictResult
		rows := inOneCommit(t, f, len(items), func(e *engine.Engine) { verdicts = enginetest.Must(e.VerifyMACBatch(ctx, limited, batch))(t) })
		for i, item := range items {
			got := verdicts[i]
			if fault.CodeOf(got.Err) != item.code || rows[i].Reason != string(item.reason) || rows[i].Operation != "verifyMAC" {
				t.Errorf("item %d: %v, row %s %s %s; want %q and %q", i, got.Err, rows[i].Operation, rows[i].Outcome, rows[i].Reason, item.code, item.reason)
			}
			if got.Valid != item.valid || got.Link != item.key {
				t.Errorf("item %d: got %v by %s, want %v by %s", i, got.Valid, got.Link, item.valid, item.key)
			}
		}
	})
}

// mute is an auditor that cannot write several rows together at the moment.
type mute struct{ gate.Auditor }

func (mute) WriteAll(context.Context, []keyserver.AuditEntry) error {
	return fault.Temporary(fault.AuditUnavailable, fault.ScopeProcess, time.Second, "try again")
}

// TestBatchWithoutAuditRows checks that a batch whose rows cannot be written is retryable only if no use was counted.
func TestBatchWithoutAuditRows(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		line := f.Mint(t, f.Admin, nil)
		cfg := f.Config
		cfg.Auditor = mute{f.Config.Auditor}
		e := engine.New(cfg)
		for lineage, retryable := range map[keyserver.HiddenLink]bool{line: false, "odd": true} {
			_, err := e.MACBatch(ctx, f.Admin, []keyserver.MACItem{{Lineage: "odd"}, {Lineage: lineage}})
			if got := fault.As(err); got == nil || got.Code != fault.AuditUnavailable || got.Retryable != retryable {
				t.Errorf("%s: got %+v", lineage, got)
			}
		}
	})
}

// TestRotationUnderLoad checks that MACs verify while the lineage is rotated repeatedly.
func TestRotationUnderLoad(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		line := f.Mint(t, f.Admin, nil)
		done, errs := make(chan struct{}), make(chan error, 64)
		var checked atomic.Int64
		var workers sync.WaitGroup
		for n := range 4 {
			workers.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-done:
						return
					default:
					}
					message := fmt.Sprintf("%d of %d", i, n)
					mac, err := macOf(f, f.Admin, line, message)
					if err == nil {
						var verdict keyserver.MACVerdict
						verdict, err = verifyOf(f, f.Admin, keyserver.KeyChoice{Lineage: line}, mac.Sum, message)
						if err == nil && (!verdict.Valid || verdict.UsedKey != mac.UsedKey) {
							err = fmt.Errorf("a MAC of generation %d is %+v", mac.Generation, verdict)
						}
					}
					if err != nil {
						errs <- err
						return
					}
					checked.Add(1)
				}
			})
		}
		var rotated error
		for range keyserver.MaxVerificationKeys - 1 {
			before := checked.Load()
			for checked.Load() < before+20 && len(errs) == 0 { // waits for some MACs of each key
				_, err := macOf(f, f.Admin, line, "m")
				rotated = errors.Join(rotated, err)
			}
			_, err := f.TryAddSuccessor(line, keyserver.KeyEnabled)
			rotated = errors.Join(rotated, err)
		}
		newest := enginetest.Must(macOf(f, f.Admin, line, "m"))(t)
		close(done)
		workers.Wait()
		close(errs)
		for err := range errs {
			t.Error(err)
		}
		if rotated != nil || newest.Generation != keyserver.MaxVerificationKeys {
			t.Errorf("ends with generation %d, %v", newest.Generation, rotated)
		}
	})
}

// TestEncryptAndDecrypt checks that a lineage decrypts the ciphertexts of all its generations.
func TestEncryptAndDecrypt(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		newKey := func() keyserver.HiddenLink {
			return enginetest.Must(f.MintKey(ctx, f.Admin, keyserver.NewKey{Algorithm: keyserver.AES256}))(t).Link
		}
		line, other, hmac := newKey(), newKey(), f.Mint(t, f.Admin, nil)
		stranger := f.Add(t, keyserver.PasswordPrincipal, "stranger", []keyserver.ID{keyserver.RoleExchanger}, nil)
		byLine, plain, associated := keyserver.KeyChoice{Lineage: line}, []byte("a text"), []byte("of somebody")
		encrypt := func(by keyserver.Caller, choice keyserver.KeyChoice) (keyserver.Ciphertext, error) {
			return f.Encrypt(ctx, by, keyserver.Encryption{KeyChoice: choice, Plain: plain, Associated: associated})
		}
		for choice, code := range map[keyserver.KeyChoice]fault.Code{{Key: hmac}: fault.InvalidArgument, {Lineage: hmac}: fault.InvalidArgument, {Key: "odd"}: fault.KeyNotFound} {
			if _, err := encrypt(f.Admin, choice); fault.CodeOf(err) != code {
				t.Errorf("%v: %v, want %s", choice, err, code)
			}
		}
		_, err := encrypt(stranger, byLine)
		f.Refused(t, err, fault.ACLDenied, fault.ReasonACLDenied)
		sealed := []keyserver.Ciphertext{enginetest.Must(encrypt(f.Admin, byLine))(t)}
		for range 2 {
			f.AddSuccessor(t, line, keyserver.KeyEnabled)
			sealed = append(sealed, enginetest.Must(encrypt(f.Admin, byLine))(t))
		}
		f.AddSuccessor(t, line, keyserver.KeyVerifyOnly)
		decrypt := func(by keyserver.Caller, choice keyserver.KeyChoice, sealed, associated []byte) (keyserver.Plaintext, error) {
			return f.Decrypt(ctx, by, keyserver.Decryption{KeyChoice: choice, Sealed: sealed, Associated: associated})
		}
		for i, s := range sealed {
			if s.Generation != i+1 || bytes.Contains(s.Sealed, plain) {
				t.Errorf("generation %d sealed %+v", i+1, s)
			}
			for _, choice := range []keyserver.KeyChoice{byLine, {Key: s.Link}} {
				if got := enginetest.Must(decrypt(f.Admin, choice, s.Sealed, associated))(t); !bytes.Equal(got.Plain, plain) || got.UsedKey != s.UsedKey {
					t.Errorf("decrypted %q by %+v", got.Plain, got.UsedKey)
				}
			}
		}
		_, err = decrypt(stranger, byLine, sealed[0].Sealed, associated)
		f.Refused(t, err, fault.ACLDenied, fault.ReasonACLDenied)
		flipped := bytes.Clone(sealed[0].Sealed)
		flipped[len(flipped)-1] ^= 1
		relabelled := append(append([]byte{}, sealed[1].Sealed[:9]...), sealed[0].Sealed[9:]...)
		for name, tc := range map[string]struct {
			choice             keyserver.KeyChoice
			sealed, associated []byte
		}{
			"Flipped":         {byLine, flipped, associated},
			"Relabelled":      {byLine, relabelled, associated},
			"OtherAssociated": {byLine, sealed[0].Sealed, []byte("of another")},
			"NoAssociated":    {byLine, sealed[0].Sealed, nil},
			"Short":           {byLine, sealed[0].Sealed[:36], associated},
			"OtherVersion":    {byLine, append([]byte{2}, sealed[0].Sealed[1:]...), associated},
			"OtherLine":       {keyserver.KeyChoice{Lineage: other}, sealed[0].Sealed, associated},
			"OtherKey":        {keyserver.KeyChoice{Key: sealed[1].Link}, sealed[0].Sealed, associated},
		} {
			_, err := decrypt(f.Admin, tc.choice, tc.sealed, tc.associated)
			if fault.CodeOf(err) != fault.InvalidArgument || f.LastRow(t).Reason != string(fault.ReasonInvalidArgument) {
				t.Errorf("%s: %v, row %+v", name, err, f.LastRow(t))
			}
		}
		for _, state := range []keyserver.KeyState{keyserver.KeyVerifyOnly, keyserver.KeyDisabled, keyserver.KeyDestroyed} {
			key := keyserver.KeyChoice{Key: storeKey(t, f, keyserver.AES256, state)}
			_, err := encrypt(f.Admin, key)
			f.Refused(t, err, fault.KeyDisabled, fault.ReasonKeyDisabled)
			_, id, _ := key.Key.Split()
			if state == keyserver.KeyVerifyOnly {
				continue
			}
			_, err = decrypt(f.Admin, key, append(append([]byte{1}, id[:]...), make([]byte, 28)...), nil)
			f.Refused(t, err, fault.KeyDisabled, fault.ReasonKeyDisabled)
		}
	})
}

// TestKeysAreExhausted checks that processes, also after restarts, encrypt at most MaxEncryptions times with one key. A
// lineage is rotated earlier.
func TestKeysAreExhausted(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		key := enginetest.Must(f.MintKey(ctx, f.Admin, keyserver.NewKey{Algorithm: keyserver.AES256}))(t).Link
		_, id, _ := key.Split()
		// spend reserves all encryptions except left of them.
		spend := func(left int64) {
			if err := f.Store.Update(ctx, func(tx *sqlstore.Tx) error {
				_, before, err := tx.ReserveEncryptions(ctx, id, 1, keyserver.MaxEncryptions)
				if err == nil {
					_, _, err = tx.ReserveEncryptions(ctx, id, before-left, keyserver.MaxEncryptions)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		spend(300)
		encrypt := func(e *engine.Engine, choice keyserver.KeyChoice) (keyserver.Ciphertext, error) {
			return e.Encrypt(ctx, f.Admin, keyserver.Encryption{KeyChoice: choice, Plain: []byte("t")})
		}
		byKey, byLine := keyserver.KeyChoice{Key: key}, keyserver.KeyChoice{Lineage: key}
		one, two := engine.New(f.Config), engine.New(f.Config)
		done := 0
		for _, e := range []*engine.Engine{one, two, one, engine.New(f.Config)} {
			for {
				if _, err := encrypt(e, byKey); err != nil {
					f.Refused(t, err, fault.KeyExhausted, fault.ReasonKeyExhausted)
					break
				}
				done++
			}
		}
		if done != 300 {
			t.Errorf("%d encryptions, want the 300 that were left", done)
		}
		two.RotateBy(func(context.Context, keyserver.ID) error { return errors.New("no successor") })
		_, err := encrypt(two, byLine)
		f.Refused(t, err, fault.KeyExhausted, fault.ReasonKeyExhausted)

		successors := func(n int) {
			t.Helper()
			if line := enginetest.Must(f.Store.KeyLineage(ctx, id))(t); len(line) != n+1 {
				t.Errorf("the line has %d keys, want the first and %d successors", len(line), n)
			}
		}
		successors(0)
		if got := enginetest.Must(encrypt(one, byLine))(t); got.Generation != 2 {
			t.Errorf("got generation %d of a line whose first key may encrypt no more", got.Generation)
		}
		successors(1)
		_, err = encrypt(one, byKey)
		f.Refused(t, err, fault.KeyExhausted, fault.ReasonKeyExhausted)

		// A lineage is rotated while its newest key still has some encryptions left.
		key = enginetest.Must(f.MintKey(ctx, f.Admin, keyserver.NewKey{Algorithm: keyserver.AES256}))(t).Link
		_, id, _ = key.Split()
		spend(keyserver.MaxEncryptions / 32)
		byLine = keyserver.KeyChoice{Lineage: key}
		for generation := 1; generation <= 2; generation++ {
			if got := enginetest.Must(encrypt(one, byLine))(t); got.Generation != generation {
				t.Errorf("got generation %d, want %d", got.Generation, generation)
			}
			successors(1)
		}
	})
}

// TestExhaustionSpendsNoUse checks that a refusal of an exhausted key counts no use. An encryption with a lineage whose
// newest key is exhausted counts one use, of the successor. A caller that the ACL denies does not learn that the key is
// exhausted, and takes no encryption.
func TestExhaustionSpendsNoUse(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		key := enginetest.Must(f.MintKey(ctx, f.Admin, keyserver.NewKey{Algorithm: keyserver.AES256}))(t).Link
		_, id, _ := key.Split()
		user := f.Add(t, keyserver.PasswordPrincipal, "user", []keyserver.ID{keyserver.RoleExchanger}, nil)
		spent := f.Add(t, keyserver.PasswordPrincipal, "spent", []keyserver.ID{keyserver.RoleExchanger}, nil)
		stranger := f.Add(t, keyserver.PasswordPrincipal, "stranger", []keyserver.ID{keyserver.RoleExchanger}, nil)
		f.Grant(t, key, user.Principal, keyserver.Read, 4)
		f.Grant(t, key, spent.Principal, keyserver.Read, 0)
		if err := f.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			_, _, err := tx.ReserveEncryptions(ctx, id, keyserver.MaxEncryptions-1, keyserver.MaxEncryptions)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		encrypt := func(by keyserver.Caller, choice keyserver.KeyChoice) (keyserver.Ciphertext, error) {
			return f.Encrypt(ctx, by, keyserver.Encryption{KeyChoice: choice, Plain: []byte("t")})
		}
		byKey, byLine := keyserver.KeyChoice{Key: key}, keyserver.KeyChoice{Lineage: key}
		shutOut := func() {
			t.Helper()
			for _, by := range []keyserver.Caller{stranger, spent} {
				for _, choice := range []keyserver.KeyChoice{byKey, byLine} {
					_, err := encrypt(by, choice)
					f.Refused(t, err, fault.ACLDenied, fault.ReasonACLDenied)
				}
			}
		}
		left := func(link keyserver.HiddenLink, want int64) {
			t.Helper()
			for _, entry := range enginetest.Must(f.ACL(ctx, f.Admin, link))(t).Entries {
				if entry.Principal == user.Principal && entry.MaxUsage-entry.Used != want {
					t.Errorf("%d uses are left, want %d", entry.MaxUsage-entry.Used, want)
				}
			}
		}
		shutOut()
		sealed := enginetest.Must(encrypt(f.Admin, byKey))(t).Sealed // takes the last encryption
		shutOut()
		f.RotateBy(func(context.Context, keyserver.ID) error { return errors.New("no successor") })
		for range 4 {
			for _, choice := range []keyserver.KeyChoice{byKey, byLine} {
				_, err := encrypt(user, choice)
				f.Refused(t, err, fault.KeyExhausted, fault.ReasonKeyExhausted)
			}
		}
		left(key, 4)

		successor := enginetest.Must(engine.New(f.Config).Encrypt(ctx, user, keyserver.Encryption{KeyChoice: byLine, Plain: []byte("t")}))(t)
		left(key, 3) // keys of a lineage share the usage limit
		left(successor.Link, 3)
		decrypt := func(sealed []byte) error {
			_, err := f.Decrypt(ctx, user, keyserver.Decryption{KeyChoice: byKey, Sealed: sealed})
			return err
		}
		changed := bytes.Clone(sealed)
		changed[len(changed)-1] ^= 1
		if err := decrypt(changed); fault.CodeOf(err) != fault.InvalidArgument {
			t.Errorf("a ciphertext that was changed: %v", err)
		}
		left(key, 2) // a failed decryption counts, too
		for range 2 {
			if err := decrypt(sealed); err != nil {
				t.Error(err)
			}
		}
		f.Refused(t, decrypt(sealed), fault.ACLDenied, fault.ReasonACLDenied)
	})
}

// TestMACVectors verifies published test vectors (RFC 4231, Wycheproof) with imported keys.
func TestMACVectors(t *testing.T) {
	f := enginetest.New(t, enginetest.Databases["SQLite"](t))
	file := enginetest.Must(os.ReadFile("testdata/wycheproof_hmac_sha384.txt"))(t)
	vectors := append(strings.Split(strings.TrimSpace(string(file)), "\n"), rfc4231...)
	links, tried := map[string]keyserver.HiddenLink{}, map[string]int{}
	bin := func(text string) []byte { return enginetest.Must(hex.DecodeString(strings.TrimPrefix(text, "-")))(t) }
	for _, vector := range vectors {
		v := strings.Fields(vector)
		if v[0] == "#" {
			continue
		}
		id, message, tag, want := v[0], bin(v[2]), bin(v[3]), v[4]
		if links[v[1]] == "" {
			links[v[1]] = f.Mint(t, f.Admin, bin(v[1]))
		}
		key := keyserver.KeyChoice{Key: links[v[1]]}
		// Requests cannot have a truncated MAC. Padded to the full length, it is a wrong MAC.
		var mac [keyserver.MACSize]byte
		if copy(mac[:], tag) < len(mac) {
			want = "invalid"
		}
		got := enginetest.Must(verifyOf(f, f.Admin, key, mac, string(message)))(t)
		if got.Valid != (want == "valid") {
			t.Errorf("%s: valid is %v, but it is %s", id, got.Valid, want)
		}
		tried[want]++
		if want == "valid" {
			if made := enginetest.Must(macOf(f, f.Admin, links[v[1]], string(message)))(t); made.Sum != mac {
				t.Errorf("%s: the MAC is %x", id, made.Sum)
			}
		}
	}
	if tried["valid"] < 30 || tried["invalid"] < 40 {
		t.Errorf("tried %v", tried)
	}
}

// rfc4231 has the test cases of RFC 4231 for HMAC-SHA-384, except the fifth, whose MAC is truncated.
var rfc4231 = []string{
	"rfc4231-1 " + strings.Repeat("0b", 20) + " " + hex.EncodeToString([]byte("Hi There")) +
		" afd03944d84895626b0825f4ab46907f15f9dadbe4101ec682aa034c7cebc59cfaea9ea9076ede7f4af152e8b2fa9cb6 valid",
	"rfc4231-2 " + hex.EncodeToString([]byte("Jefe")) + " " + hex.EncodeToString([]byte("what do ya want for nothing?")) +
		" af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e8e2240ca5e69e2c78b3239ecfab21649 valid",
	"rfc4231-3 " + strings.Repeat("aa", 20) + " " + strings.Repeat("dd", 50) +
		" 88062608d3e6ad8a0aa2ace014c8a86f0aa635d947ac9febe83ef4e55966144b2a5ab39dc13814b94e3ab6e101a34f27 valid",
	"rfc4231-4 0102030405060708090a0b0c0d0e0f10111213141516171819 " + strings.Repeat("cd", 50) +
		" 3e8a69b7783c25851933ab6290af6ca77a9981480850009cc5577c6e1f573b4e6801dd23c4a7d679ccf8a386c674cffb valid",
	"rfc4231-6 " + strings.Repeat("aa", 131) + " " + hex.EncodeToString([]byte("Test Using Larger Than Block-Size Key - Hash Key First")) +
		" 4ece084485813e9088d2c63a041bc5b44f9ef1012a2b588f3cd11f05033ac4c60c2ef6ab4030fe8296248df163f44952 valid",
	"rfc4231-7 " + strings.Repeat("aa", 131) + " " + hex.EncodeToString([]byte("This is a test using a larger than block-size key and a larger than block-size data. The key needs to be hashed before being used by the HMAC algorithm.")) +
		" 6617178e941f020d351e2f254e8fd32c602420feb0b8fb9adccebb82461e99c5a678cc31e799176d3860e6110c46523e valid",
}
