package controllers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

const damagedPEM = "-----BEGIN CERTIFICATE-----\nAAA\n-----END CERTIFICATE-----\n"

// A damaged certificate is named by its line, never skipped, and a certificate that
// cannot be parsed is rejected with the parser's cause.
func TestDamagedCertificates(t *testing.T) {
	good := rig.NewCA(t, "good").PEM
	negative, err := os.ReadFile(filepath.Join("..", "internal", "pki", "certtext", "testdata", "negative.crt"))
	rig.Must(t, err)
	for name, tc := range map[string]struct{ text, ca, bundle string }{ // empty: it is accepted
		"Good":         {"# a comment\r\n" + strings.ReplaceAll(good, "\n", "\r\n"), "", ""},
		"Indented":     {"\uFEFF  " + strings.ReplaceAll(good, "\n", "\n  "), "", ""},
		"Two":          {good + good, "more than one PEM block", ""},
		"DamagedFirst": {damagedPEM + good, "line 3: the base64 of the block that begins on line 1", "line 3: the base64 of the block that begins on line 1"},
		"DamagedLast":  {good + "-----BEGIN CERTIFICATE-----\nAAAA\n", "the block has no END line", "the block has no END line"},
		"Negative":     {string(negative), "is not an X.509 certificate: x509: negative serial number", "x509: negative serial number"},
		"NegativeLast": {good + string(negative), "more than one PEM block", "x509: negative serial number"},
	} {
		check := func(what, says string, err error) {
			if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
				t.Errorf("%s, as a %s: %v, want %q", name, what, err, says)
			}
		}
		_, err := parseCA([]byte(tc.text))
		check("CA", tc.ca, err)
		_, err = bundle(t.Context(), nil, &v1alpha1.CABundle{Inline: &tc.text})
		check("bundle", tc.bundle, err)
	}
}
