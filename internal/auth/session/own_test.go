package session

import (
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// TestIsOwn checks that only a session with all rights of its principal has own objects.
func TestIsOwn(t *testing.T) {
	me, other := values.IDFromUint64(1), values.IDFromUint64(2)
	plain := keyserver.Caller{Principal: keyserver.PrincipalRef{ID: me}}
	delegated, scoped := plain, plain
	delegated.Actor.ID = other
	scoped.Scope = []keyserver.HiddenLink{"a"}
	for name, tc := range map[string]struct {
		by        keyserver.Caller
		principal keyserver.ID
		want      bool
	}{
		"Own": {plain, me, true}, "Other": {plain, other, false}, "Delegated": {delegated, me, false}, "Scoped": {scoped, me, false},
		"NoPrincipal": {keyserver.Caller{}, keyserver.ID{}, false},
	} {
		if got := isOwn(tc.by, tc.principal); got != tc.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
