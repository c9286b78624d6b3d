package operations

import (
	"context"
	"slices"
	"unicode/utf8"

	"github.com/keyserver-operator/keyserver-operator/internal/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Bounds of a password in bytes. The upper one bounds the work of hashing it.
const (
	minPassword = 8
	maxPassword = 1024
)

// PrincipalSaved is what creating a principal answers.
type PrincipalSaved struct {
	Saved     bool
	Principal *keyserver.Principal // as read back
	Detail    string
}

// Principal reads one principal.
func (s *Service) Principal(ctx context.Context, by keyserver.Caller, id keyserver.ID) (keyserver.Principal, error) {
	if err := requireID("id", id); err != nil {
		return keyserver.Principal{}, err
	}
	return s.ks.Principal(ctx, by, id)
}

// CreatePasswordPrincipal makes a password principal and verifies name, type
// and roles by reading it back. The password cannot be read back.
func (s *Service) CreatePasswordPrincipal(ctx context.Context, by keyserver.Caller, p keyserver.NewPasswordPrincipal) (PrincipalSaved, error) {
	name, err := cleanName("name", p.Name)
	if err != nil {
		return PrincipalSaved{}, err
	}
	if n := len(p.Password); n < minPassword || n > maxPassword || !utf8.ValidString(p.Password) {
		return PrincipalSaved{}, fault.New(fault.BadRequest, "password must be %d to %d bytes of valid UTF-8", minPassword, maxPassword)
	}
	p.Name, p.Roles = name, keyserver.NormalizeIDs(p.Roles)
	var id keyserver.ID
	return verifiedWrite[*keyserver.Principal, PrincipalSaved]{
		read: func(ctx context.Context) (*keyserver.Principal, error) { return s.principalIfAny(ctx, by, id) },
		write: func(ctx context.Context, _ *keyserver.Principal) (err error) {
			id, err = s.ks.CreatePasswordPrincipal(ctx, by, p)
			return err
		},
		verdict: func(_, after *keyserver.Principal) (PrincipalSaved, error) { return judgePrincipal(p, after) },
	}.do(ctx)
}

// principalIfAny reads a principal that may not exist (yet): there is nothing
// to read before the key server has drawn its id.
func (s *Service) principalIfAny(ctx context.Context, by keyserver.Caller, id keyserver.ID) (*keyserver.Principal, error) {
	if id.IsZero() {
		return nil, nil
	}
	p, err := s.ks.Principal(ctx, by, id)
	if fault.CodeOf(err) == fault.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &p, nil
}

func judgePrincipal(sent keyserver.NewPasswordPrincipal, after *keyserver.Principal) (PrincipalSaved, error) {
	r := PrincipalSaved{Principal: after}
	switch {
	case after == nil:
		r.Detail = "the key server accepted the principal, but it cannot be read back"
	case after.Name != sent.Name || after.Type != keyserver.PasswordPrincipal || !slices.Equal(keyserver.NormalizeIDs(after.Roles), sent.Roles):
		r.Detail = "the principal reads back with another name, type or set of roles"
	default:
		r.Saved, r.Detail = true, "name, type and roles read back"
		return r, nil
	}
	return r, fault.New(fault.NotSaved, "%s", r.Detail)
}
