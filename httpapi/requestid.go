package httpapi

import (
	"encoding/hex"
	"io"
	"net/http"
	"unicode/utf8"

	"github.com/keyserver-operator/keyserver-operator/internal/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

const maxRequestID = 64

// requestID takes over the client's id where it can be shown anywhere without
// harm, and draws one otherwise.
func (a *API) requestID(r *http.Request) string {
	if v := r.Header["X-Request-Id"]; len(v) == 1 && plainID(v[0]) {
		return v[0]
	}
	var b [12]byte
	if _, err := io.ReadFull(a.Random, b[:]); err != nil {
		return "none"
	}
	return hex.EncodeToString(b[:])
}

const maxPurpose = 256

// purpose is what a request says that it is made for. It goes to the audit trail
// as it is, so it has to be something that can be read there.
func purpose(sent []string) (string, error) {
	if len(sent) == 0 {
		return "", nil
	}
	s := sent[0]
	if len(sent) > 1 || utf8.RuneCountInString(s) > maxPurpose || !keyserver.Printable(s) {
		return "", fault.New(fault.BadRequest, "the header X-Keyserver-For must be one line of at most %d printable characters", maxPurpose)
	}
	return s, nil
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
