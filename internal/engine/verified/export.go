package verified

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// jweDots is the number of dots between the parts of a compact JWE.
const jweDots = 4

// ExportKey exports a key, encrypted for a transport principal. It discards a response that is not a compact JWE for
// the requested principal, because the response could contain the plain key.
func (s *Service) ExportKey(ctx context.Context, by keyserver.Caller, x keyserver.KeyExport) (keyserver.ExportedKey, error) {
	if err := requireLink("ttag", x.Link); err != nil {
		return keyserver.ExportedKey{}, err
	}
	if err := requireID("principalId", x.Recipient.ID); err != nil {
		return keyserver.ExportedKey{}, err
	}
	out, err := s.ks.ExportKey(ctx, by, x)
	if err != nil {
		return keyserver.ExportedKey{}, err
	}
	if out.Recipient.Ref() != x.Recipient || !isCompactJWE(out.JWE) {
		return keyserver.ExportedKey{}, fault.New(fault.OpFailed, "the key server's response is not the key encrypted for the requested principal, so it was discarded")
	}
	return out, nil
}

// isCompactJWE reports whether text has five parts in base64url, separated by dots.
func isCompactJWE(text string) bool {
	dots := 0
	for _, c := range text {
		switch {
		case c == '.':
			dots++
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return dots == jweDots
}
