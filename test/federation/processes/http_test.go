package processes

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha512"
	"encoding/base64"
	"net/http"
	"strconv"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// pending is a request in flight.
type pending struct {
	id   string
	done chan rig.Answer
	err  error // set when done is closed without a response
}

func (s *site) begin(t testing.TB, session, path string, body any) *pending {
	t.Helper()
	p := &pending{id: rand.Text(), done: make(chan rig.Answer, 1)}
	ctx := t.Context()
	go func() {
		defer close(p.done)
		var a rig.Answer
		if a, p.err = s.Try(ctx, rig.Request{ID: p.id, Session: session, Method: http.MethodPost, Path: path, Body: body}); p.err == nil {
			p.done <- a
		}
	}()
	return p
}

func (p *pending) wait(t testing.TB) rig.Answer {
	t.Helper()
	a, ok := <-p.done
	if !ok {
		t.Fatalf("no answer at all: %v", p.err)
	}
	return a
}

// trail formats the audit rows of a request id.
func (s *site) trail(t testing.TB, requestID string) string {
	t.Helper()
	return rig.FormatRows(s.Rows(t, requestID))
}

// unavailable checks that a response says when to retry.
func unavailable(t testing.TB, a rig.Answer) {
	t.Helper()
	after, err := strconv.Atoi(a.Header.Get("Retry-After"))
	if a.Status != http.StatusServiceUnavailable || a.Code() != "PEER_UNAVAILABLE" || a.Body["retryable"] != true ||
		a.Body["scope"] != "process" || err != nil || after < 1 {
		t.Errorf("got %d %v, Retry-After %q", a.Status, a.Body, a.Header.Get("Retry-After"))
	}
}

func messageOf(length int) []byte {
	m := make([]byte, length)
	for i := range m {
		m[i] = byte(i * 7)
	}
	return m
}

func hmacOf(ttag string, message []byte) rig.Object {
	return rig.Object{"hiddenLink": ttag, "data": base64.StdEncoding.EncodeToString(message)}
}

func macOf(message []byte) string {
	h := hmac.New(sha512.New384, []byte(material))
	h.Write(message)
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}
