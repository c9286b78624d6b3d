package schema

import (
	"bytes"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
)

func TestDER(t *testing.T) {
	der := bytes.Repeat([]byte{0x30, 0xff}, 60)
	block := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	damaged := "-----BEGIN CERTIFICATE-----\nAAA\n-----END CERTIFICATE-----\n"
	encoded := base64.StdEncoding.EncodeToString(der)
	for name, text := range map[string]string{
		"Base64": encoded, "PEM": block, "PEMWithCarriageReturns": strings.ReplaceAll(block, "\n", "\r\n"),
		"PEMWithoutLastBreak": strings.TrimSpace(block), "Base64OfPEM": base64.StdEncoding.EncodeToString([]byte(block)),
		"TextBefore": "subject=x\n" + block, "TextAfter": block + "x", "ByteOrderMark": "\uFEFF" + block, "Indented": "  " + strings.ReplaceAll(block, "\n", "\n  "),
	} {
		var got DER
		if err := got.UnmarshalText([]byte(text)); err != nil || !bytes.Equal(got, der) {
			t.Errorf("%s: got %d bytes, %v", name, len(got), err)
		}
	}
	for name, text := range map[string]string{
		"Empty": "", "BrokenLines": encoded[:64] + "\n" + encoded[64:], "NoPadding": "AAAAAAAAAAE", "StrayBits": "AAAAAAAAAAF=",
		"TwoBlocks": block + block, "DamagedFirst": damaged + block, "DamagedLast": block + damaged, "Headers": strings.Replace(block, "\n", "\nProc-Type: 4,ENCRYPTED\n\n", 1),
		"EmptyBlock": "-----BEGIN X-----\n-----END X-----\n", "OpenBlock": strings.Split(block, "-----END")[0],
		"Base64OfDamagedFirst": base64.StdEncoding.EncodeToString([]byte(damaged + block)),
		"Base64OfTwo":          base64.StdEncoding.EncodeToString([]byte(block + block)),
	} {
		got := DER("kept")
		if err := got.UnmarshalText([]byte(text)); err == nil || string(got) != "kept" {
			t.Errorf("%s: got %q, %v", name, []byte(got), err)
		}
	}
	if text, err := DER(der).MarshalText(); err != nil || string(text) != encoded {
		t.Errorf("spelt %s, %v", text, err)
	}
	if printed := fmt.Sprintf("%v %x %s", DER(der), DER(der), DER(der)); strings.Contains(printed, "30ff") {
		t.Error("prints its bytes")
	}
}

func TestIssuerDigest(t *testing.T) {
	for text, want := range map[string]IssuerDigest{
		strings.Repeat("ab", 32): IssuerDigest(strings.Repeat("AB", 32)), strings.Repeat("0F", 48): IssuerDigest(strings.Repeat("0F", 48)),
		"": "", "AB": "", strings.Repeat("g", 64): "", strings.Repeat("a", 95): "", strings.Repeat("a", 128): "",
	} {
		var got IssuerDigest
		if err := got.UnmarshalText([]byte(text)); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v", text, got, err)
		}
	}
}
