package dpop

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

// parsed is what a proof says. Nothing in it is trusted before verify.
type parsed struct {
	alg        algorithm
	thumbprint string

	method, uri, id string
	tokenHash       string // empty where there is no ath
	issuedAt        time.Time
}

// read reads the compact form (RFC 7515 section 7.1).
func read(text string) (*parsed, error) {
	if len(text) > MaxBytes {
		return nil, malformed("longer than " + strconv.Itoa(MaxBytes) + " bytes")
	}
	parts := strings.SplitN(text, ".", 4)
	if len(parts) != 3 {
		return nil, malformed("not three parts with dots between them")
	}
	var decoded [3][]byte
	for i, name := range []string{"the header", "the payload", "the signature"} {
		var ok bool
		if decoded[i], ok = decode(parts[i]); !ok {
			return nil, malformed(name + " is not base64url without padding, line breaks and stray bits")
		}
	}
	p := &parsed{}
	if err := p.readHeader(decoded[0]); err != nil {
		return nil, err
	}
	if err := p.readClaims(decoded[1]); err != nil {
		return nil, err
	}
	if len(decoded[2]) != p.alg.signature {
		return nil, errSignature
	}
	return p, nil
}

// decode takes the one canonical spelling. The decoder passes over line
// breaks, strict or not.
func decode(part string) ([]byte, bool) {
	if part == "" || strings.ContainsAny(part, "\r\n") {
		return nil, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(part)
	return b, err == nil
}

func (p *parsed) readHeader(text []byte) error {
	// b64 is crit's companion (RFC 7797): it would change what is signed.
	header, err := object(text, "the header", "typ", "alg", "jwk", "crit", "b64")
	if err != nil {
		return err
	}
	typ, _ := header.text("typ")
	name, _ := header.text("alg")
	alg, known := algorithms[name]
	switch {
	case header["crit"] != nil || header["b64"] != nil:
		return malformed("the header has crit or b64, and no extension is understood")
	case typ != "dpop+jwt":
		return malformed("typ is not dpop+jwt")
	case !known:
		return malformed("alg is none of " + Algorithms)
	case header["jwk"] == nil:
		return malformed("jwk is missing")
	}
	p.alg = alg
	return p.readKey(header["jwk"])
}

func (p *parsed) readClaims(text []byte) error {
	claims, err := object(text, "the payload", "htm", "htu", "iat", "jti", "ath")
	if err != nil {
		return err
	}
	for name, into := range map[string]*string{"htm": &p.method, "htu": &p.uri, "jti": &p.id, "ath": &p.tokenHash} {
		value, ok := claims.text(name)
		if absent := claims[name] == nil && name == "ath"; !absent && (!ok || value == "") {
			return malformed(name + " is missing or not text")
		}
		*into = value
	}
	if len(p.id) > maxID {
		return malformed("jti is longer than " + strconv.Itoa(maxID) + " bytes")
	}
	if p.issuedAt, err = claims.time("iat"); err != nil {
		return err
	}
	return nil
}

// values are the members of an object that matter.
type values map[string]jsontext.Value

// object reads a JSON object whose names, at any depth, are there once. A
// known name in another case is refused, because other readers would take it
// for the name; whatever else is there is passed over, as RFC 9449 asks.
func object(text []byte, what string, known ...string) (values, error) {
	d := jsontext.NewDecoder(bytes.NewReader(text))
	bad := malformed(what + " is not one JSON object with each name once")
	if start, err := d.ReadToken(); err != nil || start.Kind() != '{' {
		return nil, bad
	}
	found := values{}
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
			return nil, malformed(what + " has a name that differs from a known one by its case")
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

// text returns a member that is text.
func (v values) text(name string) (string, bool) {
	if v[name].Kind() != '"' {
		return "", false
	}
	b, err := jsontext.AppendUnquote(nil, v[name])
	return string(b), err == nil
}

// maxSeconds is far beyond any proof, and small enough for a float to count
// microseconds.
const maxSeconds = 1 << 33

// time returns a member that is a NumericDate (RFC 7519), which may have a fraction.
func (v values) time(name string) (time.Time, error) {
	seconds, err := strconv.ParseFloat(string(v[name]), 64)
	if v[name].Kind() != '0' || err != nil || seconds < 0 || seconds > maxSeconds {
		return time.Time{}, malformed(name + " is missing or not a time in seconds")
	}
	return time.UnixMicro(int64(math.Floor(seconds * 1e6))), nil
}
