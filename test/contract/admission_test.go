package contract

import (
	"crypto/ed25519"
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/admission"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// pipeline signs releases of the binary under test.
type pipeline struct {
	key      ed25519.PrivateKey
	digest   string
	manifest string // the file that the server reads
}

// newPipeline creates a release key. It returns an option that makes a server require a manifest of the
// pipeline.
func newPipeline(t *testing.T) (*pipeline, func(*server.Config)) {
	t.Helper()
	dir := t.TempDir()
	private, public, err := admission.GenerateKey(nil)
	rig.Must(t, err)
	rig.Must(t, os.WriteFile(filepath.Join(dir, "key"), private, 0o600))
	rig.Must(t, os.WriteFile(filepath.Join(dir, "pub"), public, 0o600))
	p := &pipeline{manifest: filepath.Join(dir, "release.json")}
	p.key, err = admission.ReadPrivateKey(filepath.Join(dir, "key"))
	rig.Must(t, err)
	binary, err := os.Executable()
	rig.Must(t, err)
	p.digest, err = admission.Digest(binary)
	rig.Must(t, err)
	return p, func(c *server.Config) {
		c.Admission, c.AdmissionRetry = server.AdmissionRequired, 100*time.Millisecond
		c.ReleaseKey, c.ReleaseManifest = filepath.Join(dir, "pub"), p.manifest
	}
}

// sign signs a manifest with a digest, valid between from and to, relative to now.
func (p *pipeline) sign(t testing.TB, digest string, from, to time.Duration) []byte {
	t.Helper()
	now := time.Now()
	text, err := admission.Sign(p.key, admission.Manifest{Digests: []string{digest}, NotBefore: now.Add(from), NotAfter: now.Add(to)})
	rig.Must(t, err)
	return text
}

// publish replaces the manifest atomically.
func (p *pipeline) publish(t testing.TB, text []byte) {
	t.Helper()
	rig.Must(t, os.WriteFile(p.manifest+".new", text, 0o600))
	rig.Must(t, os.Rename(p.manifest+".new", p.manifest))
}

// admission waits until the version route is refused with a detail that contains the text. If the text is empty, it
// waits until the route is no longer refused for admission.
func (s *subject) admission(t testing.TB, detail string) rig.Answer {
	t.Helper()
	var a rig.Answer
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		a = s.Send(t, "", "POST", "/api/server/version", nil)
		refused := a.Code() == "BUILD_NOT_ADMITTED"
		if refused == (detail != "") && strings.Contains(string(a.Raw), detail) {
			return a
		}
	}
	t.Fatalf("wanted %q and got %d %s", detail, a.Status, a.Raw)
	return a
}

var parameter = regexp.MustCompile(`\{[^}]*\}`)

// TestBuildNotAdmitted checks 503 BUILD_NOT_ADMITTED for every route except health and ready, with any session.
// When a valid manifest appears, all routes work without a restart.
func TestBuildNotAdmitted(t *testing.T) {
	p, required := newPipeline(t)
	ownEmbedded(t, func(t *testing.T, s *subject) {
		rig.Must(t, os.RemoveAll(p.manifest))
		s.admission(t, "cannot be read")
		for _, session := range []string{"", "no session of anybody"} {
			for _, r := range routes.All() {
				if slices.Contains([]string{"/api/health", "/api/ready"}, r.Path) {
					continue
				}
				a := s.Refused(t, session, r.Method, parameter.ReplaceAllString(r.Path, "0000000000000001"), nil, http.StatusServiceUnavailable, "BUILD_NOT_ADMITTED")
				after, err := strconv.Atoi(a.Header.Get("Retry-After"))
				if a.Body["scope"] != "process" || a.Body["retryable"] != true || err != nil || after < 1 || a.Header.Get("WWW-Authenticate") != "" {
					t.Errorf("%s %s: got %v %s", r.Method, r.Path, a.Header, a.Raw)
				}
			}
		}
		s.OK(t, "", "GET", "/api/health", nil)
		a := s.Refused(t, "", "GET", "/api/ready", nil, http.StatusServiceUnavailable, "NOT_READY")
		if part := a.List(t, "parts")[0]; part["part"] != "admission" || part["ready"] != false || part["retryInSeconds"] != 1.0 ||
			!strings.Contains(a.Text(t, "detail"), "admission") {
			t.Errorf("readiness does not say what fails and when it is tried again: %s", a.Raw)
		}

		p.publish(t, p.sign(t, p.digest, -time.Minute, time.Hour))
		s.admission(t, "")
		s.OK(t, "", "GET", "/api/ready", nil)
		s.OK(t, s.AsAdmin(t), "POST", "/api/server/version", nil)
	}, required)
}

// TestAdmissionWhileRunning checks that a manifest of another build or another time ends the admission of a
// running server. The detail names the cause. Sessions stay valid.
func TestAdmissionWhileRunning(t *testing.T) {
	t.Parallel() // it waits for the watch
	p, required := newPipeline(t)
	good := func() []byte { return p.sign(t, p.digest, -time.Minute, time.Hour) }
	p.publish(t, good())
	s := start(t, required)
	session := s.AsAdmin(t)
	stranger, _ := newPipeline(t)
	payload := base64.StdEncoding.EncodeToString([]byte(`{"digests":["` + p.digest + `"],"notBefore":"2000-01-01T00:00:00Z","notAfter":"2100-01-01T00:00:00Z"}`))

	for _, c := range []struct {
		name   string
		text   []byte
		detail string
	}{
		{"Tampered", regexp.MustCompile(`"payload": "[^"]*"`).ReplaceAll(good(), []byte(`"payload": "`+payload+`"`)), "no valid signature"},
		{"WrongKey", stranger.sign(t, p.digest, -time.Minute, time.Hour), "no valid signature"},
		{"WrongPayloadType", []byte(strings.Replace(string(good()), admission.PayloadType, "application/json", 1)), "payload type"},
		{"DuplicateMembers", []byte(strings.Replace(string(good()), "{", `{"payload":"`+payload+`",`, 1)), "not a DSSE envelope"},
		{"UnknownMember", []byte(strings.Replace(string(good()), "{", `{"note":"",`, 1)), "not a DSSE envelope"},
		{"OtherBuild", p.sign(t, "sha256:"+strings.Repeat("0", 64), -time.Minute, time.Hour), "does not list"},
		{"NotYetValid", p.sign(t, p.digest, time.Hour, 2*time.Hour), "not valid before"},
		{"Empty", nil, "not a DSSE envelope"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p.publish(t, c.text)
			s.admission(t, c.detail)
			p.publish(t, good())
			s.admission(t, "")
			s.OK(t, session, "GET", "/api/sessions/current", nil)
		})
	}
	t.Run("Expires", func(t *testing.T) {
		p.publish(t, p.sign(t, p.digest, -time.Minute, 1500*time.Millisecond))
		s.admission(t, "expired at")
		p.publish(t, good())
		s.admission(t, "")
	})
	t.Run("AfterARestart", func(t *testing.T) {
		p.publish(t, nil)
		s.Stop(t)
		s.Restart(t)
		s.Refused(t, session, "GET", "/api/sessions/current", nil, http.StatusServiceUnavailable, "BUILD_NOT_ADMITTED")
		p.publish(t, good())
		s.admission(t, "")
		s.OK(t, session, "GET", "/api/sessions/current", nil)
	})
}
