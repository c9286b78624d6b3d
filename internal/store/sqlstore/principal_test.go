package sqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// TestPrincipalConformance checks that SQLite and PostgreSQL behave the same with
// listings, identities and memberships.
func TestPrincipalConformance(t *testing.T) {
	onEach(t, migratedKinds, map[string]func(*testing.T, newDatabase){
		"Identities": testIdentities,
		"Listings":   testListings,
		"AnyPrefix":  testAnyPrefix,
		"ByID":       testPrincipalsByID,
		"Members":    testMembers,
	})
}

func xauth(n uint64, name, issuer, subject string, audiences ...string) keyserver.Principal {
	p := principal(n, name)
	p.Type = keyserver.XAuthPrincipal
	p.Identity = &keyserver.Identity{Issuer: issuer, Subject: subject, Audiences: append([]string{}, audiences...)}
	return p
}

func testIdentities(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	long := strings.Repeat("x", 512)
	web, db := xauth(1, "web", "https://a", "sub", "B", "a", "b"), xauth(2, "db", long, long)
	update(t, s, insertPrincipal(web, ""), insertPrincipal(db, ""), insertPrincipal(xauth(3, "other issuer", "https://b", "sub"), ""))
	for name, p := range map[string]keyserver.Principal{
		"SameIdentity":  xauth(9, "new", "https://a", "sub"),
		"SameAudience":  xauth(9, "new", "https://a", "new", "a", "a"),
		"SameLongPair":  xauth(9, "new", long, long),
		"SameNameInXAu": xauth(9, "web", "https://a", "new"),
	} {
		if err := tryUpdate(t, s, insertPrincipal(p, "")); !errors.Is(err, sqlstore.ErrDuplicate) {
			t.Errorf("%s: got %v, want ErrDuplicate", name, err)
		}
	}
	for _, want := range []keyserver.Principal{web, db} {
		byID, err := s.Principal(t.Context(), want.ID)
		if err != nil || !cmp.Equal(byID, want) {
			t.Errorf("by id: %v: %s", err, cmp.Diff(want, byID))
		}
		got, err := s.PrincipalByIdentity(t.Context(), want.Identity.Issuer, want.Identity.Subject)
		if err != nil || !cmp.Equal(got, want) {
			t.Errorf("by identity: %v: %s", err, cmp.Diff(want, got))
		}
	}
	for _, other := range [][2]string{{"https://A", "sub"}, {"https://a", "Sub"}, {"https://a", "sub "}, {"https://a", "%"}, {"", ""}} {
		if p, err := s.PrincipalByIdentity(t.Context(), other[0], other[1]); !errors.Is(err, sqlstore.ErrNotFound) {
			t.Errorf("%q is taken for %v, %v", other, p, err)
		}
	}
}

func names(list []keyserver.Principal) []string {
	out := []string{}
	for _, p := range list {
		out = append(out, p.Name)
	}
	return out
}

func testListings(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	update(t, s, insertRole(role(10, "a")), insertRole(role(11, "b")))
	group := principal(500, "a group")
	group.Type = keyserver.GroupPrincipal
	update(t, s, insertPrincipal(group, ""))
	// The order is by bytes, regardless of the locale of the database.
	sorted := []string{"", " ", "%a", "A", "B", "_", "a", "a ", "a%", "a*", "aB", `a\`, "a_", "ab", "b", "z", "~", "é", "ß", "\ud7ff", "\ue000", "\U0010ffff", "\U0010ffffa"}
	slices.Sort(sorted)
	for i, name := range sorted {
		p := principal(uint64(1000-i), name)
		if name == "ab" {
			p.Roles, p.Groups = ids(10, 11), ids(500)
		}
		update(t, s, insertPrincipal(p, ""))
	}
	cases := map[string]struct {
		filter keyserver.PrincipalFilter
		want   []string
	}{
		"All":        {keyserver.PrincipalFilter{Limit: 100}, sorted},
		"Window":     {keyserver.PrincipalFilter{Limit: 3, Offset: 2}, sorted[2:5]},
		"LastPage":   {keyserver.PrincipalFilter{Limit: 100, Offset: len(sorted) - 1}, sorted[len(sorted)-1:]},
		"PastTheEnd": {keyserver.PrincipalFilter{Limit: 100, Offset: len(sorted)}, nil},
		"Prefix":     {keyserver.PrincipalFilter{Limit: 100, Prefix: "a"}, []string{"a", "a ", "a%", "a*", "aB", `a\`, "a_", "ab"}},
		"Both":       {keyserver.PrincipalFilter{Limit: 2, Offset: 1, Prefix: "a"}, []string{"a ", "a%"}},
		"Surrogates": {keyserver.PrincipalFilter{Limit: 100, Prefix: "\ud7ff"}, []string{"\ud7ff"}},
		"LastRune":   {keyserver.PrincipalFilter{Limit: 100, Prefix: "\U0010ffff"}, []string{"\U0010ffff", "\U0010ffffa"}},
		"OtherType":  {keyserver.PrincipalFilter{Limit: 100, Type: keyserver.GroupPrincipal}, []string{"a group"}},
		"NoSuchType": {keyserver.PrincipalFilter{Limit: 100, Type: keyserver.XAuthPrincipal}, nil},
	}
	for name, tc := range cases {
		if tc.filter.Type == "" {
			tc.filter.Type = keyserver.PasswordPrincipal
		}
		got, err := s.Principals(t.Context(), tc.filter)
		if err != nil || !slices.Equal(names(got), tc.want) {
			t.Errorf("%s: got %q, %v, want %q", name, names(got), err, tc.want)
		}
		for _, p := range got {
			if one, err := s.Principal(t.Context(), p.ID); err != nil || !cmp.Equal(one, p) {
				t.Errorf("%s: a listing shows a principal otherwise than a read, %v: %s", name, err, cmp.Diff(one, p))
			}
		}
	}
}

// testAnyPrefix checks, for random names, prefixes and page sizes, that all
// pages together have exactly the names with the prefix, in order.
func testAnyPrefix(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	char := rapid.SampledFrom([]rune("ab%_\\*Aé\ud7ff\ue000\U0010ffff"))
	text := rapid.StringOfN(char, 0, 4, -1)
	var next uint64
	rapid.Check(t, func(r *rapid.T) {
		kind := keyserver.PrincipalType(fmt.Sprint("kind ", next))
		all := rapid.SliceOfNDistinct(text, 0, 12, rapid.ID).Draw(r, "names")
		if err := s.Update(t.Context(), func(tx *sqlstore.Tx) error {
			for _, name := range all {
				next++
				if err := tx.InsertPrincipal(t.Context(), keyserver.Principal{ID: id(next), Type: kind, Name: name}, ""); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			r.Fatal(err)
		}
		next++
		f := keyserver.PrincipalFilter{Type: kind, Prefix: text.Draw(r, "prefix"), Limit: rapid.IntRange(1, 13).Draw(r, "limit")}
		want := slices.DeleteFunc(slices.Clone(all), func(n string) bool { return !strings.HasPrefix(n, f.Prefix) })
		slices.Sort(want)
		got := []string{}
		for {
			page, err := s.Principals(t.Context(), f)
			if err != nil {
				r.Fatal(err)
			}
			got = append(got, names(page)...)
			if len(page) < f.Limit {
				break
			}
			f.Offset += f.Limit
		}
		if !slices.Equal(got, want) {
			r.Fatalf("pages of %d that begin with %q are %q, want %q", f.Limit, f.Prefix, got, want)
		}
	})
}

func testPrincipalsByID(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	const n = 130 // more than fit into two statements
	var all []keyserver.ID
	update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error {
		for i := uint64(1); i <= n; i++ {
			all = append(all, id(i))
			if err := tx.InsertPrincipal(ctx, principal(i, fmt.Sprint(i)), ""); err != nil {
				return err
			}
		}
		return nil
	})
	for _, ask := range [][]keyserver.ID{nil, all[:1], all[:64], all[:65], all, slices.Concat(all[100:], ids(998, 999))} {
		got, err := s.PrincipalsByID(t.Context(), slices.Concat(ask, ask))
		want := slices.DeleteFunc(slices.Clone(ask), func(i keyserver.ID) bool { return i.Uint64() > n })
		if err != nil || len(got) != len(want) {
			t.Fatalf("asked for %d twice: got %d, %v", len(want), len(got), err)
		}
		for i, p := range got {
			if p.ID != want[i] || p.Name != fmt.Sprint(p.ID.Uint64()) {
				t.Errorf("got %v, want %v", p, want[i])
			}
		}
	}
}

func testMembers(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	update(t, s, insertRole(role(10, "a")))
	for n, members := range map[uint64]bool{500: true, 501: true, 502: false} {
		g := keyserver.Principal{ID: id(n), Type: keyserver.GroupPrincipal, Name: fmt.Sprint("group ", n)}
		update(t, s, insertPrincipal(g, ""))
		if members {
			for i := uint64(1); i <= 5; i++ {
				p := principal(n*10+i, fmt.Sprint(n, " ", 9-i))
				p.Roles, p.Groups = ids(10), ids(n)
				update(t, s, insertPrincipal(p, ""))
			}
		}
	}
	for _, tc := range []struct {
		group         uint64
		limit, offset int
		want          []keyserver.ID
	}{
		{500, 9, 0, ids(5001, 5002, 5003, 5004, 5005)},
		{501, 2, 1, ids(5012, 5013)},
		{501, 2, 4, ids(5015)},
		{501, 2, 5, ids()},
		{502, 9, 0, ids()},
		{999, 9, 0, ids()},
	} {
		got, err := s.GroupMembers(t.Context(), id(tc.group), tc.limit, tc.offset)
		if err != nil || len(got) != len(tc.want) {
			t.Fatalf("%+v: got %v, %v", tc, got, err)
		}
		for i, p := range got {
			if one, err := s.Principal(t.Context(), tc.want[i]); err != nil || !cmp.Equal(one, p) {
				t.Errorf("%+v, %v: %s", tc, err, cmp.Diff(one, p))
			}
		}
	}
}
