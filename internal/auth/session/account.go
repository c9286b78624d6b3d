package session

import (
	"context"
	"fmt"
	"io"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/password"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// NewPassword is a request to change the password of a principal.
type NewPassword struct {
	Principal keyserver.ID
	Password  string
	Current   string // the current password; only if callers change their own password
}

// String returns the principal without the passwords.
func (n NewPassword) String() string { return "new password of " + n.Principal.Hex() }

// Format formats n like String for every verb, so that no verb prints a password.
func (n NewPassword) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, n.String()) }

// PasswordSaved is the result of SetPassword.
type PasswordSaved struct {
	Saved  bool // the stored hash is equal to the written hash
	Ended  int  // number of sessions that ended
	Detail string
}

// SetPassword changes the password of a principal. It ends all sessions of the principal, even the caller's own
// session, so that an intruder who knows the old password loses access. To change their own password, callers must send
// the current password and need no role. For another account, callers must be allowed to grant everything that the
// account has.
func (m *Manager) SetPassword(ctx context.Context, by keyserver.Caller, n NewPassword) (PasswordSaved, error) {
	if err := keyserver.RefusePassword(n.Password); err != nil {
		return PasswordSaved{}, err
	}
	known := Login{Method: keyserver.PasswordSession, Name: by.Name, From: From{Address: by.Address}, attempt: &attempt{known: true}}
	change := keyserver.PasswordChange{Principal: n.Principal}
	own := isOwn(by, n.Principal)
	switch {
	case n.Principal != by.Principal.ID && n.Current != "":
		return PasswordSaved{}, fault.New(fault.BadRequest, "current: is only for your own account; leave it out to set the password of another account")
	case own:
		var err error
		if change.CurrentHash, err = m.currentHash(ctx, by, n.Current); err != nil {
			return PasswordSaved{}, err
		}
	}
	var written string
	change.Hash = func() (string, error) {
		err := m.inPlace(ctx, known, func() (err error) {
			written, err = m.PasswordCost.Hash(ctx, n.Password, m.Random)
			return err
		})
		return written, err
	}
	ended, err := m.Authorizer.SetPassword(ctx, by, change)
	if err != nil {
		return PasswordSaved{}, err
	}
	return m.verifyPasswordSaved(ctx, n.Principal, written, ended)
}

func (m *Manager) verifyPasswordSaved(ctx context.Context, id keyserver.ID, written string, ended int) (PasswordSaved, error) {
	r := PasswordSaved{Ended: ended}
	read, err := m.Store.PasswordHash(ctx, id)
	if err != nil {
		return r, fault.New(fault.ReadbackFailed, "the password was written, but the second read failed; log in with the new password before you try again").Because(err)
	}
	if !password.Same(read, written) {
		r.Detail = "the second read returned another password; another caller may have set it at the same time"
		return r, fault.New(fault.NotSaved, "%s", r.Detail)
	}
	r.Saved, r.Detail = true, "the password is valid from the next login; all sessions of the principal have ended"
	return r, nil
}

// currentHash returns the hash of the caller's password if current is that password. Each call takes the same throttle
// tokens as a login, so that a stolen session id does not allow more guesses.
func (m *Manager) currentHash(ctx context.Context, by keyserver.Caller, current string) (string, error) {
	if by.Type != keyserver.PasswordPrincipal {
		return "", m.refuseCurrent(ctx, by, keyserver.NoPassword(by.Type))
	}
	if current == "" {
		return "", fault.New(fault.BadRequest, "current: is missing; send the present password of your account")
	}
	l := Login{Method: keyserver.PasswordSession, Name: by.Name, Password: current, From: From{Address: by.Address}}
	var err error
	if l.attempt, err = m.throttle.look(ctx, l); err != nil {
		return "", m.refuseCurrent(ctx, by, err)
	}
	hash, err := m.checkCurrent(ctx, by, l)
	if fault.CodeOf(err) != fault.InvalidCredentials {
		m.throttle.giveBack(ctx, l.attempt)
	}
	if err != nil {
		return "", m.refuseCurrent(ctx, by, err)
	}
	return hash, nil
}

func (m *Manager) checkCurrent(ctx context.Context, by keyserver.Caller, l Login) (string, error) {
	hash, err := m.Store.PasswordHash(ctx, by.Principal.ID)
	if err != nil {
		return "", missing(err, "no password principal has the id %s", by.Principal.ID)
	}
	ok := false
	err = m.inPlace(ctx, l, func() (err error) {
		ok, err = m.PasswordCost.Check(ctx, l.Password, hash)
		return err
	})
	if err == nil && !ok {
		err = fault.New(fault.InvalidCredentials, "current: must be the present password of your account").Audited(fault.ReasonBadCredentials)
	}
	return hash, err
}

// refuseCurrent writes a durable audit row for the refusal, or counts the refusal in an earlier row.
func (m *Manager) refuseCurrent(ctx context.Context, by keyserver.Caller, answer error) error {
	f := fault.As(answer)
	if f == nil || f.Reason == "" {
		return answer
	}
	if err := m.record(ctx, keyserver.AuditEntry{
		Operation: keyserver.OpSetPassword.Key, Outcome: keyserver.Refused, Reason: string(f.Reason),
		Principal: by.Principal, Object: by.Principal.ID.Hex(), Kind: by.Kind, RequestID: by.RequestID,
		Address: by.Address, Session: by.Session, For: by.Purpose,
	}); err != nil {
		return err
	}
	return answer
}
