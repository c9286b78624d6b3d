package main

import (
	"bytes"
	"context"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
)

// Every route has a method of the client with the route's request and response types, or
// is in byHand. byHand has no other names.
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

// The test checks the same as make verify, but faster.
func TestTheGeneratedFileIsUpToDate(t *testing.T) {
	want, err := generate(routes.All())
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("../../clients/go/client/zz_generated_routes.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want) {
		t.Error("clients/go/client/zz_generated_routes.go is not what the routes make; run make generate")
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
