package session_test

import (
	"crypto/sha256"
	"encoding/base64"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/auth/session"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// TestARowThatIsPutBack checks a statement of docs/security.md: a MAC does not show that a row is old. An attacker who
// can write to the database can restore the row of an ended session, but cannot extend the session.
func TestARowThatIsPutBack(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		m := gated(t, f)
		o := open(t, m)
		by := caller(t, m, o)
		use := func() error {
			_, release, err := m.Authenticate(ctx, o.Token, session.Proof{}, session.From{RequestID: "r"})
			if err == nil {
				release()
			}
			return err
		}
		secret, err := base64.RawURLEncoding.DecodeString(o.Token)
		if err != nil {
			t.Fatal(err)
		}
		row, err := f.Store.Session(ctx, sha256.Sum256(secret))
		if err != nil {
			t.Fatal(err)
		}
		if err := m.End(ctx, by); err != nil {
			t.Fatal(err)
		}
		want(t, use(), fault.SessionNotFound)
		if err := f.Store.Update(ctx, func(tx *sqlstore.Tx) error { return tx.InsertSession(ctx, row) }); err != nil {
			t.Fatal(err)
		}
		if err := use(); err != nil {
			t.Errorf("docs/security.md says that the row opens the session again: %v", err)
		}
		f.Clock.Advance(lifetime)
		want(t, use(), fault.SessionExpired)
	})
}
