package canonical

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
)

// Each text here is accepted by some other base64 decoder. Decode accepts only canonical base64.
func TestNotCanonical(t *testing.T) {
	long := strings.Repeat("QUJD", 64) // long enough for the vector decoder
	cases := map[string]string{
		"stray bits in two characters":   "QR==",
		"stray bits in three characters": "QUF=",
		"no padding for one byte":        "QQ",
		"no padding for two bytes":       "QUI",
		"half padding":                   "QQ=",
		"extra padding":                  "QQ===",
		"padding after a whole group":    "QUJD=",
		"padding alone":                  "====",
		"two pads alone":                 "==",
		"one character":                  "Q",
		"three pads":                     "Q===",
		"padding inside":                 "QQ==QUJD",
		"padding inside a group":         "Q=Q=",
		"URL alphabet":                   "-_-_",
		"URL alphabet in part":           "QU_D",
		"space":                          "QUJD QUJD",
		"space for a character":          "QUJ ",
		"leading space":                  " QUJD",
		"trailing space":                 "QUJD ",
		"tab":                            "QU\tJD",
		"form feed":                      "QUJ\fD",
		"trailing line feed":             "QUJD\n",
		"trailing CRLF":                  "QUJD\r\n",
		"leading CRLF":                   "\r\nQUJD",
		"CRLF inside":                    "QU\r\nJD",
		"CRLF that keeps the length":     "QU\r\nJDQQ",
		"four line feeds":                "\n\n\n\n",
		"four line feeds inside":         "QUJD\n\n\n\nQUJD",
		"line feeds before padding":      "QQ\r\n==",
		"line feed between pads":         "QQ=\n=\r\n\n",
		"NUL":                            "QUJ\x00",
		"high bit":                       "QUJ\xc4",
		"full-width letter":              "Ａ",
		"comma of IMAP":                  "QUJ,",
	}
	for name, text := range cases {
		for _, text := range []string{text, long + text, text + long} {
			if strings.HasSuffix(text, long) && !strings.Contains(text, "=") && strings.Trim(text, "QUIJDR") == "" {
				continue // a short tail is valid if it follows long
			}
			if b, err := Decode(text); err == nil {
				t.Errorf("%s: %q was read as %x", name, text, b)
			}
		}
	}
}

// Every byte that is not base64 is refused, at every position of a text that is long enough for the vector decoder.
func TestEveryForeignByteEverywhere(t *testing.T) {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	good := bytes.Repeat([]byte("QUJD"), 25)
	dst := make([]byte, len(good))
	for at := range good {
		for c := range 256 {
			if strings.IndexByte(alphabet, byte(c)) >= 0 || (c == '=' && at == len(good)-1) {
				continue
			}
			text := bytes.Clone(good)
			text[at] = byte(c)
			if _, err := DecodeInto(dst, text); err == nil {
				t.Fatalf("byte %#x at %d was accepted", c, at)
			}
		}
	}
}

func TestRoundTrip(t *testing.T) {
	for n := range 200 {
		raw := bytes.Repeat([]byte{byte(n), 0xff, 0x00}, n)[:n]
		got, err := Decode(Encode(raw))
		if err != nil || !bytes.Equal(got, raw) {
			t.Fatalf("%d bytes come back as %x, %v", n, got, err)
		}
	}
}

// DecodeInto does not write beyond its documented room, although it decodes complete blocks.
func TestDecodeIntoKeepsToItsRoom(t *testing.T) {
	for n := range 200 {
		text := []byte(Encode(make([]byte, n)))
		buf := bytes.Repeat([]byte{0xee}, len(text)/4*3+64)
		room := len(text) / 4 * 3
		if _, err := DecodeInto(buf[:room:room], text); err != nil {
			t.Fatal(err)
		}
		if bytes.Count(buf[room:], []byte{0xee}) != len(buf)-room {
			t.Fatalf("%d bytes: wrote behind its room", n)
		}
	}
}

func TestDecodeAllocatesNothing(t *testing.T) {
	text, dst := []byte(Encode(make([]byte, 1000))), make([]byte, 1100)
	if n := testing.AllocsPerRun(100, func() { _, _ = DecodeInto(dst, text) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

// A text is accepted if and only if the standard library encodes the decoded bytes to it.
func FuzzBase64(f *testing.F) {
	for _, s := range []string{"", "QQ==", "QR==", "QUI=", "QUJD", "QU\r\nJD", strings.Repeat("QUJD", 40) + "\n\n\n\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		raw, stdErr := base64.StdEncoding.DecodeString(text)
		canonical := stdErr == nil && base64.StdEncoding.EncodeToString(raw) == text
		got, err := Decode(text)
		if (err == nil) != canonical {
			t.Fatalf("%q: accepted is %v, canonical is %v", text, err == nil, canonical)
		}
		if err == nil && (!bytes.Equal(got, raw) || Encode(got) != text || DecodedLen([]byte(text)) != len(raw)) {
			t.Fatalf("%q: read %x, want %x", text, got, raw)
		}
	})
}
