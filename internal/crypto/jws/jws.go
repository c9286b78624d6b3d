// Package jws parses signed JOSE objects in the compact serialization (RFC 7515) before a library verifies the
// signature. Libraries silently accept duplicate names, names in another case, line breaks inside base64url and unused
// bits. This package accepts only what the RFCs allow, so that all parsers understand an object in the same way. It
// does not verify signatures.
package jws

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Malformed is an error that names the invalid part of a JOSE object. It does not contain the object's content.
type Malformed string

func (m Malformed) Error() string { return string(m) }

// Parts contains the decoded parts of the compact serialization.
type Parts struct{ Header, Payload, Signature []byte }

// Split parses the compact serialization (RFC 7515 section 7.1). It rejects a text with more bytes than most.
func Split(text string, most int) (Parts, error) {
	if len(text) > most {
		return Parts{}, Malformed("longer than " + strconv.Itoa(most) + " bytes")
	}
	parts := strings.SplitN(text, ".", 4)
	if len(parts) != 3 {
		return Parts{}, Malformed("it must have three parts, separated by dots")
	}
	var decoded [3][]byte
	for i, name := range []string{"the header", "the payload", "the signature"} {
		var ok bool
		if decoded[i], ok = Decode(parts[i]); !ok {
			return Parts{}, Malformed(name + " must be base64url without padding, line breaks and extra bits")
		}
	}
	return Parts{Header: decoded[0], Payload: decoded[1], Signature: decoded[2]}, nil
}

// Decode decodes canonical base64url. It rejects an empty text. It also rejects line breaks, because the decoder
// ignores them even in strict mode.
func Decode(part string) ([]byte, bool) {
	if part == "" || strings.ContainsAny(part, "\r\n") {
		return nil, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(part)
	return b, err == nil
}

// Members contains the known members of a JSON object by name.
type Members map[string]jsontext.Value

// Object parses a JSON object without duplicate names at any depth. It rejects a known name in another case, because
// other parsers would accept it. It ignores unknown names, as the RFCs require. Errors use what as the name of the
// object.
func Object(text []byte, what string, known ...string) (Members, error) {
	d := jsontext.NewDecoder(bytes.NewReader(text))
	bad := Malformed(what + " must be one JSON object without duplicate names")
	if start, err := d.ReadToken(); err != nil || start.Kind() != '{' {
		return nil, bad
	}
	found := Members{}
	for d.PeekKind() == '"' {
		token, err := d.ReadToken()
		if err != nil {
			return nil, bad
		}
		name := token.String()
		value, err := d.ReadValue()
		switch {
		case err != nil:
			return nil, bad
		case slices.Contains(known, name):
			found[name] = value.Clone()
		case slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, name) }):
			return nil, Malformed(what + " has a name that differs from a known name only in upper and lower case")
		}
	}
	if _, err := d.ReadToken(); err != nil { // reads the closing brace, or returns an error if it is missing
		return nil, bad
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, bad
	}
	return found, nil
}

// Has reports whether a member exists, even if its value is null.
func (m Members) Has(name string) bool { return m[name] != nil }

// Text returns the value of a member if it is a string.
func (m Members) Text(name string) (string, bool) { return text(m[name]) }

func text(v jsontext.Value) (string, bool) {
	if v.Kind() != '"' {
		return "", false
	}
	b, err := jsontext.AppendUnquote(nil, v)
	return string(b), err == nil
}

// Texts returns the value of a member if it is a string or an array of 1 to most strings, like aud in RFC 7519.
func (m Members) Texts(name string, most int) ([]string, bool) {
	if one, ok := m.Text(name); ok {
		return []string{one}, true
	}
	if m[name].Kind() != '[' {
		return nil, false
	}
	var list []string
	d := jsontext.NewDecoder(bytes.NewReader(m[name]))
	if _, err := d.ReadToken(); err != nil {
		return nil, false
	}
	for d.PeekKind() != ']' {
		v, err := d.ReadValue()
		if err != nil || len(list) == most {
			return nil, false
		}
		one, ok := text(v)
		if !ok {
			return nil, false
		}
		list = append(list, one)
	}
	return list, len(list) > 0
}

// maxSeconds is later than any useful time. It is small enough that a float64 can represent each microsecond.
const maxSeconds = 1 << 33

// Time returns the value of a member if it is a NumericDate (RFC 7519), which may have a fraction.
func (m Members) Time(name string) (time.Time, bool) {
	seconds, err := strconv.ParseFloat(string(m[name]), 64)
	if m[name].Kind() != '0' || err != nil || seconds < 0 || seconds > maxSeconds {
		return time.Time{}, false
	}
	return time.UnixMicro(int64(math.Floor(seconds * 1e6))), true
}
