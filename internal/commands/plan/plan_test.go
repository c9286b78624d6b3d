package plan_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/plan"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

const signers = "{roleName: Signers, operations: [HMAC Data]}"

// TestRefusals checks that there is no plan if a file or a server cannot be read.
func TestRefusals(t *testing.T) {
	k := start(t)
	for name, c := range map[string]struct {
		manifests string
		change    func(*plan.Options)
		says      string
	}{
		"Nothing":     {"", nil, "contain no object of trust.keyserver.dev"},
		"OtherKinds":  {"{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}}", nil, "contain no object of trust.keyserver.dev"},
		"NoKeyServer": {object("Role", "a", "{keyServerRef: {name: other}, roleName: A, operations: []}"), func(o *plan.Options) { o.Access = nil }, `KeyServer "other", to which Role default/a refers, is neither in the files nor in a cluster`},
		"NoFlags":     {object("Role", "a", signers), func(o *plan.Options) { o.Access = nil }, `KeyServer "default", to which Role default/a refers`},
		"HalfTheFlags": {object("Role", "a", signers), func(o *plan.Options) { o.Access.URL = "" },
			"give --server and --password-file"},
		"FlagsForAnother": {object("Role", "a", "{keyServerRef: {name: main}, roleName: A, operations: []}") +
			object("KeyServer", "main", "{url: "+k.URL()+", credentials: {administrator: {secretRef: {namespace: ns, name: admin}}}}"), nil,
			`--key-server-ref: no object in the files refers to KeyServer "default"; give one of main`},
		"WrongPassword": {object("Role", "a", signers), func(o *plan.Options) { o.Access.Administrator.Password = "planted" },
			"is not ready: AccessDenied"},
		"NobodyThere": {object("Role", "a", signers), func(o *plan.Options) { o.Access.URL = "https://127.0.0.1:1" },
			"is not ready: KeyServerUnavailable"},
		"UnknownCA": {object("Role", "a", signers), func(o *plan.Options) { o.Access.CA = newPeer(t, 7).pem() },
			"is not ready: KeyServerUnavailable"},
		"NoSecret": {object("Role", "a", signers) + object("KeyServer", "default", "{url: "+k.URL()+", credentials: {administrator: {secretRef: {namespace: ns, name: admin}}}}"),
			func(o *plan.Options) { o.Access = nil }, "Secret ns/admin does not exist"},
		"Twice":          {object("Role", "a", signers) + object("Role", "a", signers), nil, "document 2 (line 7): Role default/a is already defined in standard input, document 1 (line 2)"},
		"TwiceByDefault": {object("Role", "a", signers) + strings.Replace(object("Role", "a", signers), "{name: a}", "{name: a, namespace: default}", 1), nil, "already"},
		"Invalid":        {object("Role", "a", "{roleName: ' A', operations: []}"), nil, "must not begin or end with a space"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := k.plan(t, c.manifests, func(o *plan.Options) {
				if c.change != nil {
					c.change(o)
				}
			})
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want an error that says %q; the plan is %+v", err, c.says, r)
			}
			if err != nil && (strings.Contains(err.Error(), "planted") || strings.Contains(err.Error(), "\n")) {
				t.Errorf("the sentence is %q", err)
			}
		})
	}
	if w := k.writes(t); len(w) > 0 {
		t.Errorf("the key server was written to: %v", w)
	}
}

// TestPlanOfAFreshKeyServer checks that missing objects are planned as new, that waiting objects name what they wait
// for, and that nothing is written.
func TestPlanOfAFreshKeyServer(t *testing.T) {
	k, p := start(t), newPeer(t, 7)
	r := k.mustPlan(t, object("PrincipalTrust", "trust", "{trustedServerRef: {name: peer}, principal: {id: 00000000000000aa}, flag: expose}")+
		object("PrincipalTrust", "by-number", "{systemId: 7, principal: {id: 00000000000000ab}, flag: expose}")+
		peerManifest("peer", p)+caManifest("ca", p)+object("Role", "signers", signers)+
		object("ACLTemplate", "template", "{templateName: Keys, members: [{principal: password/admin, rights: [OWNER]}], directories: [/a]}")+
		object("Principal", "till", "{serviceAccount: {name: till}}")+
		object("Principal", "till-abroad", "{serviceAccount: {name: till, issuer: https://issuer.example}, principalName: Abroad}")+
		object("Principal", "team", "{group: {}, principalName: Team, roles: [{roleRef: {name: signers}}]}")+
		object("Principal", "crew", "{group: {}, principalName: Crew}")+
		object("Principal", "ann", "{ldap: {name: ann}, groups: [{principalRef: {name: crew}}]}"))
	want := plan.Summary{Create: 5, Blocked: 6}
	if d := cmp.Diff(want, r.Summary); d != "" {
		t.Error(d)
	}
	for name, c := range map[string]struct {
		action reconcile.PlannedAction
		reason v1beta1.Reason
		waits  []string
		calls  []string
	}{
		"TrustedCA ca":             {reconcile.PlanCreate, v1beta1.ReasonProgressing, []string{}, []string{"POST /api/trusted-cas"}},
		"Role signers":             {reconcile.PlanCreate, v1beta1.ReasonProgressing, []string{}, []string{"POST /api/roles"}},
		"ACLTemplate template":     {reconcile.PlanCreate, v1beta1.ReasonProgressing, []string{}, []string{"POST /api/acl-templates"}},
		"Principal till-abroad":    {reconcile.PlanCreate, v1beta1.ReasonProgressing, []string{}, []string{"POST /api/principals/xauth"}},
		"Principal crew":           {reconcile.PlanCreate, v1beta1.ReasonProgressing, []string{}, []string{"POST /api/principals/groups"}},
		"Principal till":           {reconcile.PlanBlocked, v1beta1.ReasonDependencyNotReady, []string{}, []string{}}, // its cluster is unknown
		"Principal team":           {reconcile.PlanBlocked, v1beta1.ReasonDependencyNotReady, []string{"Role default/signers"}, []string{}},
		"Principal ann":            {reconcile.PlanBlocked, v1beta1.ReasonDependencyNotReady, []string{"Principal default/crew"}, []string{}},
		"TrustedServer peer":       {reconcile.PlanBlocked, v1beta1.ReasonDependencyNotReady, []string{"TrustedCA default/ca"}, []string{}},
		"PrincipalTrust trust":     {reconcile.PlanBlocked, v1beta1.ReasonDependencyNotReady, []string{"TrustedServer default/peer"}, []string{}},
		"PrincipalTrust by-number": {reconcile.PlanBlocked, v1beta1.ReasonDependencyNotReady, []string{"TrustedServer default/peer"}, []string{}},
	} {
		o := find(t, r, name)
		if o.Action != c.action || o.Reason != c.reason || !slices.Equal(o.WaitsFor, c.waits) || !slices.Equal(o.Calls, c.calls) {
			t.Errorf("%s: got %s %s, waits for %v, calls %v; want %+v", name, o.Action, o.Reason, o.WaitsFor, o.Calls, c)
		}
	}
	if o := find(t, r, "Principal till"); !strings.Contains(o.Message, "set spec.serviceAccount.issuer") {
		t.Errorf("without a cluster it says %q", o.Message)
	}
	if w := k.writes(t); len(w) > 0 {
		t.Errorf("the key server was written to: %v", w)
	}
}

// TestPlanOfWhatIsThere checks that existing objects are adopted, corrected or unchanged, as the policies say.
func TestPlanOfWhatIsThere(t *testing.T) {
	k := start(t)
	must[schema.RoleSaved](t)(k.admin.CreateRole(t.Context(), schema.CreateRoleRequest{Name: "Signers"}))
	before := k.writes(t)
	other := strings.TrimSuffix(signers, "}")
	r := k.mustPlan(t, object("Role", "same", "{roleName: Signers, operations: []}"))
	if o := find(t, r, "Role same"); o.Action != reconcile.PlanAdopt || !r.Summary.Agrees {
		t.Errorf("an identical one is adopted: %+v", r)
	}
	for policy, want := range map[string]struct {
		action reconcile.PlannedAction
		reason v1beta1.Reason
	}{
		"adoptionPolicy: IfIdentical": {reconcile.PlanBlocked, v1beta1.ReasonConflict},
		"adoptionPolicy: Never":       {reconcile.PlanBlocked, v1beta1.ReasonConflict},
		"adoptionPolicy: Always":      {reconcile.PlanUpdate, v1beta1.ReasonProgressing},
		"managementPolicy: Observe":   {reconcile.PlanNone, v1beta1.ReasonDrifted},
	} {
		r := k.mustPlan(t, object("Role", "signers", other+", "+policy+"}"))
		o, empty := find(t, r, "Role signers"), ""
		if o.Action != want.action || o.Reason != want.reason || r.Summary.Agrees {
			t.Errorf("%s: got %s %s, agrees %v", policy, o.Action, o.Reason, r.Summary.Agrees)
		}
		if d := cmp.Diff([]plan.Field{{Field: "operations", Declared: "HMAC Data", Observed: &empty}}, o.Fields); d != "" {
			t.Errorf("%s: %s", policy, d)
		}
	}
	r = k.mustPlan(t, object("Role", "a", "{roleName: Signers, operations: []}")+object("Role", "b", "{roleName: Signers, operations: []}"))
	if o := find(t, r, "Role b"); o.Reason != v1beta1.ReasonConflict || !strings.Contains(o.Message, "Role default/a") {
		t.Errorf("two claim one: %+v", o)
	}
	r = k.mustPlan(t, strings.Replace(object("Role", "a", signers), "{name: a}", `{name: a, annotations: {trust.keyserver.dev/paused: "true"}}`, 1))
	if o := find(t, r, "Role a"); o.Action != reconcile.PlanBlocked || o.Reason != v1beta1.ReasonPaused {
		t.Errorf("a paused one: %+v", o)
	}
	if after := k.writes(t); !slices.Equal(before, after) {
		t.Errorf("the key server was written to: %v", after[len(before):])
	}
}

// TestPlanBehindAProxy checks a key server behind a proxy with a path prefix. Whether a request is a read depends only
// on the path after the prefix.
func TestPlanBehindAProxy(t *testing.T) {
	k := start(t)
	behind, err := url.Parse(k.URL())
	if err != nil {
		t.Fatal(err)
	}
	const under = "/gw/api/keys"
	forward := httputil.NewSingleHostReverseProxy(behind)
	forward.ErrorLog = log.New(io.Discard, "", 0) // the plan closes its long poll
	forward.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: k.Pool(t), MinVersion: tls.VersionTLS12}}
	proxy := httptest.NewTLSServer(http.StripPrefix(under, forward))
	defer proxy.Close()
	r := k.mustPlan(t, object("Role", "a", signers)+object("ACLTemplate", "a", "{templateName: A, members: [{principal: password/admin, rights: [OWNER]}]}"), func(o *plan.Options) {
		o.Access.URL, o.Access.CA = proxy.URL+under+"/", string(pki.EncodePEM(proxy.Certificate().Raw))
	})
	for name, call := range map[string]string{"Role a": "POST /api/roles", "ACLTemplate a": "POST /api/acl-templates"} {
		if o := find(t, r, name); o.Action != reconcile.PlanCreate || !slices.Equal(o.Calls, []string{call}) {
			t.Errorf("got %+v, want the call %s", o, call)
		}
	}
	if w := k.writes(t); len(w) > 0 {
		t.Errorf("the key server was written to: %v", w)
	}
}

// TestSavedManifest checks that a plan ignores fields that a cluster has added to a saved manifest, in
// particular the deletion timestamp.
func TestSavedManifest(t *testing.T) {
	k := start(t)
	for name, finalizers := range map[string]string{"OurFinalizer": "trust.keyserver.dev/external", "AnotherFinalizer": "example.com/hold"} {
		t.Run(name, func(t *testing.T) {
			saved := strings.Replace(object("Role", "a", signers), "{name: a}", "{name: a, uid: 12345678-1234-1234-1234-123456789abc, resourceVersion: \"7\", "+
				"generation: 3, creationTimestamp: \"2026-01-01T00:00:00Z\", deletionTimestamp: \"2026-01-02T00:00:00Z\", deletionGracePeriodSeconds: 0, finalizers: ["+finalizers+"]}", 1)
			if o := find(t, k.mustPlan(t, saved), "Role a"); o.Action != reconcile.PlanCreate {
				t.Errorf("got %+v", o)
			}
			// The creation timestamp in the file is ignored, too.
			r := k.mustPlan(t, strings.Replace(saved, "name: a", "name: z", 1)+object("Role", "b", signers))
			if o := find(t, r, "Role z"); o.Reason != v1beta1.ReasonConflict {
				t.Errorf("an age from the file: %+v", o)
			}
		})
	}
}

// TestOneAge checks that all new objects get the same age, even if reading the files takes time.
func TestOneAge(t *testing.T) {
	k := start(t)
	r := k.mustPlan(t, object("Role", "z", signers)+object("Role", "b", signers), func(o *plan.Options) { o.Clock = &hasty{} })
	if o := find(t, r, "Role z"); o.Reason != v1beta1.ReasonConflict {
		t.Errorf("the first in the files: %+v", o)
	}
	if o := find(t, r, "Role b"); o.Action != reconcile.PlanCreate {
		t.Errorf("the first by name: %+v", o)
	}
}

// hasty is a clock that advances by one second at each reading.
type hasty struct {
	clock.RealClock

	looks atomic.Int64
}

func (h *hasty) Now() time.Time {
	return h.RealClock.Now().Add(time.Duration(h.looks.Add(1)) * time.Second)
}

// TestEverythingFromFiles checks that the files can contain a KeyServer, its Secret and a ConfigMap.
func TestEverythingFromFiles(t *testing.T) {
	k, p := start(t), newPeer(t, 7)
	manifests := object("KeyServer", "default", fmt.Sprintf("{url: %q, caBundle: {inline: %q}, credentials: {administrator: {secretRef: {namespace: ns, name: admin}}}, grants: [{name: labelled, namespaces: {selector: {matchLabels: {trust: ok}}}, kinds: [TrustedCA], names: ['*']}]}",
		k.URL(), string(k.CA(t)))) +
		"---\n{apiVersion: v1, kind: Secret, metadata: {name: admin, namespace: ns}, stringData: {username: admin, password: correct horse battery staple}}\n" +
		fmt.Sprintf("---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: cas}, data: {ca.crt: %q}}\n", p.pem()) +
		object("TrustedCA", "ca", "{certificate: {configMapKeyRef: {name: cas, key: ca.crt}}}") +
		object("TrustedCA", "absent", "{certificate: {secretKeyRef: {name: none, key: ca.crt}}}")
	files := func(o *plan.Options) { o.Access = nil }

	r := k.mustPlan(t, manifests, files)
	if o := find(t, r, "TrustedCA ca"); o.Reason != v1beta1.ReasonAccessDenied || !strings.Contains(o.Message, `has no grant for namespace "default"`) {
		t.Errorf("a namespace without the label: %+v", o)
	}
	r = k.mustPlan(t, manifests+"---\n{apiVersion: v1, kind: Namespace, metadata: {name: default, labels: {trust: ok}}}\n", files)
	if o := find(t, r, "TrustedCA ca"); o.Action != reconcile.PlanCreate {
		t.Errorf("all is there: %+v", o)
	}
	if o := find(t, r, "TrustedCA absent"); o.Action != reconcile.PlanBlocked || !strings.Contains(o.Message, "Secret default/none does not exist") {
		t.Errorf("a source that is nowhere: %+v", o)
	}
	var text, json bytes.Buffer
	if err := r.Text(&text); err != nil {
		t.Fatal(err)
	}
	if err := r.JSON(&json); err != nil {
		t.Fatal(err)
	}
	if both := text.String() + json.String(); strings.Contains(both, "battery staple") {
		t.Error("the password is in the output")
	}
}

// TestPrintedNamesAreHarmless checks that names in any field cannot control the terminal.
func TestPrintedNamesAreHarmless(t *testing.T) {
	const evil = "\x1b[2J\u202eevil"
	observed := evil
	r := plan.Report{
		KeyServers: []plan.KeyServer{{Name: "a", URL: evil, Message: evil}},
		Objects: []plan.Object{
			{Kind: "Role", Name: "a", Action: reconcile.PlanNone, Message: evil},
			{Kind: "Role", Name: "b", Action: reconcile.PlanUpdate, Fields: []plan.Field{{Field: evil, Declared: evil, Observed: &observed}, {Field: evil, Declared: evil}}},
		},
	}
	var b bytes.Buffer
	if err := r.Text(&b); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(b.String(), "\x1b\u202e") || strings.Count(b.String(), "evil") != 9 {
		t.Errorf("got %q", b.String())
	}
}

// all is a grant for trust in every namespace.
const all = "[{name: all, namespaces: {selector: {}}, kinds: [TrustedCA, TrustedServer], names: ['*']}]"

// TestGrantsForbid checks that the plan shows objects that no grant allows. A KeyServer in the files keeps its grants
// if flags change how it is reached.
func TestGrantsForbid(t *testing.T) {
	k, p := start(t), newPeer(t, 7)
	r := k.mustPlan(t, object("KeyServer", "default", fmt.Sprintf("{url: %q, credentials: {administrator: {secretRef: {namespace: ns, name: none}}}, grants: [%s]}", k.URL(),
		"{name: team, namespaces: {names: [default]}, kinds: [Role], names: ['Team *'], operations: ['duty:key use']}"))+
		object("Role", "mine", "{roleName: Team Signers, operations: [HMAC Data]}")+
		object("Role", "root", "{roleName: Team Root, operations: [Grant Any Operation]}")+
		object("Role", "other", "{roleName: Signers, operations: [HMAC Data]}")+
		caManifest("ca", p))
	if o := find(t, r, "Role mine"); o.Action != reconcile.PlanCreate {
		t.Errorf("what is granted: %+v", o)
	}
	for name, lacks := range map[string]string{
		"Role root":    `the operation "Grant Any Operation" (duty administration)`,
		"Role other":   `the name "Signers"`,
		"TrustedCA ca": `the kind TrustedCA`,
	} {
		o := find(t, r, name)
		if o.Action != reconcile.PlanBlocked || o.Reason != v1beta1.ReasonAccessDenied || !strings.Contains(o.Message, `grant "team", the nearest, lacks `+lacks) {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// TestOfficerFlags checks that the flags of the security officer are used for trust. Without them, the flags of the
// administrator are used, regardless of the KeyServer.
func TestOfficerFlags(t *testing.T) {
	k, p := start(t), newPeer(t, 7)
	manifests := object("KeyServer", "default", fmt.Sprintf("{url: %q, credentials: {administrator: {secretRef: {namespace: ns, name: none}}, securityOfficer: {secretRef: {namespace: ns, name: none}}}, grants: %s}", k.URL(), all)) +
		caManifest("ca", p)
	r := k.mustPlan(t, manifests)
	if o := find(t, r, "TrustedCA ca"); o.Action != reconcile.PlanCreate {
		t.Errorf("an administrator alone: %+v", o)
	}
	_, err := k.plan(t, manifests, func(o *plan.Options) { o.Access.Officer = &plan.Login{Name: "nobody", Password: "planted"} })
	if err == nil || !strings.Contains(err.Error(), "is not ready: AccessDenied") {
		t.Errorf("an officer whom nobody knows: %v", err)
	}
}

// TestCancelled checks that a plan ends when its context ends.
func TestCancelled(t *testing.T) {
	k := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := plan.Make(ctx, plan.Options{Files: []string{file(t, "a.yaml", object("Role", "a", signers))}, Namespace: "default", Access: k.access(t)}); !errors.Is(err, context.Canceled) {
		t.Errorf("a plan was made for nobody: %v", err)
	}
}

// TestPlanOfAPeerReference checks that the trust blob and the CA come from a peer KeyServer. If the peer does not
// respond, the objects that need it report this.
func TestPlanOfAPeerReference(t *testing.T) {
	k, p := start(t), testserver.Start(t, func(c *server.Config) {
		c.SystemID, c.ServerName, c.ExternalListen = 7, "192.0.2.7", rig.FreeAddress(t, "127.0.0.1")
	})
	manifests := func(url string) string {
		return object("KeyServer", "partner", fmt.Sprintf("{url: %q, caBundle: {inline: %q}, credentials: {administrator: {secretRef: {namespace: ns, name: admin}}}, grants: %s}", url, string(p.CA(t)), all)) +
			"---\n{apiVersion: v1, kind: Secret, metadata: {name: admin, namespace: ns}, stringData: {username: admin, password: correct horse battery staple}}\n" +
			object("TrustedCA", "partner", "{certificate: {peerRef: {name: partner}}}") +
			object("TrustedServer", "partner", "{friendlyName: Partner, trustBlob: {peerRef: {name: partner}}}")
	}
	r := k.mustPlan(t, manifests(p.URL()))
	if o := find(t, r, "TrustedCA partner"); o.Action != reconcile.PlanCreate {
		t.Errorf("got %+v", o)
	}
	if o := find(t, r, "TrustedServer partner"); o.Action != reconcile.PlanBlocked || !slices.Equal(o.WaitsFor, []string{"TrustedCA default/partner"}) {
		t.Errorf("got %+v", o)
	}
	if _, err := k.plan(t, manifests("https://127.0.0.1:1")); err == nil || !strings.Contains(err.Error(), `KeyServer "partner" is not ready`) {
		t.Errorf("a KeyServer of the files that does not answer: %v", err)
	}
	if w := k.writes(t); len(w) > 0 {
		t.Errorf("the key server was written to: %v", w)
	}
}

// TestOwnersForbid checks that the plan shows objects with another owner, and sets no owner marks.
func TestOwnersForbid(t *testing.T) {
	k := start(t)
	for name, owner := range map[string]string{"Theirs": "elsewhere/ns/Role/theirs", "Ours": "some-cluster/default/Role/ours", "Nobody's": ""} {
		saved := must[schema.RoleSaved](t)(k.admin.CreateRole(client.OwnedBy(t.Context(), owner), schema.CreateRoleRequest{Name: name}))
		if marks := must[schema.OwnerList](t)(k.admin.ListOwners(t.Context(), schema.OwnerQuery{Kind: "role"})); owner != "" &&
			!slices.ContainsFunc(marks.Owners, func(m schema.OwnerMark) bool { return m.ID == saved.Role.ID && m.Owner == owner }) {
			t.Fatalf("%s: %+v", name, marks)
		}
	}
	before := k.writes(t)
	r := k.mustPlan(t, object("Role", "theirs", "{roleName: Theirs, operations: [HMAC Data], adoptionPolicy: Always}")+
		object("Role", "ours", "{roleName: Ours, operations: [HMAC Data], adoptionPolicy: Never}")+
		object("Role", "nobody", "{roleName: Nobody's, operations: []}"))
	if o := find(t, r, "Role theirs"); o.Action != reconcile.PlanBlocked || o.Reason != v1beta1.ReasonConflict || !strings.Contains(o.Message, "is owned by elsewhere/ns/Role/theirs") {
		t.Errorf("somebody else's: %+v", o)
	}
	// Without a cluster, the plan accepts any cluster name in an owner mark as its own.
	if o := find(t, r, "Role ours"); o.Action != reconcile.PlanUpdate {
		t.Errorf("one's own: %+v", o)
	}
	if o := find(t, r, "Role nobody"); o.Action != reconcile.PlanAdopt {
		t.Errorf("nobody's: %+v", o)
	}
	if after := k.writes(t); !slices.Equal(before, after) {
		t.Errorf("the key server was written to: %v", after[len(before):])
	}
}
