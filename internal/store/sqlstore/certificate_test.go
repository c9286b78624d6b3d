package sqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sessionrows"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/internal/store/trustrows"
)

// TestCertificateConformance checks that SQLite and PostgreSQL behave the same.
func TestCertificateConformance(t *testing.T) {
	for name, make := range migratedKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for name, test := range map[string]func(*testing.T, *sqlstore.Store){
				"Life": testCertificateLife, "Subjects": testSubjects, "SubjectPages": testSubjectPages,
				"Revocation": testRevocation, "SessionsOfOne": testSessionsOfOne,
			} {
				t.Run(name, func(t *testing.T) { test(t, openStore(t, make)) })
			}
		})
	}
}

func certificate(der, subject string) keyserver.Certificate {
	return keyserver.Certificate{
		ID: keyserver.DigestOf([]byte(der)).ID(), Status: keyserver.StatusSavedRequest, Subject: subject, Issuer: "/CN=ca", IssuerDigest: "AB",
		KeyType: "EC P-256", Serial: []byte{0, 9}, NotBefore: at(0), NotAfter: at(1), DER: []byte(der), Request: []byte("request"),
	}
}

func insertCertificate(c keyserver.Certificate) write {
	return func(ctx context.Context, tx *sqlstore.Tx) error { return tx.InsertCertificate(ctx, c) }
}

func testCertificateLife(t *testing.T, s *sqlstore.Store) {
	ctx := t.Context()
	c := certificate("one", "/CN=agent")
	missing := keyserver.DigestOf([]byte("none"))
	if _, err := s.Certificate(ctx, missing); !errors.Is(err, sqlstore.ErrNotFound) {
		t.Errorf("no certificate: got %v", err)
	}
	stray := c
	stray.Principal = id(99)
	for reason, w := range map[string]write{
		"enrolled for nobody":  insertCertificate(stray),
		"enrol no certificate": func(ctx context.Context, tx *sqlstore.Tx) error { return tx.EnrolCertificate(ctx, id(5), id(1)) },
		"expire none":          func(ctx context.Context, tx *sqlstore.Tx) error { return tx.ExpireCertificate(ctx, id(5)) },
	} {
		if err := tryUpdate(t, s, w); !errors.Is(err, sqlstore.ErrNotFound) {
			t.Errorf("%s: got %v", reason, err)
		}
	}
	update(t, s, insertPrincipal(principal(1, "agent"), ""), insertCertificate(c))
	if err := tryUpdate(t, s, insertCertificate(c)); !errors.Is(err, sqlstore.ErrDuplicate) {
		t.Errorf("twice: got %v", err)
	}
	got, err := s.Certificate(ctx, keyserver.DigestOf(c.DER))
	if diff := cmp.Diff(c, got); err != nil || diff != "" {
		t.Fatalf("%v\n%s", err, diff)
	}
	if list, err := s.EnrolledCertificates(ctx, c.Subject, 10); err != nil || len(list) != 0 {
		t.Errorf("issued is not enrolled: got %v, %v", list, err)
	}

	update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error { return tx.EnrolCertificate(ctx, c.ID, id(1)) })
	c.Principal, c.Status = id(1), keyserver.StatusRegular
	for reason, read := range map[string]func() ([]keyserver.Certificate, error){
		"of the principal": func() ([]keyserver.Certificate, error) { return s.CertificatesOf(ctx, id(1), 10) },
		"of the subject":   func() ([]keyserver.Certificate, error) { return s.EnrolledCertificates(ctx, c.Subject, 10) },
		"by id": func() ([]keyserver.Certificate, error) {
			c, err := s.CertificateByID(ctx, c.ID)
			return []keyserver.Certificate{c}, err
		},
	} {
		got, err := read()
		if diff := cmp.Diff([]keyserver.Certificate{c}, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", reason, err, diff)
		}
	}
	update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error { return tx.ExpireCertificate(ctx, c.ID) })
	if got, err := s.CertificateByID(ctx, c.ID); err != nil || got.Status != keyserver.StatusExpired || got.Principal != id(1) {
		t.Errorf("expired: got %+v, %v", got, err)
	}

	second := certificate("two", "/CN=agent")
	second.Principal, second.Request = id(1), nil
	update(t, s, insertCertificate(second))
	update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error {
		if n, err := tx.DeleteCertificatesOf(ctx, id(1)); err != nil || n != 2 {
			t.Errorf("dropped %d, %v", n, err)
		}
		return nil
	})
	if list, err := s.CertificatesOf(ctx, id(1), 10); err != nil || len(list) != 0 {
		t.Errorf("after dropping: got %v, %v", list, err)
	}
	page, err := s.Changes(ctx, 0, 100)
	kinds := map[keyserver.Change]int{}
	for _, ch := range page.Changes {
		ch.Seq = 0
		kinds[ch]++
	}
	want := map[keyserver.Change]int{
		{Kind: keyserver.ChangePrincipal, ID: id(1), Action: keyserver.Created}:       1,
		{Kind: keyserver.ChangeCertificate, ID: c.ID, Action: keyserver.Created}:      1,
		{Kind: keyserver.ChangeCertificate, ID: c.ID, Action: keyserver.Updated}:      2,
		{Kind: keyserver.ChangeCertificate, ID: c.ID, Action: keyserver.Deleted}:      1,
		{Kind: keyserver.ChangeCertificate, ID: second.ID, Action: keyserver.Created}: 1,
		{Kind: keyserver.ChangeCertificate, ID: second.ID, Action: keyserver.Deleted}: 1,
	}
	if diff := cmp.Diff(want, kinds); err != nil || diff != "" {
		t.Errorf("changes: %v\n%s", err, diff)
	}
}

// testSubjects checks that % is the only wildcard; other metacharacters of
// SQL have no special meaning.
func testSubjects(t *testing.T, s *sqlstore.Store) {
	for i, subject := range []string{"/CN=a", "/CN=A", "/CN=a_b", "/CN=axb", `/CN=a\/b`, "/CN=ab/O=x", "/O=x/CN=a", "/CN=ü", "/CN=*?["} {
		update(t, s, insertCertificate(certificate(fmt.Sprint("der ", i), subject)))
	}
	for pattern, want := range map[string][]string{
		"/CN=a":     {"/CN=a"},
		"/CN=A":     {"/CN=A"},
		"/CN=a%":    {"/CN=a", `/CN=a\/b`, "/CN=a_b", "/CN=ab/O=x", "/CN=axb"},
		"/CN=a_b":   {"/CN=a_b"},
		"/CN=a_%":   {"/CN=a_b"},
		`/CN=a\/b`:  {`/CN=a\/b`},
		`/CN=a\%`:   {`/CN=a\/b`},
		"%/CN=a":    {"/CN=a", "/O=x/CN=a"},
		"%O=x%":     {"/CN=ab/O=x", "/O=x/CN=a"},
		"%%a%%b%%":  {`/CN=a\/b`, "/CN=a_b", "/CN=ab/O=x", "/CN=axb"},
		"/CN=ü":     {"/CN=ü"},
		"/CN=*%":    {"/CN=*?["},
		"/CN=?":     {},
		"":          {},
		"/CN=a%a":   {},
		"/cn=a":     {},
		"' OR 1=1%": {},
	} {
		list, err := s.CertificatesBySubject(t.Context(), pattern, 100)
		got := []string{}
		for _, c := range list {
			got = append(got, c.Subject)
		}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", pattern, err, diff)
		}
	}
}

// testSubjectPages checks that a search reads all pages, even if all rows have
// the same subject, and stops at its limit.
func testSubjectPages(t *testing.T, s *sqlstore.Store) {
	const rows = 600
	var writes []write
	for i := range rows {
		writes = append(writes, insertCertificate(certificate(fmt.Sprint("a", i), "/CN=same")), insertCertificate(certificate(fmt.Sprint("b", i), "/CN=SAME")))
	}
	update(t, s, writes...)
	for limit, want := range map[int]int{10: 10, rows: rows, 2 * rows: rows} {
		list, err := s.CertificatesBySubject(t.Context(), "/CN=sa%", limit)
		seen := map[keyserver.ID]bool{}
		for _, c := range list {
			seen[c.ID] = true
		}
		if err != nil || len(list) != want || len(seen) != want {
			t.Errorf("limit %d: got %d rows, %d different, %v", limit, len(list), len(seen), err)
		}
	}
}

func testRevocation(t *testing.T, s *sqlstore.Store) {
	ctx := t.Context()
	off := keyserver.RevocationPolicy{Mode: keyserver.RevocationOff}
	state, serials, err := s.Revocation(ctx, "AB")
	if diff := cmp.Diff(trustrows.RevocationState{Policy: off}, state); err != nil || diff != "" || serials.Len() != 0 {
		t.Errorf("nothing stored: %v\n%s", err, diff)
	}
	policy := keyserver.RevocationPolicy{Mode: keyserver.RevocationRequired, MaxAge: 90e9}
	crl := keyserver.CRLFacts{
		Digest: keyserver.DigestOf([]byte("crl")), Number: []byte{1, 0}, ThisUpdate: at(1), NextUpdate: at(2), ImportedAt: at(3), Revoked: 2,
	}
	put := func(digest string, p *keyserver.RevocationPolicy, c *keyserver.CRLFacts, serials ...[]byte) {
		update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error {
			if p != nil {
				if err := tx.PutRevocationPolicy(ctx, digest, *p); err != nil {
					return err
				}
			}
			if c != nil {
				return tx.PutRevocationList(ctx, digest, *c, keyserver.NewSerialSet(serials))
			}
			return nil
		})
	}
	put("AB", &off, nil)
	put("AB", &policy, nil)
	put("CD", nil, &keyserver.CRLFacts{Digest: crl.Digest, Number: []byte{}, ThisUpdate: at(1), NextUpdate: at(2), ImportedAt: at(3)}, []byte{7})
	put("CD", nil, &crl, []byte{1}, []byte{2})
	put("EF", &policy, &crl)
	want := map[string]trustrows.RevocationState{"AB": {Policy: policy}, "CD": {Policy: off, CRL: &crl}, "EF": {Policy: policy, CRL: &crl}}
	got, err := s.RevocationStates(ctx)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	state, serials, err = s.Revocation(ctx, "CD")
	if diff := cmp.Diff(want["CD"], state); err != nil || diff != "" {
		t.Errorf("one: %v\n%s", err, diff)
	}
	if serials.Len() != 2 || !serials.Has([]byte{1}) || !serials.Has([]byte{0, 2}) || serials.Has([]byte{7}) {
		t.Error("the serial numbers are not those stored last")
	}
}

func testSessionsOfOne(t *testing.T, s *sqlstore.Store) {
	mine, other := session(1), session(2)
	mine.Certificate, other.Principal = id(77), ref(10)
	insert := func(ctx context.Context, tx *sqlstore.Tx) error {
		return errors.Join(tx.InsertSession(ctx, mine), tx.InsertSession(ctx, other))
	}
	update(t, s, insert)
	for _, want := range []sessionrows.SessionRecord{mine, other} {
		if got, err := s.Session(t.Context(), want.Hash); err != nil || got.Certificate != want.Certificate {
			t.Errorf("got the certificate %s, %v", got.Certificate, err)
		}
	}
	update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error {
		if n, err := tx.DeleteSessionsOf(ctx, mine.Principal); err != nil || n != 1 {
			t.Errorf("ended %d, %v", n, err)
		}
		return nil
	})
	if _, err := s.Session(t.Context(), mine.Hash); !errors.Is(err, sqlstore.ErrNotFound) {
		t.Errorf("the session is still there: %v", err)
	}
	if _, err := s.Session(t.Context(), other.Hash); err != nil {
		t.Errorf("another principal's session went with it: %v", err)
	}
}
