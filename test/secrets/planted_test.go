package secrets

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// planted has the secret values that no output may contain, with their descriptions.
type planted struct {
	mu     sync.Mutex
	values map[string]string
}

// draw returns a random secret, which no other text contains.
func draw(t *testing.T, bytes int) []byte {
	t.Helper()
	b := make([]byte, bytes)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return b
}

// word returns a secret of printable characters.
func word(t *testing.T) string { return "Secret-" + base64.RawURLEncoding.EncodeToString(draw(t, 18)) }

func (p *planted) add(what, value string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.values[value]; !known {
		p.values[value] = what
	}
}

// all returns a copy, because concurrent requests add values.
func (p *planted) all() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.values)
}

// spellings returns the encodings in which a careless log line could show a value.
func spellings(value string) []string {
	raw := []byte(value)
	numbers := make([]string, len(raw))
	for i, b := range raw {
		numbers[i] = fmt.Sprint(b)
	}
	return []string{
		value, fmt.Sprintf("%q", value), url.QueryEscape(value), url.PathEscape(value),
		hex.EncodeToString(raw), strings.ToUpper(hex.EncodeToString(raw)),
		base64.StdEncoding.EncodeToString(raw), base64.URLEncoding.EncodeToString(raw), base64.RawURLEncoding.EncodeToString(raw),
		strings.Join(numbers, " "), strings.Join(numbers, ","), strings.Join(numbers, ", "),
	}
}

// nowhere fails the test if a text contains a planted value.
func (p *planted) nowhere(t *testing.T, where string, text []byte) {
	t.Helper()
	for value, what := range p.all() {
		for _, s := range spellings(value) {
			if i := bytes.Index(text, []byte(s)); i >= 0 {
				t.Errorf("%s shows the %s, at %d of %d bytes", where, what, i, len(text))
				break
			}
		}
	}
}

func TestASpellingIsFound(t *testing.T) {
	for _, text := range []string{"a s3cret+/ b", `"s3cret+/"`, "q=s3cret%2B%2F&", "s3cret+%2F", "7333637265742b2f", "czNjcmV0Ky8=", "[115 51 99 114 101 116 43 47]"} {
		found := false
		for _, s := range spellings("s3cret+/") {
			found = found || strings.Contains(text, s)
		}
		if !found {
			t.Errorf("not found in %s", text)
		}
	}
}
