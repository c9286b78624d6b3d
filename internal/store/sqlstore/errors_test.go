package sqlstore_test

import (
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// TestDriverErrorsAreOneLine uses two hosts, because the driver writes one indented line
// per attempt.
func TestDriverErrorsAreOneLine(t *testing.T) {
	_, err := sqlstore.Open(t.Context(), sqlstore.Config{URL: "postgres://user@127.0.0.1:1,127.0.0.1:2/db?sslmode=prefer"})
	if err == nil || !keyserver.Printable(err.Error()) {
		t.Errorf("%q", err)
	}
}
