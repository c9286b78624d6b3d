package verified

import (
	"context"
	"slices"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Limits of an xauth identity: the length of each part in characters, and the number of audiences.
const (
	maxIdentity  = 512
	maxAudiences = 16
)

// PrincipalSaved is the result of creating a principal.
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

// CreatePasswordPrincipal creates a password principal. It reads the principal back and verifies name, type and roles.
// The password cannot be read back.
func (s *Service) CreatePasswordPrincipal(ctx context.Context, by keyserver.Caller, p keyserver.NewPasswordPrincipal) (PrincipalSaved, error) {
	name, err := cleanName("name", p.Name)
	if err != nil {
		return PrincipalSaved{}, err
	}
	if err := keyserver.RefusePassword(p.Password); err != nil {
		return PrincipalSaved{}, err
	}
	p.Name, p.Roles = name, keyserver.NormalizeIDs(p.Roles)
	var id keyserver.ID
	return verifiedWrite[*keyserver.Principal, PrincipalSaved]{
		read: func(ctx context.Context) (*keyserver.Principal, error) { return s.principalIfAny(ctx, by, id) },
		write: func(ctx context.Context, _ *keyserver.Principal) (err error) {
			id, err = s.ks.CreatePasswordPrincipal(ctx, by, p)
			return err
		},
		verdict: func(_, after *keyserver.Principal) (PrincipalSaved, error) {
			return judgePrincipal(keyserver.NewPrincipal{Type: keyserver.PasswordPrincipal, Name: p.Name, Roles: p.Roles}, after)
		},
		unread: fault.ReadbackFailed,
	}.do(ctx)
}

// CreatePrincipal creates a principal of type ldap, xauth or group. It reads the principal back and verifies all
// fields.
func (s *Service) CreatePrincipal(ctx context.Context, by keyserver.Caller, p keyserver.NewPrincipal) (PrincipalSaved, error) {
	name, err := cleanName("name", p.Name)
	if err != nil {
		return PrincipalSaved{}, err
	}
	p.Name, p.Roles = name, keyserver.NormalizeIDs(p.Roles)
	if p.Identity, err = cleanIdentity(p); err != nil {
		return PrincipalSaved{}, err
	}
	var id keyserver.ID
	return verifiedWrite[*keyserver.Principal, PrincipalSaved]{
		read: func(ctx context.Context) (*keyserver.Principal, error) { return s.principalIfAny(ctx, by, id) },
		write: func(ctx context.Context, _ *keyserver.Principal) (err error) {
			id, err = s.ks.CreatePrincipal(ctx, by, p)
			return err
		},
		verdict: func(_, after *keyserver.Principal) (PrincipalSaved, error) { return judgePrincipal(p, after) },
		unread:  fault.ReadbackFailed,
	}.do(ctx)
}

// cleanIdentity returns an error for an identity that no token can have, and for values that differ only invisibly from
// the values of a token.
func cleanIdentity(p keyserver.NewPrincipal) (*keyserver.Identity, error) {
	if p.Identity == nil || p.Type != keyserver.XAuthPrincipal {
		return p.Identity, nil // the key server decides which types have an identity
	}
	identity := *p.Identity
	if len(identity.Audiences) > maxAudiences {
		return nil, fault.New(fault.BadRequest, "audiences: must have at most %d elements", maxAudiences)
	}
	identity.Audiences = slices.Compact(slices.Sorted(slices.Values(identity.Audiences)))
	for field, values := range map[string][]string{
		"issuer": {identity.Issuer}, "subject": {identity.Subject}, "audiences": identity.Audiences,
	} {
		if slices.ContainsFunc(values, notInToken) {
			return nil, fault.New(fault.BadRequest, "%s: must be 1 to %d printable ASCII characters with no space at either end: it is compared byte by byte with the token",
				field, maxIdentity)
		}
	}
	return &identity, nil
}

func notInToken(s string) bool {
	return s == "" || len(s) > maxIdentity || strings.TrimSpace(s) != s ||
		strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// principalIfAny reads a principal. It returns nil if the principal does not exist, or if id is zero because the key
// server has not assigned an id yet.
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

func judgePrincipal(sent keyserver.NewPrincipal, after *keyserver.Principal) (PrincipalSaved, error) {
	r := PrincipalSaved{Principal: after}
	switch {
	case after == nil:
		r.Detail = "the key server accepted the principal, but a fresh read does not show it"
	case after.Name != sent.Name || after.Type != sent.Type || !sameIDs(after.Roles, sent.Roles):
		r.Detail = "a fresh read shows another name, type or set of roles than sent"
	case !sameIdentity(after.Identity, sent.Identity):
		r.Detail = "a fresh read shows another issuer, subject or set of audiences than sent"
	default:
		r.Saved, r.Detail = true, "a fresh read shows all readable fields as sent"
		return r, nil
	}
	return r, fault.New(fault.NotSaved, "%s", r.Detail)
}

func sameIDs(a, b []keyserver.ID) bool {
	return slices.Equal(keyserver.NormalizeIDs(a), keyserver.NormalizeIDs(b))
}

func sameIdentity(a, b *keyserver.Identity) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Issuer == b.Issuer && a.Subject == b.Subject && slices.Equal(a.Audiences, b.Audiences)
}

// refuseUpdate returns an error for a change of a system-defined principal, because the key server would ignore the
// change silently. It also refuses a change of the caller's own principal: perhaps no other administrator could undo a
// mistake.
func refuseUpdate(by keyserver.Caller, p keyserver.Principal) error {
	if err := p.RefuseChange(); err != nil {
		return err
	}
	if p.Ref() == by.Principal || p.Ref() == by.Actor { // also in a delegated session, for both of its principals
		return fault.New(fault.OwnAccount, "principal %q is your own; ask another administrator", p.Name)
	}
	return nil
}
