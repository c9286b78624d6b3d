package jws

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"
)

func TestTexts(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"Absent": {`{}`, nil}, "Null": {`{"aud":null}`, nil}, "Number": {`{"aud":1}`, nil}, "Object": {`{"aud":{"a":"b"}}`, nil},
		"EmptyList": {`{"aud":[]}`, nil}, "Mixed": {`{"aud":["a",1]}`, nil}, "Nested": {`{"aud":[["a"]]}`, nil}, "TooMany": {`{"aud":["a","b","c","d"]}`, nil},
		"One": {`{"aud":"a"}`, []string{"a"}}, "List": {`{"aud":["a","b"]}`, []string{"a", "b"}}, "Escaped": {`{"aud":["\u0061"]}`, []string{"a"}},
		"Most": {`{"aud":["a","b","c"]}`, []string{"a", "b", "c"}}, "Empty": {`{"aud":""}`, []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := Object([]byte(tc.text), "the payload", "aud")
			if err != nil {
				t.Fatal(err)
			}
			if got, ok := m.Texts("aud", 3); ok != (tc.want != nil) || !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestNothingIsQuoted checks that errors name the invalid part, but do not contain the content of the object.
func TestNothingIsQuoted(t *testing.T) {
	secret := base64.RawURLEncoding.EncodeToString([]byte(`{"planted":"a secret"}`))
	for _, text := range []string{"", secret, secret + "." + secret, secret + "=." + secret + "." + secret, strings.Repeat(secret, 100)} {
		if _, err := Split(text, 1000); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{`["planted"]`, `{"planted":1,"planted":2}`, `{"planted":1} planted`, `{"planted":{"a":1,"a":2}}`, `{"AUD":"planted"}`} {
		if _, err := Object([]byte(text), "the payload", "aud"); err == nil || strings.Contains(err.Error(), "planted") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
