package schema

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/canonical"
)

// JSON is any JSON object, in the canonical form of RFC 8785.
type JSON []byte

// MarshalJSON returns the object unchanged.
func (j JSON) MarshalJSON() ([]byte, error) { return j, nil }

// UnmarshalJSON converts the object into the canonical form. It refuses an object that has no canonical form.
func (j *JSON) UnmarshalJSON(text []byte) error {
	form, err := canonical.JSON(text)
	if err != nil {
		return err
	}
	*j = form
	return nil
}

// SHA256 is a digest in 64 hexadecimal digits.
type SHA256 [sha256.Size]byte

var errSHA256 = errors.New("must be 64 hexadecimal digits")

// MarshalText returns lower-case digits.
func (d SHA256) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d[:]), nil }

// UnmarshalText accepts digits of either case.
func (d *SHA256) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(d)) {
		return errSHA256
	}
	if _, err := hex.Decode(d[:], text); err != nil {
		return errSHA256
	}
	return nil
}

// RequestPath is the path of another route, with its query if it has one.
type RequestPath string

const maxRequestPath = 1024

var errRequestPath = errors.New("must begin with /api/ and have at most 1024 characters, of which each is printed and none is a space")

// UnmarshalText refuses text that is not a path of this API.
func (p *RequestPath) UnmarshalText(text []byte) error {
	if len(text) > maxRequestPath || !bytes.HasPrefix(text, []byte("/api/")) ||
		bytes.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' || r == '#' }) {
		return errRequestPath
	}
	*p = RequestPath(text)
	return nil
}
