package controllers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

const damagedPEM = "-----BEGIN CERTIFICATE-----\nAAA\n-----END CERTIFICATE-----\n"

// TestDamagedCertificates checks that a damaged certificate is rejected with its line number or the parser's error, and
// is never skipped.
func TestDamagedCertificates(t *testing.T) {
	good := rig.NewCA(t, "good").PEM
	negative, err := os.ReadFile(filepath.Join("..", "clients", "go", "shared", "certtext", "testdata", "negative.crt"))
	rig.Must(t, err)
	for name, tc := range map[string]struct{ text, ca, bundle string }{ // ca and bundle: part of the error; empty: it is accepted
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
		_, err = bundle(t.Context(), nil, &v1beta1.CABundle{Inline: &tc.text})
		check("bundle", tc.bundle, err)
	}
}

// TestKeepUntilValid checks that a replaced CA stays until the new CA is valid.
func TestKeepUntilValid(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const day, overlap = 24 * time.Hour, time.Minute
	for name, tc := range map[string]struct {
		from, until time.Duration
		before      []time.Duration // removal times of the replaced CAs, from now
		want        []time.Duration
	}{
		"Valid":      {-day, day, []time.Duration{overlap}, []time.Duration{overlap}},
		"Ending":     {-day, day, []time.Duration{time.Second}, []time.Duration{time.Second}},
		"Later":      {40 * day, 80 * day, []time.Duration{overlap}, []time.Duration{40*day + overlap}},
		"LaterTwice": {80 * day, 90 * day, []time.Duration{40*day + overlap, overlap}, []time.Duration{40*day + overlap, 80*day + overlap}},
		"Corrected":  {-day, day, []time.Duration{40*day + overlap, overlap}, []time.Duration{overlap, overlap}},
		"None":       {40 * day, 80 * day, nil, nil},
	} {
		var list []v1beta1.SupersededCA
		for _, d := range tc.before {
			list = append(list, v1beta1.SupersededCA{RemoveAfter: metav1.NewTime(now.Add(d))})
		}
		keepUntilValid(list, now.Add(tc.from), now.Add(tc.until), now, overlap)
		for i, s := range list {
			if got := s.RemoveAfter.Sub(now); got != tc.want[i] {
				t.Errorf("%s: number %d is removed after %s, want %s", name, i, got, tc.want[i])
			}
		}
	}
	expired := []v1beta1.SupersededCA{{RemoveAfter: metav1.NewTime(now)}}
	keepUntilValid(expired, now.Add(-2*day), now.Add(-day), now, overlap)
	if at := expired[0].RemoveAfter; !at.After(now.AddDate(90, 0, 0)) {
		t.Errorf("what an expired CA replaces is removed at %s", at)
	}
}
