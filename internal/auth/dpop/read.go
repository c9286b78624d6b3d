package dpop

import (
	"strconv"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/jws"
)

// parsed is the content of a proof. It is untrusted until verify succeeds.
type parsed struct {
	alg        algorithm
	thumbprint string

	method, uri, id string
	tokenHash       string // empty if the proof has no ath
	issuedAt        time.Time
}

// read parses a proof in the compact serialization (RFC 7515 section 7.1).
func read(text string) (*parsed, error) {
	parts, err := jws.Split(text, MaxBytes)
	if err != nil {
		return nil, malformed(err.Error())
	}
	p := &parsed{}
	if err := p.readHeader(parts.Header); err != nil {
		return nil, err
	}
	if err := p.readClaims(parts.Payload); err != nil {
		return nil, err
	}
	if len(parts.Signature) != p.alg.signature {
		return nil, errSignature
	}
	return p, nil
}

func (p *parsed) readHeader(text []byte) error {
	// b64 (RFC 7797) is refused like crit, because it would change which bytes are signed.
	header, err := jws.Object(text, "the header", "typ", "alg", "jwk", "crit", "b64")
	if err != nil {
		return malformed(err.Error())
	}
	typ, _ := header.Text("typ")
	name, _ := header.Text("alg")
	alg, known := algorithms[name]
	switch {
	case header.Has("crit") || header.Has("b64"):
		return malformed("the header has crit or b64, but extensions are not supported")
	case typ != "dpop+jwt":
		return malformed("typ must be dpop+jwt")
	case !known:
		return malformed("alg must be one of " + Algorithms)
	case !header.Has("jwk"):
		return malformed("jwk is missing")
	}
	p.alg = alg
	return p.readKey(header["jwk"])
}

func (p *parsed) readClaims(text []byte) error {
	claims, err := jws.Object(text, "the payload", "htm", "htu", "iat", "jti", "ath")
	if err != nil {
		return malformed(err.Error())
	}
	for name, into := range map[string]*string{"htm": &p.method, "htu": &p.uri, "jti": &p.id, "ath": &p.tokenHash} {
		value, ok := claims.Text(name)
		if absent := !claims.Has(name) && name == "ath"; !absent && (!ok || value == "") {
			return malformed(name + " is missing or not a string")
		}
		*into = value
	}
	if len(p.id) > maxID {
		return malformed("jti is longer than " + strconv.Itoa(maxID) + " bytes")
	}
	var ok bool
	if p.issuedAt, ok = claims.Time("iat"); !ok {
		return malformed("iat is missing or not a time in seconds")
	}
	return nil
}
