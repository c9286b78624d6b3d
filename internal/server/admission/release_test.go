package admission

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/canonical"
)

var (
	releaseKey = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
	otherKey   = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, ed25519.SeedSize))

	begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	end   = begin.Add(24 * time.Hour)

	thisBuild  = "sha256:" + strings.Repeat("ab", sha256.Size)
	otherBuild = "sha256:" + strings.Repeat("cd", sha256.Size)
)

func public(key ed25519.PrivateKey) ed25519.PublicKey { return key.Public().(ed25519.PublicKey) }

func manifest() Manifest {
	return Manifest{Digests: []string{thisBuild}, NotBefore: begin, NotAfter: end}
}

func sign(t testing.TB, key ed25519.PrivateKey, m Manifest) []byte {
	t.Helper()
	text, err := Sign(key, m)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// wrap returns an envelope of any payload, signed for payloadType.
func wrap(payloadType, payload string) string {
	sig := ed25519.Sign(releaseKey, pae(payloadType, []byte(payload)))
	return fmt.Sprintf(`{"payload":%q,"payloadType":%q,"signatures":[{"sig":%q}]}`,
		canonical.Encode([]byte(payload)), payloadType, canonical.Encode(sig))
}

func causeOf(t testing.TB, err error) Cause {
	t.Helper()
	if err == nil {
		return ""
	}
	var r *Refusal
	if !errors.As(err, &r) || r.Detail == "" {
		t.Fatalf("not a refusal with a detail: %v", err)
	}
	return r.Cause
}

// TestPreAuthenticationEncoding checks the example of the DSSE specification.
func TestPreAuthenticationEncoding(t *testing.T) {
	got := string(pae("http://example.com/HelloWorld", []byte("hello world")))
	if want := "DSSEv1 29 http://example.com/HelloWorld 11 hello world"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestEnvelopesThatAreRefused checks that Verify accepts only the canonical encoding of an envelope, and only with a
// signature of a manifest by the release key.
func TestEnvelopesThatAreRefused(t *testing.T) {
	good := string(sign(t, releaseKey, manifest()))
	plain := fmt.Sprintf(`{"digests":[%q],"notBefore":"2026-01-02T03:04:05Z","notAfter":"2026-01-03T03:04:05Z"}`, thisBuild)
	payload, sig := canonical.Encode([]byte(plain)), canonical.Encode(ed25519.Sign(releaseKey, pae(PayloadType, []byte(plain))))
	spell := func(payload, sig string) string {
		return fmt.Sprintf(`{"payload":%q,"payloadType":%q,"signatures":[{"sig":%q}]}`, payload, PayloadType, sig)
	}
	if _, err := Verify(public(releaseKey), []byte(spell(payload, sig))); err != nil {
		t.Fatalf("the envelope that the cases vary is itself refused: %v", err)
	}
	replaced := func(was, is string) string { return strings.Replace(plain, was, is, 1) }
	many := strings.Repeat(fmt.Sprintf("%q,", otherBuild), maxDigests)

	for name, c := range map[string]struct {
		reason string
		text   string
		want   Cause
	}{
		"Empty":            {"a file that is being written", "", NoEnvelope},
		"NotJSON":          {"something else", "release", NoEnvelope},
		"Null":             {"no object", "null", NoEnvelope},
		"BareManifest":     {"a manifest that nobody signed", plain, NoEnvelope},
		"TooLong":          {"reading is bounded", good + strings.Repeat(" ", maxEnvelope), NoEnvelope},
		"Trailing":         {"a second document", good + good, NoEnvelope},
		"UnknownMember":    {"what nobody reads must not seem to count", strings.Replace(good, "{", `{"x":1,`, 1), NoEnvelope},
		"UnknownInSig":     {"the same in a signature", strings.Replace(good, `"keyid"`, `"x":1,"keyid"`, 1), NoEnvelope},
		"OtherCase":        {"members have one spelling", strings.Replace(good, `"payload":`, `"Payload":`, 1), NoEnvelope},
		"DuplicatePayload": {"two readers could take different ones", strings.Replace(good, "{", `{"payload":"",`, 1), NoEnvelope},
		"DuplicateType":    {"two readers could take different ones", strings.Replace(good, "{", `{"payloadType":"x",`, 1), NoEnvelope},
		"DuplicateSig":     {"two readers could take different ones", strings.Replace(good, `"keyid"`, `"sig":"","keyid"`, 1), NoEnvelope},
		"NoPayload":        {"nothing is signed", spell("", sig), NoEnvelope},
		"PayloadNewline":   {"base64 has one spelling", spell(payload[:8]+"\n"+payload[8:], sig), NoEnvelope},
		"PayloadUnpadded":  {"base64 has one spelling", spell(strings.TrimRight(canonical.Encode([]byte(plain+" ")), "="), sig), NoEnvelope},
		"PayloadNumber":    {"a type of its own", strings.Replace(good, `"payload":`, `"payload": 1, "p":`, 1), NoEnvelope},
		"NoSignatures":     {"nobody signed", fmt.Sprintf(`{"payload":%q,"payloadType":%q,"signatures":[]}`, payload, PayloadType), NoEnvelope},
		"ManySignatures": {"trying is bounded", fmt.Sprintf(`{"payload":%q,"payloadType":%q,"signatures":[%s{"sig":%q}]}`,
			payload, PayloadType, strings.Repeat(`{"sig":""},`, maxSignatures), sig), NoEnvelope},

		"OtherType":  {"a document of another kind under the same key", wrap("application/json", plain), OtherType},
		"TypeChange": {"a type that was put there later", strings.Replace(wrap("application/json", plain), "application/json", PayloadType, 1), BadSignature},
		"NoType":     {"an envelope that does not say", wrap("", plain), OtherType},

		"OtherKey":       {"somebody else's signature", string(sign(t, otherKey, manifest())), BadSignature},
		"EmptySignature": {"no bytes", spell(payload, ""), BadSignature},
		"ShortSignature": {"too few bytes", spell(payload, canonical.Encode(make([]byte, 32))), BadSignature},
		"SigNewline":     {"base64 has one spelling", spell(payload, sig[:8]+"\n"+sig[8:]), BadSignature},
		"SigURLAlphabet": {"base64 has one spelling", spell(payload, strings.NewReplacer("+", "-", "/", "_").Replace(sig)+"-"), BadSignature},
		"OtherPayload":   {"a longer life", spell(canonical.Encode([]byte(strings.Replace(plain, "2026-01-03", "2036-01-03", 1))), sig), BadSignature},
		"BarePayload":    {"a signature of the payload alone", spell(payload, canonical.Encode(ed25519.Sign(releaseKey, []byte(plain)))), BadSignature},

		"PayloadNotJSON":      {"signed nonsense", wrap(PayloadType, "release"), Malformed},
		"PayloadUnknown":      {"a limit that this version does not know", wrap(PayloadType, replaced("{", `{"regions":["eu"],`)), Malformed},
		"PayloadDuplicate":    {"two ends", wrap(PayloadType, replaced("{", `{"notAfter":"2036-01-03T03:04:05Z",`)), Malformed},
		"PayloadTrailing":     {"two manifests", wrap(PayloadType, plain+plain), Malformed},
		"NoDigest":            {"nothing is listed", wrap(PayloadType, replaced(fmt.Sprintf("%q", thisBuild), "")), Malformed},
		"ManyDigests":         {"a list is bounded", wrap(PayloadType, replaced("[", "["+many)), Malformed},
		"BareDigest":          {"no algorithm", wrap(PayloadType, replaced("sha256:", "")), Malformed},
		"UpperCaseDigest":     {"digests have one spelling", wrap(PayloadType, replaced("abab", "ABAB")), Malformed},
		"OtherDigest":         {"an algorithm that nobody computes", wrap(PayloadType, replaced("sha256", "sha512")), Malformed},
		"NoNotAfter":          {"no end is not for ever", wrap(PayloadType, fmt.Sprintf(`{"digests":[%q],"notBefore":"2026-01-02T03:04:05Z"}`, thisBuild)), Malformed},
		"NoNotBefore":         {"no start is not since ever", wrap(PayloadType, fmt.Sprintf(`{"digests":[%q],"notAfter":"2026-01-03T03:04:05Z"}`, thisBuild)), Malformed},
		"NullNotAfter":        {"null is no end either", wrap(PayloadType, replaced(`"2026-01-03T03:04:05Z"`, "null")), Malformed},
		"EndsBeforeItsStart":  {"nonsense", wrap(PayloadType, replaced("2026-01-03", "2025-01-03")), Malformed},
		"TimeWithoutZone":     {"not RFC 3339", wrap(PayloadType, replaced("03:04:05Z", "03:04:05")), Malformed},
		"TimeAsNumber":        {"not RFC 3339", wrap(PayloadType, replaced(`"2026-01-03T03:04:05Z"`, "1800000000")), Malformed},
		"DigestsInOneString":  {"a type of its own", wrap(PayloadType, replaced(fmt.Sprintf("[%q]", thisBuild), fmt.Sprintf("%q", thisBuild))), Malformed},
		"InvalidUTF8InDigest": {"text is UTF-8", wrap(PayloadType, replaced("abab", "ab\xff\xff")), Malformed},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Verify(public(releaseKey), []byte(c.text)); causeOf(t, err) != c.want {
				t.Errorf("%s: got %v, want %s", c.reason, err, c.want)
			}
		})
	}
}

// TestSignedManifestsAreRead checks that Verify reads the output of Sign. One valid signature among several is enough,
// so that the release key can be changed.
func TestSignedManifestsAreRead(t *testing.T) {
	m := Manifest{Digests: []string{otherBuild, thisBuild, otherBuild}, NotBefore: begin.In(time.FixedZone("", 3600)), NotAfter: end}
	text := sign(t, releaseKey, m)
	want := Manifest{Digests: []string{thisBuild, otherBuild}, NotBefore: begin, NotAfter: end}
	got, err := Verify(public(releaseKey), text)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("got %v, difference %s", err, diff)
	}
	e, payload, err := open(text)
	if err != nil {
		t.Fatal(err)
	}
	foreign := canonical.Encode(ed25519.Sign(otherKey, pae(PayloadType, payload)))
	both := strings.Replace(string(text), `"signatures": [`, fmt.Sprintf(`"signatures": [{"keyid":%q,"sig":%q},`, e.Signatures[0].KeyID, foreign), 1)
	for _, key := range []ed25519.PrivateKey{releaseKey, otherKey} {
		if _, err := Verify(public(key), []byte(both)); err != nil {
			t.Errorf("two signatures, one of them good: %v", err)
		}
	}
}

// TestManifestsThatAreNotSigned checks that Sign rejects manifests that Verify would reject.
func TestManifestsThatAreNotSigned(t *testing.T) {
	for name, change := range map[string]func(*Manifest){
		"NoDigest":     func(m *Manifest) { m.Digests = nil },
		"BadDigest":    func(m *Manifest) { m.Digests[0] = "sha256:ab" },
		"NoStart":      func(m *Manifest) { m.NotBefore = time.Time{} },
		"NoEnd":        func(m *Manifest) { m.NotAfter = time.Time{} },
		"EndsAtStart":  func(m *Manifest) { m.NotAfter = m.NotBefore },
		"EndsTooEarly": func(m *Manifest) { m.NotAfter = m.NotBefore.Add(-time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			m := manifest()
			change(&m)
			if _, err := Sign(releaseKey, m); causeOf(t, err) != Malformed {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestAdmits checks when a manifest allows a build. Both ends of its period are included.
func TestAdmits(t *testing.T) {
	for name, c := range map[string]struct {
		digest string
		now    time.Time
		want   Cause
	}{
		"Early":      {thisBuild, begin.Add(-1), NotYetValid},
		"Late":       {thisBuild, end.Add(1), Expired},
		"OtherBuild": {otherBuild, begin, NotListed},
		"NoDigest":   {"", begin, NotListed},
		"Prefix":     {thisBuild[:20], begin, NotListed},
		"AtItsStart": {thisBuild, begin, ""},
		"AtItsEnd":   {thisBuild, end, ""},
		"InBetween":  {thisBuild, begin.Add(time.Hour).In(time.FixedZone("", -7200)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if err := manifest().Admits(c.digest, c.now); causeOf(t, err) != c.want {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestADamagedEnvelopeNeverSaysSomethingElse checks that Verify rejects a damaged envelope or returns the signed
// manifest.
func TestADamagedEnvelopeNeverSaysSomethingElse(t *testing.T) {
	text := sign(t, releaseKey, manifest())
	rapid.Check(t, func(t *rapid.T) {
		damaged := bytes.Clone(text)
		for range rapid.IntRange(1, 3).Draw(t, "places") {
			damaged[rapid.IntRange(0, len(damaged)-1).Draw(t, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		}
		got, err := Verify(public(releaseKey), damaged)
		if err == nil && !cmp.Equal(got, manifest()) {
			t.Fatalf("%s is read as %v", damaged, got)
		}
	})
}

// TestKeyFiles checks that a release key can be written to files and read again. Files with other content are rejected,
// and the error does not contain that content.
func TestKeyFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	private, pub, err := GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := x509.MarshalPKIXPublicKey(public(otherKey))
	if err != nil {
		t.Fatal(err)
	}
	otherPEM := pem.EncodeToMemory(&pem.Block{Type: publicType, Bytes: other})
	for name, content := range map[string][]byte{
		"Empty": nil, "NotPEM": []byte("planted"), "Twice": append(bytes.Clone(pub), otherPEM...),
		"Damaged": pem.EncodeToMemory(&pem.Block{Type: publicType, Bytes: other[:20]}), "Long": append(bytes.Clone(pub), make([]byte, maxKeyFile)...),
		"Private": private,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ReadPublicKey(file(name, content)); err == nil || strings.Contains(err.Error(), "planted") {
				t.Errorf("as a public key: %v", err)
			}
			if name == "Private" {
				content = pub
			}
			if _, err := ReadPrivateKey(file(name, content)); err == nil || strings.Contains(err.Error(), "planted") {
				t.Errorf("as a private key: %v", err)
			}
		})
	}
	for _, read := range []func(string) error{
		func(p string) error { _, err := ReadPublicKey(p); return err },
		func(p string) error { _, err := ReadPrivateKey(p); return err },
	} {
		if err := read(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("no file: %v", err)
		}
	}
	key, err := ReadPrivateKey(file("key", private))
	if err != nil {
		t.Fatal(err)
	}
	back, err := ReadPublicKey(file("pub", pub))
	if err != nil || !back.Equal(key.Public()) {
		t.Errorf("the two files do not belong together: %v", err)
	}
}

// TestDigest checks that the digest is computed from the content of the file.
func TestDigest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "binary")
	if _, err := Digest(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("content"))
	if got, err := Digest(path); err != nil || got != "sha256:"+hex.EncodeToString(sum[:]) {
		t.Errorf("got %s, %v", got, err)
	}
	if _, err := Digest(filepath.Dir(path)); err == nil {
		t.Error("a directory has a digest")
	}
}
