package schema

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	jsonv2 "github.com/go-json-experiment/json"
)

// If a request allows several spellings of a value, a response has only one of them, in both JSON packages.
func TestOneSpellingInAnswers(t *testing.T) {
	var d DecimalID
	for _, sent := range []string{`1001`, `"1001"`} {
		if err := json.Unmarshal([]byte(sent), &d); err != nil {
			t.Fatal(err)
		}
		both(t, d, `"1001"`)
	}
	var r Rights
	for _, sent := range []string{`3`, `["READ","WRITE"]`, `["WRITE","READ","READ"]`} {
		if err := json.Unmarshal([]byte(sent), &r); err != nil {
			t.Fatal(err)
		}
		both(t, r, `3`)
	}
	var h HexID
	if err := h.UnmarshalText([]byte("00000000000003E9")); err != nil {
		t.Fatal(err)
	}
	both(t, h, `"00000000000003e9"`)
	both(t, Base64ID(h), `"AAAAAAAAA+k="`)
	both(t, Stamp(h), `"AAAAAAAAA+k="`)
	both(t, HiddenLink("k"), `"aw=="`)
	both(t, SystemID(1<<32-1), `4294967295`)
	both(t, Base64(nil), `""`)
	both(t, Secret("shown on the wire"), `"shown on the wire"`)
}

func both(t *testing.T, v any, want string) {
	t.Helper()
	v1, err1 := json.Marshal(v)
	v2, err2 := jsonv2.Marshal(v)
	if err1 != nil || err2 != nil || string(v1) != want || string(v2) != want {
		t.Errorf("%T is written %s and %s, want %s (%v, %v)", v, v1, v2, want, err1, err2)
	}
}

func TestSecretsDoNotPrint(t *testing.T) {
	secret := Secret("hunter2")
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "secret", secret, "request", fmt.Sprintf("%+v", LoginRequest{Password: secret}))
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "secret", secret, "material", Base64("hunter2"))
	if strings.Contains(log.String(), "hunter2") {
		t.Errorf("logged: %s", log.String())
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		for _, v := range []any{secret, &secret, LoginRequest{Password: secret}, Base64("hunter2"), []Base64{Base64("hunter2")}} {
			out := strings.ToLower(fmt.Sprintf(verb, v))
			if strings.Contains(out, "hunter2") || strings.Contains(out, "68756e74") || strings.Contains(out, "104 117") {
				t.Errorf("%s of %T prints %s", verb, v, out)
			}
		}
	}
}

// FuzzIDs checks that accepted text is written back as the same identifier.
func FuzzIDs(f *testing.F) {
	for _, s := range []string{`1`, `"1"`, `"00000000000003e9"`, `"AAAAAAAAA+k="`, `9007199254740992`, `9007199254740993`, `1.0`, `1e3`, `-0`, `"\u0031"`, `null`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !json.Valid([]byte(text)) {
			return
		}
		again(t, text, new(DecimalID))
		again(t, text, new(HexID))
		again(t, text, new(Base64ID))
		again(t, text, new(SystemID))
		again(t, text, new(HiddenLink))
		again(t, text, new(Rights))
		again(t, text, new(Stamp))
	})
}

func again[T comparable](t *testing.T, text string, v *T) {
	t.Helper()
	if jsonv2.Unmarshal([]byte(text), v) != nil {
		return
	}
	out, err := jsonv2.Marshal(*v)
	if err != nil {
		var none T
		if *v == none {
			return // null
		}
		t.Fatalf("%s: %v", text, err)
	}
	var back T
	if text != "null" && (jsonv2.Unmarshal(out, &back) != nil || back != *v) {
		t.Errorf("%T: %s is written %s", *v, text, out)
	}
}

// Text that is not an id is refused, and the error says what is expected.
func TestTextsThatAreNoIDs(t *testing.T) {
	hex := func(s string) error { _, err := ParseHexID(s); return err }
	decimal := func(s string) error { _, err := ParseDecimalID(s); return err }
	base64 := func(s string) error { _, err := ParseBase64ID(s); return err }
	blob := func(s string) error { _, err := ParseTrustBlob(s); return err }
	for text, parse := range map[string]func(string) error{
		"": hex, "xyz": hex, "../roles": hex, "00000000000003e9 ": hex,
		"-1": decimal, "01": decimal, "../1": decimal, "18446744073709551616": decimal,
		"AAAAAAAAAAE": base64, "0000000000000001": base64, "../": base64,
		"7 peer 9443 AAAA": blob,
	} {
		if err := parse(text); err == nil || !strings.HasPrefix(err.Error(), "must ") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if id, err := ParseHexID("00000000000003E9"); err != nil || id != (HexID{6: 3, 7: 0xe9}) {
		t.Errorf("read %s, %v", id, err)
	}
	if id, err := ParseDecimalID("1001"); err != nil || id != (DecimalID{6: 3, 7: 0xe9}) {
		t.Errorf("read %s, %v", id, err)
	}
	if id, err := ParseBase64ID("AAAAAAAAA+k="); err != nil || id != (Base64ID{6: 3, 7: 0xe9}) {
		t.Errorf("read %s, %v", id, err)
	}
}
