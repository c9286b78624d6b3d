package oidc

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	issuer   = "https://issuer.example"
	audience = "https://keys.example"
	subject  = "system:serviceaccount:shop:web"
)

var now = time.Unix(1_800_000_000, 0)

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// draft is a token before it is signed. Its text is signed unchanged, so that a test can use any encoding.
type draft struct {
	header, payload string
	alg             string
	key             any
}

func newDraft(alg, kid string, key any) draft {
	return draft{
		header:  fmt.Sprintf(`{"alg":%q,"kid":%q}`, alg, kid),
		payload: fmt.Sprintf(`{"aud":[%q],"exp":%d,"iat":%d,"iss":%q,"nbf":%d,"sub":%q,"kubernetes.io":{"namespace":"shop"}}`, audience, now.Unix()+600, now.Unix(), issuer, now.Unix(), subject),
		alg:     alg, key: key,
	}
}

func (d draft) text(t testing.TB) string {
	t.Helper()
	signed := b64([]byte(d.header)) + "." + b64([]byte(d.payload))
	return signed + "." + b64(signature(t, d.alg, d.key, []byte(signed)))
}

// signature signs with the library. If the library refuses, it signs without it.
func signature(t testing.TB, alg string, key any, text []byte) []byte {
	t.Helper()
	switch k := key.(type) {
	case nil:
		return []byte("no signature")
	case []byte:
		mac := hmac.New(sha256.New, k)
		mac.Write(text)
		return mac.Sum(nil)
	case ed25519.PrivateKey:
		return ed25519.Sign(k, text)
	case *ecdsa.PrivateKey:
		hash := map[string]crypto.Hash{"ES256": crypto.SHA256, "ES384": crypto.SHA384, "ES512": crypto.SHA512}[alg].New()
		hash.Write(text)
		r, s, err := ecdsa.Sign(rand.Reader, k, hash.Sum(nil))
		fatal(t, err)
		size := (k.Params().BitSize + 7) / 8
		return append(r.FillBytes(make([]byte, size)), s.FillBytes(make([]byte, size))...)
	case *rsa.PrivateKey:
		algorithm := map[string]crypto.Hash{"256": crypto.SHA256, "384": crypto.SHA384, "512": crypto.SHA512}[alg[2:]]
		hash := algorithm.New()
		hash.Write(text)
		var opts crypto.SignerOpts = algorithm
		if strings.HasPrefix(alg, "PS") {
			opts = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: algorithm}
		}
		sig, err := k.Sign(rand.Reader, hash.Sum(nil), opts)
		fatal(t, err)
		return sig
	}
	t.Fatalf("no way to sign with %T", key)
	return nil
}

// keys are generated once, because RSA keys take long.
var keys = sync.OnceValue(func() map[string]crypto.Signer {
	p256, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	p384, _ := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	p521, _ := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	_, ed, _ := ed25519.GenerateKey(rand.Reader)
	rsa2048, _ := rsa.GenerateKey(rand.Reader, 2048)
	return map[string]crypto.Signer{
		"ES256": p256, "ES384": p384, "ES512": p521, "EdDSA": ed,
		"RS256": rsa2048, "RS384": rsa2048, "RS512": rsa2048, "PS256": rsa2048, "PS384": rsa2048, "PS512": rsa2048,
	}
})

func jwks(t testing.TB, list map[string]any) []byte {
	t.Helper()
	var set jose.JSONWebKeySet
	for kid, key := range list {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: key, KeyID: kid, Use: "sig"})
	}
	text, err := json.Marshal(set)
	fatal(t, err)
	return text
}

// all returns the public parts of keys. The kid of each is the name of an algorithm.
func all() map[string]any {
	list := map[string]any{}
	for name, key := range keys() {
		list[name] = key.Public()
	}
	return list
}

type source struct {
	mu    sync.Mutex
	text  []byte
	err   error
	reads int
	pace  Pace
}

func (s *source) Read(context.Context) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	return s.text, s.err
}

func (s *source) Pace() Pace { return s.pace }

func (s *source) set(text []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text, s.err = text, err
}

type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

var rules = Rules{Issuer: issuer, Audiences: []string{"another", audience}}

func newVerifier(t testing.TB) (*Verifier, *source, *clock) {
	t.Helper()
	s := &source{text: jwks(t, all()), pace: Pace{Fresh: time.Minute, Retry: 10 * time.Second, Keep: time.Hour}}
	c := &clock{now}
	return NewVerifier(rules, s, c.now), s, c
}

func refused(t *testing.T, v *Verifier, text string) {
	t.Helper()
	token, err := v.Verify(t.Context(), text)
	var why Refused
	if !errors.As(err, &why) {
		t.Fatalf("got %+v, %v; want a refusal", token, err)
	}
	parts := strings.Split(text, ".")
	for _, part := range parts {
		if len(part) > 8 && strings.Contains(err.Error(), part) {
			t.Errorf("the refusal quotes the token: %v", err)
		}
	}
	if strings.Contains(err.Error(), subject) || strings.Contains(err.Error(), audience) {
		t.Errorf("the refusal quotes the claims: %v", err)
	}
}

// TestRefusals checks tokens that must be refused. Each has a valid signature, unless its name says otherwise.
func TestRefusals(t *testing.T) {
	swap := func(old, replacement string) func(d *draft) {
		return func(d *draft) {
			if !strings.Contains(d.header+d.payload, old) {
				panic("the draft has no " + old)
			}
			d.header, d.payload = strings.Replace(d.header, old, replacement, 1), strings.Replace(d.payload, old, replacement, 1)
		}
	}
	at := func(seconds int64) string { return fmt.Sprint(now.Unix() + seconds) }
	public, err := x509.MarshalPKIXPublicKey(keys()["RS256"].Public())
	fatal(t, err)
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fatal(t, err)
	for name, change := range map[string]func(d *draft){
		"OtherAudience":      swap(audience, audience+"/"),
		"AudienceInUpper":    swap(audience, "HTTPS://KEYS.EXAMPLE"),
		"NoAudience":         swap(`"aud"`, `"x"`),
		"EmptyAudiences":     swap(`["`+audience+`"]`, `[]`),
		"AudienceNumber":     swap(`["`+audience+`"]`, `1`),
		"AudiencesMixed":     swap(`["`+audience+`"]`, `["`+audience+`",1]`),
		"AudiencesMany":      swap(`["`+audience+`"]`, `["`+audience+`"`+strings.Repeat(`,"a"`, 64)+`]`),
		"Expired":            swap(at(600), at(-30)),
		"NoExpiry":           swap(`"exp"`, `"x"`),
		"ExpiryText":         swap(at(600), `"`+at(600)+`"`),
		"ExpiryHuge":         swap(at(600), `1e300`),
		"NotYetValid":        swap(`"nbf":`+at(0), `"nbf":`+at(31)),
		"NotBeforeText":      swap(`"nbf":`+at(0), `"nbf":"0"`),
		"IssuedLater":        swap(`"iat":`+at(0), `"iat":`+at(31)),
		"OtherIssuer":        swap(issuer, issuer+".evil.example"),
		"IssuerWithSlash":    swap(issuer, issuer+"/"),
		"NoIssuer":           swap(`"iss"`, `"x"`),
		"IssuerNoText":       swap(`"`+issuer+`"`, `["`+issuer+`"]`),
		"NoSubject":          swap(`"sub"`, `"x"`),
		"EmptySubject":       swap(subject, ``),
		"LongSubject":        swap(subject, strings.Repeat("s", maxText+1)),
		"DuplicateClaim":     swap(`"sub"`, `"sub":"admin","sub"`),
		"DuplicateEscaped":   swap(`"sub"`, `"s\u0075b":"admin","sub"`),
		"DuplicateUnknown":   swap(`"sub"`, `"x":1,"x":2,"sub"`),
		"DuplicateNested":    swap(`"namespace":"shop"`, `"namespace":"shop","namespace":"bank"`),
		"ClaimInAnotherCase": swap(`"sub"`, `"SUB":"admin","sub"`),
		"DuplicateHeader":    swap(`{"alg"`, `{"alg":"none","alg"`),
		"HeaderCase":         swap(`{"alg"`, `{"Alg":"none","alg"`),
		"UnknownCrit":        swap(`{"alg"`, `{"crit":["x"],"x":1,"alg"`),
		"EmptyCrit":          swap(`{"alg"`, `{"crit":[],"alg"`),
		"UnencodedPayload":   swap(`{"alg"`, `{"b64":false,"crit":["b64"],"alg"`),
		"TypeOfProof":        swap(`{"alg"`, `{"typ":"dpop+jwt","alg"`),
		"TypeNoText":         swap(`{"alg"`, `{"typ":1,"alg"`),
		"TrailingText":       func(d *draft) { d.payload += "{}" },
		"NotUTF8":            swap(subject, "\xff"),
		"NoObject":           func(d *draft) { d.payload = "[" + d.payload + "]" },
		"AlgNone":            swap(`"RS256"`, `"none"`),
		"AlgNoneCase":        swap(`"RS256"`, `"None"`),
		"NoAlg":              swap(`"alg"`, `"x"`),
		"AlgHS256WithPublicKey": func(d *draft) {
			swap(`"RS256"`, `"HS256"`)(d)
			d.key = pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
		},
		"AlgHS256WithDER":   func(d *draft) { swap(`"RS256"`, `"HS256"`)(d); d.key = public },
		"AlgOfAnotherKey":   func(d *draft) { *d = newDraft("ES256", "RS256", keys()["ES256"]) },
		"AlgOfAnotherCurve": func(d *draft) { *d = newDraft("ES384", "ES256", keys()["ES384"]) },
		"WrongKey":          func(d *draft) { *d = newDraft("ES256", "ES256", stranger) },
		"KeyInHeader": func(d *draft) {
			*d = newDraft("ES256", "ES256", stranger)
			own, err := jose.JSONWebKey{Key: stranger.Public(), KeyID: "ES256"}.MarshalJSON()
			fatal(t, err)
			d.header = strings.Replace(d.header, "{", `{"jwk":`+string(own)+`,"jku":"https://evil.example/",`, 1)
		},
		"UnknownKey":  swap(`"kid":"RS256"`, `"kid":"other"`),
		"KeyIDPath":   swap(`"kid":"RS256"`, `"kid":"../../dev/null"`),
		"NoKeyID":     swap(`"kid"`, `"x"`),
		"EmptyKeyID":  swap(`"kid":"RS256"`, `"kid":""`),
		"KeyIDNumber": swap(`"kid":"RS256"`, `"kid":1`),
		"NoSignature": func(d *draft) { d.key = nil },
	} {
		t.Run(name, func(t *testing.T) {
			v, _, _ := newVerifier(t)
			d := newDraft("RS256", "RS256", keys()["RS256"])
			change(&d)
			refused(t, v, d.text(t))
		})
	}
}

func TestCompactForm(t *testing.T) {
	v, _, _ := newVerifier(t)
	good := newDraft("ES256", "ES256", keys()["ES256"]).text(t)
	parts := strings.Split(good, ".")
	last := parts[2]
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	stray := last[:85] + string(alphabet[strings.IndexByte(alphabet, last[85])|1]) // 64 bytes leave four unused bits
	for name, text := range map[string]string{
		"Empty": "", "Dots": "..", "TwoParts": parts[0] + "." + parts[1], "FourParts": good + ".", "NoSignature": parts[0] + "." + parts[1] + ".",
		"Padded": good + "==", "StrayBits": parts[0] + "." + parts[1] + "." + stray, "LineBreakAtEnd": good + "\n", "LineBreakInside": good[:20] + "\r\n" + good[20:],
		"SpaceAround": " " + good + " ", "Long": good + strings.Repeat("A", MaxBytes), "Bearer": "Bearer " + good,
		"JSON":    `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + last + `"}`,
		"Flipped": parts[0] + "." + parts[1] + "." + strings.Repeat("A", len(last)), "MovedPayload": parts[0] + "." + b64([]byte(strings.Replace(newDraft("", "", nil).payload, "web", "bank", 1))) + "." + last,
	} {
		t.Run(name, func(t *testing.T) { refused(t, v, text) })
	}
}

func TestGoodTokens(t *testing.T) {
	for alg, key := range keys() {
		t.Run(alg, func(t *testing.T) {
			v, _, _ := newVerifier(t)
			token, err := v.Verify(t.Context(), newDraft(alg, alg, key).text(t))
			fatal(t, err)
			if token.Issuer != issuer || token.Subject != subject || len(token.Audiences) != 1 || token.Audiences[0] != audience || !token.ExpiresAt.Equal(now.Add(10*time.Minute)) {
				t.Errorf("got %+v", token)
			}
		})
	}
	for name, change := range map[string]func(d *draft){
		"WithinLeewayOfExpiry": func(d *draft) {
			d.payload = strings.Replace(d.payload, fmt.Sprint(now.Unix()+600), fmt.Sprint(now.Unix()-29), 1)
		},
		"WithinLeewayOfStart": func(d *draft) {
			d.payload = strings.ReplaceAll(d.payload, fmt.Sprint(now.Unix())+",", fmt.Sprint(now.Unix()+30)+",")
		},
		"OneAudience":           func(d *draft) { d.payload = strings.Replace(d.payload, `["`+audience+`"]`, `"`+audience+`"`, 1) },
		"OtherAudiencesBesides": func(d *draft) { d.payload = strings.Replace(d.payload, `["`, `["x","`, 1) },
		"TypeJWT":               func(d *draft) { d.header = strings.Replace(d.header, `{`, `{"typ":"jwt",`, 1) },
		"NoOptionalTimes":       func(d *draft) { d.payload = strings.NewReplacer(`"iat"`, `"x"`, `"nbf"`, `"y"`).Replace(d.payload) },
	} {
		t.Run(name, func(t *testing.T) {
			v, _, _ := newVerifier(t)
			d := newDraft("ES256", "ES256", keys()["ES256"])
			change(&d)
			if _, err := v.Verify(t.Context(), d.text(t)); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("NoKeyIDAndOneKey", func(t *testing.T) {
		v, s, _ := newVerifier(t)
		s.set(jwks(t, map[string]any{"only": keys()["ES256"].Public()}), nil)
		d := newDraft("ES256", "", keys()["ES256"])
		d.header = `{"alg":"ES256"}`
		if _, err := v.Verify(t.Context(), d.text(t)); err != nil {
			t.Error(err)
		}
	})
}

func TestKeySets(t *testing.T) {
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	fatal(t, err)
	many := map[string]any{}
	for i := range maxKeys + 1 {
		many[fmt.Sprint(i)] = keys()["EdDSA"].Public()
	}
	for name, text := range map[string][]byte{
		"NotJSON": []byte("<html>"), "NoKeys": []byte(`{"keys":[]}`), "UnknownType": []byte(`{"keys":[{"kty":"XYZ","kid":"a"}]}`), "Many": jwks(t, many),
		"PrivateKey": jwks(t, map[string]any{"a": keys()["ES256"]}), "SharedKey": jwks(t, map[string]any{"a": []byte("secret")}),
		"ForEncryption": []byte(strings.Replace(string(jwks(t, map[string]any{"a": keys()["ES256"].Public()})), `"sig"`, `"enc"`, 1)),
	} {
		if got, err := parseKeys(text); err == nil {
			t.Errorf("%s: got %d keys", name, len(got))
		}
	}
	set, err := parseKeys(jwks(t, map[string]any{"weak": weak.Public()}))
	fatal(t, err)
	if set.find(Claimed{algorithm: jose.RS256, keyID: "weak"}) != nil {
		t.Error("an RSA key of 1024 bits is good for nothing")
	}
	set[0].Key, set[0].Algorithm = keys()["RS256"].Public(), "RS512"
	if set.find(Claimed{algorithm: jose.RS256, keyID: "weak"}) != nil || set.find(Claimed{algorithm: jose.RS512, keyID: "weak"}) == nil {
		t.Error("a key that names its algorithm is for no other")
	}
}

// TestFile checks that a file is read again when it changes. It may be created and deleted without a restart.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jwks.json")
	c := &clock{now}
	v := NewVerifier(rules, File(path), c.now)
	text := newDraft("ES256", "one", keys()["ES256"]).text(t)
	var why Refused
	if _, err := v.Verify(t.Context(), text); err == nil || errors.As(err, &why) {
		t.Errorf("without the file: %v", err)
	}
	fatal(t, os.WriteFile(path, jwks(t, map[string]any{"one": keys()["ES256"].Public()}), 0o600))
	c.at = c.at.Add(time.Second)
	_, err := v.Verify(t.Context(), text)
	fatal(t, err)
	fatal(t, os.WriteFile(path, jwks(t, map[string]any{"two": keys()["ES256"].Public()}), 0o600))
	c.at = c.at.Add(time.Second)
	refused(t, v, text)
	_, err = v.Verify(t.Context(), newDraft("ES256", "two", keys()["ES256"]).text(t))
	fatal(t, err)
	fatal(t, os.WriteFile(path, make([]byte, maxDocument+1), 0o600))
	c.at = c.at.Add(time.Second)
	if _, err := v.Verify(t.Context(), newDraft("ES256", "two", keys()["ES256"]).text(t)); err != nil {
		t.Errorf("a bad file must leave the keys of the good one in use: %v", err)
	}
}

// FuzzToken changes a token at random and checks that only the signed content is accepted.
func FuzzToken(f *testing.F) {
	good := newDraft("ES256", "ES256", keys()["ES256"]).text(f)
	signed := good[:strings.LastIndexByte(good, '.')]
	v, _, _ := newVerifier(f)
	want, err := v.Verify(f.Context(), good)
	fatal(f, err)
	f.Add(good)
	f.Add(good + "\n")
	f.Add(strings.Replace(good, ".", "..", 1))
	f.Add(b64([]byte(`{"alg":"none"}`)) + "." + strings.Split(good, ".")[1] + ".AA")
	f.Add(b64([]byte(`{"alg":"EdDSA","kid":"EdDSA","crit":["exp"]}`)) + "." + b64([]byte(`{"iss":"`+issuer+`","sub":"a","aud":"`+audience+`","exp":1e10}`)) + "." + b64(make([]byte, 64)))
	f.Add(b64([]byte(`{"alg":"RS256","kid":"RS256"}`)) + "." + b64([]byte(`{"iss":"`+issuer+`","sub":"a","aud":["`+audience+`"],"exp":1900000000}`)) + "." + b64(make([]byte, 256)))
	f.Fuzz(func(t *testing.T, text string) {
		got, err := v.Verify(t.Context(), text)
		var why Refused
		switch {
		case err == nil && (text[:strings.LastIndexByte(text, '.')] != signed || got.Subject != want.Subject):
			t.Errorf("accepted what nobody signed: %q", text)
		case err != nil && !errors.As(err, &why):
			t.Errorf("neither good nor refused: %v", err)
		}
	})
}
