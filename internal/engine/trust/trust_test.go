package trust_test

import (
	"context"
	"testing"
)

var ctx = context.Background()

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
