package httpapi

import (
	"context"
	"encoding/hex"
	"io"
	"time"
	"unicode/utf8"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

const maxRequestID = 64

// requestID returns the client's request id if it is safe to display anywhere, and a
// random one otherwise.
func (x *exchange) requestID() string {
	if v := x.r.Header["X-Request-Id"]; len(v) == 1 && plainID(v[0]) {
		return v[0]
	}
	if _, err := io.ReadFull(x.api.Random, x.random[:]); err != nil {
		return "none"
	}
	return hex.EncodeToString(x.random[:])
}

const maxPurpose = 256

// purpose returns the purpose that a request states in its header. It is written
// unchanged to the audit log, so it must be printable.
func purpose(sent []string) (string, error) {
	if len(sent) == 0 {
		return "", nil
	}
	s := sent[0]
	if len(sent) > 1 || utf8.RuneCountInString(s) > maxPurpose || !keyserver.Printable(s) {
		return "", fault.New(fault.BadRequest, "X-Keyserver-For: must be one line of at most %d printable characters", maxPurpose)
	}
	return s, nil
}

// owned returns the request's context with the owner mark for the objects that the
// request creates (header X-Keyserver-Owner).
func (x *exchange) owned(ctx context.Context) (context.Context, error) {
	sent := x.r.Header["X-Keyserver-Owner"]
	switch {
	case len(sent) == 0:
		return ctx, nil
	case x.route.Makes == "":
		return ctx, fault.New(fault.BadRequest, "X-Keyserver-Owner: is only for calls that create objects with owner marks, and %s creates none; leave it out", x.route.Name)
	case len(sent) > 1 || !keyserver.ValidOwner(sent[0]):
		return ctx, fault.New(fault.BadRequest, "X-Keyserver-Owner: must be one line of at most %d printable characters", keyserver.MaxOwner)
	}
	return keyserver.WithOwnerMark(ctx, keyserver.OwnerMark{
		Object: keyserver.Object{Kind: x.route.Makes}, Owner: sent[0], Since: x.start.UTC().Truncate(time.Microsecond),
	}), nil
}

func plainID(s string) bool {
	if s == "" || len(s) > maxRequestID {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}
