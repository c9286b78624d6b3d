// Package admission decides whether a build may serve. A release manifest lists the digests of the allowed builds and
// the period in which they are allowed. The release pipeline signs it. If the manifest cannot be read, verified or
// parsed, no build may serve.
package admission

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"time"
)

// Manifest is the content that a release key signs.
type Manifest struct {
	Digests   []string  `json:"digests"` // "sha256:" and 64 lower-case hex digits
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"` // the last allowed time
}

// maxDigests is the maximum number of builds in a manifest. A release has one build per platform.
const maxDigests = 256

var digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// Admits returns nil if the manifest allows the build with that digest at that time, and a *Refusal otherwise.
func (m Manifest) Admits(digest string, now time.Time) error {
	switch {
	case now.Before(m.NotBefore):
		return refuse(NotYetValid, nil, "the release manifest is not valid before %s", stamp(m.NotBefore))
	case now.After(m.NotAfter):
		return refuse(Expired, nil, "the release manifest expired at %s", stamp(m.NotAfter))
	case !slices.Contains(m.Digests, digest):
		return refuse(NotListed, nil, "the release manifest does not list the digest of this build, %s", digest)
	default:
		return nil
	}
}

// changesIn returns the time until the result of Admits changes: until the period of the manifest begins or ends. It
// returns false for an expired manifest, because the result then never changes.
func (m Manifest) changesIn(now time.Time) (time.Duration, bool) {
	switch {
	case now.Before(m.NotBefore):
		return m.NotBefore.Sub(now), true
	case now.After(m.NotAfter):
		return 0, false
	default:
		return m.NotAfter.Sub(now) + 1, true
	}
}

// Validate rejects an invalid manifest. Sign and Verify both call it, so that Sign rejects every manifest that Verify
// would reject.
func (m Manifest) Validate() error {
	switch {
	case len(m.Digests) == 0:
		return refuse(Malformed, nil, "the release manifest lists no digest")
	case len(m.Digests) > maxDigests:
		return refuse(Malformed, nil, "the release manifest lists more than %d digests", maxDigests)
	case m.NotBefore.IsZero() || m.NotAfter.IsZero():
		return refuse(Malformed, nil, "the release manifest must have both notBefore and notAfter")
	case !m.NotAfter.After(m.NotBefore):
		return refuse(Malformed, nil, "notAfter %s of the release manifest must be later than notBefore", stamp(m.NotAfter))
	}
	for i, d := range m.Digests {
		if !digestPattern.MatchString(d) {
			return refuse(Malformed, nil, "digest %d of the release manifest must be sha256: and 64 lower-case hex digits", i+1)
		}
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Digest returns the digest of a file in the format of manifests.
func Digest(path string) (_ string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // opened only for reading
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}
