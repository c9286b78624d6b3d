package sqlstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/store/postgres"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

func TestDatabaseURLs(t *testing.T) {
	for _, url := range []string{
		"postgres://db",
		"postgresql://user@host/db",
		"postgres://user:word@host:5432/db?sslmode=verify-full&sslrootcert=/a/b.crt&application_name=x",
		"postgres://user:word@host1:5432,host2:5433/db?target_session_attrs=read-write",
		"postgres://user:p%40ss%2Fw%23r%3Fd%25@host/db",
		"postgres://user:a:b,c;d&e=f+g@host/db",
		"postgres://user@/db?host=/run/postgresql&port=5433",
		"postgres://user@[::1]:5432/db",
		"postgres:///db?user=me%40example&password=a%26b&options=-c%20search_path%3Dx",
	} {
		if err := postgres.CheckURL(url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// TestDatabaseURLWithRawPassword checks that no part of a password that is not percent-encoded
// becomes the name of a host, database or parameter, or appears in the error.
func TestDatabaseURLWithRawPassword(t *testing.T) {
	for _, url := range []string{
		"postgres://user:secr@SECRET/SECRET#SECRET@host/db",
		"postgres://user:12@SECRET@host/db",
		"postgres://user:12/SECRET@host/db",
		"postgres://user:12#SECRET@host/db",
		"postgres://user:12?SECRET@host/db",
		"postgres://user:12?SECRET@host/db?sslmode=require",
		"postgres://user:@SECRET?x=SECRET@host/db",
		"postgres://user:12%SECRET@host/db",
		"postgres://user:SECRET[@host/db",
		"postgres://user:SECRET @host/db",
		"postgres://user:SECRET\\x@host/db",
		"postgres://user:SECRET\n@host/db",
		"postgres://user:12,3/SECRET@host/db",
		"postgres://SECRET@user:12@host/db",
		"postgres://host/db?user=user&password=12&SECRET",
		"postgres://host/db?user=user&password=12&SEC-RET=1",
		"postgres://host/db?user=user&password=12;SECRET",
		"postgres://host/db?user=user&password=12#SECRET",
		"postgres://host/db?user=user&password=12@SECRET",
		"postgres://host/db?user=user&password=%SECRET",
		"user:SECRET@host/db",
		"host=host password=SECRET",
		"postgres user=x password=SECRET",
	} {
		_, opened := sqlstore.Open(t.Context(), sqlstore.Config{URL: url})
		if !errors.Is(opened, sqlstore.ErrUnusable) {
			t.Errorf("%s: Open returned %v, want ErrUnusable", url, opened)
		}
		for _, err := range []error{postgres.CheckURL(url), opened} {
			switch {
			case err == nil:
				t.Errorf("%s: accepted", url)
			case strings.Contains(err.Error(), "SEC"), strings.Contains(err.Error(), "reached"):
				t.Errorf("%s: %v", url, err)
			case strings.HasPrefix(url, "postgres://") && !strings.Contains(err.Error(), "percent-encode"):
				t.Errorf("%s: does not say how to write it: %v", url, err)
			}
		}
	}
}

// TestDatabaseURLWithUnknownParameter checks that a part of a password after a & does not appear
// in the error.
func TestDatabaseURLWithUnknownParameter(t *testing.T) {
	d := onServer(t)
	_, err := sqlstore.Open(t.Context(), sqlstore.Config{URL: d.config.URL + "&SECRET=1"})
	if !errors.Is(err, sqlstore.ErrUnusable) || strings.Contains(strings.ToUpper(err.Error()), "SECRET") || !strings.Contains(err.Error(), "percent-encode") {
		t.Error(err)
	}
}
