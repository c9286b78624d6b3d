package contract

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/auth/ldap/ldaptest"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// record stores the log of a server.
type record struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// TestProvidersLeakNothing checks successful and failed logins: no log, response or audit row contains a token or a
// password. The log has the reason of a refusal.
func TestProvidersLeakNothing(t *testing.T) {
	t.Parallel()
	i, d, log := newTokenIssuer(t), ldaptest.Start(t), &record{}
	s := start(t, i.configure, byDirectory(d), func(c *server.Config) {
		c.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	admin := s.AsAdmin(t)
	i.workload(t, s, "web", shop)
	s.OK(t, admin, "POST", "/api/principals/ldap", rig.Object{"name": ldaptest.Ann, "roleIds": []string{}})
	good, bad := i.token(t, shop), i.token(t, shop, func(c rig.Object) { c["exp"] = time.Now().Unix() - 3600 })
	bodies := []rig.Object{
		tokenLogin(good), tokenLogin(bad), tokenLogin(good + "x"), tokenLogin("planted no token"),
		ldapLogin(ldaptest.Ann, ldaptest.AnnPassword), ldapLogin(ldaptest.Ann, "planted wrong"), ldapLogin("nobody", "planted stranger's"),
	}
	var answers strings.Builder
	login := func() {
		for _, body := range bodies {
			answers.Write(s.Send(t, "", "POST", "/api/sessions", body).Raw)
		}
	}
	login()
	d.Kill()
	login()
	answers.Write(s.OK(t, admin, "GET", "/api/audit?limit=1000", nil).Raw)
	answers.Write(s.OK(t, admin, "POST", "/api/config/get", rig.Object{"xpath": "ROOT"}).Raw)
	secrets := []string{"planted", ldaptest.AnnPassword, "battery"}
	for _, token := range []string{good, bad} {
		secrets = append(secrets, strings.Split(token, ".")[1:]...) // the header is the same for all tokens
	}
	for _, secret := range secrets {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log holds %q", secret)
		}
		if strings.Contains(answers.String(), secret) {
			t.Errorf("an answer holds %q", secret)
		}
	}
	for _, why := range []string{"exp is in the past", "must be base64url", "Invalid Credentials", "the identity provider is not available"} {
		if !strings.Contains(log.String(), why) {
			t.Errorf("the log does not say %q:\n%s", why, log)
		}
	}
}

// TestProvidersInTheConfiguration checks that POST /api/config/get shows the providers, and no secret.
func TestProvidersInTheConfiguration(t *testing.T) {
	s := one(t, at(providers))
	i, d := provided.issuer, provided.directory
	for xpath, want := range map[string]rig.Object{
		"IdentityProviders.Tokens":    {"issuer": i.name, "audiences": i.audience + ",second audience", "verifiedBy": "file"},
		"IdentityProviders.Directory": {"url": "ldaps://" + d.Secure, "entryBy": "userDN"},
	} {
		nodes := s.OK(t, s.AsAdmin(t), "POST", "/api/config/get", rig.Object{"xpath": xpath}).List(t, "nodes")
		if got := nodes[0]["attrs"]; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, want %v", xpath, got, want)
		}
	}
}
