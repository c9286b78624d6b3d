package keys_test

import (
	"context"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

var ctx = context.Background()

func text(s string) keyserver.Message { return strings.NewReader(s) }

func noMAC() (mac [keyserver.MACSize]byte) { return mac }

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
