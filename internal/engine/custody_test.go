package engine_test

import (
	"errors"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// TestRotateDataKey checks that only one rotation of the data key runs at a time, and that existing keys still work.
func TestRotateDataKey(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		made, err := f.RotateDataKey(t.Context(), f.Admin)
		if err != nil {
			t.Fatal(err)
		}
		c, err := f.Custody(t.Context(), f.Admin)
		if err != nil || len(c.DataKeys) != 2 || c.DataKeys[1].ID != made || c.DataKeys[1].State != keyserver.DataKeyActive || c.Rewrap.Total == 0 {
			t.Errorf("got %+v, %v", c, err)
		}
		if _, err := f.RotateDataKey(t.Context(), f.Admin); !errors.Is(err, fault.New(fault.RewrapRunning, "")) {
			t.Errorf("while the one before is retiring: %v", err)
		}
	})
}
