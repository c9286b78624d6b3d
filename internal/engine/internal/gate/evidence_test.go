package gate

import (
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// TestRevocationDecision checks the result of Judge for each policy, CRL, certificate and time.
func TestRevocationDecision(t *testing.T) {
	made := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	list := &keyserver.CRLFacts{ThisUpdate: made, NextUpdate: made.Add(7 * 24 * time.Hour)}
	named := keyserver.NewSerialSet([][]byte{{1}, {2, 0}, make([]byte, 30)})
	const hour = time.Hour
	cases := map[string]struct {
		reason string
		mode   keyserver.RevocationMode
		maxAge time.Duration
		crl    *keyserver.CRLFacts
		serial []byte
		after  time.Duration // since the CRL was issued
		want   fault.Code
	}{
		"OffNoList":          {"off asks for nothing", keyserver.RevocationOff, 0, nil, []byte{1}, 0, ""},
		"OffNamed":           {"off looks at nothing", keyserver.RevocationOff, 0, list, []byte{1}, 0, ""},
		"AvailableNoList":    {"there is none to look at", keyserver.RevocationWhenAvailable, 0, nil, []byte{1}, 0, ""},
		"AvailableNamed":     {"the list names it", keyserver.RevocationWhenAvailable, 0, list, []byte{1}, 0, fault.CertificateRevoked},
		"AvailableNamedOld":  {"a revocation does not age", keyserver.RevocationWhenAvailable, hour, list, []byte{2, 0}, 100 * 24 * hour, fault.CertificateRevoked},
		"AvailableOther":     {"another number", keyserver.RevocationWhenAvailable, 0, list, []byte{2}, 0, ""},
		"AvailableOtherOld":  {"a stale list counts against nobody it does not name", keyserver.RevocationWhenAvailable, hour, list, []byte{2}, 100 * 24 * hour, ""},
		"RequiredNoList":     {"evidence is demanded", keyserver.RevocationRequired, 0, nil, []byte{9}, 0, fault.RevocationUnavailable},
		"RequiredNamed":      {"the list names it", keyserver.RevocationRequired, 0, list, []byte{1}, 0, fault.CertificateRevoked},
		"RequiredNamedOld":   {"revoked says more than stale", keyserver.RevocationRequired, hour, list, []byte{1}, 100 * 24 * hour, fault.CertificateRevoked},
		"RequiredZeros":      {"leading zeros are spelling", keyserver.RevocationRequired, 0, list, []byte{0, 0, 1}, 0, fault.CertificateRevoked},
		"RequiredFresh":      {"a current list that does not name it", keyserver.RevocationRequired, 0, list, []byte{9}, hour, ""},
		"RequiredLastMoment": {"until nextUpdate", keyserver.RevocationRequired, 0, list, []byte{9}, 7*24*hour - 1, ""},
		"RequiredNextUpdate": {"from nextUpdate on", keyserver.RevocationRequired, 0, list, []byte{9}, 7 * 24 * hour, fault.RevocationStale},
		"RequiredAtMaxAge":   {"exactly as old as it may be", keyserver.RevocationRequired, hour, list, []byte{9}, hour, ""},
		"RequiredOverMaxAge": {"older than it may be", keyserver.RevocationRequired, hour, list, []byte{9}, hour + 1, fault.RevocationStale},
		"RequiredClockBack":  {"a clock behind the list's", keyserver.RevocationRequired, hour, list, []byte{9}, -hour, ""},
		"UnknownModeNoList":  {"an unknown mode is the strictest", "later", 0, nil, []byte{9}, 0, fault.RevocationUnavailable},
		"NoModeNoList":       {"so is none at all", "", 0, nil, []byte{9}, 0, fault.RevocationUnavailable},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := Evidence{Policy: keyserver.RevocationPolicy{Mode: tc.mode, MaxAge: tc.maxAge}, CRL: tc.crl, Revoked: named}
			if got := v.Judge(tc.serial, made.Add(tc.after)); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
