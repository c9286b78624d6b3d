// Package jws reads signed JOSE objects in their compact form (RFC 7515) before
// a library verifies the signature. Libraries read duplicate names, names in
// another case, line breaks inside base64url and stray bits as if nothing were
// wrong; here each byte has to be what the RFCs say, so that no two readers can
// understand one object differently. It trusts nothing and verifies nothing.
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

// Malformed names the part of an object that is wrong, and never what it holds.
type Malformed string

// Error implements error.
func (m Malformed) Error() string { return string(m) }

// Parts are the three decoded parts of the compact form.
type Parts struct{ Header, Payload, Signature []byte }

// Split reads the compact form (RFC 7515 section 7.1) of at most so many bytes.
func Split(text string, most int) (Parts, error) {
	if len(text) > most {
		return Parts{}, Malformed("longer than " + strconv.Itoa(most) + " bytes")
	}
	parts := strings.SplitN(text, ".", 4)
	if len(parts) != 3 {
		return Parts{}, Malformed("not three parts with dots between them")
	}
	var decoded [3][]byte
	for i, name := range []string{"the header", "the payload", "the signature"} {
		var ok bool
		if decoded[i], ok = Decode(parts[i]); !ok {
			return Parts{}, Malformed(name + " is not base64url without padding, line breaks and stray bits")
		}
	}
	return Parts{Header: decoded[0], Payload: decoded[1], Signature: decoded[2]}, nil
}

// Decode takes the one canonical spelling of at least one byte. The decoder
// passes over line breaks, strict or not.
func Decode(part string) ([]byte, bool) {
	if part == "" || strings.ContainsAny(part, "\r\n") {
		return nil, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(part)
	return b, err == nil
}

// Members are the members of an object that matter.
type Members map[string]jsontext.Value

// Object reads a JSON object whose names, at any depth, are there once. A
// known name in another case is refused, because other readers would take it
// for the name; whatever else is there is passed over, as the RFCs ask. what
// names the object in an error.
func Object(text []byte, what string, known ...string) (Members, error) {
	d := jsontext.NewDecoder(bytes.NewReader(text))
	bad := Malformed(what + " is not one JSON object with each name once")
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
			return nil, Malformed(what + " has a name that differs from a known one by its case")
		}
	}
	if _, err := d.ReadToken(); err != nil { // the closing brace, or why there is none
		return nil, bad
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, bad
	}
	return found, nil
}

// Has reports whether a member is there, null included.
func (m Members) Has(name string) bool { return m[name] != nil }

// Text returns a member that is text.
func (m Members) Text(name string) (string, bool) { return text(m[name]) }

func text(v jsontext.Value) (string, bool) {
	if v.Kind() != '"' {
		return "", false
	}
	b, err := jsontext.AppendUnquote(nil, v)
	return string(b), err == nil
}

// Texts returns a member that is text, or an array of one to most texts, as
// RFC 7519 has it for aud.
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

// maxSeconds is far beyond any time that matters, and small enough for a float
// to count microseconds.
const maxSeconds = 1 << 33

// Time returns a member that is a NumericDate (RFC 7519), which may have a
// fraction.
func (m Members) Time(name string) (time.Time, bool) {
	seconds, err := strconv.ParseFloat(string(m[name]), 64)
	if m[name].Kind() != '0' || err != nil || seconds < 0 || seconds > maxSeconds {
		return time.Time{}, false
	}
	return time.UnixMicro(int64(math.Floor(seconds * 1e6))), true
}
