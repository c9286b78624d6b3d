package httpapi

import (
	"encoding/hex"
	"io"
	"net/http"
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
