package pgtest

import (
	"context"
	"testing"
)

// Template is Copy without the copy.
func Template(t testing.TB, name string, fill func(ctx context.Context, url string) error) error {
	t.Helper()
	return fastOne(t).template(name, fill)
}
