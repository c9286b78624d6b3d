package certtext

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func block(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

type pair struct{ cert, key []byte }

func newPair(t testing.TB, name string) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pair{cert, private}
}

// TestForms checks that changes by editors, tools and manifests to a text do not change the result.
func TestForms(t *testing.T) {
	one, two := bytes.Repeat([]byte{0x30, 0x01, 0xff}, 50), bytes.Repeat([]byte{0x31, 0x02}, 70)
	first, second := block("CERTIFICATE", one), block("CERTIFICATE", two)
	both := first + second
	for name, text := range map[string]string{
		"Plain": both, "CRLF": strings.ReplaceAll(both, "\n", "\r\n"), "CR": strings.ReplaceAll(both, "\n", "\r"),
		"ByteOrderMark": "\xEF\xBB\xBF" + both, "ByteOrderMarkInside": first + "\xEF\xBB\xBF" + second,
		"Indented": "    " + strings.ReplaceAll(both, "\n", "\n    "), "Tabs": "\t" + strings.ReplaceAll(both, "\n", "\t\n\t"),
		"NoLastBreak": strings.TrimSpace(both), "EmptyLines": strings.ReplaceAll(both, "\n", "\n\n"),
		"SpacesInside": strings.ReplaceAll(both, "\n/", "\n /"),
		"Comments":     "# Root\nsubject=CN = Root\n\n" + first + "Certificate:\n    Data:\n        Version: 3 (0x2)\n         00:9b:7e\n==================\n" + second + "the end",
		"Latin1":       "Autorit\xe9\n" + both,
	} {
		blocks, err := Blocks([]byte(text))
		if err != nil || len(blocks) != 2 || !bytes.Equal(blocks[0].DER, one) || !bytes.Equal(blocks[1].DER, two) {
			t.Errorf("%s: %d blocks, %v", name, len(blocks), err)
		}
	}
}

// TestDamage checks that an unreadable part is never skipped: the error names its line.
func TestDamage(t *testing.T) {
	good := block("CERTIFICATE", bytes.Repeat([]byte{0x30, 0x01, 0xff}, 50)) // BEGIN, four lines, END
	begin, end := "-----BEGIN CERTIFICATE-----\n", "-----END CERTIFICATE-----\n"
	body := strings.TrimSuffix(strings.TrimPrefix(good, begin), end)
	for name, tc := range map[string]struct{ text, says string }{
		"BadCharacter":      {begin + "!" + body[1:] + end + good, "line 2: the block that begins on line 1 has a character"},
		"Truncated":         {begin + body[:30] + "\n" + good, "line 3: another block begins"},
		"NoEnd":             {begin + body, "line 1: the block has no END line"},
		"NoEndThenGood":     {begin + body + good, "another block begins"},
		"CutBase64":         {begin + body[:30] + "\n" + end + good, "line 3: the base64 of the block that begins on line 1"},
		"StrayBits":         {begin + "AAAAAAAAAAF=\n" + end + good, "line 3: the base64"},
		"Empty":             {begin + end + good, "line 2: the block that begins on line 1 is empty"},
		"OtherEnd":          {begin + body + "-----END X509 CRL-----\n" + good, "differs from the BEGIN line"},
		"DamagedEnd":        {begin + body + "-----END CERTIFICATE----\n" + good, "a BEGIN or END line is damaged"},
		"DamagedBegin":      {"----BEGIN CERTIFICATE-----\n" + body + end + good, "line 1: a BEGIN or END line is damaged"},
		"LowerCase":         {strings.ToLower(begin) + body + end + good, "line 1: a BEGIN or END line is damaged"},
		"EnDashes":          {"–––BEGIN CERTIFICATE–––\n" + body + "–––END CERTIFICATE–––\n" + good, "line 1: a BEGIN or END line is damaged"},
		"LostBreaks":        {strings.ReplaceAll(good, "\n", " "), "line 1: a BEGIN or END line is damaged"},
		"EscapedBreaks":     {strings.ReplaceAll(good, "\n", `\n`), "line 1: a BEGIN or END line is damaged"},
		"NoBegin":           {body + end + good, "line 1: base64 is outside of a block"},
		"NoBoundary":        {good + body, "base64 is outside of a block"},
		"BlockAndCharacter": {"x" + good, "line 1: a BEGIN or END line is damaged"},
		"EndAlone":          {end + good, "line 1: an END line has no BEGIN line"},
		"Encrypted":         {strings.Replace(good, "\n", "\nProc-Type: 4,ENCRYPTED\n\n", 1), "line 2: the block is encrypted"},
		"Headers":           {strings.Replace(good, "\n", "\nComment: 4\n\n", 1), "line 2: the block has headers"},
		"DERBehind":         {good + "\x30\x82\x01\x00", "is not text"},
		"UTF16":             {"\xFF\xFE-\x00-\x00", "line 1: the text is UTF-16"},
	} {
		blocks, err := Blocks([]byte(tc.text))
		if err == nil || !strings.Contains(err.Error(), tc.says) || blocks != nil {
			t.Errorf("%s: %d blocks, %v; want %q", name, len(blocks), err, tc.says)
		}
	}
}

// TestNoByteLosesABlock changes, removes and adds each byte of a text. Each time, all blocks are read or there is an
// error.
func TestNoByteLosesABlock(t *testing.T) {
	text := []byte(block("CERTIFICATE", bytes.Repeat([]byte{0x30, 0x01, 0xff}, 50)) + "a comment\n" + block("CERTIFICATE", bytes.Repeat([]byte{0x31}, 50)))
	check := func(changed []byte, at int) {
		if blocks, err := Blocks(changed); err == nil && len(blocks) != 2 {
			t.Errorf("at byte %d: %d blocks of %q", at, len(blocks), changed)
		}
	}
	for at := range text {
		for _, c := range []byte("-=A \nx!:\x00\xff") {
			check(bytes.Join([][]byte{text[:at], text[at+1:]}, []byte{c}), at) // changed
			check(bytes.Join([][]byte{text[:at], text[at:]}, []byte{c}), at)   // added
		}
		check(bytes.Join([][]byte{text[:at], text[at+1:]}, nil), at) // removed
	}
}

func FuzzBlocks(f *testing.F) {
	f.Add(block("X", []byte("one")) + "comment\n" + block("Y", []byte("two")))
	f.Fuzz(func(t *testing.T, text string) {
		blocks, err := Blocks([]byte(text))
		if err != nil {
			if !utf8.ValidString(err.Error()) {
				t.Errorf("the error is not UTF-8: %q", err)
			}
			return
		}
		var again string
		for _, b := range blocks {
			again += block(b.Type, b.DER)
		}
		back, err := Blocks([]byte(again))
		if err != nil || len(back) != len(blocks) {
			t.Errorf("%q: %d blocks, then %d, %v", text, len(blocks), len(back), err)
		}
	})
}

func TestOne(t *testing.T) {
	der := []byte{0x30, 0x03, 0x02, 0x01, 0x05}
	good, damaged := block("X509 CRL", der), "-----BEGIN X509 CRL-----\nAAA\n-----END X509 CRL-----\n"
	for name, content := range map[string]string{"PEM": "comment\n" + good, "DER": string(der)} {
		if got, err := Object([]byte(content), CRLType); err != nil || !bytes.Equal(got, der) {
			t.Errorf("%s: %x, %v", name, got, err)
		}
	}
	for says, text := range map[string]string{
		"is not a PEM block of type X509 CRL: line 3: the base64":                                                           damaged + good,
		"is not a PEM block of type X509 CRL: line 1: the block is of type CERTIFICATE, not X509 CRL":                       block("CERTIFICATE", der),
		"is not a PEM block of type X509 CRL: line 1: the type of the block is not X509 CRL":                                block("hunter2", der),
		"holds more than one PEM block: the second begins on line 5":                                                        good + "\n" + good,
		"is not a PEM block of type X509 CRL: line 1: a BEGIN or END line is damaged, or has other text before or after it": "----BEGIN X509 CRL",
	} {
		if got, err := Object([]byte(text), CRLType); err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%x, %v; want %q", got, err, says)
		}
	}
	if _, err := One(nil, CRLType); err == nil {
		t.Error("no block is one")
	}
}

func TestPool(t *testing.T) {
	one, two := newPair(t, "one"), newPair(t, "two")
	good, other := block(CertificateType, one.cert), block(CertificateType, two.cert)
	if pool, err := Pool([]byte(good + "and\n" + other)); err != nil || len(pool.Subjects()) != 2 { //nolint:staticcheck // the test made the pool
		t.Errorf("two certificates: %v", err)
	}
	for says, text := range map[string]string{
		"holds no PEM certificate":                                                                      "nothing\n",
		"is not a list of PEM certificates: line 3: the base64":                                         "-----BEGIN CERTIFICATE-----\nAAA\n-----END CERTIFICATE-----\n" + good,
		"has a PEM block on line 1 that is not an X.509 certificate: x509: ":                            block(CertificateType, one.cert[:90]) + good,
		"is not a list of PEM certificates: line 1: the block is of type PRIVATE KEY, not CERTIFICATE":  block("PRIVATE KEY", one.key) + good,
		"is not a list of PEM certificates: line 1: the block is of type TRUSTED CERTIFICATE, not CERT": block("TRUSTED CERTIFICATE", one.cert) + good,
	} {
		if _, err := Pool([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%v; want %q", err, says)
		}
	}
}

func TestKeyPair(t *testing.T) {
	one, two := newPair(t, "one"), newPair(t, "two")
	cert, key := block(CertificateType, one.cert), block("PRIVATE KEY", one.key)
	damaged := "-----BEGIN CERTIFICATE-----\nAAA\n-----END CERTIFICATE-----\n"
	for name, texts := range map[string][2]string{
		"Apart": {cert, key}, "Together": {key + cert, key + cert}, "Chain": {cert + block(CertificateType, two.cert), key},
		"Parameters": {cert, block("EC PARAMETERS", []byte{6, 8}) + key}, "Indented": {"  " + strings.ReplaceAll(cert, "\n", "\r\n  "), key},
	} {
		if pair, err := KeyPair([]byte(texts[0]), []byte(texts[1])); err != nil || !bytes.Equal(pair.Leaf.Raw, one.cert) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for says, texts := range map[string][2]string{
		"the certificate file holds no PEM certificate":         {key, key},
		"the certificate file is not a list":                    {damaged + cert, key},
		"the certificate file has a PEM block on line":          {cert + block(CertificateType, two.cert[:90]), key},
		"the key file holds no PEM private key":                 {cert, cert},
		"the key file is not a PEM private key: line 3":         {cert, strings.ReplaceAll(damaged, "CERTIFICATE", "PRIVATE KEY") + key},
		"the key file holds more than one private key":          {cert, key + key},
		"the key file has an encrypted private key":             {cert, block("ENCRYPTED PRIVATE KEY", one.key)},
		"the certificate and the key cannot be used together: ": {cert, block("PRIVATE KEY", two.key)},
	} {
		if _, err := KeyPair([]byte(texts[0]), []byte(texts[1])); err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%v; want %q", err, says)
		}
	}
}

// TestCauses checks that the error contains the cause if Go's parser rejects a certificate. The files were made with
// openssl ecparam and openssl req -x509.
func TestCauses(t *testing.T) {
	for file, says := range map[string]string{
		"negative": "negative serial number", "secp256k1": "unsupported elliptic curve", "explicit": "invalid ECDSA parameters",
	} {
		text, err := os.ReadFile(filepath.Join("testdata", file+".crt"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Certificates(text); err == nil || err.Error() != "has a PEM block on line 1 that is not an X.509 certificate: x509: "+says {
			t.Errorf("%s: %v", file, err)
		}
	}
	cert := newPair(t, "one").cert
	if _, err := Certificate(append(bytes.Clone(cert), 0)); err == nil || !strings.HasSuffix(err.Error(), "trailing data") {
		t.Errorf("a certificate and a byte: %v", err)
	}
	if _, err := Request(cert); err == nil || !strings.Contains(err.Error(), "request: ") {
		t.Errorf("a certificate as a request: %v", err)
	}
	if _, err := RevocationList(cert); err == nil || !strings.Contains(err.Error(), "list: ") {
		t.Errorf("a certificate as a list: %v", err)
	}
}

func TestCause(t *testing.T) {
	for _, text := range []string{"short", strings.Repeat("ü", 300), "\xff\x00\n\u202e" + strings.Repeat("a€", 200)} {
		got := Cause(errors.New(text))
		if len(got) > maxCause || !utf8.ValidString(got) || strings.ContainsAny(got, "\x00\n\u202e") {
			t.Errorf("%q: %q", text, got)
		}
	}
	if got := Cause(errors.New("short")); got != "short" {
		t.Errorf("got %q", got)
	}
}
