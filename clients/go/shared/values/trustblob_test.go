package values_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
)

func TestTrustBlobIsRefused(t *testing.T) {
	label := strings.Repeat("a", 63) + "."
	cases := map[string]struct {
		text string
		says string
	}{
		"Empty":           {"", "four fields"},
		"ThreeFields":     {"7\tpeer\t9443", "it has 3"},
		"FiveFields":      {"7\tpeer\t9443\tMAA=\t", "it has 5"},
		"Spaces":          {"7 peer 9443 MAA=", "it has 1"},
		"NoSystemID":      {"\tpeer\t9443\tMAA=", "system id"},
		"NegativeID":      {"-1\tpeer\t9443\tMAA=", "system id"},
		"SignedID":        {"+7\tpeer\t9443\tMAA=", "system id"},
		"LeadingZero":     {"07\tpeer\t9443\tMAA=", "system id"},
		"HexID":           {"0x7\tpeer\t9443\tMAA=", "system id"},
		"IDTooLarge":      {"4294967296\tpeer\t9443\tMAA=", "system id"},
		"SpaceBeforeID":   {" 7\tpeer\t9443\tMAA=", "system id"},
		"NoName":          {"7\t\t9443\tMAA=", "server name"},
		"NameWithSpace":   {"7\tmy peer\t9443\tMAA=", "server name"},
		"NameWithPort":    {"7\tpeer:9443\t9443\tMAA=", "server name"},
		"NameWithSlash":   {"7\tpeer/\t9443\tMAA=", "server name"},
		"NameNotASCII":    {"7\tpéer\t9443\tMAA=", "server name"},
		"EmptyLabel":      {"7\tpeer..example\t9443\tMAA=", "server name"},
		"OnlyADot":        {"7\t.\t9443\tMAA=", "server name"},
		"LongLabel":       {"7\t" + strings.Repeat("a", 64) + "\t9443\tMAA=", "server name"},
		"LongName":        {"7\t" + strings.Repeat(label, 4) + "\t9443\tMAA=", "server name"},
		"Zone":            {"7\tfe80::1%eth0\t9443\tMAA=", "server name"},
		"Brackets":        {"7\t[::1]\t9443\tMAA=", "server name"},
		"NoPort":          {"7\tpeer\t\tMAA=", "port"},
		"PortZero":        {"7\tpeer\t0\tMAA=", "port"},
		"PortTooLarge":    {"7\tpeer\t65536\tMAA=", "port"},
		"PortLeadingZero": {"7\tpeer\t0443\tMAA=", "port"},
		"PortByName":      {"7\tpeer\thttps\tMAA=", "port"},
		"NoChain":         {"7\tpeer\t9443\t", "base64"},
		"NoPadding":       {"7\tpeer\t9443\tMAA", "base64"},
		"StrayBits":       {"7\tpeer\t9443\tMAB=", "base64"},
		"LineBreak":       {"7\tpeer\t9443\tMA\r\nA=", "base64"},
		"TrailingNewline": {"7\tpeer\t9443\tMAA=\n", "base64"},
		"URLAlphabet":     {"7\tpeer\t9443\t____", "base64"},
		"TooLong":         {"7\tpeer\t9443\t" + strings.Repeat("AAAA", values.MaxTrustBlob/4), "characters"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := values.ParseTrustBlob(tc.text)
			if !errors.Is(err, values.ErrTrustBlob) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want a sentence about %q", err, tc.says)
			}
		})
	}
}

func TestTrustBlob(t *testing.T) {
	cases := map[string]values.TrustBlob{
		"4294967295\tpeer.example.com\t65535\tMAA=": {System: 4294967295, ServerName: "peer.example.com", Port: 65535, Chain: []byte{0x30, 0}},
		"0\t192.0.2.7\t1\tMAA=":                     {ServerName: "192.0.2.7", Port: 1, Chain: []byte{0x30, 0}},
		"7\t2001:db8::7\t9443\tMAA=":                {System: 7, ServerName: "2001:db8::7", Port: 9443, Chain: []byte{0x30, 0}},
		"7\tPeer_1.\t9443\tMAA=":                    {System: 7, ServerName: "Peer_1.", Port: 9443, Chain: []byte{0x30, 0}},
	}
	for text, want := range cases {
		got, err := values.ParseTrustBlob(text)
		if err != nil || !cmp.Equal(got, want) || got.String() != text {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// A blob has exactly one text: String returns an accepted text byte for byte, and ParseTrustBlob accepts the result of
// String.
func TestTrustBlobHasOneSpelling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := values.TrustBlob{
			System:     values.SystemID(rapid.Uint32().Draw(t, "system")),
			ServerName: rapid.StringMatching(`[a-zA-Z0-9_-]{1,20}(\.[a-zA-Z0-9_-]{1,20}){0,3}`).Draw(t, "name"),
			Port:       rapid.Uint16Range(1, 65535).Draw(t, "port"),
			Chain:      rapid.SliceOfN(rapid.Byte(), 1, 100).Draw(t, "chain"),
		}
		got, err := values.ParseTrustBlob(want.String())
		if err != nil || !cmp.Equal(got, want) {
			t.Fatalf("got %+v, %v; want %+v", got, err, want)
		}
		edited := []byte(want.String())
		edited[rapid.IntRange(0, len(edited)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		if got, err := values.ParseTrustBlob(string(edited)); err == nil && got.String() != string(edited) {
			t.Fatalf("%q is read as %q", edited, got)
		}
	})
}
