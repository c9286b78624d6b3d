package agent_test

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/agent"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestRefusals checks that rejected requests do not reach the key server, and that their errors have the key
// server's format.
func TestRefusals(t *testing.T) {
	w := newWorld(t)
	c := w.config()
	c.MaxRequests = 1
	load := begin(t, c)
	for _, header := range []string{"Authorization", "Dpop", "Cookie", "Proxy-Authorization"} {
		r := load.fails(t, 400, "AGENT_CREDENTIAL_SENT", "GET", current, nil, header, "planted")
		if strings.Contains(fmt.Sprint(r.body), "planted") {
			t.Errorf("%s is shown: %v", header, r.body)
		}
	}
	load.fails(t, 403, "AGENT_CALLER_REFUSED", "GET", current, nil, "Origin", "https://page.example")
	load.fails(t, 403, "AGENT_CALLER_REFUSED", "GET", current, nil, "Host", "page.example")
	for _, asked := range []struct{ method, path string }{
		{"POST", "/api/sessions"}, {"DELETE", current}, {"DELETE", "/api/sessions/0000000000000001"},
		{"POST", "/api/principals/password"}, {"DELETE", "/api/principals/0000000000000001"}, {"PUT", "/api/principals/0000000000000001/password"},
		{"PUT", "/api/principals/groups/0000000000000001/members/0000000000000002"}, {"POST", "/api/approvals/0000000000000001/execute"},
		{"POST", "/api/certificates/enroll"}, {"POST", "/api/witness/add-checkpoint"},
	} {
		load.fails(t, 403, "AGENT_ROUTE_NOT_ALLOWED", asked.method, asked.path, object{})
	}
	for _, path := range []string{"/api/nowhere", "/", "/api/../api/roles", "/api//roles", "/metrics"} {
		if r := load.fails(t, 404, "NOT_FOUND", "GET", path, nil); r.body["unsupported"] != true {
			t.Errorf("%s: %v", path, r.body)
		}
	}
	if r := load.fails(t, 405, "METHOD_NOT_ALLOWED", "PATCH", "/api/roles", object{}); r.header.Get("Allow") != "GET, HEAD, POST" {
		t.Errorf("the methods are not said: %v", r.header)
	}
	load.fails(t, 413, "PAYLOAD_TOO_LARGE", "POST", "/api/keys/get", strings.Repeat(" ", 64<<10+1))

	var give *io.PipeWriter
	first := make(chan reply, 1)
	hold := func() {
		held, writer := io.Pipe()
		give = writer
		go func() { first <- load.asks(t, "POST", "/api/crypto/mac", held) }()
		_, _ = io.WriteString(give, `{"lineage":"`+w.line.String()+`",`) // the body is incomplete: a rejected request must not wait for it
	}
	hold()
	rig.Succeeds(t, func() error {
		select {
		case <-first: // the later request was forwarded first, so this one was rejected
			hold()
		default:
		}
		r := load.asks(t, "GET", current, nil)
		if r.code() != "AGENT_OVERLOADED" {
			return fmt.Errorf("got %v", r.body)
		}
		if r.header.Get("Retry-After") != "1" || r.body["retryable"] != true || r.body["scope"] != "process" {
			t.Errorf("got %v %v", r.header, r.body)
		}
		return nil
	})
	_, err := give.Write([]byte(`"data":""}`))
	rig.Must(t, errors.Join(err, give.Close()))
	if r := <-first; r.status != 200 || r.body["macBytes"] != 48.0 {
		t.Errorf("the first: %v", r.body)
	}
	if log := load.log.String(); strings.Contains(log, "planted") {
		t.Error("a credential is in the log")
	}
}

// TestBatches checks that concurrent MACs and verifications have the results and the audit rows of single requests.
func TestBatches(t *testing.T) {
	w := newWorld(t)
	load := begin(t, w.config())
	const workers, rounds = 16, 10
	var group sync.WaitGroup
	for n := range workers {
		group.Go(func() {
			for i := range rounds {
				line, other := w.line.String(), w.more.String()
				if n%2 == 1 {
					line, other = other, line
				}
				data := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%d of %d", i, n))
				made := load.asks(t, "POST", "/api/crypto/mac", object{"lineage": line, "data": data})
				if made.status != http.StatusOK || made.text("ttag") != line || made.header.Get("X-Request-Id") == "" {
					t.Errorf("a MAC: %d %v", made.status, made.body)
					return
				}
				for _, key := range []string{line, other} {
					r := load.asks(t, "POST", "/api/crypto/mac/verify", object{"lineage": key, "mac": made.text("mac"), "data": data})
					if r.status != http.StatusOK || r.body["valid"] != (key == line) || r.text("ttag") != key {
						t.Errorf("a MAC of %s, verified with %s: %d %v", line, key, r.status, r.body)
					}
				}
				load.fails(t, http.StatusNotFound, "KEY_NOT_FOUND", "POST", "/api/crypto/mac", object{"lineage": "AAAAAQECAwQFBgcI", "data": data})
			}
		})
	}
	group.Wait()
	for outcome, want := range map[string]map[string]int{
		"allowed": {"macData": workers * rounds, "verifyMAC": 2 * workers * rounds}, "refused": {"macData": workers * rounds, "verifyMAC": 0},
	} {
		for operation, n := range want {
			most := 1000
			page, err := w.admin.ListAuditEntries(t.Context(), schema.AuditQuery{Operation: operation, Outcome: &outcome, Limit: &most})
			rig.Must(t, err)
			if len(page.Entries) != n {
				t.Errorf("%d rows %s %s, want %d", len(page.Entries), operation, outcome, n)
			}
		}
	}
	if n := load.metric(t, "keyserver_agent_batch_items_count"); n == 0 {
		t.Error("there was no batch")
	}
	c := w.config()
	c.Batch = agent.BatchOff
	without := begin(t, c)
	for range workers {
		group.Go(func() { without.works(t, "POST", "/api/crypto/mac", w.mac("")) })
	}
	group.Wait()
	if n := without.metric(t, "keyserver_agent_batch_items_count"); n != 0 {
		t.Errorf("%d batches with --batch off", n)
	}
}

// TestSentAlone checks which requests are not sent in a batch although others are in progress, and that a body cannot
// add an item to a batch.
func TestSentAlone(t *testing.T) {
	const key = "AAAAAQECAwQFBgcI"
	one := func(data string) string { return fmt.Sprintf(`{"lineage":%q,"data":%q}`, key, data) }
	held, more := one("aGVsZA=="), make(chan struct{})
	release := sync.OnceFunc(func() { close(more) })
	var mu sync.Mutex
	sent := map[string][]string{} // bodies by path
	c, _ := liar(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == current:
			_, _ = io.WriteString(w, sessionOf(time.Now()))
			return
		case string(body) == held:
			<-more
		default:
			mu.Lock()
			sent[r.URL.RequestURI()] = append(sent[r.URL.RequestURI()], string(body))
			mu.Unlock()
		}
		if r.URL.Path == "/api/crypto/mac/batch" {
			_, _ = io.WriteString(w, `{"items":[{"code":"ACL_DENIED","detail":"why"}]}`)
			return
		}
		_, _ = io.WriteString(w, `{}`)
	})
	load := begin(t, c)
	t.Cleanup(release)
	rig.Soon(t, "the agent is ready", func() bool { return load.asks(t, "GET", "/readyz", nil).status == http.StatusOK })
	var holding sync.WaitGroup
	for range 4 {
		holding.Go(func() { load.works(t, "POST", "/api/crypto/mac", held) })
	}
	rig.Soon(t, "requests are in progress", func() bool { return load.metric(t, "keyserver_agent_requests_in_flight") == 4 })

	alone := map[string]string{} // request URI by body
	try := func(path string, body any, text string, headers ...string) {
		t.Helper()
		alone[text] = path
		load.works(t, "POST", path, body, headers...)
	}
	for i, name := range []string{"X-Request-Id", "X-Keyserver-For", "X-Keyserver-Owner"} {
		body := one(fmt.Sprintf("AAA%d", i))
		try("/api/crypto/mac", body, body, name, "x")
	}
	for _, body := range []string{
		one("") + "," + one(""), one("") + " " + one(""), "[" + one("") + "]", `{"lineage":"` + key + `","data":"","data":""}`, `{"lineage":"` + key + `"}`, `{"lineage":"` + key + `","data":"`, "",
		one("QR=="), `{"lineage":"x","data":""}`, "\xef\xbb\xbf" + one(""), `{"items":[` + one("") + `]}`, one(strings.Repeat("AAAA", 4096)),
	} {
		try("/api/crypto/mac", body, body)
	}
	try("/api/crypto/mac?a=b", one("AAAA"), one("AAAA"))
	foreign := `{"lineage":"AAAACQECAwQFBgcI","data":""}`
	try("/api/crypto/mac", foreign, foreign)
	denied := load.fails(t, http.StatusForbidden, "ACL_DENIED", "POST", "/api/crypto/mac", one("CCCC"))
	if denied.header.Get("Content-Type") != "application/json" {
		t.Errorf("the header is %v", denied.header)
	}
	if n := load.metric(t, `keyserver_agent_requests_total{code="ACL_DENIED",route="computeMac"}`); n != 1 {
		t.Errorf("%d requests are counted", n)
	}
	release()
	holding.Wait()
	for body, path := range alone {
		if !slices.Contains(sent[path], body) {
			t.Errorf("%s: %.100s was not sent alone", path, body)
		}
	}
	if got := sent["/api/crypto/mac/batch"]; !slices.Equal(got, []string{`{"items":[` + one("CCCC") + `]}`}) {
		t.Errorf("batches: %.300q", got)
	}
}

// TestWithheld lists the routes that need a rule of --allow. A new route of this kind must be added here.
func TestWithheld(t *testing.T) {
	all, err := agent.ParseAllow(nil)
	rig.Must(t, err)
	var withheld []string
	for _, r := range routes.All() {
		if _, passes := all.Permit(r.Name); !passes {
			withheld = append(withheld, r.Name)
		}
	}
	slices.Sort(withheld)
	want := []string{
		"addDelegate", "addGroupMember", "approve", "askApproval", "createGroup", "createLdapPrincipal", "createPasswordPrincipal", "createXauthPrincipal",
		"deletePrincipal", "endCurrentSession", "endSession", "endSessionsOfPrincipal", "enrollCertificates", "executeApproval",
		"getApproval", "getApprovalPolicy", "issueCertificate", "listApprovals", "login", "reject",
		"removeDelegate", "removeGroupMember", "renewCertificate", "resetTransportPrincipal", "setApprovalPolicy", "setPassword", "updatePrincipalFlags", "updatePrincipalRoles", "withdrawApproval",
	}
	if !slices.Equal(withheld, want) {
		t.Errorf("got %q\nwant %q", withheld, want)
	}
}

func TestRules(t *testing.T) {
	key := schema.HiddenLink("key").String()
	for rule, says := range map[string]string{
		"":                              "is empty",
		" ":                             "is empty",
		"computeMAC":                    "did you mean computeMac?",
		"nothing":                       `no route "nothing"`,
		"computeMac,":                   `no route ""`,
		"computeMac:":                   "separated by commas",
		"computeMac:$(LINEAGE)":         `"$(LINEAGE)" is not a hidden link`,
		"computeMac:" + key + ",":       "separated by commas",
		"listRoles:" + key:              "name no key",
		"getExplanation:" + key:         "name no key",
		"computeMac computeMac:" + key:  "remove one of the two rules",
		"computeMac:" + key + " verify": `no route "verify"`,
	} {
		if all, err := agent.ParseAllow([]string{rule}); err == nil || !strings.Contains(err.Error(), says) || !strings.HasPrefix(err.Error(), "--allow") {
			t.Errorf("%q: got %v, %v; want %q", rule, all, err, says)
		}
	}
	var many []string
	for i := range 1025 {
		many = append(many, schema.HiddenLink(fmt.Sprintf("key%d", i)).String())
	}
	if _, err := agent.ParseAllow([]string{"computeMac:" + strings.Join(many, ",")}); err == nil {
		t.Error("more keys than there may be are taken")
	}
	all, err := agent.ParseAllow([]string{"computeMac,verifyMac:" + key, "listRoles  verifyMac:" + schema.HiddenLink("second").String()})
	rig.Must(t, err)
	if keys, passes := all.Permit("verifyMac"); !passes || len(keys) != 2 {
		t.Errorf("verifyMac: %v, %v", keys, passes)
	}
	if keys, passes := all.Permit("listRoles"); !passes || keys != nil {
		t.Errorf("listRoles: %v, %v", keys, passes)
	}
	if _, passes := all.Permit("encrypt"); passes {
		t.Error("what no rule names passes")
	}
}

// TestKeys checks a rule that limits a route to some keys: only requests that name just these keys pass, in any
// encoding.
func TestKeys(t *testing.T) {
	w := newWorld(t)
	line, more := w.line.String(), w.more.String()
	c := w.config()
	c.Allow = []string{"computeMac,verifyMac,computeMacs,getKey,listKeys,authorizeKey:" + line, "computeHmac:" + line}
	load := begin(t, c)
	long := strings.Repeat("AAAA", 64<<10)
	for name, body := range map[string]string{
		"Other":        `{"lineage":"` + more + `","data":""}`,
		"OtherBehind":  `{"data":"","lineage":"` + more + `"}`,
		"OtherEscaped": `{"\u006cineage":"` + more + `","data":""}`,
		"OtherLong":    `{"lineage":"` + more + `","data":"` + long + `"}`,
	} {
		if r := load.asks(t, "POST", "/api/crypto/mac", body); r.status != 403 || r.code() != "AGENT_KEY_NOT_ALLOWED" {
			t.Errorf("%s: %d %v", name, r.status, r.body)
		}
	}
	// Errors of the key server, and of a body that the agent cannot parse.
	for name, body := range map[string]string{
		"Twice":        `{"lineage":"` + line + `","lineage":"` + more + `","data":""}`,
		"TwiceLong":    `{"lineage":"` + line + `","data":"` + long + `","lineage":"` + more + `"}`,
		"KeyBehind":    `{"data":"` + long + `","lineage":"` + line + `"}`,
		"None":         `{"data":""}`,
		"SpaceInFront": strings.Repeat(" ", 2<<20) + `{"lineage":"` + line + `","data":""}`,
		"NoObject":     `[]`,
		"CutOff":       `{"lineage":"` + line + `","data":"`,
	} {
		if r := load.asks(t, "POST", "/api/crypto/mac", body); r.status != 400 || r.code() != "BAD_REQUEST" {
			t.Errorf("%s: %d %v", name, r.status, r.body)
		}
	}
	load.fails(t, 403, "AGENT_KEY_NOT_ALLOWED", "POST", "/api/crypto/mac/batch", object{"items": []object{w.mac(""), {"lineage": more, "data": ""}}})
	load.fails(t, 403, "AGENT_KEY_NOT_ALLOWED", "POST", "/api/keys/get", object{"ttag": more})
	load.fails(t, 403, "AGENT_KEY_NOT_ALLOWED", "GET", "/api/keys", nil)
	load.fails(t, 403, "AGENT_KEY_NOT_ALLOWED", "GET", "/api/keys?lineage="+strings.ReplaceAll(more, "+", "%2B"), nil)
	load.fails(t, 400, "BAD_REQUEST", "GET", "/api/keys?line="+more, nil)
	load.fails(t, 403, "AGENT_ROUTE_NOT_ALLOWED", "GET", "/api/roles", nil)

	made := load.works(t, "POST", "/api/crypto/mac", `{"data":"aGVsbG8=","lineage":"`+line+`"}`)
	check := object{"mac": made.text("mac"), "data": "aGVsbG8="}
	load.fails(t, 400, "BAD_REQUEST", "POST", "/api/crypto/mac/verify", check)
	check["ttag"] = line // the first key of the lineage
	if r := load.works(t, "POST", "/api/crypto/mac/verify", check); r.body["valid"] != true {
		t.Errorf("got %v", r.body)
	}
	load.works(t, "POST", "/api/crypto/mac/batch", object{"items": []object{w.mac(""), w.mac("aGVsbG8=")}})
	load.works(t, "GET", "/api/keys?lineage="+strings.ReplaceAll(line, "+", "%2B"), nil)
	load.works(t, "POST", "/api/keys/authorize", object{"ttag": line, "filename": "a"})
	load.works(t, "POST", "/api/crypto/hmac", `{"hiddenLink":"`+line+`","data":"`+long+`"}`)
}

// TestOneLogin checks that 32 concurrent requests without a session cause one login, and that the session is
// bound to a key.
func TestOneLogin(t *testing.T) {
	w := newWorld(t)
	load := begin(t, w.config())
	var callers sync.WaitGroup
	for range 32 {
		callers.Go(func() {
			if r := load.asks(t, "POST", "/api/crypto/mac", w.mac("aGVsbG8=")); r.status != 200 {
				t.Errorf("%d %v", r.status, r.body)
			}
		})
	}
	callers.Wait()
	if n := load.logins(t); n != 1 {
		t.Errorf("%d logins", n)
	}
	if n := w.sessions(t); n != 1 {
		t.Errorf("%d sessions", n)
	}
	if r := load.works(t, "GET", current, nil); r.text("kind") != "kubernetes" || len(r.text("boundKey")) != 43 {
		t.Errorf("got %v", r.body)
	}
	if r := load.works(t, "GET", "/api/health", nil, "X-Request-Id", "mine"); r.header.Get("X-Request-Id") != "mine" || r.header.Get("Date") == "" {
		t.Errorf("got %v", r.header)
	}
	load.fails(t, 400, "BAD_REQUEST", "GET", "/api/roles", nil, "X-Keyserver-Owner", "nobody") // the agent forwards this header
	load.stop(t)
	if n := w.sessions(t); n != 0 {
		t.Errorf("%d sessions are left behind", n)
	}
}

// TestSessionEnded checks that the agent logs in exactly once after an administrator has ended its session. The request
// that used the ended session must succeed, even with a long body.
func TestSessionEnded(t *testing.T) {
	w := newWorld(t)
	load := begin(t, w.config())
	load.works(t, "GET", current, nil)
	long := `{"lineage":"` + w.line.String() + `","data":"` + strings.Repeat("AAAA", 256<<10) + `"}`
	for i, ask := range []func() reply{
		func() reply { return load.asks(t, "GET", current, nil) },
		func() reply { return load.asks(t, "POST", "/api/crypto/mac", w.mac("aGVsbG8=")) },
		func() reply { return load.asks(t, "POST", "/api/crypto/mac", long) },
		func() reply { return load.asks(t, "POST", "/api/crypto/mac", io.MultiReader(strings.NewReader(long))) }, // chunked encoding
	} {
		_, err := w.admin.EndSessionsOfPrincipal(t.Context(), schema.ByID{ID: w.web})
		rig.Must(t, err)
		if r := ask(); r.status != 200 {
			t.Errorf("%d: %d %v", i, r.status, r.body)
		}
		if n := load.logins(t); n != i+2 {
			t.Errorf("%d: %d logins", i, n)
		}
	}
}

// TestTokens checks that the agent reads the token at each login, reports an invalid token, and recovers when the token
// is valid again.
func TestTokens(t *testing.T) {
	w := newWorld(t)
	c := w.config()
	c.TokenFile = filepath.Join(t.TempDir(), "none")
	if _, err := agent.Start(t.Context(), c); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "--token-file") {
		t.Errorf("without a token: %v", err)
	}
	w.project(t, " ")
	if _, err := agent.Start(t.Context(), w.config()); err == nil || !strings.Contains(err.Error(), "contains no token") {
		t.Errorf("an empty token: %v", err)
	}
	expired := w.issuer.Token(t, web, -time.Hour)
	w.project(t, expired)
	load := begin(t, w.config())
	r := load.fails(t, 503, "AGENT_LOGIN_FAILED", "GET", current, nil)
	if !strings.Contains(r.text("detail"), "expired at ") || r.header.Get("Retry-After") == "" || r.body["retryable"] != true {
		t.Errorf("got %v %v", r.header, r.body)
	}
	load.works(t, "GET", "/api/health", nil) // needs no session
	load.fails(t, 503, "AGENT_LOGIN_FAILED", "GET", "/readyz", nil)
	before := load.logins(t)
	for range 20 {
		load.fails(t, 503, "AGENT_LOGIN_FAILED", "POST", "/api/crypto/mac", w.mac(""))
	}
	if n := load.logins(t); n > before+2 {
		t.Errorf("20 requests led to %d logins", n-before)
	}
	w.project(t, w.issuer.Token(t, "system:serviceaccount:shop:nobody", time.Minute))
	rig.Soon(t, "the next token is tried", func() bool {
		return strings.Contains(load.asks(t, "GET", current, nil).text("detail"), `has the subject "system:serviceaccount:shop:nobody"`)
	})
	w.project(t, w.issuer.Token(t, web, time.Minute))
	rig.Soon(t, "a good token is picked up", func() bool { return load.asks(t, "GET", "/readyz", nil).status == 200 })
	name := func() string {
		principal, _ := load.works(t, "GET", current, nil).body["principal"].(object)
		text, _ := principal["name"].(string)
		return text
	}
	if got := name(); got != web {
		t.Errorf("it acts as %q", got)
	}
	w.project(t, w.issuer.Token(t, other, time.Minute))
	_, err := w.admin.EndSessionsOfPrincipal(t.Context(), schema.ByID{ID: w.web})
	rig.Must(t, err)
	if got := name(); got != other {
		t.Errorf("after the token was replaced it acts as %q", got)
	}
	for _, part := range append(strings.Split(expired, "."), "sessionId") {
		if strings.Contains(load.log.String(), part) && part != strings.Split(expired, ".")[0] {
			t.Error("a part of a token is in the log")
		}
	}
}

// TestServerAway checks that the agent reports an unreachable key server, and recovers when it is reachable again.
func TestServerAway(t *testing.T) {
	w := newWorld(t)
	c := w.config()
	c.HealthListen = "127.0.0.1:0"
	load := begin(t, c)
	rig.Soon(t, "it is ready", func() bool { return load.asks(t, "GET", "/readyz", nil).status == 200 })
	rig.Must(t, agent.Check(t.Context(), load.Address()))
	w.Stop(t)
	rig.Succeeds(t, func() error { // a request during the stop gets no response
		r := load.asks(t, "POST", "/api/crypto/mac", w.mac(""))
		if r.status != 503 || r.code() != "AGENT_SERVER_UNAVAILABLE" || r.header.Get("Retry-After") == "" || r.body["retryable"] != true {
			return fmt.Errorf("%d %v %v", r.status, r.header, r.body)
		}
		return nil
	})
	load.fails(t, 503, "AGENT_SERVER_UNAVAILABLE", "GET", "/readyz", nil)
	if err := agent.Check(t.Context(), load.Address()); err == nil || !strings.Contains(err.Error(), "not ready: AGENT_SERVER_UNAVAILABLE") {
		t.Errorf("a check says %v", err)
	}
	load.works(t, "GET", "/livez", nil)
	aside := *load
	aside.base = "http://" + load.HealthAddress()
	aside.works(t, "GET", "/livez", nil)
	aside.fails(t, 503, "AGENT_SERVER_UNAVAILABLE", "GET", "/readyz", nil)
	aside.fails(t, 404, "NOT_FOUND", "GET", current, nil)
	aside.fails(t, 405, "METHOD_NOT_ALLOWED", "POST", "/readyz", nil)
	w.Restart(t)
	rig.Soon(t, "it is ready again", func() bool { return aside.asks(t, "GET", "/readyz", nil).status == 200 })
	load.works(t, "POST", "/api/crypto/mac", w.mac(""))
}

// TestBeforeTheServer checks that an agent can start before its key server.
func TestBeforeTheServer(t *testing.T) {
	w := newWorld(t)
	c := w.config()
	w.Stop(t)
	load := begin(t, c)
	load.fails(t, 503, "AGENT_SERVER_UNAVAILABLE", "GET", current, nil)
	w.Restart(t)
	rig.Soon(t, "it is ready", func() bool { return load.asks(t, "GET", "/readyz", nil).status == 200 })
	load.works(t, "GET", current, nil)
}

// sessionOf returns the JSON of a session.
func sessionOf(now time.Time) string {
	until := now.UTC().Add(time.Hour).Format(time.RFC3339Nano)
	return fmt.Sprintf(`{"sessionId":"s","kind":"kubernetes","principal":{"id":"0000000000000001","principalId":"1","systemId":1,"name":"a","type":"xauth"},"roles":[],"boundKey":null,"expiresAt":%q,"idleExpiresAt":%q}`, until, until)
}

// liar starts a fake key server that accepts each login and then responds with then.
func liar(t *testing.T, then http.HandlerFunc) (c agent.Config, logins *atomic.Int64) {
	t.Helper()
	logins = &atomic.Int64{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/sessions", func(w http.ResponseWriter, _ *http.Request) {
		logins.Add(1)
		_, _ = io.WriteString(w, sessionOf(time.Now()))
	})
	mux.HandleFunc("/", then)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "token")
	rig.Must(t, os.WriteFile(file, []byte("a.b.c"), 0o600))
	w := world{token: file}
	return agent.Config{
		Server: s.URL, TokenFile: w.token, Listen: "127.0.0.1:0", SocketMode: agent.DefaultSocketMode, MetricsListen: "127.0.0.1:0",
		MaxRequests: agent.DefaultMaxRequests, Batch: agent.BatchOn, Clock: time.Now,
	}, logins
}

// TestSessionsThatAreRefused checks that the agent does not log in for each request if the key server rejects
// every new session.
func TestSessionsThatAreRefused(t *testing.T) {
	c, logins := liar(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", "DPoP")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"code":"SESSION_NOT_FOUND","detail":"d","reauth":true}`)
	})
	load := begin(t, c)
	for range 50 {
		if r := load.fails(t, 503, "AGENT_LOGIN_FAILED", "GET", current, nil); r.header.Get("WWW-Authenticate") != "" {
			t.Error("the workload is asked to log in")
		}
	}
	if n := logins.Load(); n > 8 {
		t.Errorf("50 requests led to %d logins", n)
	}
}

// TestCutOff checks the errors of interrupted requests: a write may have been done, a read can be repeated.
func TestCutOff(t *testing.T) {
	var written atomic.Int64
	c, _ := liar(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			written.Add(1)
		}
		panic(http.ErrAbortHandler)
	})
	load := begin(t, c)
	load.fails(t, 502, "AGENT_NO_ANSWER", "POST", "/api/keys", object{})
	if n := written.Load(); n != 1 {
		t.Errorf("a write was sent %d times", n)
	}
	load.fails(t, 503, "AGENT_SERVER_UNAVAILABLE", "GET", "/api/roles", nil)
}

// TestHalfAnAnswer checks that the workload notices an incomplete response.
func TestHalfAnAnswer(t *testing.T) {
	c, _ := liar(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	load := begin(t, c)
	resp, err := load.http.Get(load.base + "/api/roles")
	if err == nil {
		_, err = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
	}
	if err == nil {
		t.Error("half an answer looks whole")
	}
}

// TestSocket checks the mode of the socket, the replacement of an old socket, and that the agent removes the
// socket when it stops.
func TestSocket(t *testing.T) {
	w := newWorld(t)
	path := filepath.Join(t.TempDir(), "agent.sock")
	c := w.config()
	c.Listen = "unix://" + path
	rig.Must(t, os.WriteFile(path, nil, 0o600))
	if _, err := agent.Start(t.Context(), c); err == nil || !strings.Contains(err.Error(), "is not a socket") {
		t.Errorf("a file in its place: %v", err)
	}
	rig.Must(t, os.Remove(path))
	left, err := net.Listen("unix", path)
	rig.Must(t, err)
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	rig.Must(t, left.Close())
	load := begin(t, c)
	info, err := os.Stat(path)
	rig.Must(t, err)
	if got := info.Mode(); got != fs.ModeSocket|0o660 {
		t.Errorf("its mode is %s", got)
	}
	load.works(t, "POST", "/api/crypto/mac", w.mac("aGVsbG8="), "Host", "any.example", "Origin", "null")
	if _, err := agent.Start(t.Context(), c); err == nil || !strings.Contains(err.Error(), "another process responds") {
		t.Errorf("a second agent: %v", err)
	}
	rig.Must(t, agent.Check(t.Context(), c.Listen))
	load.stop(t)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	if err := agent.Check(t.Context(), c.Listen); err == nil || !strings.Contains(err.Error(), "no agent responds") {
		t.Errorf("a check says %v", err)
	}
}

// TestIdleConnections checks that idle connections do not block other clients.
func TestIdleConnections(t *testing.T) {
	w := newWorld(t)
	c := w.config()
	c.MaxRequests = 2
	load := begin(t, c)
	rig.Succeeds(t, func() error { return agent.Check(t.Context(), load.Address()) })
	for range 20 {
		conn, err := net.Dial("tcp", load.Address())
		rig.Must(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, "GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
		rig.Must(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		rig.Must(t, err)
		rig.Must(t, resp.Body.Close())
	}
	rig.Must(t, agent.Check(t.Context(), load.Address()))
}

// TestStreamsStayOutOfMemory checks that memory does not grow with the length of bodies: 16 messages of 16 MiB are in
// progress, with the workload, the agent and the key server in one process.
func TestStreamsStayOutOfMemory(t *testing.T) {
	const messages, sent, most = 16, 8 << 20, 64 << 20
	w := newWorld(t)
	c := w.config()
	c.Allow = []string{"computeMac:" + w.line.String()}
	load := begin(t, c)
	load.works(t, "POST", "/api/crypto/mac", w.mac(""))
	idle := inUse()
	var held, done sync.WaitGroup
	leave := make(chan struct{})
	for range messages {
		held.Add(1)
		from, to := io.Pipe()
		done.Go(func() {
			if r := load.asks(t, "POST", "/api/crypto/mac", from); r.status != 200 {
				t.Errorf("%d %v", r.status, r.body)
			}
		})
		done.Go(func() {
			_, err := io.WriteString(to, `{"lineage":"`+w.line.String()+`","data":"`)
			piece := strings.Repeat("AAAA", 4<<10)
			for n := 0; n < sent && err == nil; n += len(piece) {
				_, err = io.WriteString(to, piece)
			}
			held.Done()
			<-leave
			_, last := io.WriteString(to, `"}`)
			if err := errors.Join(err, last, to.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	held.Wait()
	if grown := inUse() - idle; grown > most {
		t.Errorf("%d messages of %d MiB hold %d MiB", messages, sent>>20, grown>>20)
	} else {
		t.Logf("%d messages of %d MiB hold %d MiB", messages, sent>>20, grown>>20)
	}
	close(leave)
	done.Wait()
}

func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}

// TestSettings checks that the error for each invalid flag names the flag.
func TestSettings(t *testing.T) {
	w := world{token: "/run/token"}
	good := agent.Config{Server: "https://keys.example", TokenFile: w.token, Listen: agent.DefaultListen, SocketMode: agent.DefaultSocketMode, MaxRequests: 1, Batch: agent.BatchOn}
	rig.Must(t, good.Validate())
	for says, change := range map[string]func(*agent.Config){
		"--server: the base URL \"http://keys.example\"":           func(c *agent.Config) { c.Server = "http://keys.example" },
		"--server ends in /api":                                    func(c *agent.Config) { c.Server += "/api" },
		"--server contains a user":                                 func(c *agent.Config) { c.Server = "https://ann:planted@keys.example" },
		"--external-url: ":                                         func(c *agent.Config) { c.ExternalURL = "keys" },
		"--token-file is empty":                                    func(c *agent.Config) { c.TokenFile = "" },
		"--listen is \"0.0.0.0:8200\"; it must be a loopback":      func(c *agent.Config) { c.Listen = "0.0.0.0:8200" },
		"--listen is \":8200\"; it must be a loopback":             func(c *agent.Config) { c.Listen = ":8200" },
		"--listen is \"[::]:8200\"; it must be a loopback":         func(c *agent.Config) { c.Listen = "[::]:8200" },
		"--listen is \"keys.example:8200\"; it must be a loopback": func(c *agent.Config) { c.Listen = "keys.example:8200" },
		"--listen is \"8200\"":                                     func(c *agent.Config) { c.Listen = "8200" },
		"--listen: \"unix://agent.sock\" must be":                  func(c *agent.Config) { c.Listen = "unix://agent.sock" },
		"at most 100 bytes long":                                   func(c *agent.Config) { c.Listen = "unix:///" + strings.Repeat("a", 100) },
		"--socket-mode is \"rw\"":                                  func(c *agent.Config) { c.SocketMode = "rw" },
		"--socket-mode is \"0440\"":                                func(c *agent.Config) { c.SocketMode = "0440" },
		"--socket-mode is \"1777\"":                                func(c *agent.Config) { c.SocketMode = "1777" },
		"--max-requests is 0":                                      func(c *agent.Config) { c.MaxRequests = 0 },
		"--max-requests is 5000":                                   func(c *agent.Config) { c.MaxRequests = 5000 },
		"--batch is \"yes\"; it must be on or off":                 func(c *agent.Config) { c.Batch = "yes" },
		"--health-listen is \"8081\"":                              func(c *agent.Config) { c.HealthListen = "8081" },
		"--metrics-listen is \"8081\"":                             func(c *agent.Config) { c.MetricsListen = "8081" },
		"--allow computeMAC: there is no route":                    func(c *agent.Config) { c.Allow = []string{"computeMAC"} },
	} {
		bad := good
		change(&bad)
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "planted") {
			t.Errorf("got %v, want %q", err, says)
		}
	}
}

// TestCodesAreDocumented checks that the documentation lists each code with its meaning.
func TestCodesAreDocumented(t *testing.T) {
	root, err := rig.Root()
	rig.Must(t, err)
	page, err := os.ReadFile(filepath.Join(root, "docs", "workloads.md"))
	rig.Must(t, err)
	for _, c := range agent.Codes {
		if row := fmt.Sprintf("| %d `%s` | %s |", c.Status, c.Code, c.Meaning); !strings.Contains(string(page), row) {
			t.Errorf("docs/workloads.md lacks\n%s", row)
		}
	}
}
