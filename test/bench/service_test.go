package bench

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig/rawhttp"
)

// service is a real "serve" process on an embedded database, with a session and a key.
type service struct {
	binary program.Program
	server *program.Server
	token  string
	link   string
}

// key is imported, so that the correct responses are known.
var key = bytes.Repeat([]byte{0x5a}, 48)

func startService(tb testing.TB, symbols bool) *service {
	tb.Helper()
	binary, err := program.Build(symbols)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = binary.Remove() })
	return startProcess(tb, binary)
}

func startProcess(tb testing.TB, binary program.Program, args ...string) *service {
	tb.Helper()
	server, err := binary.Serve(tb.TempDir()+"/data", args...)
	if err != nil {
		tb.Fatal(err)
	}
	return openService(tb, binary, server)
}

// openService logs in at a new key server and imports the key.
func openService(tb testing.TB, binary program.Program, server *program.Server) *service {
	tb.Helper()
	s := &service{binary: binary, server: server}
	tb.Cleanup(func() { s.server.Kill() })
	password, err := s.server.Password()
	if err != nil {
		tb.Fatal(err)
	}
	var session struct{ SessionID string }
	s.call(tb, "/api/sessions", map[string]string{"method": "password", "name": "admin", "password": password}, &session)
	s.token = session.SessionID
	var made struct{ TTag string }
	s.call(tb, "/api/keys", map[string]any{"algorithm": "HMAC-SHA384", "material": key}, &made)
	s.link = made.TTag
	return s
}

// restart starts a new process. It has not handled a login yet, so that its memory does not include password hashing.
func (s *service) restart(tb testing.TB, args ...string) {
	tb.Helper()
	err := s.server.Stop()
	if err != nil {
		tb.Fatal(err)
	}
	if s.server, err = s.binary.Serve(s.server.DataDir, args...); err != nil {
		tb.Fatal(err)
	}
}

func (s *service) call(tb testing.TB, path string, body, out any) {
	tb.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		tb.Fatal(err)
	}
	transport := program.Connect(tb, s.server.DataDir, func() string { return s.server.Address })
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, program.BaseURL+path, bytes.NewReader(text))
	if err != nil {
		tb.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	resp, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		tb.Fatalf("%s is answered %s", path, resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		tb.Fatal(err)
	}
}

// size is a message length.
type size struct {
	name  string
	bytes int
}

var sizes = []size{{"64B", 64}, {"1KiB", 1 << 10}, {"64KiB", 64 << 10}, {"1MiB", 1 << 20}, {"16MiB", 16 << 20}}

func (s size) message() []byte { return bytes.Repeat([]byte("0123456789abcde\n"), s.bytes/16) }

// body returns the JSON of a request for an HMAC.
func (s *service) body(z size) []byte {
	return fmt.Appendf(nil, `{"hiddenLink":%q,"data":%q}`, s.link, base64.StdEncoding.EncodeToString(z.message()))
}

func (s *service) hmac(z size) (rawhttp.Exchange, error) {
	mac := hmac.New(sha512.New384, key)
	mac.Write(z.message())
	want, err := json.Marshal(schema.HMACResponse{Algorithm: "HMAC-SHA384", MAC: mac.Sum(nil), MACBytes: 48})
	return rawhttp.Exchange{Request: rawhttp.Post("/api/crypto/hmac", s.token, s.body(z)), Answer: append(want, '\n')}, err
}
