package urltext_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/urltext"
)

func TestRedact(t *testing.T) {
	for text, want := range map[string]string{
		"no URL at all: 1/2?3":                     "no URL at all: 1/2?3",
		"https://siem.example":                     "https://siem.example",
		"https://siem.example:8443/hook/secret":    "https://siem.example:8443",
		"https://siem.example?token=secret":        "https://siem.example",
		"https://siem.example#secret":              "https://siem.example",
		"https://user:secret@siem.example/x":       "https://siem.example",
		"https://user:se@cret@siem.example/x":      "https://siem.example",
		"postgres://user:se/cret@db.example/keys":  "postgres://",
		"https://[2001:db8::1]:8443/secret":        "https://[2001:db8::1]:8443",
		"https://[2001:db8::1], which":             "https://[2001:db8::1], which",
		`Post "https://siem.example/secret": EOF`:  `Post "https://siem.example": EOF`,
		"at https://siem.example/secret; drop one": "at https://siem.example; drop one",
		"(https://siem.example/secret).":           "(https://siem.example).",
		"s3://bucket/secret?region=x s3://b":       "s3://bucket s3://b",
		"file:///secret/directory":                 "file://",
		"no agent at unix:///run/agent.sock: gone": "no agent at unix:///run/agent.sock: gone",
		"kmsv2:///secret/plugin.sock":              "kmsv2://",
		"base64key://c2VjcmV0c2VjcmV0c2VjcmV0/+=":  "base64key://",
		"https://a.example/secrethttps://b/secret": "https://a.example",
		"HTTPS://Siem.Example/secret":              "HTTPS://Siem.Example",
		"https://siem.example\\secret":             "https://siem.example",
		"https://siem.example=secret+01234567+key": "https://siem.example",
	} {
		if got := urltext.Redact(text); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestOrigin(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "",
		"host":                         "",
		"file:///dir":                  "",
		"base64key://c2VjcmV0":         "",
		"https://u:p@host:1/path?q#f":  "https://host:1",
		"s3://bucket?region=eu-west-1": "s3://bucket",
	} {
		if got := urltext.Origin(text); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

// TestLogLinesAreRedacted checks that log lines contain only the scheme and the host of a URL, in any place.
func TestLogLinesAreRedacted(t *testing.T) {
	const secret = "https://u:hunter2@host/hunter2?q=hunter2"
	at, err := url.Parse(secret)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{ReplaceAttr: urltext.Attr}))
	logger.With("with", secret).WithGroup("group").Warn(secret, "text", secret, "error", fmt.Errorf("to: %w", errors.New(secret)),
		"url", at, "list", []string{secret}, slog.Group("inner", "text", secret))
	if strings.Contains(out.String(), "hunter2") || strings.Count(out.String(), "https://host") != 7 {
		t.Error(out.String())
	}
}

func TestError(t *testing.T) {
	if urltext.Error(nil) != nil {
		t.Error("no error became one")
	}
	err := urltext.Error(fmt.Errorf("https://host/hunter2: %w", fs.ErrExist))
	if !errors.Is(err, fs.ErrExist) || err.Error() != "https://host: file already exists" {
		t.Error(err)
	}
}
