package values

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// An identifier has three text formats. No parser accepts another format, unless the text
// is valid in both.
func TestSpellings(t *testing.T) {
	cases := map[string]struct {
		id                   ID
		hex, decimal, base64 string
	}{
		"Zero":     {ID{}, "0000000000000000", "0", "AAAAAAAAAAA="},
		"One":      {ID{7: 1}, "0000000000000001", "1", "AAAAAAAAAAE="},
		"Over2^53": {IDFromUint64(1<<53 + 1), "0020000000000001", "9007199254740993", "ACAAAAAAAAE="},
		"Max":      {ID{255, 255, 255, 255, 255, 255, 255, 255}, "ffffffffffffffff", "18446744073709551615", "//////////8="},
		"Digits":   {IDFromUint64(0x1234567890123456), "1234567890123456", "1311768467284833366", "EjRWeJASNFY="},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.id.Hex() != tc.hex || tc.id.Decimal() != tc.decimal || tc.id.Base64() != tc.base64 || tc.id.String() != tc.hex {
				t.Errorf("spelt %s, %s, %s", tc.id.Hex(), tc.id.Decimal(), tc.id.Base64())
			}
			for _, p := range []struct {
				name  string
				parse func(string) (ID, error)
				text  string
			}{{"hex", ParseHexID, tc.hex}, {"HEX", ParseHexID, strings.ToUpper(tc.hex)}, {"decimal", ParseDecimalID, tc.decimal}, {"base64", ParseBase64ID, tc.base64}} {
				if got, err := p.parse(p.text); err != nil || got != tc.id {
					t.Errorf("%s %s is read as %v, %v", p.name, p.text, got, err)
				}
			}
			if tc.id.IsZero() != (name == "Zero") || IDFromUint64(tc.id.Uint64()) != tc.id {
				t.Error("zero or number is wrong")
			}
		})
	}
}

func TestSpellingsRefused(t *testing.T) {
	cases := map[string]struct {
		parse func(string) (ID, error)
		texts []string
	}{
		"hex": {ParseHexID, []string{
			"", "0", "1001", "000000000000000", "00000000000000000", "000000000000000g", "0x00000000000001", " 000000000000001",
			"000000000000001 ", "-000000000000001", "AAAAAAAAAAE=", "0000_0000_000001", "00000000000000é",
		}},
		"decimal": {ParseDecimalID, []string{
			"", "-1", "+1", "01", "00", " 1", "1 ", "1.0", "1e3", "0x1", "1_000", "18446744073709551616", "99999999999999999999", "ff", "１",
		}},
		"base64": {ParseBase64ID, []string{
			"", "AAAAAAAAAAE", "AAAAAAAAAAF=", "AAAAAAAAAQ==", "AAAAAAAAAAAAAAAA", "__________8=", "AAAA\r\nAAAAAAE=", "AAAAAAAAAAE=\n",
			"0000000000000001", "1", "AAAAAAAAAAE==",
		}},
	}
	for name, tc := range cases {
		for _, text := range tc.texts {
			if id, err := tc.parse(text); !errors.Is(err, ErrMalformedID) {
				t.Errorf("%s %q is read as %v, %v", name, text, id, err)
			}
		}
	}
}

func TestNewIDIsNeverZero(t *testing.T) {
	random := io.MultiReader(bytes.NewReader(make([]byte, 16)), bytes.NewReader([]byte{0, 0, 0, 0, 0, 0, 0, 9}))
	if id, err := NewID(random); err != nil || id != IDFromUint64(9) {
		t.Fatalf("drew %v, %v", id, err)
	}
	if _, err := NewID(iotest.ErrReader(io.ErrClosedPipe)); !errors.Is(err, io.ErrClosedPipe) {
		t.Fatalf("a broken source: %v", err)
	}
}

func TestHiddenLink(t *testing.T) {
	link := NewHiddenLink(0x01020304, IDFromUint64(0x05060708090a0b0c))
	if link.Base64() != "AQIDBAUGBwgJCgsM" || link.String() != link.Base64() {
		t.Errorf("spelt %s", link)
	}
	system, key, ok := link.Split()
	if !ok || system != 0x01020304 || key.Uint64() != 0x05060708090a0b0c {
		t.Errorf("split into %v, %v, %v", system, key, ok)
	}
	for _, l := range []HiddenLink{"", "a", link[:11], link + "a"} {
		if _, _, ok := l.Split(); ok {
			t.Errorf("%d bytes are split", len(l))
		}
	}
}

// Each parser accepts only the text that formatting its result returns. The hexadecimal parser also accepts upper case.
func FuzzIDs(f *testing.F) {
	for _, s := range []string{"0000000000000001", "1", "AAAAAAAAAAE=", "00000000000003E9", "18446744073709551615", "//////////8=", "+1", "01"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if id, err := ParseHexID(text); err == nil && id.Hex() != strings.ToLower(text) {
			t.Errorf("hex %q is %s", text, id.Hex())
		}
		if id, err := ParseDecimalID(text); err == nil && id.Decimal() != text {
			t.Errorf("decimal %q is %s", text, id.Decimal())
		}
		if id, err := ParseBase64ID(text); err == nil && id.Base64() != text {
			t.Errorf("base64 %q is %s", text, id.Base64())
		}
	})
}
