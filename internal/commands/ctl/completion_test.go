package ctl

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// TestCompletedFlags checks that flags for principals, roles, keys and names have a listing, and that its queries are
// valid.
func TestCompletedFlags(t *testing.T) {
	all, root := theTable(t), theCommand(t)
	for _, c := range []struct{ verb, field, listing string }{
		{"keys acl grant", "principalId", "principals list"},
		{"keys acl grant", "ttag", "keys list"},
		{"keys list", "lineage", "keys list"},
		{"crypto mac compute", "lineage", "keys list"},
		{"principals password create", "roleIds", "roles list"},
		{"principals list", "name", "principals list"},
		{"roles create", "name", ""},
		{"roles create", "operations", ""},
	} {
		v := all.find(c.verb)
		cmd, _, err := root.Find(v.words)
		if err != nil {
			t.Fatal(err)
		}
		fields := slices.Concat(v.query, v.body)
		f := &fields[slices.IndexFunc(fields, func(f field) bool { return f.name == c.field })]
		listing := all.listingOf(v, f)
		if listing == nil {
			if c.listing != "" {
				t.Errorf("%s --%s: no listing", c.verb, f.flag)
			}
			continue
		}
		if got := strings.Join(listing.words, " "); got != c.listing {
			t.Errorf("%s --%s: %q, want %q", c.verb, f.flag, got, c.listing)
		}
		if _, ok := cmd.GetFlagCompletionFunc(f.flag); !ok {
			t.Errorf("%s --%s: no completion", c.verb, f.flag)
		}
		for _, query := range queries(cmd, listing) {
			if err := (&input{verb: listing}).check(&request{query: query.Encode()}); err != nil {
				t.Errorf("%s: %v", c.listing, err)
			}
		}
	}
	v := all.find("principals list")
	cmd, _, err := root.Find(v.words)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(queries(cmd, v)); n < 2 {
		t.Errorf("%d queries, want one for each type", n)
	}
	if err := cmd.Flags().Set("type", "ldap"); err != nil {
		t.Fatal(err)
	}
	if got := queries(cmd, v); len(got) != 1 || got[0].Encode() != fmt.Sprintf("limit=%d&type=ldap", maxCandidates) {
		t.Errorf("%v, want only the type of the command line", got)
	}
}

// TestCandidates checks the values and descriptions of a completion. A lineage with two keys is one value.
func TestCandidates(t *testing.T) {
	v := theTable(t).find("keys list")
	answer := jsontext.Value(`{"keys":[{"ttag":"AAAA","lineage":"AAAA","algorithm":"AES-256","state":"verifyOnly"},` +
		`{"ttag":"ABAB","lineage":"AAAA","algorithm":"AES-256","state":"enabled"},{"ttag":"BBBB","lineage":"BBBB","algorithm":"AES\u001b","state":"enabled"}]}`)
	for _, c := range []struct {
		field, typed string
		want         []string
	}{
		{"ttag", "A", []string{"AAAA\tAES-256 verifyOnly", "ABAB\tAES-256 enabled"}},
		{"hiddenLink", "B", []string{"BBBB\tAES\ufffd enabled"}},
		{"lineage", "", []string{"AAAA\tAES-256 verifyOnly", "BBBB\tAES\ufffd enabled"}},
		{"ttag", "C", nil},
	} {
		if got := candidates(v, answer, &field{name: c.field, value: value{name: "HiddenLink"}}, c.typed); !slices.Equal(got, c.want) {
			t.Errorf("%s %q: %q, want %q", c.field, c.typed, got, c.want)
		}
	}
}
