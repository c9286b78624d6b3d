package approval

import (
	"slices"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// TestEveryKindOfSubject checks that each kind of object can be read, and has a description.
func TestEveryKindOfSubject(t *testing.T) {
	for _, kind := range keyserver.SubjectKinds {
		if subjectReaders[kind] == nil || descriptions[kind] == "" {
			t.Errorf("%s cannot be looked at, or has no description", kind)
		}
	}
	for kind := range subjectReaders {
		if !slices.Contains(keyserver.SubjectKinds, kind) {
			t.Errorf("%s is no kind", kind)
		}
	}
}
