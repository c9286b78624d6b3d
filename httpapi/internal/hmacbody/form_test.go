package hmacbody

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

var someMAC = base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0xfb}, keyserver.MACSize))

// The MAC to verify may be at any position, whether the message is buffered, streamed or
// stored in a file.
func TestVerifyForm(t *testing.T) {
	orders := [][3]string{
		{"name", "mac", "data"}, {"name", "data", "mac"}, {"mac", "name", "data"}, {"mac", "data", "name"}, {"data", "mac", "name"}, {"data", "name", "mac"},
	}
	for _, size := range []int{0, 5, 300_000} {
		message := bytes.Repeat([]byte{7}, size)
		for _, named := range []string{"ttag", "lineage"} {
			for _, order := range orders {
				var members []string
				for _, member := range order {
					members = append(members, map[string]string{
						"name": fmt.Sprintf("%q:%q", named, link), "mac": fmt.Sprintf("%q:%q", "mac", someMAC),
						"data": fmt.Sprintf("%q:%q", "data", base64.StdEncoding.EncodeToString(message)),
					}[member])
				}
				text := "{" + strings.Join(members, ",") + "}"
				for what, src := range map[string]io.Reader{"whole": strings.NewReader(text), "half": iotest.HalfReader(strings.NewReader(text))} {
					b, err := Read(Verify, src, Spool{Dir: t.TempDir()})
					if err != nil {
						t.Fatalf("%d bytes, %v, %s: %v", size, order, what, err)
					}
					var got bytes.Buffer
					_, err = b.WriteTo(&got)
					mac, choice := b.MAC(), b.Choice()
					b.Close()
					if err != nil || !bytes.Equal(got.Bytes(), message) || base64.StdEncoding.EncodeToString(mac[:]) != someMAC ||
						(choice.Lineage != "") != (named == "lineage") || choice.Named().Base64() != link {
						t.Errorf("%d bytes, %v, %s: %d bytes, %x, %v, %v", size, order, what, got.Len(), mac, choice, err)
					}
				}
			}
		}
	}
}

func TestFormsRefuse(t *testing.T) {
	long := strings.Repeat("QUJD", 60000)
	cut := base64.StdEncoding.EncodeToString(make([]byte, keyserver.MACSize-1))
	verify := func(mac string) string { return `{"ttag":"` + link + `","mac":` + mac + `,"data":"QUJD"}` }
	cases := map[string]struct {
		form        *Form
		body, names string
	}{
		"MACNotAsked":  {HMAC, `{"hiddenLink":"` + link + `","data":"","mac":"` + someMAC + `"}`, "mac"},
		"LinkOfHMAC":   {MAC, `{"hiddenLink":"` + link + `","data":""}`, "hiddenLink"},
		"KeyOfLine":    {MAC, `{"ttag":"` + link + `","data":""}`, "ttag"},
		"NoName":       {Verify, `{"data":"","mac":"` + someMAC + `"}`, "ttag or lineage"},
		"TwoNames":     {Verify, `{"ttag":"` + link + `","lineage":"` + link + `","data":"","mac":"` + someMAC + `"}`, "lineage"},
		"NameTwice":    {Verify, `{"ttag":"` + link + `","ttag":"` + link + `","data":"","mac":"` + someMAC + `"}`, "ttag"},
		"NoMAC":        {Verify, `{"ttag":"` + link + `","data":""}`, "mac"},
		"NoMACLong":    {Verify, `{"ttag":"` + link + `","data":"` + long + `"}`, "mac"},
		"MACTwice":     {Verify, `{"mac":"` + someMAC + `",` + verify(`"` + someMAC + `"`)[1:], "mac"},
		"NullMAC":      {Verify, verify("null"), "mac"},
		"NumberMAC":    {Verify, verify("7"), "mac"},
		"EmptyMAC":     {Verify, verify(`""`), "48 bytes, not 0"},
		"CutMAC":       {Verify, verify(`"` + cut + `"`), "48 bytes, not 47"},
		"ExtendedMAC":  {Verify, verify(`"` + someMAC + `AA=="`), "48 bytes, not 49"},
		"StrayMAC":     {Verify, verify(`"QR=="`), "canonical base64"},
		"CutMACBehind": {Verify, `{"ttag":"` + link + `","data":"` + long + `","mac":"` + cut + `"}`, "48 bytes, not 47"},
		"CutMACSpool":  {Verify, `{"data":"` + long + `","mac":"` + cut + `","ttag":"` + link + `"}`, "48 bytes, not 47"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b, err := Read(tc.form, strings.NewReader(tc.body), Spool{Dir: t.TempDir()})
			if err == nil {
				_, err = b.WriteTo(io.Discard)
				b.Close()
			}
			f := fault.As(err)
			if f == nil || f.Code != fault.BadRequest || !strings.Contains(f.Detail, tc.names) {
				t.Fatalf("got %v, want a BAD_REQUEST that names %q", err, tc.names)
			}
		})
	}
}
