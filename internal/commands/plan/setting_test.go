package plan_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	apiclient "github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/plan"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/export"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
)

// keys is a key server with an administrator's client.
type keys struct {
	*testserver.Server
	admin *apiclient.Client
}

func start(t testing.TB) *keys {
	t.Helper()
	s := testserver.Start(t)
	return &keys{Server: s, admin: s.Admin(t)}
}

// access returns the access that command-line flags would give.
func (k *keys) access(t testing.TB) *plan.Access {
	return &plan.Access{
		KeyServer: "default", URL: k.URL(), CA: string(k.CA(t)),
		Administrator: &plan.Login{Name: testserver.AdminName, Password: testserver.AdminPassword},
	}
}

// plan makes a plan of manifests in one file.
func (k *keys) plan(t testing.TB, manifests string, change ...func(*plan.Options)) (*plan.Report, error) {
	t.Helper()
	o := plan.Options{
		Files: []string{"-"}, Stdin: strings.NewReader(manifests), Namespace: "default", Access: k.access(t), Log: logr.Discard(),
	}
	for _, c := range change {
		c(&o)
	}
	return plan.Make(t.Context(), o)
}

func (k *keys) mustPlan(t testing.TB, manifests string, change ...func(*plan.Options)) *plan.Report {
	t.Helper()
	r, err := k.plan(t, manifests, change...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// export returns the exported manifests of the key server.
func (k *keys) export(t testing.TB, kinds ...string) (manifests string, left []export.LeftOut) {
	t.Helper()
	made, err := export.Collect(t.Context(), export.Options{
		Admin: k.admin, Officer: k.admin, Namespace: "default", KeyServer: "default", Kinds: kinds,
	})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := made.YAML(&b); err != nil {
		t.Fatal(err)
	}
	return b.String(), made.LeftOut
}

// writes returns the write operations in the audit log. They show what a plan or an observer really did.
func (k *keys) writes(t testing.TB) []string {
	t.Helper()
	limit := 1000
	var found []string
	for cursor := int64(0); ; {
		page, err := k.admin.ListAuditEntries(t.Context(), schema.AuditQuery{Limit: &limit, Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Entries {
			if e.SessionKind == "internal" {
				continue // an operation of the server itself, such as its start
			}
			if !slices.ContainsFunc([]string{"list", "read", "find", "lookup", "login", "logout", "watch"}, func(verb string) bool {
				return strings.HasPrefix(e.Operation, verb)
			}) {
				found = append(found, e.Operation)
			}
		}
		if page.Next == nil {
			return found
		}
		cursor = *page.Next
	}
}

// must returns a function that ends the test on an error, and otherwise returns the value.
func must[V any](t testing.TB) func(V, error) V {
	return func(v V, err error) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// peer is a key server that can be registered.
type peer struct {
	ca   pki.Identity
	blob schema.TrustBlob
}

func newPeer(t testing.TB, system int) peer {
	t.Helper()
	ca, err := pki.NewCA(fmt.Sprintf("CA of system %d", system), time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := ca.IssueServer(fmt.Sprintf("system-%d", system), []string{"peer.example"}, nil, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	chain, err := pki.EncodeChain(leaf.Certificate, ca.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	// A documentation address (RFC 5737), which no machine uses.
	blob, err := schema.ParseTrustBlob(fmt.Sprintf("%d\t192.0.2.7\t9443\t%s", system, base64.StdEncoding.EncodeToString(chain)))
	if err != nil {
		t.Fatal(err)
	}
	return peer{ca, blob}
}

func (p peer) pem() string { return string(pki.EncodePEM(p.ca.Certificate.Raw)) }

// object returns the manifest of an object. Its spec is YAML in flow style.
func object(kind, name, spec string) string {
	return fmt.Sprintf("---\napiVersion: trust.keyserver.dev/v1beta1\nkind: %s\nmetadata: {name: %s}\nspec: %s\n", kind, name, spec)
}

func caManifest(name string, p peer) string {
	return object("TrustedCA", name, fmt.Sprintf("{certificate: {inline: %q}}", p.pem()))
}

func peerManifest(name string, p peer) string {
	return object("TrustedServer", name, fmt.Sprintf("{friendlyName: The other one, trustBlob: {inline: %q}}", p.blob.String()))
}

func find(t testing.TB, r *plan.Report, name string) plan.Object {
	t.Helper()
	for _, o := range r.Objects {
		if o.Kind+" "+o.Name == name {
			return o
		}
	}
	t.Fatalf("%s is not in the plan: %+v", name, r.Objects)
	return plan.Object{}
}

func file(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
