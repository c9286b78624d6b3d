package dpop

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

const (
	token  = "the session id of these tests"
	target = "https://keys.example:8443/api/crypto/hmac"
)

var now = time.Unix(1_800_000_000, 0)

func request() Request {
	return Request{Method: "POST", Site: At(target), Path: "/api/crypto/hmac", Token: token, Now: now}
}

// draft is a proof before it is signed. Its text is signed unchanged, so that a test can use any encoding.
type draft struct {
	header, payload string
	key             crypto.Signer
	alg             string
}

func (d draft) sign(t testing.TB) string {
	t.Helper()
	signed := b64([]byte(d.header)) + "." + b64([]byte(d.payload))
	return signed + "." + b64(signature(t, d.key, d.alg, []byte(signed)))
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func signature(t testing.TB, key crypto.Signer, alg string, signed []byte) []byte {
	t.Helper()
	hash := map[string]crypto.Hash{"256": crypto.SHA256, "384": crypto.SHA384, "512": crypto.SHA512}[alg[len(alg)-3:]]
	digest := signed
	if hash != 0 {
		h := hash.New()
		h.Write(signed)
		digest = h.Sum(nil)
	}
	switch k := key.(type) {
	case *ecdsa.PrivateKey:
		r, s, err := ecdsa.Sign(rand.Reader, k, digest)
		fatal(t, err)
		size := (k.Curve.Params().BitSize + 7) / 8
		return append(r.FillBytes(make([]byte, size)), s.FillBytes(make([]byte, size))...)
	case ed25519.PrivateKey:
		return ed25519.Sign(k, signed)
	}
	var opts crypto.SignerOpts = hash
	if strings.HasPrefix(alg, "PS") {
		opts = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: hash}
	}
	sig, err := key.Sign(rand.Reader, digest, opts)
	fatal(t, err)
	return sig
}

func jwk(t testing.TB, key crypto.Signer) string {
	t.Helper()
	b, err := jose.JSONWebKey{Key: key.Public()}.MarshalJSON()
	fatal(t, err)
	return string(b)
}

// keys are generated once, because RSA keys take long.
var keys = sync.OnceValue(func() map[string]crypto.Signer {
	p256, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	p384, _ := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	_, ed, _ := ed25519.GenerateKey(rand.Reader)
	rsa2048, _ := rsa.GenerateKey(rand.Reader, 2048)
	return map[string]crypto.Signer{
		"ES256": p256, "ES384": p384, "EdDSA": ed, "Ed25519": ed, "RS256": rsa2048, "RS384": rsa2048, "RS512": rsa2048,
		"PS256": rsa2048, "PS384": rsa2048, "PS512": rsa2048,
	}
})

func newDraft(t testing.TB, alg string) draft {
	t.Helper()
	key := keys()[alg]
	return draft{
		header:  fmt.Sprintf(`{"typ":"dpop+jwt","alg":%q,"jwk":%s}`, alg, jwk(t, key)),
		payload: fmt.Sprintf(`{"jti":"one","htm":"POST","htu":%q,"iat":%d,"ath":%q}`, target, now.Unix(), tokenHash(token)),
		key:     key, alg: alg,
	}
}

// audited maps each error code to its reason in the audit log.
var audited = map[fault.Code]fault.Reason{
	fault.ProofMalformed: "proofMalformed", fault.ProofInvalidSignature: "proofInvalidSignature", fault.ProofKeyMismatch: "proofKeyMismatch",
	fault.ProofMethodMismatch: "proofMethodMismatch", fault.ProofURIMismatch: "proofUriMismatch", fault.ProofTokenMismatch: "proofTokenMismatch",
	fault.ProofStale: "proofStale",
}

func refused(t *testing.T, text string, r Request, code fault.Code) {
	t.Helper()
	_, err := Verify(text, r)
	if fault.CodeOf(err) != code {
		t.Errorf("got %v, want %q", err, code)
	}
	if f := fault.As(err); f != nil && f.Reason != audited[code] {
		t.Errorf("%v is audited as %q, want %q", err, f.Reason, audited[code])
	}
}

// TestSpellings checks that proofs are refused which JOSE libraries silently accept, although their signatures are
// valid.
func TestSpellings(t *testing.T) {
	swap := strings.NewReplacer
	for name, change := range map[string]func(d *draft){
		"DuplicateClaim":          func(d *draft) { d.payload = swap(`{"jti"`, `{"htm":"GET","jti"`).Replace(d.payload) },
		"DuplicateEscapedClaim":   func(d *draft) { d.payload = swap(`{"jti"`, `{"h\u0074m":"GET","jti"`).Replace(d.payload) },
		"DuplicateUnknownClaim":   func(d *draft) { d.payload = swap(`{"jti"`, `{"x":1,"x":2,"jti"`).Replace(d.payload) },
		"DuplicateNested":         func(d *draft) { d.payload = swap(`{"jti"`, `{"x":{"y":1,"y":2},"jti"`).Replace(d.payload) },
		"ClaimInAnotherCase":      func(d *draft) { d.payload = swap(`"htm"`, `"HTM"`).Replace(d.payload) },
		"ClaimTwiceByCase":        func(d *draft) { d.payload = swap(`{"jti"`, `{"Htu":"https://other.example/","jti"`).Replace(d.payload) },
		"ClaimFoldedByUnicode":    func(d *draft) { d.payload = swap(`{"jti"`, `{"\u0069\u0061\u0074":1,"IAT":1,"jti"`).Replace(d.payload) },
		"TrailingText":            func(d *draft) { d.payload += "{}" },
		"TrailingGarbage":         func(d *draft) { d.payload += "x" },
		"NotUTF8":                 func(d *draft) { d.payload = swap(`"one"`, "\"\xff\"").Replace(d.payload) },
		"NoObject":                func(d *draft) { d.payload = "[" + d.payload + "]" },
		"NoJSON":                  func(d *draft) { d.payload = "claims" },
		"ByteOrderMark":           func(d *draft) { d.payload = "\ufeff" + d.payload },
		"NoTyp":                   func(d *draft) { d.header = swap(`"typ":"dpop+jwt",`, ``).Replace(d.header) },
		"TypJWT":                  func(d *draft) { d.header = swap(`dpop+jwt`, `JWT`).Replace(d.header) },
		"TypInAnotherCase":        func(d *draft) { d.header = swap(`dpop+jwt`, `DPoP+JWT`).Replace(d.header) },
		"DuplicateAlg":            func(d *draft) { d.header = swap(`{"typ"`, `{"alg":"ES256","typ"`).Replace(d.header) },
		"AlgInAnotherCase":        func(d *draft) { d.header = swap(`{"typ"`, `{"Alg":"none","typ"`).Replace(d.header) },
		"NoAlg":                   func(d *draft) { d.header = swap(`"alg":"ES256",`, ``).Replace(d.header) },
		"AlgNone":                 func(d *draft) { d.header = swap(`ES256`, `none`).Replace(d.header) },
		"AlgHS256":                func(d *draft) { d.header = swap(`ES256`, `HS256`).Replace(d.header) },
		"AlgOfAnotherCurve":       func(d *draft) { d.header = swap(`ES256`, `ES384`).Replace(d.header) },
		"AlgOfAnotherKeyType":     func(d *draft) { d.header = swap(`ES256`, `RS256`).Replace(d.header) },
		"AlgNoText":               func(d *draft) { d.header = swap(`"ES256"`, `1`).Replace(d.header) },
		"UnknownCrit":             func(d *draft) { d.header = swap(`{"typ"`, `{"crit":["x"],"x":1,"typ"`).Replace(d.header) },
		"EmptyCrit":               func(d *draft) { d.header = swap(`{"typ"`, `{"crit":[],"typ"`).Replace(d.header) },
		"UnencodedPayload":        func(d *draft) { d.header = swap(`{"typ"`, `{"b64":true,"typ"`).Replace(d.header) },
		"NoKey":                   func(d *draft) { d.header = `{"typ":"dpop+jwt","alg":"ES256","kid":"1"}` },
		"KeyNoObject":             func(d *draft) { d.header = `{"typ":"dpop+jwt","alg":"ES256","jwk":"k"}` },
		"PrivateKey":              func(d *draft) { d.header = swap(`"kty"`, `"d":"AQ","kty"`).Replace(d.header) },
		"PrivateKeyNull":          func(d *draft) { d.header = swap(`"kty"`, `"d":null,"kty"`).Replace(d.header) },
		"PrivatePrime":            func(d *draft) { d.header = swap(`"kty"`, `"qi":"AQ","kty"`).Replace(d.header) },
		"PrivateInAnotherCase":    func(d *draft) { d.header = swap(`"kty"`, `"D":"AQ","kty"`).Replace(d.header) },
		"SharedKey":               func(d *draft) { d.header = `{"typ":"dpop+jwt","alg":"ES256","jwk":{"kty":"oct","k":"AQ"}}` },
		"DuplicateInKey":          func(d *draft) { d.header = swap(`"kty"`, `"x":"AQ","kty"`).Replace(d.header) },
		"KeyMemberInAnotherCase":  func(d *draft) { d.header = swap(`"kty"`, `"X":"AQ","kty"`).Replace(d.header) },
		"PointOffTheCurve":        func(d *draft) { d.header = ecHeader(make([]byte, 32), bytes.Repeat([]byte{1}, 32)) },
		"PointAtInfinity":         func(d *draft) { d.header = ecHeader(make([]byte, 32), make([]byte, 32)) },
		"CoordinateTooShort":      func(d *draft) { d.header = ecHeader(make([]byte, 31), make([]byte, 32)) },
		"CoordinateTooLong":       func(d *draft) { d.header = ecHeader(make([]byte, 32), make([]byte, 33)) },
		"CoordinateWithLineBreak": func(d *draft) { d.header = swap(`"x":"`, `"x":"\n`).Replace(d.header) },
		"CoordinatePadded":        func(d *draft) { d.header = swap(`","y"`, `=","y"`).Replace(d.header) },
		"CoordinateWithStrayBits": func(d *draft) { d.header = stray(d.header, `"x":"`) },
		"MethodMissing":           func(d *draft) { d.payload = swap(`"htm":"POST",`, ``).Replace(d.payload) },
		"MethodNoText":            func(d *draft) { d.payload = swap(`"POST"`, `["POST"]`).Replace(d.payload) },
		"URLMissing":              func(d *draft) { d.payload = swap(`"htu"`, `"hth"`).Replace(d.payload) },
		"IDMissing":               func(d *draft) { d.payload = swap(`"jti":"one",`, ``).Replace(d.payload) },
		"IDEmpty":                 func(d *draft) { d.payload = swap(`"one"`, `""`).Replace(d.payload) },
		"IDNumber":                func(d *draft) { d.payload = swap(`"one"`, `1`).Replace(d.payload) },
		"IDTooLong":               func(d *draft) { d.payload = swap(`one`, strings.Repeat("i", maxID+1)).Replace(d.payload) },
		"TimeMissing":             func(d *draft) { d.payload = swap(`"iat"`, `"iatt"`).Replace(d.payload) },
		"TimeText":                func(d *draft) { d.payload = swap(`1800000000`, `"1800000000"`).Replace(d.payload) },
		"TimeNegative":            func(d *draft) { d.payload = swap(`1800000000`, `-1`).Replace(d.payload) },
		"TimeHuge":                func(d *draft) { d.payload = swap(`1800000000`, `1e300`).Replace(d.payload) },
		"TimeOverflowing":         func(d *draft) { d.payload = swap(`1800000000`, `1e400`).Replace(d.payload) },
		"HashNull":                func(d *draft) { d.payload = swap(`"ath":"`, `"ath":null,"x":"`).Replace(d.payload) },
		"HashEmpty":               func(d *draft) { d.payload = swap(`"ath":"`, `"ath":"","x":"`).Replace(d.payload) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDraft(t, "ES256")
			change(&d)
			refused(t, d.sign(t), request(), fault.ProofMalformed)
		})
	}
}

func ecHeader(x, y []byte) string {
	return fmt.Sprintf(`{"typ":"dpop+jwt","alg":"ES256","jwk":{"kty":"EC","crv":"P-256","x":%q,"y":%q}}`, b64(x), b64(y))
}

// stray sets an unused bit in the last character of the encoded 32 bytes after mark.
func stray(text, mark string) string {
	at := strings.Index(text, mark) + len(mark) + 42
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return text[:at] + string(alphabet[strings.IndexByte(alphabet, text[at])|1]) + text[at+1:]
}

// TestCompactForm checks that a proof has only one valid text.
func TestCompactForm(t *testing.T) {
	good := newDraft(t, "ES256").sign(t)
	parts := strings.Split(good, ".")
	last := parts[2]
	// 64 bytes leave four unused bits in the last character.
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	bits := last[:85] + string(alphabet[strings.IndexByte(alphabet, last[85])|1])
	for name, text := range map[string]string{
		"Empty": "", "Dots": "..", "OnePart": parts[0], "TwoParts": parts[0] + "." + parts[1], "FourParts": good + ".", "FiveParts": good + ".a.b",
		"NoHeader": "." + parts[1] + "." + last, "NoPayload": parts[0] + ".." + last, "NoSignature": parts[0] + "." + parts[1] + ".",
		"Padded": good + "==", "StrayBits": parts[0] + "." + parts[1] + "." + bits,
		"LineBreakAtEnd": good + "\n", "LineBreakBefore": "\r\n" + good, "LineBreakInside": good[:20] + "\r\n" + good[20:],
		"LineBreakInSignature": parts[0] + "." + parts[1] + "." + last[:9] + "\n" + last[9:],
		"SpaceAround":          " " + good + " ", "Standard": parts[0] + "." + parts[1] + "." + strings.Repeat("+/", 43),
		"Long": parts[0] + "." + parts[1] + "." + strings.Repeat("A", MaxBytes), "JSON": `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + last + `"}`,
		"NotASCII": good + "é", "Zero": good + "\x00",
	} {
		t.Run(name, func(t *testing.T) { refused(t, text, request(), fault.ProofMalformed) })
	}
}

func TestSignatures(t *testing.T) {
	for alg := range algorithms {
		t.Run(alg, func(t *testing.T) {
			d := newDraft(t, alg)
			good := d.sign(t)
			at := strings.LastIndexByte(good, '.') + 1
			sig, err := base64.RawURLEncoding.DecodeString(good[at:])
			fatal(t, err)
			flipped := bytes.Clone(sig)
			flipped[3] ^= 1
			for name, s := range map[string][]byte{
				"Flipped": flipped, "Short": sig[:len(sig)-1], "Long": append(bytes.Clone(sig), 0), "One": {1}, "Zero": make([]byte, len(sig)),
				"LeadingZero": append([]byte{0}, sig...),
			} {
				t.Run(name, func(t *testing.T) { refused(t, good[:at]+b64(s), request(), fault.ProofInvalidSignature) })
			}
			other := d
			other.payload = strings.Replace(d.payload, "one", "two", 1)
			moved := other.sign(t)
			refused(t, moved[:strings.LastIndexByte(moved, '.')+1]+good[at:], request(), fault.ProofInvalidSignature)

			p, err := Verify(good, request())
			fatal(t, err)
			sum, err := (&jose.JSONWebKey{Key: d.key.Public()}).Thumbprint(crypto.SHA256)
			fatal(t, err)
			if p.Key != b64(sum) || p.ID != "one" || !p.IssuedAt.Equal(now) {
				t.Errorf("got %+v, and the library's thumbprint is %s", p, b64(sum))
			}
		})
	}
	t.Run("DER", func(t *testing.T) { // the usual encoding of ECDSA signatures, except in JOSE
		d := newDraft(t, "ES256")
		good := d.sign(t)
		der, err := d.key.Sign(rand.Reader, make([]byte, 32), crypto.SHA256)
		fatal(t, err)
		refused(t, good[:strings.LastIndexByte(good, '.')+1]+b64(der), request(), fault.ProofInvalidSignature)
	})
}

func TestRSAKeys(t *testing.T) {
	n := func(bits uint) []byte {
		v := new(big.Int).Lsh(big.NewInt(1), bits-1)
		return v.SetBit(v, 0, 1).Bytes()
	}
	for name, key := range map[string][2]string{
		"1024Bits": {b64(n(1024)), "AQAB"}, "2047Bits": {b64(n(2047)), "AQAB"}, "4097Bits": {b64(n(4097)), "AQAB"}, "LeadingZero": {b64(append([]byte{0}, n(2048)...)), "AQAB"},
		"NoExponent": {b64(n(2048)), ""}, "ZeroExponent": {b64(n(2048)), "AA"}, "LongExponent": {b64(n(2048)), "AQABAQAB"}, "NoModulus": {"", "AQAB"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDraft(t, "RS256")
			d.header = fmt.Sprintf(`{"typ":"dpop+jwt","alg":"RS256","jwk":{"kty":"RSA","n":%q,"e":%q}}`, key[0], key[1])
			refused(t, d.sign(t), request(), fault.ProofMalformed)
		})
	}
}

func TestWhatAProofIsFor(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(d *draft, r *Request)
		code   fault.Code
	}{
		"AnotherKey":          {func(_ *draft, r *Request) { r.Key = tokenHash("another key") }, fault.ProofKeyMismatch},
		"AnotherMethod":       {func(_ *draft, r *Request) { r.Method = "GET" }, fault.ProofMethodMismatch},
		"MethodInAnotherCase": {func(_ *draft, r *Request) { r.Method = "post" }, fault.ProofMethodMismatch},
		"AnotherPath":         {func(_ *draft, r *Request) { r.Path += "/" }, fault.ProofURIMismatch},
		"AnotherHost":         {func(_ *draft, r *Request) { r.Site = At("https://other.example:8443") }, fault.ProofURIMismatch},
		"AnotherPort":         {func(_ *draft, r *Request) { r.Site = At("https://keys.example") }, fault.ProofURIMismatch},
		"AnotherScheme":       {func(_ *draft, r *Request) { r.Site = At("http://keys.example:8443") }, fault.ProofURIMismatch},
		"PathOnly":            {func(d *draft, _ *Request) { d.payload = strings.Replace(d.payload, target, "/api/crypto/hmac", 1) }, fault.ProofURIMismatch},
		"NoURL":               {func(d *draft, _ *Request) { d.payload = strings.Replace(d.payload, target, "::", 1) }, fault.ProofURIMismatch},
		"AnotherToken":        {func(_ *draft, r *Request) { r.Token += "." }, fault.ProofTokenMismatch},
		"NoTokenHash":         {func(d *draft, _ *Request) { d.payload = strings.Replace(d.payload, `"ath"`, `"x"`, 1) }, fault.ProofTokenMismatch},
		"TokenItself":         {func(d *draft, _ *Request) { d.payload = strings.Replace(d.payload, tokenHash(token), token, 1) }, fault.ProofTokenMismatch},
		"TooOld":              {func(_ *draft, r *Request) { r.Now = now.Add(Window + time.Millisecond) }, fault.ProofStale},
		"TooNew":              {func(_ *draft, r *Request) { r.Now = now.Add(-Window - time.Millisecond) }, fault.ProofStale},
		"OldEnough":           {func(_ *draft, r *Request) { r.Now = now.Add(Window) }, ""},
		"NewEnough":           {func(_ *draft, r *Request) { r.Now = now.Add(-Window) }, ""},
		"Fraction":            {func(d *draft, _ *Request) { d.payload = strings.Replace(d.payload, "1800000000", "1.8e9", 1) }, ""},
		"QueryAndFragment": {func(d *draft, _ *Request) {
			d.payload = strings.Replace(d.payload, target, target+"?a=b#c", 1)
		}, ""},
		"HostInAnotherCase": {func(_ *draft, r *Request) { r.Site = At("HTTPS://Keys.Example:8443") }, ""},
		"LoginNeedsNoHash":  {func(d *draft, r *Request) { d.payload = strings.Replace(d.payload, `"ath"`, `"x"`, 1); r.Token = "" }, ""},
		"OtherClaimsAndHeader": {func(d *draft, _ *Request) {
			d.payload = strings.Replace(d.payload, `{`, `{"nonce":"n","x":{"HTM":1},`, 1)
			d.header = strings.Replace(d.header, `{`, `{"kid":"k","jku":"https://evil.example/",`, 1)
		}, ""},
		"MarkedKey": {func(d *draft, _ *Request) {
			d.header = strings.Replace(d.header, `"kty"`, `"use":"sig","key_ops":["verify"],"ext":true,"kty"`, 1)
		}, ""},
		"EscapedSlashes": {func(d *draft, _ *Request) {
			d.payload = strings.Replace(d.payload, target, strings.ReplaceAll(target, "/", `\/`), 1)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d, r := newDraft(t, "ES256"), request()
			tc.change(&d, &r)
			refused(t, d.sign(t), r, tc.code)
		})
	}
}

// TestHighS checks the complementary ECDSA signature. It is also valid, so the replay cache must not use the text.
func TestHighS(t *testing.T) {
	good := newDraft(t, "ES256").sign(t)
	at := strings.LastIndexByte(good, '.') + 1
	sig, err := base64.RawURLEncoding.DecodeString(good[at:])
	fatal(t, err)
	s := new(big.Int).SetBytes(sig[32:])
	s.Sub(elliptic.P256().Params().N, s).FillBytes(sig[32:])
	twin := good[:at] + b64(sig)
	a, errA := Verify(good, request())
	b, errB := Verify(twin, request())
	if errA != nil || errB != nil || twin == good || a.Digest() != b.Digest() {
		t.Fatalf("%v, %v: %x and %x", errA, errB, a.Digest(), b.Digest())
	}
	other := newDraft(t, "ES384")
	c, err := Verify(other.sign(t), request())
	if err != nil || c.Digest() == a.Digest() {
		t.Errorf("another key's proof with the same jti is another proof: %v", err)
	}
}

// TestThumbprint checks the example of RFC 7638 section 3.1.
func TestThumbprint(t *testing.T) {
	const n = "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw"
	p := &parsed{alg: algorithms["RS256"]}
	fatal(t, p.readKey([]byte(`{"kty":"RSA","n":"`+n+`","e":"AQAB","alg":"RS256","kid":"2011-04-29"}`)))
	if p.thumbprint != "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs" {
		t.Errorf("got %s", p.thumbprint)
	}
}

// sameResource reports whether a proof for the URL claimed is valid for a request with the URL asked.
func sameResource(claimed, asked string) bool {
	_, path, _ := normalise(asked)
	return reached(claimed, At(asked), path)
}

func TestSameResource(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		same bool
	}{
		{"https://h/p", "https://h:443/p", true}, {"http://h:80", "http://h/", true}, {"https://h:/p", "https://h/p", true},
		{"https://h/%7Ea%2fb", "https://h/~a%2Fb", true}, {"https://[::1]:8443/p", "https://[::1]:8443/p", true},
		{"https://h:80/p", "https://h/p", false}, {"https://h/a%2Fb", "https://h/a/b", false}, {"https://h/P", "https://h/p", false},
		{"https://u@h/p", "https://h/p", false}, {"https:h/p", "https://h/p", false}, {"ftp://h/p", "ftp://h/p", false}, {"", "", false},
		{"https://h/a/../p", "https://h/p", false}, {"//h/p", "https://h/p", false}, {"https://h.evil/p", "https://h/p", false},
		{"https://h./p", "https://h/p", true}, {"https://./p", "https://./p", false}, {"https://h../p", "https://h/p", false},
	} {
		if sameResource(tc.a, tc.b) != tc.same || sameResource(tc.b, tc.a) != tc.same {
			t.Errorf("%q and %q: want %v", tc.a, tc.b, tc.same)
		}
	}
}

// TestNothingIsQuoted checks that errors do not contain the content of a proof.
func TestNothingIsQuoted(t *testing.T) {
	d := newDraft(t, "ES256")
	for _, change := range []func(r *Request){func(r *Request) { r.Method = "GET" }, func(r *Request) { r.Site = At("https://other.example/") }, func(r *Request) { r.Token = "other" }} {
		r := request()
		change(&r)
		_, err := Verify(d.sign(t), r)
		for _, secret := range []string{token, tokenHash(token), target, `"one"`} {
			if err == nil || strings.Contains(fmt.Sprintf("%v %+v", err, err), secret) {
				t.Errorf("%v quotes %s", err, secret)
			}
		}
	}
}

// FuzzProof changes a proof at random and checks that only the signed content is accepted, with the same digest.
func FuzzProof(f *testing.F) {
	good := newDraft(f, "ES256").sign(f)
	signed := good[:strings.LastIndexByte(good, '.')]
	want, err := Verify(good, request())
	fatal(f, err)
	f.Add(good)
	f.Add(good + "\n")
	f.Add(strings.Replace(good, ".", "..", 1))
	f.Add(b64([]byte(`{"typ":"dpop+jwt","alg":"EdDSA","jwk":{"kty":"OKP","crv":"Ed25519","x":"`+b64(make([]byte, 32))+`"}}`)) + "." + b64([]byte(`{"jti":"a","htm":"POST","htu":"`+target+`","iat":1800000000}`)) + "." + b64(make([]byte, 64)))
	f.Fuzz(func(t *testing.T, text string) {
		r := request()
		r.Key = want.Key
		got, err := Verify(text, r)
		switch {
		case err == nil && (text[:strings.LastIndexByte(text, '.')] != signed || got != want):
			t.Errorf("accepted what nobody signed: %q", text)
		case err != nil && fault.As(err) == nil:
			t.Errorf("an error without a code: %v", err)
		}
	})
}

// FuzzClaims signs the fuzzed payload, so that the parser of claims is tested.
func FuzzClaims(f *testing.F) {
	d := newDraft(f, "ES256")
	f.Add(d.payload)
	f.Add(`{"jti":"one","JTI":"two"}`)
	f.Fuzz(func(t *testing.T, payload string) {
		p := &parsed{}
		if err := p.readClaims([]byte(payload)); err != nil {
			return
		}
		var plain map[string]any
		if err := json.Unmarshal([]byte(payload), &plain); err != nil {
			t.Fatalf("accepted what is no JSON object: %v", err)
		}
		if plain["htm"] != p.method || plain["htu"] != p.uri || plain["jti"] != p.id {
			t.Errorf("read %+v from %s", p, payload)
		}
	})
}
