package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

var (
	errUnanswered = &client.NetworkError{Sent: true, Err: io.ErrUnexpectedEOF}
	errRefused    = &client.Error{Status: http.StatusForbidden, Code: "ACCESS_DENIED"}
)

// TestObjects compares a role that was acknowledged as "old" and then changed to "new" with the state
// of the server.
func TestObjects(t *testing.T) {
	for name, tc := range map[string]struct {
		answer  error // result of the change
		now     map[string]string
		finding string
		effect  bool
	}{
		"acknowledged":            {nil, map[string]string{"role": "new"}, "", false},
		"acknowledged and lost":   {nil, map[string]string{"role": "old"}, `role is "old", and by what was acknowledged it is one of ["new"]`, false},
		"acknowledged and gone":   {nil, nil, `role is ""`, false},
		"refused":                 {errRefused, map[string]string{"role": "old"}, "", false},
		"refused and in effect":   {errRefused, map[string]string{"role": "new"}, `role is "new", and by what was acknowledged it is one of ["old"]`, false},
		"unanswered":              {errUnanswered, map[string]string{"role": "old"}, "", false},
		"unanswered, in effect":   {errUnanswered, map[string]string{"role": "new"}, "", true},
		"unanswered and gone":     {errUnanswered, nil, `role is "", and by what was acknowledged it is one of ["old" "new"]`, false},
		"an unknown object":       {nil, map[string]string{"role": "new", "other": "x"}, `other is "x"`, false},
		"a third value":           {errUnanswered, map[string]string{"role": "other"}, `role is "other"`, false},
		"a value for each, twice": {nil, map[string]string{"role": "new", "other": ""}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			var o Objects
			o.Note("role", "old")
			err := o.Change(t.Context(), "role", "new", func(context.Context) error { return tc.answer })
			if !errors.Is(err, tc.answer) {
				t.Errorf("the change returns %v", err)
			}
			unanswered := client.IsUnavailable(tc.answer)
			err = o.Change(t.Context(), "role", "newer", func(context.Context) error { return errRefused })
			if o.Settled("role") == unanswered || errors.Is(err, ErrUnsettled) != unanswered {
				t.Errorf("settled: %t, and the next change returns %v", o.Settled("role"), err)
			}
			effects, findings := o.Compare(o.Names(false), tc.now)
			expect(t, findings, tc.finding)
			if tc.effect != (len(effects) == 1 && effects[0].Value == "new") {
				t.Errorf("changes in effect: %v", effects)
			}
			if left := o.Names(false); len(left) != 0 || !o.Settled("role") {
				t.Errorf("not compared: %v", left)
			}
			_, findings = o.Compare(o.Names(true), tc.now)
			expect(t, findings, "") // the record now has the state of the server
		})
	}
}

// TestRequests compares the answer to one request with the rows of the audit log.
func TestRequests(t *testing.T) {
	created := schema.AuditEntry{Operation: "createRole", Outcome: "allowed"}
	refused := schema.AuditEntry{Operation: "createRole", Outcome: "refused"}
	other := schema.AuditEntry{Operation: "listRoles", Outcome: "allowed"}
	for name, tc := range map[string]struct {
		status           int
		rows             []schema.AuditEntry
		finding, missing string
	}{
		"answered":                         {200, []schema.AuditEntry{other, created}, "", ""},
		"answered without a row":           {200, []schema.AuditEntry{other, refused}, "is not in the audit log", "is not in the audit log"},
		"answered with two rows":           {200, []schema.AuditEntry{created, created}, "2 audit rows", ""},
		"unanswered with a row":            {0, []schema.AuditEntry{created}, "", ""},
		"unanswered without a row":         {0, nil, "", ""},
		"unanswered with two rows":         {0, []schema.AuditEntry{created, created}, "2 audit rows", ""},
		"refused":                          {403, []schema.AuditEntry{refused}, "", ""},
		"refused without a row":            {403, nil, "no audit row says so", ""},
		"refused with a row that says yes": {403, []schema.AuditEntry{refused, created}, "says allowed", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewRequests("test")
			over := r.Transport(roundTripper(func(*http.Request) (*http.Response, error) {
				if tc.status == 0 {
					return nil, io.ErrUnexpectedEOF
				}
				return &http.Response{StatusCode: tc.status, Body: http.NoBody}, nil
			}))
			var call Call
			send(call.In(t.Context()), t, over, "POST", "/api/roles")
			send(call.In(t.Context()), t, over, "POST", "/api/sessions")          // a login of the client itself
			send(Unaudited(call.In(t.Context())), t, over, "GET", "/api/unknown") // a request without rows
			ids := call.IDs()
			if len(ids) != 2 || ids[0] != "test-1" || r.Answered() != map[bool]int{true: 3}[tc.status == 200] {
				t.Fatalf("requests %v, %d of them answered", ids, r.Answered())
			}
			login := schema.AuditEntry{Operation: "login", Outcome: map[bool]string{true: "allowed", false: "refused"}[tc.status == 200]}
			log := &AuditLog{entries: map[string][]schema.AuditEntry{"test-1": tc.rows, "test-2": {login}, "another-9": {created}}}
			expect(t, r.Missing(log), tc.missing)
			expect(t, r.Missing(log, "readAudit"), "")
			expect(t, r.Compare(log), tc.finding)
			expect(t, r.Compare(&AuditLog{}), "") // each request is compared once
		})
	}
	t.Run("never sent", func(t *testing.T) {
		expect(t, NewRequests("test").Compare(&AuditLog{entries: map[string][]schema.AuditEntry{"test-1": {created}}}), "nobody sent")
	})
	t.Run("a change in effect", func(t *testing.T) {
		r := NewRequests("test")
		send(t.Context(), t, r.Transport(roundTripper(func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF })), "POST", "/api/roles")
		effects := []Change{{"role", "new", []string{"test-1"}}}
		expect(t, r.Effects(&AuditLog{entries: map[string][]schema.AuditEntry{"test-1": {created}}}, effects), "")
		expect(t, r.Effects(&AuditLog{entries: map[string][]schema.AuditEntry{"test-1": {other}}}, effects), "no audit row says so")
		r.Exclude()
		expect(t, r.Compare(&AuditLog{}), "")
	})
	t.Run("an unknown route", func(t *testing.T) {
		defer func() {
			if recover() == nil {
				t.Error("a request is left out of the comparison")
			}
		}()
		send(t.Context(), t, NewRequests("test").Transport(http.DefaultTransport), "GET", "/api/unknown")
	})
}

func send(ctx context.Context, t *testing.T, over http.RoundTripper, method, path string) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "https://127.0.0.1:1"+path, http.NoBody)
	rig.Must(t, err)
	if resp, err := over.RoundTrip(req); err == nil {
		rig.Must(t, resp.Body.Close())
	}
}

// TestMACs uses a server that computes a correct MAC first and wrong MACs later.
func TestMACs(t *testing.T) {
	material := []byte("material")
	mac := MAC(material, "message")
	c, err := client.New(client.Options{
		BaseURL: "https://127.0.0.1:1", MaxRetries: -1,
		Credentials: client.HeldSession("a session", nil),
		HTTPClient: &http.Client{Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
			text, err := json.Marshal(schema.HMACResponse{MAC: mac, MACBytes: len(mac), Algorithm: "HMAC-SHA384"})
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(string(text)))}, err
		})},
	})
	rig.Must(t, err)
	var m MACs
	var link schema.HiddenLink
	rig.Must(t, m.Compute(t.Context(), c, link, material, "message"))
	rig.Must(t, m.Check(t.Context(), c, false))
	mac = MAC(material, "another message")
	rig.Must(t, m.Check(t.Context(), c, false)) // this MAC was already checked
	for name, err := range map[string]error{
		"checked again":         m.Check(t.Context(), c, true),
		"computed again":        m.Compute(t.Context(), c, link, nil, "message"),
		"computed for the test": m.Compute(t.Context(), c, link, material, "message"),
	} {
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf(" is %x", mac)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// expect fails the test unless there is one finding with the text, or no finding if the text is empty.
func expect(t *testing.T, findings []string, text string) {
	t.Helper()
	if text == "" && len(findings) > 0 || text != "" && (len(findings) != 1 || !strings.Contains(findings[0], text)) {
		t.Errorf("findings %q, want %q", findings, text)
	}
}
