package processes

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"
)

// patience is far longer than anything here takes.
const patience = time.Minute

// object is a JSON object of the wire.
type object = map[string]any

// answer is a response as a client sees it.
type answer struct {
	status    int
	header    http.Header
	body      object
	requestID string
}

func (a answer) text(field string) string { s, _ := a.body[field].(string); return s }

func (a answer) list(field string) []object {
	raw, _ := a.body[field].([]any)
	list := make([]object, len(raw))
	for i, v := range raw {
		list[i], _ = v.(object)
	}
	return list
}

// brief is "OK", or the code of a refusal.
func (a answer) brief() string {
	if a.status == http.StatusOK {
		return "OK"
	}
	return a.text("code")
}

// try makes one request under a request id. body is nil or becomes JSON.
func (s *site) try(ctx context.Context, id, session, method, path string, body any) (answer, error) {
	var content bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&content).Encode(body); err != nil {
			return answer{}, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "https://127.0.0.1:1"+path, &content)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("X-Request-Id", id)
	if session != "" {
		req.Header.Set("Authorization", "Bearer "+session)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode, header: resp.Header, requestID: id}
	return a, json.NewDecoder(resp.Body).Decode(&a.body)
}

func (s *site) send(t testing.TB, session, method, path string, body any) answer {
	t.Helper()
	a, err := s.try(t.Context(), rand.Text(), session, method, path, body)
	if err != nil {
		t.Fatalf("%s %s at %d: %v\n%s", method, path, s.system, err, s.server.Log())
	}
	return a
}

// ok makes a request that has to succeed.
func (s *site) ok(t testing.TB, session, method, path string, body any) answer {
	t.Helper()
	a := s.send(t, session, method, path, body)
	if a.status != http.StatusOK {
		t.Fatalf("%s %s at %d: got %d %v", method, path, s.system, a.status, a.body)
	}
	return a
}

// refused makes a request that has to be refused with that code.
func (s *site) refused(t testing.TB, session, path string, body any, code string) answer {
	t.Helper()
	a := s.send(t, session, "POST", path, body)
	if a.brief() != code {
		t.Errorf("%s at %d: got %d %v, want %s", path, s.system, a.status, a.body, code)
	}
	return a
}

// pending is a request that is under way.
type pending struct {
	id   string
	done chan answer
	err  error // once done is closed without an answer
}

func (s *site) begin(t testing.TB, session, path string, body any) *pending {
	t.Helper()
	p := &pending{id: rand.Text(), done: make(chan answer, 1)}
	ctx := t.Context()
	go func() {
		defer close(p.done)
		var a answer
		if a, p.err = s.try(ctx, p.id, session, "POST", path, body); p.err == nil {
			p.done <- a
		}
	}()
	return p
}

func (p *pending) wait(t testing.TB) answer {
	t.Helper()
	a, ok := <-p.done
	if !ok {
		t.Fatalf("no answer at all: %v", p.err)
	}
	return a
}

// rows are those of the audit trail with a request id.
func (s *site) rows(t testing.TB, requestID string) []object {
	t.Helper()
	var found []object
	for query := "?limit=1000"; ; {
		a := s.ok(t, s.admin, "GET", "/api/audit"+query, nil)
		for _, row := range a.list("entries") {
			if row["requestId"] == requestID {
				found = append(found, row)
			}
		}
		next := number(a.body["next"])
		if next == "" {
			return found
		}
		query = "?limit=1000&cursor=" + next
	}
}

// trail spells the rows of a request id.
func (s *site) trail(t testing.TB, requestID string) string {
	t.Helper()
	var out []string
	for _, r := range s.rows(t, requestID) {
		one := fmt.Sprintf("%v %v", r["operation"], r["outcome"])
		if reason, _ := r["reason"].(string); reason != "" {
			one += " " + reason
		}
		out = append(out, one)
	}
	return fmt.Sprintf("%q", out)
}

// number spells a JSON number without exponent, and what is none as nothing.
func number(v any) string {
	switch n := v.(type) {
	case float64:
		return strconv.FormatInt(int64(n), 10)
	case string:
		return n
	}
	return ""
}

// soon waits until a condition holds.
func soon(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("never came about: %s", what)
}

// unavailable checks that an answer says when to come back.
func unavailable(t testing.TB, a answer) {
	t.Helper()
	after, err := strconv.Atoi(a.header.Get("Retry-After"))
	if a.status != http.StatusServiceUnavailable || a.text("code") != "PEER_UNAVAILABLE" || a.body["retryable"] != true ||
		a.body["scope"] != "process" || err != nil || after < 1 {
		t.Errorf("got %d %v, Retry-After %q", a.status, a.body, a.header.Get("Retry-After"))
	}
}

func messageOf(length int) []byte {
	m := make([]byte, length)
	for i := range m {
		m[i] = byte(i * 7)
	}
	return m
}

func hmacOf(ttag string, message []byte) object {
	return object{"hiddenLink": ttag, "data": base64.StdEncoding.EncodeToString(message)}
}

// macOf is what an HMAC has to be.
func macOf(message []byte) string {
	h := hmac.New(sha512.New384, []byte(material))
	h.Write(message)
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}
