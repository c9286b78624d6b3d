package server_test

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
)

// TestAnswersToWhatIsHardlyHTTP checks responses to malformed HTTP. If no route can be determined, Go's HTTP library
// responds with a line of text; docs/api.md lists these cases. All other responses are JSON with code and detail.
func TestAnswersToWhatIsHardlyHTTP(t *testing.T) {
	s := testserver.Start(t)
	address := strings.TrimPrefix(s.URL(), "https://")
	ask := func(t *testing.T, request string) (*http.Response, string) {
		t.Helper()
		conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: s.Pool(t), MinVersion: tls.VersionTLS13, ServerName: "127.0.0.1"})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			_, _ = io.Copy(conn, strings.NewReader(request)) // the server may close the connection early
		}()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if reset := (*net.OpError)(nil); err != nil && !errors.As(err, &reset) {
			t.Fatal(err)
		}
		conn.Close()
		<-sent
		return resp, string(body)
	}
	const host = "Host: x\r\n"
	for name, tc := range map[string]struct {
		request string
		status  int
		code    string // expected error code; empty: a line of text
	}{
		"Percent":      {"GET /api/%zz HTTP/1.1\r\n" + host + "\r\n", 400, ""},
		"NoPath":       {"GET api HTTP/1.1\r\n" + host + "\r\n", 400, ""},
		"LongURL":      {"GET /api/" + strings.Repeat("a", 100<<10) + " HTTP/1.1\r\n" + host + "\r\n", 431, ""},
		"ManyHeaders":  {"GET /api/health HTTP/1.1\r\n" + host + strings.Repeat("a: b\r\n", 5000) + "\r\n", 431, ""},
		"BadHeader":    {"GET /api/health HTTP/1.1\r\n" + host + "a b\r\n\r\n", 400, ""},
		"Encoding":     {"POST /api/sessions HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip\r\n\r\n", 501, ""},
		"TwoLengths":   {"POST /api/sessions HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}", 400, ""},
		"NoHost":       {"GET /api/health HTTP/1.1\r\n\r\n", 400, ""},
		"BadHost":      {"GET /api/health HTTP/1.1\r\nHost: a b\r\n\r\n", 400, ""},
		"Version":      {"GET /api/health HTTP/7.0\r\n" + host + "\r\n", 505, ""},
		"Expect":       {"POST /api/sessions HTTP/1.1\r\n" + host + "Expect: x\r\nContent-Length: 0\r\n\r\n", 417, ""},
		"OldHTTP":      {"GET /api/nothing HTTP/1.0\r\n\r\n", 404, "NOT_FOUND"},
		"OtherHost":    {"GET /api/nothing HTTP/1.1\r\nHost: elsewhere.example\r\n\r\n", 404, "NOT_FOUND"},
		"LongPath":     {"GET /api/" + strings.Repeat("a", 8<<10) + " HTTP/1.1\r\n" + host + "\r\n", 404, "NOT_FOUND"},
		"Chunk":        {"POST /api/sessions HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", 400, "BAD_REQUEST"},
		"Star":         {"OPTIONS * HTTP/1.1\r\n" + host + "\r\n", 404, "NOT_FOUND"},
		"Method":       {"FETCH /api/health HTTP/1.1\r\n" + host + "\r\n", 405, "METHOD_NOT_ALLOWED"},
		"Connect":      {"CONNECT a:1 HTTP/1.1\r\n" + host + "\r\n", 404, "NOT_FOUND"},
		"AbsoluteForm": {"GET http://x/api/nothing HTTP/1.1\r\n" + host + "\r\n", 404, "NOT_FOUND"},
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := ask(t, tc.request)
			var out struct{ Code, Detail string }
			err := json.Unmarshal([]byte(body), &out)
			media := resp.Header.Get("Content-Type")
			if resp.StatusCode != tc.status || out.Code != tc.code {
				t.Errorf("got %d %s %.200q", resp.StatusCode, media, body)
			}
			if tc.code != "" && (err != nil || out.Detail == "" || !strings.HasPrefix(media, "application/json")) {
				t.Errorf("the answer is no JSON with code and detail: %s %.200q", media, body)
			}
			if tc.code == "" && (strings.HasPrefix(media, "application/json") || len(body) > 200) {
				t.Errorf("the answer is not a line of text: %s %.200q", media, body)
			}
		})
	}
}
