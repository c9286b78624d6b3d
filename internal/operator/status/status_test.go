package status

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
)

// cacheOf is a client whose cache has one version of each object, or none if version is empty.
type cacheOf struct {
	client.Client
	version string
}

func (c cacheOf) Get(_ context.Context, at client.ObjectKey, to client.Object, _ ...client.GetOption) error {
	if c.version == "" {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "roles"}, at.Name)
	}
	to.SetResourceVersion(c.version)
	return nil
}

// TestNothingToWriteIsSaidOfTheNewestVersion checks that another pass is required if the cache has a newer version,
// because that version may cause no event.
func TestNothingToWriteIsSaidOfTheNewestVersion(t *testing.T) {
	read := &v1beta1.Role{}
	read.Name, read.ResourceVersion = "a", "99"
	for version, want := range map[string]bool{
		"100":              false,
		"99":               true,
		"98":               true, // the read version is newer: it came in the response of a write
		"":                 true, // deleted: the deletion causes an event
		"of another store": false,
	} {
		written, err := Patch(t.Context(), cacheOf{version: version}, read, read.DeepCopy())
		if err != nil || written != want {
			t.Errorf("the cache has version %q: %v, %v", version, written, err)
		}
	}
	read.ResourceVersion = "of another store"
	if written, err := Patch(t.Context(), cacheOf{version: read.ResourceVersion}, read, read.DeepCopy()); err != nil || !written {
		t.Errorf("versions without an order: %v, %v", written, err)
	}
}
