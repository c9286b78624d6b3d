package main

import (
	"bytes"
	"context"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// TestEveryRouteHasAMethod checks that each route has a client method with its request and response types, or is in
// byHand, and that byHand has no other names.
func TestEveryRouteHasAMethod(t *testing.T) {
	clients := reflect.TypeFor[*client.Client]()
	left := map[string]bool{}
	for name := range byHand {
		left[name] = true
	}
	for _, r := range routes.All() {
		name := goName(r.Name)
		by, excused := byHand[r.Name]
		delete(left, r.Name)
		if excused {
			name = by.method
		}
		m, there := clients.MethodByName(name)
		switch {
		case excused && by.why == "":
			t.Errorf("%s: nothing says why its method is made by hand", r.Name)
		case excused && name == "":
		case !there:
			t.Errorf("%s: the client has no method %s; run make generate", r.Name, name)
		case !excused:
			want := []reflect.Type{clients, reflect.TypeFor[context.Context]()}
			if r.Request.NumField() > 0 {
				want = append(want, r.Request)
			}
			if f := reflect.FuncOf(want, []reflect.Type{r.Response, reflect.TypeFor[error]()}, false); m.Type != f {
				t.Errorf("%s: %s is %s, want %s; run make generate", r.Name, name, m.Type, f)
			}
		}
	}
	for name := range left {
		t.Errorf("%s is no route, and yet has an excuse", name)
	}
}

// TestTheGeneratedFilesAreUpToDate checks the same as "make verify", but faster.
func TestTheGeneratedFilesAreUpToDate(t *testing.T) {
	for file, generated := range map[string]func() ([]byte, error){
		"client/zz_generated_routes.go":     func() ([]byte, error) { return generate(routes.All()) },
		"schema/zz_generated_operations.go": operations,
	} {
		want, err := generated()
		if err != nil {
			t.Fatal(err)
		}
		have, err := os.ReadFile("../../clients/go/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(have, want) {
			t.Errorf("clients/go/%s is stale; run make generate", file)
		}
	}
}

// TestOperationNames checks that the schema accepts only the names that the key server knows.
func TestOperationNames(t *testing.T) {
	names := []string{"", "nonsense", "HMAC Data", "hmacData "}
	for _, op := range slices.Concat(keyserver.Operations, keyserver.Effects) {
		names = append(names, op.Key)
	}
	for _, name := range names {
		_, known := keyserver.OperationNamed(name)
		if err := new(schema.OperationKey).UnmarshalText([]byte(name)); (err == nil) != known {
			t.Errorf("%q: %v; the key server knows it: %t", name, err, known)
		}
	}
}

func TestNamesAreSpeltAsInGo(t *testing.T) {
	for operation, want := range map[string]string{
		"createRole": "CreateRole", "listTrustedCas": "ListTrustedCAs", "addTrustedCa": "AddTrustedCA", "importCrl": "ImportCRL",
		"createLdapPrincipal": "CreateLDAPPrincipal", "createXauthPrincipal": "CreateXAuthPrincipal", "setAclTemplateMember": "SetACLTemplateMember",
		"computeHmac": "ComputeHMAC", "getOpenApiDocument": "GetOpenAPIDocument", "lookUpPrincipals": "LookUpPrincipals",
	} {
		if got := goName(operation); got != want {
			t.Errorf("%s is spelt %s, want %s", operation, got, want)
		}
	}
	for _, r := range routes.All() {
		for line := range strings.Lines(comment(goName(r.Name), r)) {
			if len(line) > 81 {
				t.Errorf("%s: a line of its comment is too long: %s", r.Name, line)
			}
		}
	}
}
