package verified

import (
	"context"
	"unicode/utf8"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// maxFilename is the maximum length in bytes of the file name in an authorization.
const maxFilename = 1024

// MintKey creates or imports a key and returns its metadata. If the imported bytes have a wrong length for the
// algorithm, it sends no request.
func (s *Service) MintKey(ctx context.Context, by keyserver.Caller, key keyserver.NewKey) (keyserver.KeyMetadata, error) {
	info, ok := keyserver.Algorithms[key.Algorithm]
	if !ok {
		return keyserver.KeyMetadata{}, fault.New(fault.BadRequest, "algorithm: must be %s or %s", keyserver.HMACSHA384, keyserver.AES256)
	}
	if n := len(key.Material); key.Material != nil && (n < info.MinLen || n > info.MaxLen) {
		if info.MinLen == info.MaxLen {
			return keyserver.KeyMetadata{}, fault.New(fault.BadRequest, "material: must be %d bytes for %s", info.MinLen, key.Algorithm)
		}
		return keyserver.KeyMetadata{}, fault.New(fault.BadRequest, "material: must be %d to %d bytes for %s", info.MinLen, info.MaxLen, key.Algorithm)
	}
	if key.Path != "" {
		if err := refusePath(key.Path); err != nil {
			return keyserver.KeyMetadata{}, err
		}
	}
	return s.ks.MintKey(ctx, by, key)
}

// Key reads key metadata.
func (s *Service) Key(ctx context.Context, by keyserver.Caller, link keyserver.HiddenLink) (keyserver.KeyMetadata, error) {
	if err := requireLink("ttag", link); err != nil {
		return keyserver.KeyMetadata{}, err
	}
	return s.ks.Key(ctx, by, link)
}

// AuthorizeKey checks whether the caller may use the key. It may count a use.
func (s *Service) AuthorizeKey(ctx context.Context, by keyserver.Caller, use keyserver.Use) (keyserver.Grant, error) {
	if err := requireLink("ttag", use.Link); err != nil {
		return keyserver.Grant{}, err
	}
	if len(use.Filename) > maxFilename || !utf8.ValidString(use.Filename) {
		return keyserver.Grant{}, fault.New(fault.BadRequest, "filename: must be valid UTF-8 of at most %d bytes", maxFilename)
	}
	return s.ks.AuthorizeKey(ctx, by, use)
}

// Entitled returns an error unless the caller may begin the operation. It checks the caller and its roles, but not the
// object of the operation.
func (s *Service) Entitled(ctx context.Context, by keyserver.Caller, op keyserver.Operation) error {
	return s.ks.Entitled(ctx, by, op)
}

// HMAC computes the HMAC-SHA384 of the message with the key.
func (s *Service) HMAC(ctx context.Context, by keyserver.Caller, r keyserver.HMACRequest) ([keyserver.MACSize]byte, error) {
	if err := requireLink("hiddenLink", r.Link); err != nil {
		return [keyserver.MACSize]byte{}, err
	}
	return s.ks.HMAC(ctx, by, r)
}
