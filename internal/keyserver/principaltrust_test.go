package keyserver_test

import (
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func TestTrustFlags(t *testing.T) {
	for _, f := range keyserver.TrustFlags {
		if got, ok := keyserver.ParseTrustFlag(f.Label()); !ok || got != f {
			t.Errorf("%q is read as %v", f.Label(), got)
		}
	}
	for _, word := range []string{"", "Restrict", "allow", "1"} {
		if f, ok := keyserver.ParseTrustFlag(word); ok {
			t.Errorf("%q is read as %v", word, f)
		}
	}
}
